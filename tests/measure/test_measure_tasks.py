"""The tables of fine-tuned tasks: what they show of finished runs, what is run, the baselines, and what is refused."""

import json
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from hf_gpt.adapters import METHODS as ADAPTERS
from hf_gpt.tasks import load_task

SCRIPTS = Path(__file__).parents[2] / "scripts"
MODEL = SCRIPTS.parent / "model_cards" / "gpt-mini"


@pytest.fixture
def tasks(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(str(SCRIPTS / "measure"))
    from scripts.measure import tasks

    return tasks


@pytest.fixture
def measure(tasks, monkeypatch):
    """Runs the script's `main` with flags."""

    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["tasks.py", "--model", str(MODEL), *map(str, flags)])
        tasks.main()

    return run


def finished_run(folder: Path, name: str, score: float, split: str, validation: float = 0.25) -> None:
    """What a run leaves: metrics of the validation rows, and of the test rows where there are any."""
    metrics = {"validation": {"accuracy": validation}, split: {"accuracy": score}}
    rows = {"train": 1200, "validation": 100, "test": 270}
    record = {"main_metric": "accuracy", "metrics": metrics, "chance": 0.167, "rows": rows}
    (folder / name).mkdir(parents=True)
    (folder / name / "run.json").write_text(json.dumps(record))


def test_learning_rates_are_chosen_on_validation(measure, tmp_path, capsys):
    # With the first seed the middle rate is best on validation, and another one on test.
    for rate, validation, score in ((0.0005, 0.3, 0.9), (0.001, 0.4, 0.5), (0.002, 0.2, 0.8)):
        finished_run(tmp_path, f"questions-pretrained-{rate:g}-1", score, "test", validation)
    for seed, score in ((2, 0.75), (3, 0.625)):
        finished_run(tmp_path, f"questions-pretrained-0.001-{seed}", score, "test")
    measure("--tasks", "questions", "--output_dir", tmp_path, "--report_only", "true")
    shown = capsys.readouterr().out.splitlines()[-1]
    assert shown.startswith("| questions | accuracy | 0.167 | 1,200 | test, 270 | 0.")
    assert shown.endswith("| 0.625 (0.500 to 0.750); 0.001 |")
    assert (tmp_path / "results.md").read_text().splitlines()[0].startswith("| task | metric | chance |")
    found = json.loads((tmp_path / "results.json").read_text())["questions"]
    assert found["cells"]["pretrained"]["scores"] == [0.5, 0.75, 0.625]
    assert found["baseline"] > 0.5  # a linear model of words tells most kinds of questions


