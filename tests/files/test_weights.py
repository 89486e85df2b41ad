"""Weights are looked at when they are opened: NaN, infinity and integers are refused with the tensor's name."""

import json

import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file, save_file

from hf_gpt import GPTForCausalLM, GPTForSequenceClassification, load_adapter
from hf_gpt.adapters import HEAD_CONFIG, adapter_config, head_config
from hf_gpt.files.weights import check_tensors
from hf_gpt.hub import push

from ..support.runs import save_tiny_model
from ..support.tiny import build_model

NAME = "transformer.h.1.mlp.c_fc.weight"
COMMANDS = {
    "score": "score --text She",
    "inspect": "inspect-text --text She",
    "generate": "generate --text She",
    "perplexity": "perplexity --text She",
    "features": "extract-features --output_dir OUT --input_files FILE",
    "finetune": "finetune --task questions --output_dir OUT --use_cpu true",
    "pretrain": "pretrain --hold_out_every 0 --text_files FILE --output_dir OUT --use_cpu true",
    "evaluate": "evaluate-task --zero_shot --task stories --output_dir OUT",
    "neurons": "analyze neurons --unit 1 3 --text She --output_dir OUT",
    **{what: f"analyze {what} --text She --output_dir OUT" for what in ("lens", "attention", "ablate", "importance")},
}


def spoil(file, kind, name=None):
    """Make one tensor of a safetensors file what no weights are."""
    tensors = load_file(file)
    name = name or sorted(tensors)[0]
    if kind == "int8":
        tensors[name] = tensors[name].to(torch.int8)
    else:
        tensors[name].view(-1)[1] = float(kind)
    save_file(tensors, file, metadata={"format": "pt"})
    return name


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory):
    """`spoilt(kind)`: a folder with one tensor that is no weights."""
    folders = {}
    for kind in ("nan", "inf", "int8"):
        folders[kind] = save_tiny_model(tmp_path_factory.mktemp("spoilt") / "model")
        spoil(folders[kind] / "model.safetensors", kind, NAME)
    return folders.get


CASES = [*((command, "nan") for command in COMMANDS), ("score", "inf"), ("score", "int8")]


@pytest.mark.parametrize(("command", "kind"), CASES)
def test_every_command_refuses_them(hf_gpt, spoilt, tmp_path, command, kind):
    spoilt = spoilt(kind)
    (tmp_path / "texts.txt").write_text("She opened the door.\n" * 30)
    words = {"OUT": tmp_path / "out", "FILE": tmp_path / "texts.txt"}
    flags = [words.get(word, word) for word in COMMANDS[command].split()]
    status, _, errors = hf_gpt(*flags, "--model_name_or_path", spoilt)
    assert status == 2
    assert f"{spoilt}: {NAME} holds " in errors.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["nan", "int8"])
@pytest.mark.parametrize("command", ["convert", "push-to-hub"])
def test_they_are_neither_converted_nor_pushed(hf_gpt, spoilt, tmp_path, command, kind):
    spoilt = spoilt(kind)
    target = [tmp_path / "out"] if command == "convert" else ["--repo_id", "user/name", "--dry_run"]
    status, _, errors = hf_gpt(command, spoilt, *target)
    assert status == 2
    assert f"{NAME.removeprefix('transformer.' if command == 'convert' else '')} holds" in errors


@pytest.fixture
def adapter(tmp_path):
    """An adapter of LoRA with trained rows, next to its base model."""
    build_model(GPTForCausalLM).save_pretrained(tmp_path / "base")
    model = GPTForSequenceClassification.from_pretrained(tmp_path / "base")
    adapted = get_peft_model(model, adapter_config("lora", model.config, size=2))
    adapted.save_pretrained(tmp_path / "adapter")
    (tmp_path / "adapter" / HEAD_CONFIG).write_text(json.dumps(head_config(adapted)))
    return tmp_path / "adapter"


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:Found missing adapter keys:UserWarning")
@pytest.mark.parametrize("kind", ["nan", "int8", "short", "lacks", "lacks_matrix", "beyond", "gone"])
def test_an_adapter_that_is_damaged_is_refused(adapter, kind):
    file, settings = adapter / "adapter_model.safetensors", adapter / "adapter_config.json"
    named = str(adapter)
    if kind == "short":
        file.write_bytes(file.read_bytes()[:-9])
        named = str(file)
    elif kind == "lacks":
        tensors = load_file(file)
        tensors.pop(next(name for name in tensors if "token_adapter" in name or "embed" in name))
        save_file(tensors, file)
    elif kind == "lacks_matrix":  # which peft draws anew
        tensors = load_file(file)
        tensors.pop(named := next(name for name in tensors if "lora_A" in name))
        save_file(tensors, file)
    elif kind == "beyond":
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"trainable_token_indices": [20, 21, 9999]}))
    elif kind == "gone":
        file.unlink()
    else:
        named = f"{file}: {spoil(file, kind)} holds"
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        load_adapter(adapter)
    assert named in str(caught.value)
    if kind not in ("lacks", "lacks_matrix", "beyond"):
        with pytest.raises(ValueError, match="adapter"):
            push(adapter, "user/name", dry_run=True, base_model="user/base")


def test_large_numbers_are_numbers():
    check_tensors({"a": torch.full((10,), torch.finfo(torch.float32).max)}, "file")
    check_tensors({"a": torch.full((10,), 6e4, dtype=torch.float16)}, "file")
    check_tensors({"h.0.attn.bias": torch.ones(1, 1, 4, 4, dtype=torch.uint8)}, "file")
    with pytest.raises(ValueError, match="file: a holds 1 numbers that are NaN or infinite"):
        check_tensors({"a": torch.tensor([6e4, float("inf"), 6e4], dtype=torch.float16)}, "file")
