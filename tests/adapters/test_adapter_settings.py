"""What an adapter's files may say: plain names and numbers that fit the model; anything else is refused by name."""

import json
import shutil
from pathlib import Path

import pytest

from hf_gpt.adapters import HEAD_CONFIG, load_adapter, load_adapters
from hf_gpt.hub.checks import adapter_problems

# peft 0.21 asks transformers 5.23 under an old name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

# What is refused in `adapter_config.json` without the model.
FOREIGN = [
    {"target_modules": "(.*.*)*!"},
    {"target_modules": ["c_attn", "([a-z_.0-9]+)+!"]},
    {"exclude_modules": ".*"},
    {"modules_to_save": ["(a|a)*b"]},
    {"layers_pattern": "(h+)+", "layers_to_transform": [0]},
    {"rank_pattern": {"(.*.*)*!": 3}},
    {"alpha_pattern": {"(.*.*)*!": 3}},
    {"init_lora_weights": "pissa_niter_1000000"},
    {"init_lora_weights": "eva"},
    {"loftq_config": {"loftq_bits": 4}},
    {"layer_replication": [[0, 1000000]]},
    {"r": 1 << 31},
]


def with_settings(source: Path, target: Path, name: str, settings: dict) -> str:
    """A copy of an adapter of which one file says something else."""
    shutil.copytree(source, target)
    path = target / name
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return str(target)


@pytest.mark.parametrize(
    "settings", FOREIGN, ids=lambda settings: f"{'-'.join(settings)}-{next(iter(settings.values()))}"
)
def test_settings_that_no_adapter_of_ours_has(saved_adapters, settings, tmp_path):
    source, name = saved_adapters["lora", "classification"], next(iter(settings))
    folder = with_settings(source, tmp_path / "adapter", "adapter_config.json", settings)
    for load in (
        lambda: load_adapter(folder),
        lambda: load_adapters({"first": str(source), "second": folder}),
    ):
        with pytest.raises(ValueError, match=f"{folder}.*is refused: .*{name}"):
            load()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank_pattern": {"c_attn": "3"}}, "rank_pattern of c_attn is 3"),
        ({"r": 100000}, "r is 100000; for this model it is at least 1 and at most 128"),
        ({"r": "abc"}, "adapter_config.json: r must be a int"),
        ({"lora_dropout": "a"}, "adapter_config.json: lora_dropout must be a float"),
        ({"peft_type": ["LORA"]}, "is an adapter of the method"),
        ({"auto_mapping": [1]}, "adapter_config.json: auto_mapping must be"),
        ({"target_modules": ["attn"]}, "what adapter_config.json says fits neither"),
        ({"base_model_name_or_path": None}, "no base model"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_settings_that_do_not_fit(saved_adapters, settings, message, tmp_path):
    source = saved_adapters["lora", "classification"]
    folder = with_settings(source, tmp_path / "adapter", "adapter_config.json", settings)
    with pytest.raises(ValueError, match=f"{folder}.*{message}"):
        load_adapter(folder)


def test_settings_that_are_plain(saved_adapters):
    for folder in saved_adapters.values():
        assert adapter_problems(json.loads((folder / "adapter_config.json").read_text())) == []
    plain = {"init_lora_weights": "gaussian", "target_modules": "c_attn", "lora_alpha": 4, "lora_dropout": 0}
    assert adapter_problems(plain | {"rank_pattern": {"h.0.attn.c_attn": 3}, "layers_to_transform": [0, 1]}) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"n_layer": 1_000_000},
        {"num_labels": 1 << 31},
        {"architectures": []},
        {"architectures": [["a"]]},
        {"n_embd": "x"},
    ],
    ids="-".join,
)
def test_head_config_that_is_damaged(saved_adapters, settings, tmp_path):
    if "num_labels" in settings:
        settings = {"id2label": None, "label2id": None} | settings
    folder = with_settings(saved_adapters["lora", "classification"], tmp_path / "adapter", HEAD_CONFIG, settings)
    with pytest.raises(ValueError, match=f"{HEAD_CONFIG}: .*{list(settings)[-1]}"):
        load_adapter(folder)
