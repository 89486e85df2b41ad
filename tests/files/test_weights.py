"""Weights are looked at when they are opened: NaN, infinity and integers are refused with the tensor's name."""

import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_gpt.files.weights import check_tensors

from ..support.runs import save_tiny_model

NAME = "h.1.mlp.c_fc.weight"
COMMANDS = {
    "score": "score --text She",
    "surprisal": "surprisal --text She",
    "generate": "generate --text She",
    "perplexity": "perplexity --text She",
    "features": "extract-features --output_dir OUT --input_files FILE",
    "finetune": "finetune --task questions --output_dir OUT --use_cpu true",
    "pretrain": "pretrain --hold_out_every 0 --text_files FILE --output_dir OUT --use_cpu true",
    "convert": "convert MODEL OUT",
    "push": "push-to-hub MODEL --repo_id user/name --dry_run",
    "evaluate": "evaluate-task --zero_shot --task stories --output_dir OUT",
    "neurons": "analyze neurons --unit 1 3 --text She --output_dir OUT",
    **{what: f"analyze {what} --text She --output_dir OUT" for what in ("lens", "attention", "ablate", "importance")},
}


@pytest.fixture(scope="module")
def corrupted(tmp_path_factory):
    """`corrupted(kind)`: a folder with one tensor that is no weights."""
    folders = {}
    for kind in ("nan", "inf", "int8"):
        folders[kind] = save_tiny_model(tmp_path_factory.mktemp("corrupted") / "model")
        tensors = load_file(file := folders[kind] / "model.safetensors")
        weight = tensors[f"transformer.{NAME}"]
        if kind == "int8":
            tensors[f"transformer.{NAME}"] = weight.to(torch.int8)
        else:
            weight[0, 1] = float(kind)
        save_file(tensors, file, metadata={"format": "pt"})
    return folders.get


OTHERS = ("score", "convert", "push")
CASES = [*((command, "nan") for command in COMMANDS), *((command, "int8") for command in OTHERS), ("score", "inf")]


@pytest.mark.parametrize(("command", "kind"), CASES)
def test_every_command_refuses_them(hf_gpt, corrupted, tmp_path, command, kind):
    (tmp_path / "texts.txt").write_text("She opened the door.\n" * 30)
    words = {"OUT": tmp_path / "out", "FILE": tmp_path / "texts.txt", "MODEL": corrupted(kind)}
    flags = COMMANDS[command] + ("" if "MODEL" in COMMANDS[command] else " --model_name_or_path MODEL")
    status, _, errors = hf_gpt(*(words.get(word, word) for word in flags.split()))
    assert status == 2
    assert re.search(rf"{corrupted(kind)}.*{NAME} holds ", errors.splitlines()[-1])
    assert not (tmp_path / "out").exists()


def test_large_numbers_are_numbers():
    check_tensors({"a": torch.full((10,), torch.finfo(torch.float32).max)}, "file")
    check_tensors({"a": torch.full((10,), 6e4, dtype=torch.float16)}, "file")
    check_tensors({"h.0.attn.bias": torch.ones(1, 1, 4, 4, dtype=torch.uint8)}, "file")
    with pytest.raises(ValueError, match="file: a holds numbers that are NaN or infinite"):
        check_tensors({"a": torch.tensor([6e4, float("inf"), 6e4], dtype=torch.float16)}, "file")
