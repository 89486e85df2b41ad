"""Several seeds: what is repeated, what is not, and what is written."""

import json
import shutil

import pytest

from hf_gpt.commands import parse_arguments
from hf_gpt.training.finetune import run_seeds, summarise

from ..support.runs import ARGUMENTS, SAME_PRODUCTS, finetune

FLAGS = ["--task", "questions", "--max_train_rows", "32", "--max_eval_rows", "12", "--learning_rate", "1e-3"]
FLAGS += ["--per_device_train_batch_size", "16", "--num_train_epochs", "2", "--disable_tqdm", "true"]
FLAGS += ["--use_cpu", "true", "--save_total_limit", "9", "--load_best_model_at_end", "false"]


@pytest.fixture
def seeds(tiny_checkpoint, tmp_path):
    """`seeds(*flags)`: a repeated run into the folder `out`."""
    flags = ["--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "out", *FLAGS]
    flags += [*SAME_PRODUCTS, "--seed", 7]
    return lambda *more: run_seeds(*parse_arguments(ARGUMENTS, list(map(str, [*flags, *more]))))


def test_seeds_resume_where_they_were_stopped(seeds, tiny_checkpoint, tmp_path, capsys):
    output = tmp_path / "out"
    results = seeds("--seeds", 2)
    assert "\ntest accuracy: " in capsys.readouterr().out
    assert json.loads((output / "results.json").read_text()) == results
    accuracy = results["metrics"]["test"]["accuracy"]
    assert accuracy["lowest"] <= accuracy["median"] <= accuracy["highest"]

    # A run by itself gives what the second seed gave.
    alone = finetune("--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "alone", *FLAGS, "--seed", 8)
    assert alone["metrics"]["test"]["accuracy"] == accuracy["values"][1]
    parameters = (tmp_path / "alone" / "model.safetensors").read_bytes()
    assert (output / "seed-8" / "model.safetensors").read_bytes() == parameters

    # As if the second had been killed in the middle: it resumes, the first is left alone, and the third is new.
    for name in ("metrics.json", "model.safetensors", "predictions.tsv", "README.md"):
        (output / "seed-8" / name).unlink()
    shutil.rmtree(output / "seed-8" / "checkpoint-4")
    first = (output / "seed-7" / "metrics.json").stat().st_mtime_ns
    again = seeds("--seeds", 3)["metrics"]["test"]["accuracy"]["values"]
    assert len(again) == 3
    assert again[:2] == accuracy["values"]
    assert (output / "seed-7" / "metrics.json").stat().st_mtime_ns == first
    assert (output / "seed-8" / "model.safetensors").read_bytes() == parameters
    assert json.loads((output / "seed-8" / "metrics.json").read_text())["resumed"]
    with pytest.raises(ValueError, match=r"other settings \(learning_rate\)"):
        seeds("--seeds", 2, "--learning_rate", 1e-4)
    # Asked for, other settings take the place of the runs that are there.
    again = seeds("--seeds", 1, "--learning_rate", 1e-4, "--overwrite_output_dir", "true")
    assert again["seeds"] == [7]
    assert not (output / "seed-8" / "metrics.json").exists()


def test_what_is_wrong_is_refused_before_training(seeds, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for flags, message in (
        (["--seeds", 2, "--output_dir", tmp_path], "not empty"),
        (["--seeds", 2, "--resume_from_checkpoint", "checkpoint-1"], "resumes by itself"),
        (["--seeds", 0], "at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            seeds(*flags)
    assert not (tmp_path / "out").exists()


def test_median_and_range():
    record = {"task": "questions", "main_metric": "accuracy", "chance": 0.25, "rows": {"test": 8}, "model": "m"}
    record["random_weights"] = False
    values = {1: 0.5, 2: 0.9, 3: 0.7}
    results = summarise({seed: {**record, "metrics": {"test": {"accuracy": each}}} for seed, each in values.items()})
    assert results["metrics"] == {
        "test": {"accuracy": {"values": [0.5, 0.9, 0.7], "median": 0.7, "lowest": 0.5, "highest": 0.9}}
    }
