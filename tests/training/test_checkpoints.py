"""Runs that are killed go on to the same bits; no checkpoint that is not whole is ever chosen."""

import json
import random
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_gpt.training.arguments import FineTuningArguments
from hf_gpt.training.trainer import checkpoints_in, last_checkpoint

from ..support.runs import (
    assert_same,
    finetune,
    finish,
    kill_launch,
    launch_command,
    start_launch,
    start_run,
    training_lines,
    wait_for_moment,
)

# 7 steps an epoch: checkpoints stand inside epochs, and evaluation and saving do not go together.
FLAGS = ["--task", "questions", "--max_train_rows", "52", "--max_eval_rows", "12", "--learning_rate", "1e-3"]
FLAGS += ["--per_device_train_batch_size", "8", "--num_train_epochs", "2", "--logging_steps", "1"]
FLAGS += ["--disable_tqdm", "true", "--save_strategy", "steps", "--save_steps", "3", "--save_total_limit", "2"]
FLAGS += ["--load_best_model_at_end", "false"]
# The same, and the best checkpoint is kept and loaded at the end.
WITH_BEST = [*FLAGS, "--load_best_model_at_end", "true", "--eval_strategy", "steps", "--eval_steps", "3"]
STEPS = 14
# The same with a rate that is far too high.
BEST_FIRST = [*WITH_BEST, "--save_total_limit", "3", "--learning_rate", "0.1", "--schedule", "warmup_constant"]


@pytest.fixture(scope="module")
def arguments() -> FineTuningArguments:
    return FineTuningArguments(output_dir="unused", use_cpu=True)


@pytest.fixture(scope="module")
def whole_run(tiny_checkpoint, tmp_path_factory) -> Path:
    """A run that nobody stopped."""
    output = tmp_path_factory.mktemp("whole") / "out"
    process = start_run(
        output.with_suffix(".log"), "--model_name_or_path", tiny_checkpoint, "--output_dir", output, *WITH_BEST
    )
    process.join(300)
    assert process.exitcode == 0, output.with_suffix(".log").read_text()[-3000:]
    return output


def kill_and_resume(model: Path, output: Path, moments: list[str], seed: int) -> int:
    """Start a run, kill it at each of the moments and resume it, then let it finish; returns the number of kills."""
    chance = random.Random(seed)
    flags = ["--model_name_or_path", model, "--output_dir", output, *WITH_BEST, "--resume_from_checkpoint", "last"]
    kills = 0
    for number, moment in enumerate([*moments, None]):
        log = output.with_suffix(f".{number}.log")
        process = start_run(log, *flags)
        if moment is not None and wait_for_moment(moment, output, process.is_alive, chance):
            process.kill()
            process.join()
            kills += process.exitcode == -signal.SIGKILL
            continue
        process.join(300)
        assert process.exitcode == 0, log.read_text()[-3000:]
    return kills


def assert_same_result(ours: Path, theirs: Path) -> None:
    last = f"checkpoint-{STEPS}"
    assert_same(ours / "model.safetensors", theirs / "model.safetensors", torch.equal)
    assert_same(ours / last / "model.safetensors", theirs / last / "model.safetensors", torch.equal)
    assert training_lines(ours / last) == training_lines(theirs / last)
    for name in ("optimizer.pt", "scheduler.pt"):
        first, second = (torch.load(folder / last / name, weights_only=True) for folder in (ours, theirs))
        torch.testing.assert_close(first, second, rtol=0, atol=0)
    first, second = (json.loads((folder / "metrics.json").read_text()) for folder in (ours, theirs))
    assert first["metrics"] == second["metrics"]
    assert (ours / "predictions.tsv").read_text() == (theirs / "predictions.tsv").read_text()
    names = [sorted(path.relative_to(folder) for path in folder.rglob("*")) for folder in (ours, theirs)]
    assert names[0] == names[1]


