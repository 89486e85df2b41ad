"""Runs that are killed go on to the same bits; no checkpoint that is not whole is ever chosen."""

import json
import random
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_gpt.files import UNFINISHED, outputs
from hf_gpt.training.arguments import FineTuningArguments
from hf_gpt.training.checkpoints import checkpoint_problems, checkpoints_in, last_checkpoint, rotate

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
            # Whatever has a checkpoint's name is whole.
            for checkpoint in checkpoints_in(output).values():
                assert not checkpoint_problems(checkpoint), checkpoint
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
    assert not (ours / UNFINISHED).exists()


def test_a_run_that_was_killed_gives_the_bits_of_the_whole_run(tiny_checkpoint, whole_run, tmp_path):
    assert kill_and_resume(tiny_checkpoint, tmp_path / "out", ["saving", "saved"], seed=0) == 2
    assert_same_result(tmp_path / "out", whole_run)


@pytest.mark.slow
def test_a_run_that_was_killed_twenty_times_gives_the_bits_of_the_whole_run(tiny_checkpoint, whole_run, tmp_path):
    kills, round_ = 0, 0
    while kills < 20:
        moments = random.Random(round_).choices(["any", "saving", "saved"], k=7)
        kills += kill_and_resume(tiny_checkpoint, tmp_path / f"out{round_}", moments, seed=round_)
        assert_same_result(tmp_path / f"out{round_}", whole_run)
        round_ += 1


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


def results_of(output: Path) -> dict:
    """What a run left, but for its time and that it went on from a checkpoint."""
    record = json.loads((output / "metrics.json").read_text())
    kept = {name: value for name, value in record.items() if name not in ("train_seconds", "resumed")}
    return {
        "record": kept,
        "predictions": (output / "predictions.tsv").read_text(),
        "steps": {*checkpoints_in(output)},
    }


LAST_STEP = {
    "full": [],
    "epochs": ["--max_steps", "-1", "--num_train_epochs", "0.7"],
    "lora": ["--adaptation", "lora"],
    "frozen": ["--adaptation", "frozen"],
    "accumulation": ["--gradient_accumulation_steps", "2", "--per_device_train_batch_size", "4"],
}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # of peft
@pytest.mark.parametrize("flags", LAST_STEP.values(), ids=LAST_STEP)
def test_a_run_that_has_ended_inside_an_epoch_trains_no_further(flags, tiny_checkpoint, tmp_path):
    output = tmp_path / "out"
    flags = [
        "--model_name_or_path",
        tiny_checkpoint,
        *FLAGS,
        "--schedule",
        "warmup_constant",
        "--max_steps",
        "5",
        *flags,
    ]
    finetune(*flags, "--output_dir", output)
    first = results_of(output)
    assert first["record"]["steps"] == max(first["steps"]) == 5
    weights = next(output.glob("*model.safetensors"))
    before = shutil.copy(weights, tmp_path / "before.safetensors")
    for _ in range(2):
        finetune(*flags, "--output_dir", output, "--resume_from_checkpoint", "last")
        assert results_of(output) == first
        assert_same(weights, before, torch.equal)


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


