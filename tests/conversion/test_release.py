"""The OpenAI release and its fine-tuned parameters (joblib's): sizes, scores, and a clear refusal of other files."""

import json
import pickle
import re
import shutil
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from hf_gpt import GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.conversion.release import BLOCK_ARRAYS, load_release, read_release, release_arrays, write_release
from hf_gpt.conversion.sources import read_arrays

from ..support.golden import BUNDLED, arrays, golden_config, models, roc_inputs
from ..support.stock_models import ROWS, Trap, own_model, write_vocabulary
from .test_convert import PLAIN, assert_same_model

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


@pytest.mark.parametrize("model", models())
@torch.no_grad()
def test_the_recorded_scores(model, tmp_path, converted):
    recorded, variables = golden_config(model)["config"], arrays(model, "params")
    path = tmp_path / "best_params.jl"
    joblib.dump([variables[name] for name in variables["order"]], path)
    flags = ("--n_positions", recorded["n_ctx"], "--n_head", recorded["n_head"], *PLAIN)
    assert "fine-tuned by OpenAI's code" in converted(path, tmp_path / "ours", *flags)
    batch = arrays(model, "roc_eval")
    logits = GPTForMultipleChoice.from_pretrained(tmp_path / "ours")(**roc_inputs(batch)).logits
    np.testing.assert_allclose(logits.numpy(), batch["clf_logits"], atol=1e-5)
    # And on to the stock model and back.
    converted(tmp_path / "ours", tmp_path / "theirs", "--to", "openai-gpt", *PLAIN)
    converted(tmp_path / "theirs", tmp_path / "again", *PLAIN)
    assert_same_model(tmp_path / "ours", tmp_path / "again")


def test_six_classes_and_a_vocabulary(tmp_path, converted):
    source = own_model(GPTForSequenceClassification, num_labels=6)
    state = {name.removeprefix("transformer."): value for name, value in source.state_dict().items()}
    blocks = list(release_arrays(state, 2).values())[2:]
    rows = torch.cat([state["embed_tokens.weight"][: ROWS + 3], state["embed_positions.weight"]]).numpy()
    head = [state["score.weight"].numpy().T, state["score.bias"].numpy()]
    write_vocabulary(tmp_path, "encoder_bpe_40000.json", "vocab_40000.bpe")
    joblib.dump([rows, *blocks, *head], tmp_path / "best_params.jl")
    converted(tmp_path, tmp_path / "ours", "--n_head", 2)
    found = GPTForSequenceClassification.from_pretrained(tmp_path / "ours").state_dict()
    for name, value in source.state_dict().items():
        rows = slice(ROWS + 3) if "embed_tokens" in name else slice(None)
        assert torch.equal(found[name][rows], value[rows]), name
    assert len(AutoTokenizer.from_pretrained(tmp_path / "ours")) == ROWS + 4


def test_parameters_that_do_not_fit(tmp_path, converted):
    variables = arrays("tiny_seed0", "params")
    whole = [variables[name] for name in variables["order"]]
    path = tmp_path / "best_params.jl"
    for content, flags, message in (
        (whole, (), "--n_positions"),
        (whole, ("--n_positions", 235), "do not fit"),
        (whole[:-1], ("--n_positions", 24), "an embedding, 12 per block"),
        ([*whole[:2], whole[3], whole[2], *whole[4:]], ("--n_positions", 24), "block 0, attn/c_attn/b"),
    ):
        joblib.dump(content, path)
        assert message in converted(path, tmp_path / "ours", "--n_head", 4, *flags, *PLAIN, status=2)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_of_joblib(protocol, tmp_path):
    generator = np.random.default_rng(0)
    expected = [
        generator.standard_normal((3, 4)).astype(np.float32),
        np.asfortranarray(generator.standard_normal((2, 5))),
        np.arange(7, dtype=np.int16),
        np.arange(3, dtype=">f4"),
        np.array(2, np.float32),
        np.zeros((0, 3), np.float32),
    ]
    expected.append(expected[0])
    joblib.dump(expected, tmp_path / "arrays.jl", protocol=protocol)
    for ours, theirs in zip(read_arrays(tmp_path / "arrays.jl"), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=theirs.dtype.isnative)


def test_files_that_are_no_arrays_of_joblib(tmp_path):
    joblib.dump([np.ones(5, np.float32)], tmp_path / "good")
    joblib.dump([np.array([Trap(tmp_path / "sprung")], dtype=object)], tmp_path / "objects")
    joblib.dump([np.ones(5, np.float32)], tmp_path / "compressed", compress=3)
    whole, path = (tmp_path / "good").read_bytes(), tmp_path / "broken.jl"
    for content, message in (
        (pickle.dumps([Trap(tmp_path / "sprung")]), r"names .*open, and only arrays of numbers"),
        ((tmp_path / "objects").read_bytes(), "no numbers"),
        (whole[:-8], "EOF: reading array data"),
        (whole[:20], "read as arrays"),
        (b"", "read as arrays"),
        ((tmp_path / "compressed").read_bytes(), "without compression"),
        (b"404: Not Found", "read as arrays"),
        (pickle.dumps({"a": 1}), "something else than a list"),
        (pickle.dumps([1, 2]), "something else than a list"),
        (pickle.dumps([np.float32(1)]), "names numpy"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{message}"):
            read_arrays(path)
        assert not (tmp_path / "sprung").exists(), message