def test_a_run_that_was_killed_gives_the_bits_of_the_whole_run(tiny_checkpoint, whole_run, tmp_path):
    assert kill_and_resume(tiny_checkpoint, tmp_path / "out", ["saving", "saved"], seed=0) == 2
    assert_same_result(tmp_path / "out", whole_run)


def test_a_finished_run_stays_as_it_is(whole_run, tiny_checkpoint, tmp_path, capsys):
    """`last` says so; other steps are trained, or refused where there are fewer of them."""
    output = tmp_path / "out"
    shutil.copytree(whole_run, output)
    flags = ["--model_name_or_path", tiny_checkpoint, "--output_dir", output, *WITH_BEST]
    flags += ["--resume_from_checkpoint", "last"]
    files = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    record = finetune(*flags)
    assert record == json.loads((output / "metrics.json").read_text())
    assert f"is finished, with all of its {record['steps']} steps: nothing is done" in capsys.readouterr().out
    with pytest.raises(ValueError, match=f"{record['steps']} steps behind it, and this run would end after 1:"):
        finetune(*flags, "--max_steps", 1)
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == files
    # A run that was killed between its last step and its record measures and writes.
    (output / "metrics.json").unlink()
    again = finetune(*flags)
    assert again["metrics"] == record["metrics"]
    assert finetune(*flags, "--max_steps", record["steps"] + 1)["steps"] == record["steps"] + 1


@pytest.mark.slow
def test_two_processes_that_were_killed_give_the_bits_of_two_that_were_not(tiny_checkpoint, tmp_path):
    """The last kill falls into the second epoch, whose order the sampler must find behind accelerate's wrappers."""
    outputs = {name: tmp_path / name for name in ("whole", "killed")}
    flags = ["--model_name_or_path", tiny_checkpoint, *FLAGS, "--per_device_train_batch_size", "4"]
    chance = random.Random(0)
    for name, moments in (("whole", [None]), ("killed", ["saving", "saved", "saved", "saved", None])):
        output = outputs[name]
        for number, moment in enumerate(moments):
            log = output.with_suffix(f".{number}.log")
            resume = ["--output_dir", output, "--resume_from_checkpoint", "last"]
            process = start_launch(log, launch_command("two_cpu_processes", *flags, *resume))
            if moment is None:
                finish(process, log)
            else:
                assert wait_for_moment(moment, output, lambda process=process: process.poll() is None, chance)
                kill_launch(process)
    assert_same_result(outputs["killed"], outputs["whole"])


def test_resuming_inside_an_epoch_and_before_the_evaluation_at_its_end(tiny_checkpoint, tmp_path):
    """
    Step 7 ends an epoch: its checkpoint is written before the evaluation, which a resumed run leaves out. So
    evaluation must leave no trace in the random state.
    """
    flags = [
        "--model_name_or_path",
        tiny_checkpoint,
        *FLAGS,
        "--max_steps",
        "10",
        "--save_steps",
        "1",
        "--save_total_limit",
        "20",
    ]
    finetune(*flags, "--output_dir", tmp_path / "whole")
    for step in (7, 9):
        resumed = tmp_path / f"from_{step}"
        shutil.copytree(tmp_path / "whole" / f"checkpoint-{step}", resumed / f"checkpoint-{step}")
        finetune(*flags, "--output_dir", resumed, "--resume_from_checkpoint", "last")
        ours, theirs = (folder / "checkpoint-10" for folder in (resumed, tmp_path / "whole"))
        assert_same(ours / "model.safetensors", theirs / "model.safetensors", torch.equal)
        assert training_lines(ours) == training_lines(theirs)


