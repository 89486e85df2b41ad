"""OpenAI's TensorFlow files of GPT-2, whole and damaged."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer, GPT2LMHeadModel, GPT2Tokenizer

from hf_gpt.conversion.tensorflow_bundle import INDEX, PREFIX, SIZES

from ..support.stock_models import save_gpt2

DATA = "model.ckpt.data-00000-of-00001"


def their_arrays(model: GPT2LMHeadModel) -> dict[str, np.ndarray]:
    """The variables of OpenAI's code with the values of a stock model."""
    arrays = {}
    for name, value in model.transformer.state_dict().items():
        parts = name.replace("h.", "h", 1).split(".") if name.startswith("h.") else name.split(".")
        ending = {"weight": "g" if parts[-2].startswith("ln") else "w", "bias": "b"}[parts[-1]]
        parts = parts[:-1] if parts[0] in ("wte", "wpe") else [*parts[:-1], ending]
        is_matrix = value.ndim == 2 and ending == "w" and parts[0] not in ("wte", "wpe")
        arrays["/".join(["model", *parts])] = (value[None] if is_matrix else value).numpy()
    return arrays


def save_sizes(model: GPT2LMHeadModel, tokenizer: GPT2Tokenizer, folder: Path) -> None:
    """`hparams.json`, `encoder.json` and `vocab.bpe`."""
    config = model.config
    sizes = {"n_vocab": config.vocab_size, "n_ctx": config.n_positions, "n_embd": config.n_embd}
    (folder / SIZES).write_text(json.dumps(sizes | {"n_head": config.n_head, "n_layer": config.n_layer}))
    learnt = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    (folder / "encoder.json").write_text(json.dumps(learnt["vocab"]))
    lines = ["#version: 0.2", *map(" ".join, learnt["merges"]), ""]
    (folder / "vocab.bpe").write_text("\n".join(lines), encoding="utf-8")


def save_bundle(model: GPT2LMHeadModel, tokenizer: GPT2Tokenizer, folder: Path) -> None:
    """The files of OpenAI's GPT-2, written by TensorFlow."""
    tensorflow = pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'hf-gpt[tensorflow]'")
    folder.mkdir()
    save_sizes(model, tokenizer, folder)
    names, values = zip(*sorted(their_arrays(model).items()), strict=True)
    tensorflow.raw_ops.SaveV2(
        prefix=str(folder / PREFIX), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A small model's folder `stock`, and `openai` with the same numbers."""
    folder = tmp_path_factory.mktemp("written")
    model = save_gpt2(folder / "stock")
    save_bundle(model, AutoTokenizer.from_pretrained(folder / "stock"), folder / "openai")
    return folder


@pytest.fixture
def bundle(written, tmp_path):
    """A copy of `openai`."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path / "openai"


def test_same_as_stock(bundle, tmp_path, converted):
    assert "is OpenAI's TensorFlow files of GPT-2" in converted(bundle, tmp_path / "ours")
    converted(tmp_path / "ours", tmp_path / "again", "--to", "gpt2")
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "stock" / name).read_bytes(), name
    assert (tmp_path / "again" / "vocab.json").read_bytes() == (bundle / "encoder.json").read_bytes()
    assert (tmp_path / "again" / "merges.txt").read_bytes() == (bundle / "vocab.bpe").read_bytes()


@pytest.mark.parametrize("name", [INDEX, DATA])
@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:-4],
        lambda whole: b"x" * 100,
        lambda whole: whole[:40] + b"\x55" + whole[41:],
        lambda whole: None,
    ],
    ids=["truncated", "other", "flipped", "missing"],
)
def test_damaged_files(name, damage, bundle, tmp_path, convert):
    content = damage((bundle / name).read_bytes())
    (bundle / name).unlink() if content is None else (bundle / name).write_bytes(content)
    status, printed = convert(bundle, tmp_path / "ours")
    assert (status, printed.count("Traceback"), INDEX in printed) == (2, 0, True)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_layer": 3}, "lacks h.2."),
        ({"n_layer": 1}, "does not ask for: h.1."),
        ({"n_embd": 34}, "shape"),
        ({"n_embd": 1 << 40}, "n_embd"),
    ],
)
def test_sizes_that_do_not_fit(changes, message, bundle, tmp_path, convert):
    sizes = json.loads((bundle / SIZES).read_text())
    (bundle / SIZES).write_text(json.dumps(sizes | changes))
    assert message in convert(bundle, tmp_path / "ours")[1]


def test_without_tensorflow(tmp_path, convert, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    model, folder = save_gpt2(tmp_path / "stock"), tmp_path / "openai"
    folder.mkdir()
    save_sizes(model, AutoTokenizer.from_pretrained(tmp_path / "stock"), folder)
    (folder / INDEX).touch()
    status, printed = convert(folder, tmp_path / "ours")
    assert status == 2
    assert "pip install 'hf-gpt[tensorflow]'" in printed
    (folder / SIZES).write_text(json.dumps({"n_layer": 1}))
    assert "n_vocab" in convert(folder, tmp_path / "ours")[1]
