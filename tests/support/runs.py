"""Fine-tuning runs for tests: a tiny model, runs in this process, in a process of their own, and by the launcher."""

import contextlib
import io
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from hf_gpt import GPT_MINI, GPTConfig, GPTForCausalLM
from hf_gpt.__main__ import main
from hf_gpt.commands import parse_arguments
from hf_gpt.evaluation import EvaluationArguments, evaluate
from hf_gpt.model.configuration_gpt import DROPOUTS
from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments
from hf_gpt.training.finetune import run
from hf_gpt.training.packing import TextArguments
from hf_gpt.training.pretraining import PretrainingArguments, ShapeArguments, pretrain
from hf_gpt.training.trainer import checkpoints_in

REPOSITORY = Path(__file__).resolve().parents[2]
ARGUMENTS = (ModelArguments, DataArguments, FineTuningArguments)
EVALUATION = (ModelArguments, DataArguments, EvaluationArguments)
PRETRAINING = (TextArguments, ShapeArguments, PretrainingArguments)
# No trial, which a busy machine decides: runs are compared bit by bit.
SAME_PRODUCTS = ("--fast_float32", "false")


def save_tiny_model(folder: Path) -> Path:
    """A random language model of width 32 with the tokenizer of gpt-mini."""
    torch.manual_seed(0)
    settings = {"n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_inner": None}
    settings |= {"untrained_token_ids": None} | dict.fromkeys(DROPOUTS, 0.1)
    GPTForCausalLM(GPTConfig.from_pretrained(GPT_MINI, **settings)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(GPT_MINI).save_pretrained(folder)
    return folder


def in_this_process(function: Callable, kinds: tuple, defaults: str, *flags) -> dict:
    """What a command calls, on its flags; the last of repeated ones counts."""
    common = ["--use_cpu", "true", "--disable_tqdm", "true", *SAME_PRODUCTS, *defaults.split()]
    return function(*parse_arguments(kinds, [*common, *map(str, flags)]))


ONE_STEP = "--save_strategy no --eval_strategy no --per_device_train_batch_size 2 --validation_rows 5 --max_steps 1"
pretraining = partial(in_this_process, pretrain, PRETRAINING, ONE_STEP)
finetune = partial(in_this_process, run, ARGUMENTS, "--num_train_epochs 1 --logging_steps 1")
evaluation = partial(in_this_process, evaluate, EVALUATION, "")


def run_command(*words) -> None:
    """`hf-gpt` in this process."""
    sys.argv = ["hf-gpt", *map(str, words)]
    main()


def logged(log: Path, function: Callable, arguments: tuple, environment: dict[str, str]) -> None:
    """A call whose output goes to a file."""
    os.environ |= environment
    torch.set_num_threads(1)
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    function(*arguments)


def start_run(log: Path, *flags, function: Callable = finetune, **environment: str) -> multiprocessing.Process:
    """A run in a process of its own, forked from one that has imported everything: it starts at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "hf_gpt.features.shards"])
    process = context.Process(target=logged, args=(log, function, flags, environment))
    process.start()
    return process


def launch_command(configuration: str, *flags) -> list[str]:
    """`accelerate launch scripts/finetune.py` as a user would type it."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file"]
    command.append(f"scripts/configs/accelerate/{configuration}.yaml")
    return [*command, "scripts/finetune.py", *SAME_PRODUCTS, *map(str, flags)]


def start_launch(log: Path, command: list[str], **environment: str) -> subprocess.Popen:
    """A launched command, its output in a file."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    with log.open("w") as file:
        return subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=file, stderr=subprocess.STDOUT)


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
    """Wait until a run is `saving` a checkpoint or has `saved` one; False if it ended before."""
    known = set(checkpoints_in(output)) if moment == "saved" else set()
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if not alive():
            return False
        if moment == "saving" and {*output.glob("checkpoint-*")} - {*checkpoints_in(output)}:
            break
        if moment == "saved" and set(checkpoints_in(output)) - known:
            break
        time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.02))
    return alive()


def finish(process: subprocess.Popen | multiprocessing.Process, log: Path) -> None:
    """Wait for a launched command, or a run in a process of its own, which must succeed."""
    if isinstance(process, subprocess.Popen):
        status = process.wait(timeout=600)
    else:
        process.join(600)
        status = process.exitcode
    assert status == 0, log.read_text()[-5000:]


def training_log(checkpoint: Path) -> list[dict]:
    """The lines of the log of training before a checkpoint."""
    lines = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    return [line for line in lines if "loss" in line]


def training_lines(checkpoint: Path) -> list[list[float]]:
    """Loss, its terms (0 where there is none) and the gradient norm of every step before a checkpoint."""
    terms = ("loss", "task_loss", "lm_loss", "grad_norm")
    return [[line.get(term, 0.0) for term in terms] for line in training_log(checkpoint)]


def assert_same(ours: Path, theirs: Path) -> None:
    """Two safetensors files hold the same bits."""
    torch.testing.assert_close(load_file(ours), load_file(theirs), rtol=0, atol=0)


def assert_same_parameters(*models: dict[str, torch.Tensor]) -> None:
    """Those of two models agree to 1e-5."""
    # A bias of all keys, or all choices, changes no softmax: its gradient is rounding error, which Adam blows up.
    left_out = ("score.bias", "c_attn.bias")
    kept = ({name: value for name, value in each.items() if not name.endswith(left_out)} for each in models)
    torch.testing.assert_close(*kept, rtol=1e-5, atol=1e-5)


def assert_same_training(ours: Path, theirs: Path, step: int) -> None:
    """Losses, gradient norms and parameters of two runs agree to 1e-5."""
    ours, theirs = (output / f"checkpoint-{step}" for output in (ours, theirs))
    np.testing.assert_allclose(training_lines(ours), training_lines(theirs), rtol=1e-5, atol=1e-5)
    assert_same_parameters(*(load_file(next(folder.glob("*model.safetensors"))) for folder in (ours, theirs)))


def files_of(folder: Path) -> dict[str, object]:
    """Every file of a finished run, without what the clock says, and whether and from where it was resumed."""
    found, times = {}, re.compile("second|resumed|runtime|time|flos|output_dir|commit|memory|took|minute")

    def without_times(value):
        if isinstance(value, dict):
            return {key: without_times(each) for key, each in value.items() if not times.search(key)}
        if isinstance(value, list):  # of the log, which has a line at the end of training of its own
            return [without_times(each) for each in value if not (isinstance(each, dict) and "train_runtime" in each)]
        return value

    for path in (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"):
        name, content = str(path.relative_to(folder)), path.read_bytes()
        if path.suffix == ".json" and path.name != "tokenizer.json":
            content = without_times(json.loads(content))
        elif path.name in ("README.md", "card.yaml"):
            content = [line for line in path.read_text().splitlines() if not times.search(line)]
        found[name] = content
    return found


def predictions(output: Path) -> list[dict[str, str]]:
    """The rows of a run's predictions.tsv."""
    header, *lines = [line.split("\t") for line in (output / "predictions.tsv").read_text().splitlines()]
    return [dict(zip(header, line, strict=True)) for line in lines]


def answers_of_card(output: Path) -> str:
    """What the Python code of a run's card prints."""
    code = (output / "README.md").read_text().split("```python\n")[1].split("```")[0]
    code = code.replace('folder = "."', f"folder = {str(output)!r}")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    return printed.getvalue().strip()
