"""Numbers outside their range are refused on every command before anything is read; bfloat16 on a CPU."""

import dataclasses
from importlib import import_module

import pytest
import torch

from hf_gpt import GPTConfig
from hf_gpt.commands import parse_arguments
from hf_gpt.commands.analyze import ANALYSES
from hf_gpt.commands.generate import GenerateArguments
from hf_gpt.commands.perplexity import PerplexityArguments
from hf_gpt.commands.surprisal import SurprisalArguments
from hf_gpt.evaluation import EvaluationArguments
from hf_gpt.features.shards import FeatureArguments
from hf_gpt.files.ranges import RANGES, check_ranges
from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments
from hf_gpt.training.pretraining import PretrainingArguments, ShapeArguments, TextArguments

COMMANDS = {
    "finetune": (ModelArguments, DataArguments, FineTuningArguments),
    "evaluate": (ModelArguments, DataArguments, EvaluationArguments),
    "pretrain": (TextArguments, ShapeArguments, PretrainingArguments),
    "features": (FeatureArguments,),
    "generate": (GenerateArguments,),
    "perplexity": (PerplexityArguments,),
    "surprisal": (SurprisalArguments,),
    **{f"analyze {what}": (import_module(f"hf_gpt.analysis.{what}").Arguments,) for what in ANALYSES},
}
# What these commands cannot do without.
NEEDED = {
    "pretrain": ["--text_files", "a.txt", "--tokenizer", "a"],
    "features": ["--model_name_or_path", "a", "--input_files", "a.txt"],
}
# By flag, numbers inside its range and outside.
NUMBERS = {
    "max_train_rows": ([1, 5], [0, -3]),
    "n_positions": ([2], [1, -5]),
    "lm_coef": ([0, 0.5], [-5]),
    "logging_steps": ([0.1, 3], [0, -1]),
    "dropout": ([0, 0.5], [1, -0.1]),
    "seed": ([0, 7], [-1]),
}


def parsed(command, *flags):
    return parse_arguments(COMMANDS[command], [*NEEDED.get(command, []), "--output_dir", "unused", *flags])


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_outside_their_range(name):
    kind, (inside, outside) = dataclasses.make_dataclass("Flags", [name]), NUMBERS[name]
    for value in (*inside, None, "auto"):
        check_ranges(kind(value))
    for value in (*outside, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"^--{name} {value}: the number must be [^\n]*$"):
            check_ranges(kind(value))


WRONG = ["finetune --dropout=1", "finetune --learning_rate=nan", "evaluate --dropout=2"]
WRONG += ["pretrain --row_length=1", "pretrain --n_embd=0", "features --tokens_per_batch=-1"]


@pytest.mark.parametrize("wrong", WRONG)
def test_every_command_names_the_flag(wrong):
    command, flag = wrong.split()
    parsed(command)
    with pytest.raises(ValueError, match=f"^{flag.replace('=', ' ')}.*: the number must be "):
        parsed(command, flag)


def test_every_range_is_that_of_a_flag():
    names = {name for types in COMMANDS.values() for each in types for name in each.__dataclass_fields__}
    assert RANGES.keys() <= names
    assert {RANGES[name] for name in NUMBERS} == set(RANGES.values())


@pytest.mark.parametrize(
    "settings",
    [{"resid_pdrop": 1}, {"lm_coef": -5.0}, {"lm_coef": float("nan")}, {"n_head": 5}, {"pad_token_id": 99}],
    ids=str,
)
def test_settings_of_a_saved_configuration_are_checked(settings, tiny_config, tmp_path):
    tiny_config().save_pretrained(tmp_path)
    for more in ({}, {"return_unused_kwargs": True}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            GPTConfig.from_pretrained(tmp_path, **more, **settings)


@pytest.mark.parametrize("command", ["finetune", "pretrain"])
def test_bf16_alone_is_enough_on_a_cpu(command, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    *_, args = parsed(command, "--bf16", "true")
    assert args.use_cpu
    assert args.mixed_precision == "bf16"
    assert not parsed(command)[-1].use_cpu
