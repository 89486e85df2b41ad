"""Runs and seeds that are killed resume to the same bits; no checkpoint that is not whole is ever chosen."""

import json
import random
import shutil
import signal
from pathlib import Path

import pytest
from safetensors.torch import load_file

from hf_gpt.commands import parse_arguments
from hf_gpt.training.arguments import FineTuningArguments
from hf_gpt.training.finetune import run_seeds
from hf_gpt.training.trainer import checkpoints_in, last_checkpoint

from ..support import runs
from ..support.runs import assert_same, files_of, finish, training_lines, wait_for_moment

# 7 steps an epoch: checkpoints stand inside epochs, and evaluation and saving do not go together.
FLAGS = ["--task", "questions", "--max_train_rows", "52", "--max_eval_rows", "12", "--learning_rate", "1e-3"]
FLAGS += ["--per_device_train_batch_size", "8", "--num_train_epochs", "2", "--logging_steps", "1"]
FLAGS += ["--disable_tqdm", "true", "--save_strategy", "steps", "--save_steps", "3", "--save_total_limit", "2"]
FLAGS += ["--load_best_model_at_end", "false"]
# The same, and the best checkpoint is kept and loaded at the end.
WITH_BEST = [*FLAGS, "--load_best_model_at_end", "true", "--eval_strategy", "steps", "--eval_steps", "3"]
STEPS, LAST = 14, ["--resume_from_checkpoint", "last"]
SEEDS = [*FLAGS, "--save_strategy", "epoch", "--save_total_limit", "9"]
BEST_FIRST = [*WITH_BEST, "--save_total_limit", "3", "--learning_rate", "0.1", "--schedule", "warmup_constant"]


@pytest.fixture(scope="module")
def whole_run(train, tmp_path_factory) -> Path:
    """A run that nobody stopped."""
    output = tmp_path_factory.mktemp("whole") / "out"
    train(output, *WITH_BEST)
    return output


def assert_same_result(ours: Path, theirs: Path) -> None:
    """Every file has the same content but those that name the folder."""
    first, second = files_of(ours), files_of(theirs)
    assert first.keys() == second.keys()
    different = {Path(name).name for name in first if first[name] != second[name]}
    assert different <= {"trainer_state.json", "training_args.bin", "README.md", "card.yaml"}
    assert training_lines(ours / f"checkpoint-{STEPS}") == training_lines(theirs / f"checkpoint-{STEPS}")


def test_a_run_that_was_killed_gives_the_bits_of_the_whole_run(tiny_checkpoint, whole_run, tmp_path):
    output, chance, kills = tmp_path / "out", random.Random(0), 0
    flags = ["--model_name_or_path", tiny_checkpoint, "--output_dir", output, *WITH_BEST, *LAST]
    for number, moment in enumerate(["saving", "saved", None]):
        log = output.with_suffix(f".{number}.log")
        process = runs.start_run(log, *flags)
        if moment is not None and wait_for_moment(moment, output, process.is_alive, chance):
            process.kill()
            process.join()
            kills += process.exitcode == -signal.SIGKILL
            continue
        finish(process, log)
    assert kills == 2
    assert_same_result(output, whole_run)


@pytest.mark.slow
def test_two_processes_that_were_killed_give_the_bits_of_two_that_were_not(tiny_checkpoint, tmp_path):
    """The last kill falls into the second epoch, whose order the sampler must find behind accelerate's wrappers."""
    flags = ["--model_name_or_path", tiny_checkpoint, *FLAGS, "--per_device_train_batch_size", "4", *LAST]
    chance = random.Random(0)
    for name, moments in (("whole", [None]), ("killed", ["saving", "saved", "saved", "saved", None])):
        output = tmp_path / name
        for number, moment in enumerate(moments):
            log = output.with_suffix(f".{number}.log")
            process = runs.start_launch(log, runs.launch_command("two_cpu_processes", *flags, "--output_dir", output))
            if moment is None:
                finish(process, log)
            else:
                assert wait_for_moment(moment, output, lambda process=process: process.poll() is None, chance)
                runs.kill_launch(process)
    assert_same_result(tmp_path / "killed", tmp_path / "whole")


