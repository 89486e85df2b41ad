"""Several seeds: what is repeated, what is not, and what is written."""

import json
import shutil

import pytest

from hf_gpt.commands import parse_arguments
from hf_gpt.training.finetune import format_results, run_seeds, summarise

from ..support.runs import ARGUMENTS, finetune

FLAGS = ["--task", "questions", "--max_train_rows", "32", "--max_eval_rows", "12", "--learning_rate", "1e-3"]
FLAGS += ["--per_device_train_batch_size", "16", "--num_train_epochs", "2", "--disable_tqdm", "true"]
FLAGS += ["--use_cpu", "true", "--save_total_limit", "9"]
FLAGS += ["--load_best_model_at_end", "false"]


def seeds(model, output, *flags) -> dict:
    return run_seeds(
        *parse_arguments(
            ARGUMENTS, ["--model_name_or_path", str(model), "--output_dir", str(output), *FLAGS, *map(str, flags)]
        )
    )


def test_seeds_go_on_where_they_were_stopped(tiny_checkpoint, tmp_path):
    output = tmp_path / "out"
    results = seeds(tiny_checkpoint, output, "--seeds", 2, "--seed", 7)
    assert json.loads((output / "results.json").read_text()) == results
    assert results["seeds"] == [7, 8]
    accuracy = results["metrics"]["test"]["accuracy"]
    assert accuracy["lowest"] <= accuracy["median"] <= accuracy["highest"]

    # A run by itself gives what the second seed gave.
    alone = finetune("--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "alone", *FLAGS, "--seed", 8)
    assert alone["metrics"]["test"]["accuracy"] == accuracy["values"][1]
    parameters = (tmp_path / "alone" / "model.safetensors").read_bytes()
    assert (output / "seed-8" / "model.safetensors").read_bytes() == parameters

    # As if the second had been killed in the middle: it goes on, the first is left alone, and the third is new.
    for name in ("metrics.json", "model.safetensors", "predictions.tsv", "README.md"):
        (output / "seed-8" / name).unlink()
    shutil.rmtree(output / "seed-8" / "checkpoint-4")
    first = (output / "seed-7" / "metrics.json").stat().st_mtime_ns
    again = seeds(tiny_checkpoint, output, "--seeds", 3, "--seed", 7)
    assert again["metrics"]["test"]["accuracy"]["values"][:2] == accuracy["values"]
    assert len(again["metrics"]["test"]["accuracy"]["values"]) == 3
    assert (output / "seed-7" / "metrics.json").stat().st_mtime_ns == first
    assert (output / "seed-8" / "model.safetensors").read_bytes() == parameters
    assert json.loads((output / "seed-8" / "metrics.json").read_text())["resumed"]

    with pytest.raises(ValueError, match=r"other settings \(learning_rate\)"):
        seeds(tiny_checkpoint, output, "--seeds", 2, "--seed", 7, "--learning_rate", 1e-4)


def test_refusals_before_training(tiny_checkpoint, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="not empty"):
        seeds(tiny_checkpoint, tmp_path, "--seeds", 2)
    with pytest.raises(ValueError, match="resumes by itself"):
        seeds(tiny_checkpoint, tmp_path / "out", "--seeds", 2, "--resume_from_checkpoint", "checkpoint-1")
    with pytest.raises(ValueError, match="at least 1"):
        seeds(tiny_checkpoint, tmp_path / "out", "--seeds", 0)
    assert not (tmp_path / "out").exists()


def records() -> dict[int, dict]:
    common = {"task": "questions", "main_metric": "accuracy", "chance": 0.25, "rows": {"test": 8}, "model": "m"}
    values = {1: 0.5, 2: 0.9, 3: 0.7}
    return {
        seed: {**common, "random_weights": False, "metrics": {"test": {"accuracy": value}}}
        for seed, value in values.items()
    }


def test_median_and_range():
    results = summarise(records())
    assert results["metrics"] == {
        "test": {"accuracy": {"values": [0.5, 0.9, 0.7], "median": 0.7, "lowest": 0.5, "highest": 0.9}}
    }
    assert "| test accuracy | 0.7000 | 0.5000 to 0.9000 | 0.5000, 0.9000, 0.7000 |" in format_results(results)