def best_checkpoint(output: Path) -> str:
    state = json.loads((output / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())
    return Path(state["best_model_checkpoint"]).name


def files_of(folder: Path) -> dict[str, object]:
    """Every file of a finished run, without what the clock says and the note that it was resumed."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix == ".json":
            found[name] = without_times(json.loads(path.read_text()))
        elif path.name in ("README.md", "card.yaml"):
            lines = path.read_text().splitlines()
            found[name] = [line for line in lines if not re.search(r"second|resumed|took|interrupt|minute", line)]
        elif path.name != ".lock":
            found[name] = path.read_bytes()
    return found


def without_times(value):
    """A JSON value without durations, and without what says whether a run was resumed."""
    if isinstance(value, dict):
        times = re.compile("second|resumed|runtime|flos")
        return {key: without_times(each) for key, each in value.items() if not times.search(key)}
    # The log has a line at the end of training of its own.
    if isinstance(value, list):
        return [without_times(each) for each in value if not (isinstance(each, dict) and "train_runtime" in each)]
    return value


SMALL = ["--max_train_rows", 40, "--max_eval_rows", 12, "--per_device_train_batch_size", 8, "--learning_rate", 1e-3]
SMALL += ["--max_steps", 6, "--save_strategy", "steps", "--save_steps", 2, "--save_total_limit", 3]
SMALL += ["--eval_strategy", "steps", "--eval_steps", 2]
KINDS = {
    "full": ["--task", "questions"],
    "lora": ["--task", "questions", "--adaptation", "lora"],
    "houlsby": ["--task", "questions", "--adaptation", "houlsby"],
    "frozen": ["--task", "questions", "--adaptation", "frozen"],
    "chain-thaw": ["--task", "questions", "--unfreeze", "chain_thaw"],
    "accumulated": ["--task", "questions", "--gradient_accumulation_steps", 2, "--num_train_epochs", 2],
    "tagging": ["--task", "custom", "--task_family", "tagging"],
    "several tasks": ["--tasks", "questions", "stories"],
}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # of peft
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in ("full", "lora") else pytest.mark.slow) for kind in KINDS]
)
def test_every_file_of_a_run_that_was_resumed_is_that_of_the_whole_run(kind, tiny_checkpoint, tmp_path):
    """Killed with steps left, after the last step, after a part of the final files, or when all was finished."""
    output = tmp_path / "run" / "out"
    flags = ["--model_name_or_path", tiny_checkpoint, "--output_dir", output, *SMALL, *KINDS[kind]]
    if kind == "tagging":
        rows = [
            {"words": [f"Ada{n}", "sees", "Rome"][: 1 + n % 3], "tags": ["X", "Y", "Z"][: 1 + n % 3]}
            for n in range(40)
        ]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        flags += ["--train_file", tmp_path / "rows.jsonl", "--words_column", "words", "--label_column", "tags"]
    finetune(*flags)
    whole, expected = output.rename(tmp_path / "whole"), files_of(tmp_path / "whole")
    for left in ([2], [2, 4], [2, 4, 6], "all but the record", "all"):
        shutil.copytree(whole, output)
        if left != "all":
            (output / "metrics.json").unlink()
        if isinstance(left, list):
            for path in {*output.iterdir()} - {output / f"checkpoint-{step}" for step in left}:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        finetune(*flags, "--resume_from_checkpoint", "last")
        found = files_of(output)
        assert found.keys() == expected.keys(), left
        assert not [name for name, value in found.items() if value != expected[name]], left
        shutil.rmtree(output)


DIVERGING = ["--learning_rate", "1e30", "--max_grad_norm", "0", "--warmup", "0", "--optimizer", "trainer"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--logging_steps", "1", "--save_strategy", "no"],
        ["--logging_strategy", "no", "--save_steps", "1"],
        ["--logging_strategy", "no", "--save_strategy", "no"],
        ["--logging_strategy", "no", "--save_strategy", "no", "--adaptation", "frozen"],
    ],
    ids=["logging", "saving", "the end", "frozen features"],
)
def test_a_run_that_diverges_ends_and_saves_nothing_of_it(flags, tiny_checkpoint, tmp_path):
    output = tmp_path / "out"
    without_evaluation = ["--eval_strategy", "no", "--max_steps", "4"]
    with pytest.raises(ValueError, match=r"diverged|not numbers"):
        finetune(
            *("--model_name_or_path", tiny_checkpoint, "--output_dir", output),
            *(*FLAGS, *DIVERGING, *without_evaluation, *flags),
        )
    assert not list(output.glob("*.safetensors"))
    for checkpoint in checkpoints_in(output).values():
        assert all(value.isfinite().all() for value in load_file(checkpoint / "model.safetensors").values())


def test_a_run_without_a_whole_checkpoint_starts_at_the_beginning(tiny_checkpoint, whole_run, tmp_path):
    """What is left of a checkpoint that was being written or deleted is no checkpoint, and is gone at the end."""
    output = tmp_path / "out"
    half = shutil.copytree(whole_run / f"checkpoint-{STEPS}", output / "checkpoint-3")
    state = half / "trainer_state.json"
    state.write_text(state.read_text()[:100])
    assert not checkpoints_in(output)
    flags = ["--model_name_or_path", tiny_checkpoint, "--output_dir", output, *WITH_BEST]
    with pytest.raises(ValueError, match=r"is not a whole checkpoint: it has no trainer_state\.json that can be read"):
        finetune(*flags, "--resume_from_checkpoint", half)
    finetune(*flags, "--resume_from_checkpoint", "last")
    assert_same_result(output, whole_run)


@pytest.mark.parametrize("change", ["another number of processes", "no random state"])
def test_a_checkpoint_that_does_not_resume_to_the_same_bits_is_not_taken(change, whole_run, arguments, tmp_path):
    output = tmp_path / "out"
    state = shutil.copytree(whole_run / f"checkpoint-{STEPS}", output / "checkpoint-14") / "rng_state.pth"
    assert last_checkpoint(output, arguments).name == "checkpoint-14"
    state.rename(state.with_name("rng_state_0.pth" if change == "another number of processes" else "other"))
    with pytest.raises(ValueError, match=r"none that 1 process\(es\) resume from to the same bits"):
        last_checkpoint(output, arguments)
    assert last_checkpoint(tmp_path / "nowhere", arguments) is None


@pytest.fixture(scope="module")
def best_run(tiny_checkpoint, tmp_path_factory) -> Path:
    """A run whose best checkpoint is not its last one."""
    output = tmp_path_factory.mktemp("best") / "out"
    finetune("--model_name_or_path", tiny_checkpoint, "--output_dir", output, *BEST_FIRST)
    assert best_checkpoint(output) != f"checkpoint-{STEPS}"
    return output


@pytest.mark.parametrize("how", ["moved", "copied", "another model at the old place"])
@pytest.mark.parametrize("left", ["steps left", "no step left"])
def test_a_run_folder_can_move(how, left, best_run, tiny_checkpoint, tmp_path):
    """It resumes to the same bits and keeps its best checkpoint; nothing outside of it is taken for it."""
    last = best_checkpoint(best_run)
    old = shutil.copytree(best_run, tmp_path / "old")
    (old / "metrics.json").unlink()
    if left == "steps left":
        shutil.rmtree(old / f"checkpoint-{STEPS}")
    for state in old.glob("checkpoint-*/trainer_state.json"):
        values = json.loads(state.read_text())
        values["best_model_checkpoint"] = str(old / last)
        state.write_text(json.dumps(values))
    new = tmp_path / "new"
    shutil.copytree(old, new)
    if how == "moved":
        shutil.rmtree(old)
    elif how == "another model at the old place":
        shutil.copy(best_run / f"checkpoint-{STEPS}" / "model.safetensors", old / last / "model.safetensors")
    flags = ["--model_name_or_path", tiny_checkpoint, "--output_dir", new, *BEST_FIRST]
    finetune(*flags, "--resume_from_checkpoint", "last")
    assert_same(new / "model.safetensors", best_run / "model.safetensors", torch.equal)
    assert best_checkpoint(new) == last
    assert (new / last).is_dir()
