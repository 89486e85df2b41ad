"""The table of all tasks: what it shows of finished runs, and what it refuses."""

import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
MODEL = SCRIPTS.parent / "model_cards" / "gpt-mini"


@pytest.fixture
def measure(monkeypatch):
    """Runs the script's `main` with flags."""
    from scripts.measure import tasks

    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["tasks.py", "--model", str(MODEL), *map(str, flags)])
        tasks.main()

    return run


def finished_run(folder: Path, name: str, score: float, split: str) -> None:
    """What a run leaves: metrics of the validation rows, and of the test rows where there are any."""
    metrics = {"validation": {"accuracy": 0.25}, split: {"accuracy": score}}
    rows = {"train": 1200, "validation": 100, "test": 270}
    record = {"main_metric": "accuracy", "metrics": metrics, "chance": 0.167, "rows": rows}
    (folder / name).mkdir(parents=True)
    (folder / name / "metrics.json").write_text(json.dumps(record))


def test_table_of_what_is_finished(measure, tmp_path, capsys):
    for seed, score in ((1, 0.5), (2, 0.75), (3, 0.625)):
        finished_run(tmp_path, f"questions-pretrained-{seed}", score, "test")
    finished_run(tmp_path, "questions-random-weights-1", 0.4, "test")
    finished_run(tmp_path, "stories-pretrained-1", 0.55, "validation")
    measure("--tasks", "questions", "stories", "--output_dir", tmp_path, "--report_only", "true")
    lines = capsys.readouterr().out.splitlines()
    assert (
        "| questions | accuracy | 0.167 | 1,200 | test, 270 | 3 / 0 / 1 | 0.625 (0.500 to 0.750) | - | 0.400 |"
        in lines
    )
    assert "| stories | accuracy | 0.167 | 1,200 | validation, 100 | 1 / 0 / 0 | 0.550 | - | - |" in lines
    assert (tmp_path / "results.md").read_text().splitlines()[0].startswith("| task | metric | chance |")
    scores = json.loads((tmp_path / "results.json").read_text())["questions"]["scores"]
    assert scores == {"pretrained": [0.5, 0.75, 0.625], "random weights": [0.4]}


def test_other_settings_are_not_mixed(measure, tmp_path, capsys):
    flags = ["--tasks", "questions", "--output_dir", tmp_path, "--report_only", "true"]
    measure(*flags)
    with pytest.raises(SystemExit):
        measure(*flags, "--rows", 7)
    assert "holds results of other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tasks", "sorting"], "unknown task sorting"),
        (["--tasks", "questions", "--model", "no-such-folder"], "is no model's folder"),
    ],
    ids=["task", "model"],
)
def test_wrong_arguments(measure, tmp_path, flags, message, capsys):
    with pytest.raises(SystemExit):
        measure(*flags, "--output_dir", tmp_path / "out")
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_missing_data_is_named(measure, tmp_path, capsys):
    measure("--tasks", "questions", "sst2", "--output_dir", tmp_path / "out", "--report_only", "true")
    assert "No data for sst2: left out." in capsys.readouterr().err