def test_a_disk_without_room_for_a_checkpoint_is_found_before_training(tiny_checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(outputs, "_free_bytes", lambda folder: 2_200_000)
    with pytest.raises(ValueError, match=r"A checkpoint takes 3 MB, and 2 MB are free in .*: make room"):
        finetune("--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "out", *FLAGS)
    assert "'loss'" not in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def cut(path: Path, share: float = 0.6) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


DAMAGES = {
    "weights cut": lambda folder: cut(folder / "model.safetensors"),
    "weights' header": lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 8 + b"{}"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "optimizer cut": lambda folder: cut(folder / "optimizer.pt"),
    "optimizer garbled": lambda folder: flip(folder / "optimizer.pt"),
    "optimizer empty": lambda folder: (folder / "optimizer.pt").write_bytes(b""),
    "no optimizer": lambda folder: (folder / "optimizer.pt").unlink(),
    "scheduler cut": lambda folder: cut(folder / "scheduler.pt"),
    "no random state": lambda folder: (folder / "rng_state.pth").unlink(),
    "random state cut": lambda folder: cut(folder / "rng_state.pth"),
    "state cut": lambda folder: cut(folder / "trainer_state.json"),
    "no state": lambda folder: (folder / "trainer_state.json").unlink(),
    "state of another step": lambda folder: shutil.copy(
        folder.parent / "checkpoint-12" / "trainer_state.json", folder / "trainer_state.json"
    ),
    "empty": lambda folder: [path.unlink() for path in folder.iterdir()],
}


@pytest.fixture
def two_checkpoints(whole_run, tmp_path) -> Path:
    """The run's last checkpoint, and the same under the name of an earlier one."""
    output = tmp_path / "out"
    newest = shutil.copytree(whole_run / "checkpoint-14", output / "checkpoint-14")
    earlier = shutil.copytree(newest, output / "checkpoint-12")
    state = json.loads((newest / "trainer_state.json").read_text())
    (earlier / "trainer_state.json").write_text(json.dumps({**state, "global_step": 12}))
    return output


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over(name, two_checkpoints, arguments, capsys):
    assert last_checkpoint(two_checkpoints, arguments).name == "checkpoint-14"
    DAMAGES[name](two_checkpoints / "checkpoint-14")
    assert last_checkpoint(two_checkpoints, arguments).name == "checkpoint-12"
    assert "checkpoint-14 is passed over" in capsys.readouterr().out
    shutil.rmtree(two_checkpoints / "checkpoint-12")
    with pytest.raises(ValueError, match=r"no checkpoint to go on from.*checkpoint-14: "):
        last_checkpoint(two_checkpoints, arguments)


def test_a_checkpoint_of_more_processes_is_passed_over(two_checkpoints, arguments, capsys):
    state = two_checkpoints / "checkpoint-14" / "rng_state.pth"
    state.rename(state.with_name("rng_state_0.pth"))
    assert last_checkpoint(two_checkpoints, arguments).name == "checkpoint-12"
    assert "another number of processes than 1" in capsys.readouterr().out


@pytest.fixture
def of_deepspeed(two_checkpoints) -> Path:
    """The last checkpoint as DeepSpeed writes it for two processes."""
    folder = two_checkpoints / "checkpoint-14"
    states = folder / "global_step14"
    states.mkdir()
    (folder / "rng_state.pth").rename(folder / "rng_state_0.pth")
    shutil.copy(folder / "rng_state_0.pth", folder / "rng_state_1.pth")
    (folder / "optimizer.pt").rename(states / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    for name in ("zero_pp_rank_1_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"):
        shutil.copy(states / "zero_pp_rank_0_mp_rank_00_optim_states.pt", states / name)
    (folder / "latest").write_text("global_step14")
    return folder


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda states: None, None),
        # In bf16 DeepSpeed gives the same files other names.
        (lambda states: [path.rename(path.with_name(f"bf16_{path.name}")) for path in states.glob("zero_*")], None),
        (lambda states: cut(states.parent / "scheduler.pt"), "scheduler.pt cannot be read"),
        (lambda states: flip(states / "zero_pp_rank_1_mp_rank_00_optim_states.pt"), "is damaged"),
        (lambda states: (states / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink(), "is missing"),
        (lambda states: cut(states / "mp_rank_00_model_states.pt"), "cannot be read"),
        (lambda states: (states.parent / "latest").unlink(), "saved without DeepSpeed"),
        (lambda states: (states.parent / "latest").write_text("global_step9"), "model_states.pt is missing"),
    ],
)
def test_checkpoints_of_deepspeed(damage, problem, of_deepspeed):
    damage(of_deepspeed / "global_step14")
    problems = checkpoint_problems(of_deepspeed, has_deepspeed=True)
    assert problem in problems[0] if problem else not problems
    # Without DeepSpeed a run would start its optimizer anew.
    assert checkpoint_problems(of_deepspeed)[0] == "optimizer.pt is missing"


def test_no_checkpoint_at_all(tmp_path, arguments):
    assert last_checkpoint(tmp_path / "nowhere", arguments) is None
    (tmp_path / UNFINISHED / "checkpoint-4").mkdir(parents=True)
    assert last_checkpoint(tmp_path, arguments) is None


def test_a_named_checkpoint_must_be_whole(two_checkpoints, tiny_checkpoint):
    cut(two_checkpoints / "checkpoint-14" / "model.safetensors")
    with pytest.raises(ValueError, match=r"not a whole checkpoint: model\.safetensors cannot be read"):
        finetune(
            *("--model_name_or_path", tiny_checkpoint, "--output_dir", two_checkpoints, *WITH_BEST),
            *("--resume_from_checkpoint", two_checkpoints / "checkpoint-14"),
        )


@pytest.mark.parametrize(
    ("limit", "keep", "left"),
    [(None, [], [2, 4, 6, 10]), (2, [10], [6, 10]), (1, [2, 10], [2, 10]), (2, [2, 6], [2, 6]), (3, [2], [2, 6, 10])],
)
def test_rotation_keeps_what_is_needed(limit, keep, left, tmp_path):
    for step in (2, 4, 6, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    rotate(tmp_path, limit, {tmp_path / f"checkpoint-{step}" for step in keep})
    assert sorted(checkpoints_in(tmp_path)) == left