def test_a_finished_run_stays_as_it_is(whole_run, train, tmp_path, capsys):
    """`last` says so; further steps are trained."""
    output = shutil.copytree(whole_run, tmp_path / "out")
    files = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    record = train(output, *WITH_BEST, *LAST)
    assert record == json.loads((output / "metrics.json").read_text())
    assert f"is finished, with {STEPS} steps: nothing is done" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == files
    assert train(output, *WITH_BEST, *LAST, "--max_steps", STEPS + 1)["steps"] == STEPS + 1


def test_resuming_before_the_evaluation_at_the_end_of_an_epoch(train, tmp_path):
    """
    Step 7 ends an epoch: its checkpoint is written before the evaluation, which a resumed run leaves out. So
    evaluation must leave no trace in the random state.
    """
    flags = [*FLAGS, "--max_steps", 10, "--save_steps", 1, "--save_total_limit", 20]
    train(tmp_path / "whole", *flags)
    shutil.copytree(tmp_path / "whole" / "checkpoint-7", tmp_path / "resumed" / "checkpoint-7")
    train(tmp_path / "resumed", *flags, *LAST)
    ours, theirs = (tmp_path / name / "checkpoint-10" for name in ("resumed", "whole"))
    assert_same(ours / "model.safetensors", theirs / "model.safetensors")
    assert training_lines(ours) == training_lines(theirs)


@pytest.mark.parametrize(
    "flags",
    [
        "--logging_steps 1 --save_strategy no",
        "--logging_strategy no --save_steps 1",
        "--logging_strategy no --save_strategy no --adaptation frozen",
    ],
)
def test_a_run_that_diverges_ends_and_saves_nothing_of_it(flags, train, tmp_path):
    diverging = ["--learning_rate", "1e30", "--max_grad_norm", "0", "--warmup", "0", "--optimizer", "trainer"]
    with pytest.raises(ValueError, match=r"diverged|not numbers"):
        train(tmp_path / "out", *FLAGS, *diverging, "--eval_strategy", "no", "--max_steps", "4", *flags.split())
    assert not list((tmp_path / "out").glob("*.safetensors"))
    for checkpoint in checkpoints_in(tmp_path / "out"):
        assert all(value.isfinite().all() for value in load_file(checkpoint / "model.safetensors").values())


@pytest.mark.parametrize("name", ["rng_state_0.pth", "other"], ids=["another number of processes", "no random state"])
def test_a_checkpoint_that_does_not_resume_to_the_same_bits_is_not_taken(name, whole_run, train, tmp_path):
    """One that is not whole is none at all: the run starts at its beginning, unless that one is named."""
    arguments, output = FineTuningArguments(output_dir="unused", use_cpu=True), tmp_path / "out"
    checkpoint = shutil.copytree(whole_run / f"checkpoint-{STEPS}", output / "checkpoint-14")
    assert last_checkpoint(output, arguments) == checkpoint
    (checkpoint / "rng_state.pth").rename(checkpoint / name)
    with pytest.raises(ValueError, match=r"none that 1 process\(es\) resume from to the same bits"):
        last_checkpoint(output, arguments)
    (checkpoint / "trainer_state.json").write_text("{")
    assert last_checkpoint(output, arguments) is None
    with pytest.raises(ValueError, match="is not a whole checkpoint"):
        train(output, *FLAGS, "--resume_from_checkpoint", checkpoint)


def test_a_checkpoint_of_another_model_is_refused(whole_run, train, tmp_path):
    """A head alone, more layers of a head, other tasks, and an adapter differ in their parameters."""
    flags = [*FLAGS[2:], "--resume_from_checkpoint", whole_run / f"checkpoint-{STEPS}"]
    for more, message in (
        (["--task", "questions", "--adaptation", "frozen"], r"differs from this run's model in transformer\."),
        (["--task", "questions", "--adaptation", "lora"], "it holds no adapter: leave out --adaptation"),
        (["--task", "stories"], r"differs from this run's model in score\.bias, score\.weight\."),
        (["--tasks", "questions", "stories"], r"differs from this run's model in heads\.questions"),
    ):
        with pytest.raises(ValueError, match=message):
            train(tmp_path / "out", *flags, *more)


