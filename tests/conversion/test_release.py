"""The OpenAI release: its sizes, and a clear refusal of every file that is not the release's."""

import json
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_gpt import GPTForSequenceClassification
from hf_gpt.conversion.release import BLOCK_ARRAYS, load_release, read_release, write_release

from ..support.golden import BUNDLED
from ..support.stock_models import Trap

CHECKPOINT = BUNDLED / "tiny_seed0" / "checkpoint"
PIECES = [f"params_{index}.npy" for index in range(10)]
SHAPES = json.loads((CHECKPOINT / "params_shapes.json").read_text())


@pytest.fixture
def release(tmp_path):
    """A copy of the small release."""
    return Path(shutil.copytree(CHECKPOINT, tmp_path / "release"))


def test_sizes_and_new_rows_and_head(tmp_path):
    """A release of 4 positions, 6 tokens, width 512 and one block, of random numbers."""
    block = [[1] * (len(sizes) == 2) + [size * 512 for size in sizes] for _, sizes in BLOCK_ARRAYS.values()]
    shapes, generator = [[4, 512], [6, 512], *block], np.random.default_rng(0)
    write_release(tmp_path, dict(enumerate(generator.standard_normal(shape, np.float32) for shape in shapes)))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, same, other = (load_release(tmp_path, GPTForSequenceClassification, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected), "loading must not use up the caller's random numbers"
    config = first.config
    assert (config.n_positions, config.vocab_size, config.n_embd, config.n_layer, config.n_head) == (4, 10, 512, 1, 8)
    assert [config.bos_token_id, *config.task_token_ids, config.pad_token_id] == [6, 6, 7, 8, 9]
    assert config.untrained_token_ids == [6, 7, 8]
    assert load_release(tmp_path).generation_config.suppress_tokens == [6, 7, 8, 9]
    assert first.score.weight.shape == (2, 512)
    assert not first.score.bias.any()
    for rows in (lambda model: model.transformer.embed_tokens.weight[6:9], lambda model: model.score.weight):
        assert rows(first).std().item() == pytest.approx(0.02, rel=0.1)
        assert torch.equal(rows(first), rows(same))
        assert not torch.isclose(rows(first), rows(other)).all(-1).any()
    assert not first.transformer.embed_tokens.weight[9].any()


# Of the list of shapes: its text or content; of a piece: what becomes of its array.
WRONG_SHAPES = {
    "not-json": ("[[40, 48], [211", "not valid JSON"),
    "list-of-numbers": ([40, 48] * 19, "must be a list of array shapes"),
    "negative": ([[-40, 48], *SHAPES[1:]], "must be a list of array shapes"),
    "part-of-a-block": (SHAPES[:-1], "12 arrays per block"),
    "widths-differ": ([[40, 32], *SHAPES[1:]], r"begins with \[\[40, 32\], \[211, 48\]\]"),
    "array-of-another-width": (
        [*SHAPES[:14], [1, 64, 144], *SHAPES[15:]],
        r"array 14 \(block 1, attn/c_attn/w\) has the shape \[1, 64, 144\]; expected \[1, 48, 144\]",
    ),
    "arrays-out-of-order": ([*SHAPES[:2], SHAPES[3], SHAPES[2], *SHAPES[4:]], r"array 2 \(block 0, attn/c_attn/w\)"),
}
WRONG_ARRAYS = {
    "shorter": (lambda piece: piece[:-1], r"one flat array of [0-9,]* float32 .* float32 with the shape"),
    "integers": (lambda piece: piece.astype(np.int32), "and is one of int32"),
    "nan": (lambda piece: np.where(np.arange(len(piece)) == 7, np.float32(np.nan), piece), "NaN or infinite"),
}


@pytest.mark.parametrize("name", ["params_shapes.json", PIECES[0], PIECES[9], *WRONG_SHAPES, *WRONG_ARRAYS])
def test_wrong_files(release, name):
    path = release / "params_6.npy"
    if name in WRONG_SHAPES:
        path, (content, message) = release / "params_shapes.json", WRONG_SHAPES[name]
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    elif name in WRONG_ARRAYS:
        change, message = WRONG_ARRAYS[name]
        np.save(path, change(np.load(path)))
    else:
        path, message = release / name, ""
        path.unlink()
    with pytest.raises((ValueError, FileNotFoundError), match=f"{re.escape(str(path))}.*{message}"):
        read_release(release)


def test_pickles_are_refused_unread(release, tmp_path):
    sprung = tmp_path / "sprung"
    path = release / "params_0.npy"
    np.save(path, np.array([Trap(sprung)], dtype=object), allow_pickle=True)
    for content in (path.read_bytes(), pickle.dumps(Trap(sprung))):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=re.escape(str(path))):
            load_release(release, n_head=4)
        assert not sprung.exists()
    pickle.loads(content).close()
    assert sprung.exists(), "the trap springs where pickles are read"
