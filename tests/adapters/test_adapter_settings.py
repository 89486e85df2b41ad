"""What an adapter's files may say and hold: plain names and numbers that fit the model; the rest is refused."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_gpt.adapters import HEAD_CONFIG, check_adapter, is_plain, load_adapter

LORA_A = "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"
# What `adapter_config.json` must not say, and part of the error.
NEVER = {"target_modules": "(.*.*)*!", "exclude_modules": ".*", "modules_to_save": ["(a|a)*b"], "r": 1 << 31}
NEVER |= {"layers_pattern": "(h+)+", "rank_pattern": {"(.*.*)*!": 3}, "loftq_config": {"loftq_bits": 4}}
NEVER |= {"init_lora_weights": "pissa_niter_1000000", "layer_replication": [[0, 1000000]]}
SETTINGS = [
    *(({name: value}, f"is refused: .*{name}") for name, value in NEVER.items()),
    ({"r": 100000}, r"wrong shape: .*\[4, 32\], not \[100000, 32\]"),
    ({"rank_pattern": {"c_attn": 3}}, "wrong shape"),
    ({"target_modules": ["attn"]}, "Target module"),
    ({"target_modules": ["c_attn"]}, "does not ask for"),
    ({"trainable_token_indices": [5, 1000, 2]}, "trainable_token_indices are not all within"),
    ({"r": "abc"}, "adapter_config.json: r must be a int"),
    ({"lora_dropout": "a"}, "adapter_config.json: lora_dropout must be a float"),
    ({"peft_type": ["LORA"]}, "is an adapter of the method"),
    ({"auto_mapping": [1]}, "adapter_config.json: auto_mapping must be"),
]
HEADS = [
    ({"n_layer": 1_000_000}, "n_layer"),
    ({"id2label": None, "label2id": None, "num_labels": 1 << 31}, "num_labels"),
    ({"architectures": []}, "architectures"),
    ({"n_embd": 64}, "wrong shape"),
    ({"n_head": None}, HEAD_CONFIG),
]
# What becomes of the tensors of `adapter_model.safetensors`.
WEIGHTS = [
    (lambda tensors: {name: tensor for name, tensor in tensors.items() if name != LORA_A}, f"lacks {LORA_A}"),
    (lambda tensors: tensors | {"more": torch.ones(3)}, "does not ask for: more"),
    (lambda tensors: tensors | {LORA_A: tensors[LORA_A][:2]}, "wrong shape"),
    (lambda tensors: tensors | {LORA_A: tensors[LORA_A] / 0}, f"{LORA_A} holds .* NaN or infinite"),
    (lambda tensors: tensors | {LORA_A: tensors[LORA_A].int()}, f"{LORA_A} holds torch.int32"),
    (lambda tensors: None, "no adapter_model.safetensors"),
]


def name_of(value):
    return "-".join(value) if isinstance(value, dict) else None


@pytest.fixture
def adapter(saved_lora, tmp_path):
    """A copy of an adapter."""
    return Path(shutil.copytree(saved_lora, tmp_path / "adapter"))


def assert_refused(folder, message):
    for load in (check_adapter, load_adapter):
        with pytest.raises(ValueError, match=f"(?s){re.escape(str(folder))}.*{message}"):
            load(folder)


@pytest.mark.parametrize(
    ("file", "settings", "message"),
    [("adapter_config.json", *case) for case in SETTINGS] + [(HEAD_CONFIG, *case) for case in HEADS],
    ids=name_of,
)
def test_settings_that_do_not_fit(adapter, file, settings, message):
    path = adapter / file
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    assert_refused(adapter, message)


@pytest.mark.parametrize(("change", "message"), WEIGHTS, ids=[message[:12] for _, message in WEIGHTS])
def test_weights_that_do_not_fit(adapter, hf_gpt, change, message):
    flags = ("push_to_hub", adapter, "--repo_id", "me/questions", "--base_model", "me/base", "--dry_run")
    assert hf_gpt(*flags)[0] == 0
    path = adapter / "adapter_model.safetensors"
    tensors = change(load_file(path))
    path.unlink() if tensors is None else save_file(tensors, path)
    assert_refused(adapter, message)
    assert hf_gpt(*flags)[0] == 2


def test_plain_settings_pass():
    plain = {"init_lora_weights": "gaussian", "target_modules": "c_attn", "lora_alpha": 4, "lora_dropout": 0}
    plain |= {"rank_pattern": {"h.0.attn.c_attn": 3}, "layers_to_transform": [0, 1]}
    assert all(is_plain(*setting) for setting in plain.items())
