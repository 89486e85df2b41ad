"""Numbers outside their range are refused before anything is read, on every command."""

from importlib import import_module

import pytest
import torch

from hf_gpt import GPTConfig
from hf_gpt.commands import parse_arguments
from hf_gpt.commands.analyze import ANALYSES
from hf_gpt.commands.generate import GenerateArguments
from hf_gpt.commands.inspect_text import InspectArguments
from hf_gpt.commands.perplexity import PerplexityArguments
from hf_gpt.evaluation import EvaluationArguments
from hf_gpt.features.shards import FeatureArguments
from hf_gpt.files.ranges import RANGES
from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments, on_precision
from hf_gpt.training.pretraining import PretrainingArguments, ShapeArguments, TextArguments

COMMANDS = {
    "finetune": (ModelArguments, DataArguments, FineTuningArguments),
    "evaluate": (ModelArguments, DataArguments, EvaluationArguments),
    "pretrain": (TextArguments, ShapeArguments, PretrainingArguments),
    "features": (FeatureArguments,),
    "generate": (GenerateArguments,),
    "inspect_text": (InspectArguments,),
    "perplexity": (PerplexityArguments,),
    **{f"analyze {what}": (import_module(f"hf_gpt.commands.analyze.{what}").Arguments,) for what in ANALYSES},
}
# What these commands cannot do without.
NEEDED = {
    "pretrain": ["--text_files", "a.txt", "--tokenizer", "a"],
    "features": ["--model_name_or_path", "a", "--input_files", "a.txt"],
}
OUTSIDE = """
finetune: --dropout 1, --dropout -0.1, --dropout nan, --lm_coef nan, --lm_coef -5, --lm_coef inf, --adapter_size 0
finetune: --max_train_rows -3, --max_train_rows 0, --max_eval_rows 0, --max_length 0, --num_proc 0, --task_rows_cap 0
finetune: --per_device_train_batch_size 0, --per_device_eval_batch_size 0, --gradient_accumulation_steps 0
finetune: --num_train_epochs 0, --num_train_epochs nan, --max_steps 0, --max_steps -2, --logging_steps inf, --seeds 0
finetune: --logging_steps -1, --save_steps 0, --eval_steps 0, --warmup 1, --warmup nan, --layer_decay 0, --seed -1
finetune: --layer_decay 1.5, --learning_rate nan, --learning_rate inf, --learning_rate -1, --weight_decay nan
finetune: --adam_beta1 1, --adam_beta2 -1, --adam_epsilon nan, --max_grad_norm -1, --label_smoothing_factor 1
finetune: --transfer_layers -1, --n_head 0, --warmup_steps -1, --dataloader_num_workers -1, --data_seed -1
evaluate: --max_eval_rows -1, --per_device_eval_batch_size 0, --dropout 2, --eval_accumulation_steps 0, --seed -1
pretrain: --n_positions 0, --n_positions -5, --n_layer 0, --n_embd 0, --n_head 0, --dropout 1, --hold_out_every -1
pretrain: --n_inner 0, --row_length 1
pretrain: --hold_out_every 1, --validation_rows 0, --num_proc 0, --learning_rate nan, --logging_steps nan
features: --rows_per_shard 0, --tokens_per_batch -1, --max_length 0, --n_head 0
"""
CASES = [
    (line.split(":")[0], *case.split())
    for line in OUTSIDE.strip().splitlines()
    for case in line.split(": ")[1].split(", ")
]


def parsed(command, *flags):
    needed = [*NEEDED.get(command, []), "--output_dir", "unused"]
    return parse_arguments(COMMANDS[command], [*needed, *flags])


@pytest.mark.parametrize(("command", "flag", "value"), CASES, ids=[" ".join(case) for case in CASES])
def test_numbers_outside_their_range(command, flag, value):
    with pytest.raises(ValueError, match=f"^{flag} {value}.*: the number must be [^\n]*$"):
        parsed(command, f"{flag}={value}")


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("finetune", ["--dropout", "0", "--lm_coef", "0", "--max_length", "1", "--warmup", "0", "--layer_decay", "1"]),
        ("finetune", ["--max_steps=-1", "--learning_rate", "0", "--logging_steps", "0.1", "--transfer_layers", "0"]),
        ("pretrain", ["--hold_out_every", "0", "--n_positions", "2"]),
        ("evaluate", []),
        ("features", []),
    ],
)
def test_numbers_at_the_ends_of_their_range(command, flags):
    parsed(command, *flags)


def test_every_range_is_that_of_a_flag():
    names = {name for types in COMMANDS.values() for each in types for name in each.__dataclass_fields__}
    assert RANGES.keys() <= names


@pytest.mark.parametrize(
    "settings",
    [{"resid_pdrop": 1}, {"lm_coef": -5.0}, {"lm_coef": float("nan")}, {"n_head": 5}, {"pad_token_id": 99}],
    ids=str,
)
def test_settings_of_a_saved_configuration_are_checked(settings, tiny_config, tmp_path):
    tiny_config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=next(iter(settings))):
        GPTConfig.from_pretrained(tmp_path, **settings)
    with pytest.raises(ValueError, match=next(iter(settings))):
        GPTConfig.from_pretrained(tmp_path, return_unused_kwargs=True, **settings)


@pytest.mark.parametrize("command", ["finetune", "pretrain"])
def test_bf16_alone_is_enough_on_a_cpu(command, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    *_, args = parsed(command, "--bf16", "true")
    assert args.use_cpu
    assert args.mixed_precision == "bf16"
    assert not parsed(command)[-1].use_cpu


@pytest.mark.parametrize(
    ("capabilities", "flags", "says"),
    [
        ({"avx512_bf16": True}, [], "--bf16 true trains faster"),
        ({"amx_bf16": True}, ["--bf16", "true"], None),
        ({"avx2": True}, ["--bf16", "true"], "without --bf16"),
        ({"avx2": True}, [], None),
        ({}, [], None),
    ],
)
def test_what_bfloat16_would_do_on_this_cpu_is_said(capabilities, flags, says, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    line = on_precision(parsed("finetune", "--use_cpu", "true", *flags)[-1])
    assert line is None if says is None else says in line