@pytest.mark.whole
def test_what_fine_tuning_forgets(measure, tasks, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(tasks.COMMON, "num_train_epochs", "1")
    (tmp_path / "text.txt").write_text("She opened the door of the old house, and the dog ran to her.")
    flags = ["--tasks", "questions", "--rows", 64, "--eval_rows", 16, "--max_length", 16, "--seeds", 1]
    flags += ["--learning_rates", "0.01", "--text_file", tmp_path / "text.txt", "--output_dir", tmp_path / "out"]
    measure(*flags)
    result = json.loads((tmp_path / "out" / "results.json").read_text())["questions"]
    before = json.loads((tmp_path / "out" / "perplexity.json").read_text())["perplexity_per_token"]
    (after,) = result["cells"]["no auxiliary loss"]["perplexities"]
    assert after > before == result["perplexity_before"] > 10
    *_, head, _, line = capsys.readouterr().out.splitlines()
    assert head == "| fine-tuned on | before | pretrained | no auxiliary loss |"
    assert line.startswith(f"| questions | {before:.1f} | ")
    assert line.endswith(f" | {after:.1f} |")
    measure(*flags)
    assert capsys.readouterr().out.splitlines()[-1] == line


@pytest.mark.whole
def test_a_study_of_layers_trains_draws_and_goes_on(measure, tasks, tmp_path, monkeypatch):
    monkeypatch.setitem(tasks.COMMON, "num_train_epochs", "1")
    flags = ["--study", "layers", "--tasks", "questions", "--rows", 16, "--eval_rows", 16, "--max_length", 16]
    flags += ["--seeds", 1, "--learning_rates", "0.001", "--output_dir", tmp_path]
    measure(*flags)
    cells = json.loads((tmp_path / "results.json").read_text())["questions"]["cells"]
    assert list(cells) == [f"blocks {number}" for number in range(5)]
    assert (tmp_path / "results.png").stat().st_size > 10_000
    record = json.loads((tmp_path / "questions-blocks-2-0.001-1" / "metrics.json").read_text())
    assert record["transfer_layers"] == 2

    def no_run(*_):
        raise AssertionError("a finished run was repeated")

    monkeypatch.setattr(tasks, "run", no_run)
    measure(*flags)


@pytest.mark.whole
def test_tasks_together(measure, tasks, tmp_path, monkeypatch):
    monkeypatch.setitem(tasks.COMMON, "num_train_epochs", "1")
    flags = ["--study", "together", "--tasks", "questions", "stories", "--rows", 16, "--eval_rows", 16]
    flags += ["--max_length", 16, "--seeds", 1, "--learning_rates", "0.001", "--output_dir", tmp_path]
    measure(*flags)
    results = json.loads((tmp_path / "results.json").read_text())
    assert {task: list(result["cells"]) for task, result in results.items()} == {
        "questions": ["alone", "together"],
        "stories": ["alone", "together"],
    }
    # One run for both, of whose weights none are left.
    record = json.loads((tmp_path / "together-0.001-1" / "run.json").read_text())
    scores = {task: [each["metrics"]["test"][each["main_metric"]]] for task, each in record["tasks"].items()}
    assert scores == {task: result["cells"]["together"]["scores"] for task, result in results.items()}
    assert not list(tmp_path.rglob("*.safetensors"))


# peft 0.21 asks transformers 5.23 under an old name.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.whole
def test_ways_of_training(measure, tasks, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(tasks.COMMON, "num_train_epochs", "1")
    monkeypatch.setattr(tasks, "METHODS", {name: tasks.METHODS[name] for name in ("full", "frozen", "prefix")})
    flags = ["--study", "adapters", "--tasks", "questions", "--rows", 16, "--eval_rows", 16, "--max_length", 16]
    flags += ["--seeds", 1, "--learning_rates", "0.001", "--frozen_rates", "0.01", "--output_dir", tmp_path]
    measure(*flags)
    cells = json.loads((tmp_path / "results.json").read_text())["questions"]["cells"]
    assert {name: cell["rate"] for name, cell in cells.items()} == {"full": 0.001, "frozen": 0.01, "prefix": 0.01}
    assert cells["frozen"]["trained_parameters"] == 6 * 209  # six classes on 208 features and a bias
    prefix = load_file(tmp_path / "questions-prefix-0.01-1" / "adapter_model.safetensors")
    assert cells["prefix"]["trained_parameters"] == sum(tensor.numel() for tensor in prefix.values())
    assert all(seconds > 0 for cell in cells.values() for seconds in cell["seconds"])
    shown = capsys.readouterr().out.splitlines()[-4:]
    assert [line.split(" | ")[3] for line in shown] == ["baseline", "full", "frozen", "prefix"]
    assert (tmp_path / "results.png").stat().st_size > 10_000
    assert not list(tmp_path.rglob("model.safetensors"))


def test_every_adapter_is_a_way_of_training(tasks):
    assert set(tasks.METHODS) == {"full", "frozen", "frozen, mixed layers", "dora", *ADAPTERS}


def test_lines_and_columns_of_the_studies(tasks):
    def asked(study, **kwargs):
        return tasks.MeasureArguments(output_dir="none", study=study, model=str(MODEL), tasks=["questions"], **kwargs)

    assert [line.rows for line in tasks.lines(asked("rows", rows=800))] == [50, 200, 800]
    assert [line.rows for line in tasks.lines(asked("rows", rows=5000))] == [50, 200, 800, 5000]
    assert tasks.columns(asked("rows"))["frozen"][-2:] == tasks.FROZEN
    assert list(tasks.columns(asked("models", models=["alone=a", "after mnli=b"]))) == ["alone", "after mnli"]
    with pytest.raises(ValueError, match="--models NAME=FOLDER"):
        tasks.columns(asked("models", models=["a"]))
    # A frozen column has learning rates of its own.
    rates = {column: tried for _, column, tried, seed in tasks.jobs(asked("rows")) if seed == 1}
    assert rates["frozen"] == [3e-3, 1e-2, 3e-2]
    assert rates["pretrained"] == [5e-4, 1e-3, 2e-3]


def test_baselines(tasks):
    """By chance the questions would be 0.17 right, the choices of stories, which give nothing away, 0.5."""
    baselines = tasks.baselines
    assert baselines.score(load_task("questions"), None, None) > 0.7
    assert 0.3 < baselines.score(load_task("stories"), None, None) < 0.7


def test_most_frequent_tags(tasks):
    train = [{"words": ["The", "run", "runs"], "label": [0, 1, 2]}, {"words": ["run", "dog", "cat"], "label": [1] * 3}]
    rows = [{"words": ["the", "RUN", "unknown", "runs"], "label": [0, 1, 1, 1]}]
    assert tasks.baselines.most_frequent_tags(train, rows) == 0.75


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
        (["--tasks", "questions", "--study", "models"], "--models NAME=FOLDER"),
        (["--tasks", "questions", "--study", "together"], "two tasks or more"),
    ],
    ids=["task", "model", "models", "together"],
)
def test_wrong_arguments(measure, tmp_path, flags, message, capsys):
    with pytest.raises(SystemExit):
        measure(*flags, "--output_dir", tmp_path / "out")
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_missing_data_is_named(measure, tmp_path, capsys):
    measure("--tasks", "questions", "sst2", "--output_dir", tmp_path / "out", "--report_only", "true")
    assert "No data for sst2: left out." in capsys.readouterr().err
