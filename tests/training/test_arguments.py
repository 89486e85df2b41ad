"""Numbers outside their range are refused before anything is read; bfloat16 on a CPU."""

import dataclasses
import re

import pytest
import torch

from hf_gpt import FineTuningArguments, GPTConfig
from hf_gpt.commands import parse_arguments
from hf_gpt.files.ranges import RANGES, check_ranges
from hf_gpt.training.pretraining import PretrainingArguments

from ..support.runs import REPOSITORY

# By flag, numbers inside its range and outside.
NUMBERS = {
    "max_train_rows": ([1, 5], [0, -3]),
    "n_positions": ([2], [1, -5]),
    "lm_coef": ([0, 0.5], [-5]),
    "logging_steps": ([0.1, 3], [0, -1]),
    "dropout": ([0, 0.5], [1, -0.1]),
    "seed": ([0, 7], [-1]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_outside_their_range(name):
    kind, (inside, outside) = dataclasses.make_dataclass("Flags", [name]), NUMBERS[name]
    for value in (*inside, None, "auto"):
        check_ranges(kind(value))
    for value in (*outside, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"^--{name} {value}: the number must be [^\n]*$"):
            check_ranges(kind(value))


def test_every_range_is_that_of_a_flag():
    sources = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "hf_gpt").rglob("*.py")]
    fields = set(re.findall(r"^    (\w+): ", "\n".join(sources), re.MULTILINE))
    assert RANGES.keys() <= fields | FineTuningArguments.__dataclass_fields__.keys()
    assert {RANGES[name] for name in NUMBERS} == set(RANGES.values())


@pytest.mark.parametrize("settings", [{"resid_pdrop": 1}, {"lm_coef": float("nan")}, {"n_head": 5}], ids=str)
def test_settings_of_a_saved_configuration_are_checked(settings, tiny_config, tmp_path):
    tiny_config().save_pretrained(tmp_path)
    for more in ({}, {"return_unused_kwargs": True}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            GPTConfig.from_pretrained(tmp_path, **more, **settings)


@pytest.mark.parametrize("kind", [FineTuningArguments, PretrainingArguments])
def test_bf16_alone_is_enough_on_a_cpu(kind, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    (args,) = parse_arguments((kind,), ["--output_dir", "unused", "--bf16", "true"])
    assert args.use_cpu
    assert args.mixed_precision == "bf16"
    assert not parse_arguments((kind,), ["--output_dir", "unused"])[0].use_cpu
