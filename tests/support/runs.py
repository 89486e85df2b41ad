"""Fine-tuning runs for tests: a tiny model, runs in this process, in a process of their own, and by the launcher."""

import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from hf_gpt import GPTConfig, GPTForCausalLM
from hf_gpt.commands import parse_arguments
from hf_gpt.training.arguments import (
    DataArguments,
    FineTuningArguments,
    ModelArguments,
)
from hf_gpt.training.finetune import run
from hf_gpt.training.packing import TextArguments
from hf_gpt.training.pretraining import PretrainingArguments, ShapeArguments, pretrain
from hf_gpt.training.trainer import checkpoints_in

REPOSITORY = Path(__file__).resolve().parents[2]
ARGUMENTS = (ModelArguments, DataArguments, FineTuningArguments)


def save_tiny_model(folder: Path) -> Path:
    """A random language model of width 32 with the tokenizer of gpt-mini."""
    tokenizer = AutoTokenizer.from_pretrained(REPOSITORY / "model_cards" / "gpt-mini")
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=len(tokenizer),
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=tokenizer.bos_token_id,
        start_token_id=tokenizer.bos_token_id,
        delimiter_token_id=tokenizer.sep_token_id,
        classify_token_id=tokenizer.cls_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    GPTForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def pretraining(*flags) -> dict:
    """One run of pretraining in this process, of a step; the last of repeated flags counts."""
    common = ["--use_cpu", "true", "--disable_tqdm", "true", "--save_strategy", "no", "--eval_strategy", "no"]
    common += ["--per_device_train_batch_size", 2, "--validation_rows", 5, "--max_steps", 1]
    kinds = (TextArguments, ShapeArguments, PretrainingArguments)
    return pretrain(*parse_arguments(kinds, [str(flag) for flag in [*common, *flags]]))


def finetune(*flags) -> dict:
    """One run in this process; the last of repeated flags counts."""
    defaults = ["--use_cpu", "true", "--disable_tqdm", "true", "--num_train_epochs", "1", "--logging_steps", "1"]
    return run(*parse_arguments(ARGUMENTS, [*defaults, *map(str, flags)]))


def finetune_logged(log: Path, flags: tuple) -> None:
    """One run whose output goes to a file."""
    torch.set_num_threads(1)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        finetune(*flags)


def start_run(log: Path, *flags) -> multiprocessing.Process:
    """A run in a process of its own, forked from one that has imported everything: it starts at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=finetune_logged, args=(log, flags))
    process.start()
    return process


def launch_command(configuration: str | None, *flags) -> list[str]:
    """`accelerate launch scripts/finetune.py` as a user would type it; without a configuration, one CPU process."""
    command = [sys.executable, "-m", "accelerate.commands.launch"]
    if configuration is None:
        command += ["--cpu", "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no"]
        command += ["--dynamo_backend", "no"]
    else:
        command += ["--config_file", f"scripts/configs/accelerate/{configuration}.yaml"]
    return [*command, "scripts/finetune.py", *map(str, flags)]


def start_launch(log: Path, command: list[str], **environment: str) -> subprocess.Popen:
    """A launched command, its output in a file."""
    with log.open("w") as file:
        return subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def kill_launch(process: subprocess.Popen) -> None:
    """SIGKILL for a launcher and for its workers, which have process groups of their own, all at once."""
    launcher = psutil.Process(process.pid)
    family = [launcher, *launcher.children(recursive=True)]
    for member in family:
        member.suspend()
    for member in family:
        member.kill()
    psutil.wait_procs(family, timeout=60)
    process.wait()


def wait_for_moment(moment: str, output: Path, alive, chance: random.Random) -> bool:
    """
    Wait until a run comes to a moment; False if it ended before.

    Args:
        moment (`str`): `saving` (while a checkpoint is written), `saved` (when one is whole and older ones go) or
            `any`.
    """
    known = set(checkpoints_in(output)) if moment == "saved" else set()
    deadline = time.monotonic() + (chance.uniform(0.1, 2.5) if moment == "any" else 300)
    while time.monotonic() < deadline:
        if not alive():
            return False
        if moment == "saving" and {*output.glob("checkpoint-*")} - {*checkpoints_in(output).values()}:
            break
        if moment == "saved" and set(checkpoints_in(output)) - known:
            break
        time.sleep(0.0005)
    if moment != "any":
        time.sleep(chance.uniform(0, 0.02))
    return alive()


def finish(process: subprocess.Popen, log: Path) -> None:
    """Wait for a launched command, which must succeed."""
    assert process.wait(timeout=600) == 0, log.read_text()[-5000:]


def training_lines(checkpoint: Path) -> list[list[float]]:
    """Loss, its terms and the gradient norm of every step before a checkpoint."""
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    terms = ("loss", "task_loss", "lm_loss", "grad_norm")
    return [[line[term] for term in terms] for line in state["log_history"] if "loss" in line]


def assert_same(ours: Path, theirs: Path, compare: Callable[[torch.Tensor, torch.Tensor], bool]) -> None:
    """Two safetensors files agree in every tensor."""
    first, second = load_file(ours), load_file(theirs)
    assert first.keys() == second.keys()
    different = [name for name, value in first.items() if not compare(value, second[name])]
    assert not different


def assert_resumption(flags_of: Callable[[Path], list], folder: Path) -> None:
    """
    A run that goes on from a checkpoint in its middle ends with the bits of one that never stopped; `flags_of` gives
    the flags of a run into a folder.
    """
    flags = ["--max_steps", 4, "--save_strategy", "steps", "--save_steps", 2, "--eval_strategy", "no"]
    flags += ["--load_best_model_at_end", "false", "--save_total_limit", 5, "--dropout", 0.1]
    whole, resumed = folder / "whole", folder / "resumed"
    finetune(*flags_of(whole), *flags)
    shutil.copytree(whole / "checkpoint-2", resumed / "checkpoint-2")
    assert finetune(*flags_of(resumed), *flags, "--resume_from_checkpoint", "last")["resumed"]
    assert_same(whole / "model.safetensors", resumed / "model.safetensors", torch.equal)


def predictions(output: Path) -> list[dict[str, str]]:
    """The rows of a run's predictions.tsv."""
    header, *lines = [line.split("\t") for line in (output / "predictions.tsv").read_text().splitlines()]
    return [dict(zip(header, line, strict=True)) for line in lines]