def best_checkpoint(output: Path) -> str:
    state = json.loads((output / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())
    return Path(state["best_model_checkpoint"]).name


@pytest.fixture(scope="module")
def best_run(train, tmp_path_factory) -> Path:
    """A run whose best checkpoint is not its last one: its rate is far too high."""
    output = tmp_path_factory.mktemp("best") / "out"
    train(output, *BEST_FIRST)
    assert best_checkpoint(output) != f"checkpoint-{STEPS}"
    return output


@pytest.mark.parametrize("how", ["moved", "another model at the old place"])
def test_a_run_folder_can_move(how, best_run, train, tmp_path):
    """It resumes to the same bits and keeps its best checkpoint; nothing outside of it is taken for it."""
    last = best_checkpoint(best_run)
    old = shutil.copytree(best_run, tmp_path / "old")
    (old / "metrics.json").unlink()
    if how == "moved":  # and steps are left
        shutil.rmtree(old / f"checkpoint-{STEPS}")
    for state in old.glob("checkpoint-*/trainer_state.json"):
        values = json.loads(state.read_text()) | {"best_model_checkpoint": str(old / last)}
        state.write_text(json.dumps(values))
    new = shutil.copytree(old, tmp_path / "new")
    if how == "moved":
        shutil.rmtree(old)
    else:
        shutil.copy(best_run / f"checkpoint-{STEPS}" / "model.safetensors", old / last / "model.safetensors")
    train(new, *BEST_FIRST, *LAST)
    assert_same(new / "model.safetensors", best_run / "model.safetensors")
    assert best_checkpoint(new) == last
    assert (new / last).is_dir()


@pytest.fixture
def seeds(tiny_checkpoint, tmp_path):
    """`seeds(*flags)`: a repeated run into the folder `out`."""
    flags = ["--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "out", *SEEDS]
    flags += [*runs.SAME_PRODUCTS, "--use_cpu", "true", "--seed", 7]
    return lambda *more: run_seeds(*parse_arguments(runs.ARGUMENTS, list(map(str, [*flags, *more]))))


def test_seeds_resume_where_they_were_stopped(seeds, train, tmp_path, capsys):
    output = tmp_path / "out"
    results = seeds("--seeds", 2)
    assert "\ntest accuracy: " in capsys.readouterr().out
    assert json.loads((output / "results.json").read_text()) == results
    accuracy = results["metrics"]["test"]["accuracy"]
    lowest, highest = sorted(accuracy["values"])
    assert accuracy == {**accuracy, "median": (lowest + highest) / 2, "lowest": lowest, "highest": highest}

    # A run by itself gives what the second seed gave.
    alone = train(tmp_path / "alone", *SEEDS, "--seed", 8)
    assert alone["metrics"]["test"]["accuracy"] == accuracy["values"][1]
    parameters = (tmp_path / "alone" / "model.safetensors").read_bytes()
    assert (output / "seed-8" / "model.safetensors").read_bytes() == parameters

    # As if the second had been killed in the middle: it resumes, the first is left alone, and the third is new.
    for name in ("metrics.json", "model.safetensors", "predictions.tsv", "README.md"):
        (output / "seed-8" / name).unlink()
    shutil.rmtree(output / "seed-8" / "checkpoint-14")
    first = (output / "seed-7" / "metrics.json").stat().st_mtime_ns
    again = seeds("--seeds", 3)["metrics"]["test"]["accuracy"]["values"]
    assert len(again) == 3
    assert again[:2] == accuracy["values"]
    assert (output / "seed-7" / "metrics.json").stat().st_mtime_ns == first
    assert (output / "seed-8" / "model.safetensors").read_bytes() == parameters
    assert json.loads((output / "seed-8" / "metrics.json").read_text())["resumed"]
    for flags, message in (
        (["--learning_rate", 1e-4], r"other settings \(learning_rate\)"),
        (["--output_dir", tmp_path], "not empty"),
        (["--resume_from_checkpoint", "checkpoint-1"], "resumes by itself"),
    ):
        with pytest.raises(ValueError, match=message):
            seeds("--seeds", 2, *flags)
    # Asked for, other settings take the place of the runs that are there.
    again = seeds("--seeds", 1, "--learning_rate", 1e-4, "--overwrite_output_dir", "true")
    assert again["seeds"] == [7]
    assert not (output / "seed-8" / "metrics.json").exists()
