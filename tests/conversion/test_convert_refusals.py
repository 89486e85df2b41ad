"""`scripts/convert.py`: a clear refusal of what cannot be read, and nothing is overwritten unasked."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import OpenAIGPTLMHeadModel

from ..support.golden import CARRIED
from ..support.stock_models import Trap, stock_model

REPOSITORY = Path(__file__).resolve().parents[2]
RELEASE = CARRIED / "tiny_seed0" / "checkpoint"
PLAIN = ("--no_tokenizer",)


def with_weights(**changes):
    """Other tensors, or none, of the transformer's first block."""

    def change(folder):
        state = load_file(folder / "model.safetensors")
        state |= {f"transformer.h.0.{name.replace('__', '.')}": tensor for name, tensor in changes.items()}
        kept = {name: tensor for name, tensor in state.items() if tensor is not None}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def truncated(size):
    def change(folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:size])

    return change


def write_bin(folder, content):
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")


def with_config(**values):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


WHOLE = torch.ones(32)
DAMAGE = {
    "truncated": (truncated(5000), "model.safetensors: "),
    "empty": (truncated(0), "model.safetensors: "),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors and pytorch_model.bin"),
    "missing tensor": (with_weights(ln_2__bias=None), "lacks h.0.ln_2.bias"),
    "extra tensor": (with_weights(ln_7__bias=WHOLE), "holds what its configuration does not ask for: h.0.ln_7.bias"),
    "wrong shape": (with_weights(ln_1__bias=WHOLE[:3]), "arrays of a wrong shape: h.0.ln_1.bias [3], not [32]"),
    "not a number": (with_weights(ln_1__bias=WHOLE / 0), "h.0.ln_1.bias holds 32 numbers that are NaN or infinite"),
    "integers": (with_weights(ln_1__bias=WHOLE.int()), "holds torch.int32"),
    "bin of code": (lambda folder: write_bin(folder, {"a": Trap(folder.parent / "sprung")}), "pytorch_model.bin: "),
    "bin of numbers": (lambda folder: write_bin(folder, [1, 2]), "something else than tensors by name"),
    "no json": (lambda folder: (folder / "config.json").write_text("{"), "not valid JSON"),
    "another model": (with_config(model_type="bert"), "type 'bert'; hf_gpt, openai-gpt and gpt2"),
    "another head": (with_config(architectures=["OpenAIGPTForTokenClassification"]), "--head causal-lm takes"),
    "wrong field": (with_config(n_embd="wide"), "config.json"),
    "nothing at all": (lambda folder: [path.unlink() for path in folder.iterdir()], "Found: nothing"),
    "something else": (
        lambda folder: (folder / "config.json").rename(folder / "notes.txt"),
        "Looked for: params_shapes.json",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_checkpoints(name, tmp_path, convert):
    damage, message = DAMAGE[name]
    folder = tmp_path / "a"
    stock_model(OpenAIGPTLMHeadModel).save_pretrained(folder)
    damage(folder)
    status, printed = convert(folder, tmp_path / "b", *PLAIN)
    assert status == 2
    assert message in printed
    assert str(folder) in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


@pytest.mark.parametrize(
    ("source", "flags", "message"),
    [
        ("no such folder", (), "no such file or folder"),
        ("nobody/nothing", (), "its cache holds no copy"),
        (RELEASE / "params_0.npy", (), "name the folder"),
        (RELEASE, ("--to", "tf-release", "--special_tokens", "keep", "--n_head", 4), "holds no rows"),
        (RELEASE, ("--n_positions", 41, "--n_head", 4), "n_positions is 41"),
        (REPOSITORY / "model_cards" / "gpt-mini", ("--n_head", 4), "says how many heads"),
        (REPOSITORY / "model_cards" / "gpt-mini", ("--n_positions", 5000), "--n_positions 5000"),
    ],
)
def test_wrong_arguments(source, flags, message, tmp_path, convert):
    status, printed = convert(source, tmp_path / "b", *flags, *PLAIN)
    assert status == 2
    assert message in printed
    assert not (tmp_path / "b").exists()


def test_output_is_kept_unless_it_may_be_replaced(tmp_path, convert, converted):
    output = tmp_path / "out"
    output.mkdir()
    converted(RELEASE, output, "--n_head", 4, *PLAIN)
    before = (output / "model.safetensors").read_bytes()
    broken = Path(shutil.copytree(RELEASE, tmp_path / "broken"))
    (broken / "params_3.npy").write_bytes(b"")
    for source, flags, message in (
        (RELEASE, (), "give --overwrite"),
        (broken, ("--overwrite",), "params_3.npy"),
        (output, ("--overwrite",), "holds the source"),
    ):
        status, printed = convert(source, output, "--n_head", 4, *PLAIN, *flags)
        assert status == 2
        assert message in printed
        assert (output / "model.safetensors").read_bytes() == before
    (output / "left over").write_text("")
    converted(RELEASE, output, "--n_head", 4, "--seed", 7, "--overwrite", *PLAIN)
    assert (output / "model.safetensors").read_bytes() != before
    assert not (output / "left over").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "out"]
