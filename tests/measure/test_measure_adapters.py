"""`measure/adapters.py`: runs that are not repeated, what it counts, its table and picture, what it refuses."""

import json
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from hf_gpt import load_adapter
from hf_gpt.adapters import METHODS as ADAPTERS

from ..support.runs import REPOSITORY

# peft 0.21 asks transformers 5.23 under an old name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


@pytest.fixture(scope="module", autouse=True)
def scripts_on_path():
    sys.path.insert(0, str(REPOSITORY / "scripts" / "measure"))
    yield
    sys.path.remove(str(REPOSITORY / "scripts" / "measure"))


@pytest.fixture
def sweep(tiny_checkpoint, monkeypatch, capsys):
    """`sweep(output, *flags)` runs the script on a few questions and returns (exit status, output, errors)."""
    from scripts.measure import adapters

    def run(output, *flags):
        defaults = ("--model", tiny_checkpoint, "--task", "questions", "--rows", 24, "--epochs", 1, "--max_length", 40)
        defaults += ("--output_dir", output)
        monkeypatch.setattr(sys, "argv", ["adapters.py", *map(str, (*defaults, *flags))])
        status = 0
        try:
            adapters.main()
        except SystemExit as error:
            status = error.code
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_every_method_is_in_the_tables():
    from scripts.measure.adapters import LEARNING_RATES, METHODS

    assert set(METHODS) == set(LEARNING_RATES) == {"full", "frozen-last", "frozen-mix", "dora", *ADAPTERS}


def test_a_sweep_goes_on_where_it_was_stopped(sweep, tmp_path, monkeypatch):
    from scripts.measure import adapters

    output = tmp_path / "out"
    started = []

    def run_or_stop(*arguments):
        if len(started) == 3:
            raise KeyboardInterrupt
        started.append(Path(arguments[-1].output_dir).name)
        return train_adapters_run(*arguments)

    train_adapters_run = adapters.run
    monkeypatch.setattr(adapters, "run", run_or_stop)
    flags = ("--methods", "full", "lora", "--seeds", 2, "--learning_rate", "lora=2e-3")
    status, _, errors = sweep(output, *flags)
    assert status == 130
    assert errors.endswith("adapters.py: stopped (SIGINT). The same command goes on where it was stopped.\n")
    # The first seed of every method comes before the second of any.
    assert started == ["questions-full-1", "questions-lora-1", "questions-full-2"]
    methods = json.loads((output / "results.json").read_text())["questions"]["methods"]
    assert list(methods["full"]["scores"]) == ["1", "2"]
    assert list(methods["lora"]["scores"]) == ["1"]
    assert "1 of 2 seeds" in (output / "results.md").read_text()

    monkeypatch.setattr(adapters, "run", train_adapters_run)
    status, printed, _ = sweep(output, *flags)
    assert status == 0
    assert "3 of 4 runs are finished" in printed
    results = json.loads((output / "results.json").read_text())
    assert results["questions"]["methods"]["full"]["scores"] == methods["full"]["scores"]
    table = (output / "results.md").read_text()
    assert table in printed
    assert "of 2 seeds" not in table
    assert "| 0.002 |" in table

    # A method more joins the others; other settings do not.
    status, printed, _ = sweep(output, "--methods", "ln", "--seeds", 1, "--learning_rate", "lora=2e-3")
    assert status == 0
    results = json.loads((output / "results.json").read_text())
    assert list(results["questions"]["methods"]) == ["full", "lora", "ln"]
    status, _, errors = sweep(output, "--methods", "ln", "--learning_rate", "lora=2e-3", "--epochs", 2)
    assert status == 2
    assert "other settings (epochs)" in errors
    status, _, errors = sweep(output, "--methods", "ln")
    assert status == 2
    assert "other settings (learning_rates)" in errors


def test_what_is_counted(sweep, tmp_path):
    output = tmp_path / "out"
    assert sweep(output, "--methods", "full", "frozen-last", "lora", "prefix", "--seeds", 1)[0] == 0
    methods = json.loads((output / "results.json").read_text())["questions"]["methods"]
    assert methods["full"]["share"] == 1
    for name in ("lora", "prefix"):
        folder = output / f"questions-{name}-1"
        kept = load_file(folder / "adapter_model.safetensors")
        numbers = sum(tensor.numel() for tensor in kept.values())
        assert methods[name]["trained_parameters"] == numbers
        assert methods[name]["share"] == pytest.approx(numbers / methods["full"]["trained_parameters"])
        files = ("adapter_model.safetensors", "adapter_config.json", "head_config.json")
        assert methods[name]["bytes"] == sum((folder / file).stat().st_size for file in files)
        assert load_adapter(folder).config.num_labels == 6
    head = 6 * 33
    assert methods["frozen-last"]["trained_parameters"] == head
    assert methods["frozen-last"]["bytes"] == 4 * head
    # A whole model is counted, and then deleted.
    assert 4 * methods["full"]["trained_parameters"] < methods["full"]["bytes"]
    assert not list(output.glob("*/model.safetensors"))


def test_an_unfinished_run_is_repeated(sweep, tmp_path):
    output = tmp_path / "out"
    flags = ("--methods", "ln", "--seeds", 1)
    sweep(output, *flags)
    before = json.loads((output / "results.json").read_text())["questions"]["methods"]["ln"]
    (output / "questions-ln-1" / "run.json").unlink()
    sweep(output, *flags)
    after = json.loads((output / "results.json").read_text())["questions"]["methods"]["ln"]
    assert after["scores"] == before["scores"]


def test_several_tasks(sweep, tmp_path):
    """Each has a table of its own, and its data a folder of its own."""
    output = tmp_path / "out"
    data = REPOSITORY / "hf_gpt" / "tasks" / "data"
    flags = ("--task", "questions", "stories", "--data_dir", f"questions={data}", "--methods", "ln", "--seeds", 1)
    status, printed, _ = sweep(output, *flags)
    assert status == 0
    results = json.loads((output / "results.json").read_text())
    assert list(results) == ["questions", "stories"]
    assert results["stories"]["chance"] == 0.5
    assert "questions: 24 training rows, 24 test rows" in printed
    assert "stories: 24 training rows" in printed
    status, _, errors = sweep(output, "--data_dir", tmp_path, "--methods", "ln", "--seeds", 1)
    assert status == 2
    assert errors


REFUSALS = {
    "method": (["--methods", "full", "lore"], "Unknown method 'lore'; choose of full, "),
    "task": (["--task", "question"], "Did you mean 'questions'?"),
    "files": (["--task", "trec"], "trec"),
    "model": (["--model", "nowhere"], "--model nowhere"),
    "rate of what": (["--learning_rate", "1e-3"], "write METHOD=VALUE"),
    "rate of an unknown method": (["--learning_rate", "lore=1e-3"], "'lore' is no method here"),
    "rate": (["--learning_rate", "lora=fast"], "positive number"),
    "negative rate": (["--learning_rate", "lora=-1"], "positive number"),
    "folder of what": (["--task", "questions", "stories", "--data_dir", "data"], "write TASK=VALUE"),
    "seeds": (["--seeds", "0"], "--seeds must be at least 1"),
    "epochs": (["--epochs", "0"], "--epochs must be more than 0"),
    # The virtual tokens of prefix tuning take 20 of 64 positions.
    "length": (["--methods", "full", "prefix", "--max_length", "50"], "context of 44"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_before_training(name, sweep, tmp_path):
    flags, message = REFUSALS[name]
    status, _, errors = sweep(tmp_path / "out", *flags)
    assert status == 2
    assert errors.startswith("adapters.py: ")
    assert message in errors
    assert not (tmp_path / "out").exists()


def test_other_refusals(sweep, tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    status, _, errors = sweep(tmp_path)
    assert status == 2
    assert "holds something else" in errors
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, _, errors = sweep(tmp_path / "out")
    assert status == 2
    assert "pip install" in errors
    assert not (tmp_path / "out").exists()


def write_run(folder: Path, method: str, seed: int, score: float, task: str = "trec") -> None:
    parameters = {"full": 4_000_000, "lora": 90_000}[method]
    values = {"task": task, "method": method, "seed": seed, "learning_rate": 0.003, "metric": "accuracy"}
    values |= {"split": "test", "score": score, "chance": 0.25, "rows": {"train": 2000, "validation": 9, "test": 500}}
    values |= {"trained_parameters": parameters, "share": parameters / 4e6, "train_seconds": 10.0 * seed}
    values["run_seconds"] = 11.0 * seed
    run = folder / f"{task}-{method}-{seed}" / "run.json"
    run.parent.mkdir()
    run.write_text(json.dumps(values | {"bytes": 4 * parameters + 1}))


def test_table_and_picture(tmp_path):
    pytest.importorskip("matplotlib")
    from scripts.measure.adapters import write_results

    for seed, score in ((1, 0.5), (2, 0.875), (10, 0.75)):
        write_run(tmp_path, "full", seed, score)
    write_run(tmp_path, "lora", 1, 0.625)
    write_run(tmp_path, "lora", 1, 0.5, task="stories")
    text = write_results(tmp_path)
    assert text.startswith("stories: ")
    assert "trec: 2,000 training rows, 500 test rows, chance 0.250, seeds 1, 2, 10\n" in text
    assert "| full | 0.750 (0.500 to 0.875) | 4,000,000 | 100.00% | 20 | 22 | 16,000,001 | 0.003 |" in text
    assert "| lora | 0.625, 1 of 3 seeds | 90,000 | 2.25% | 10 | 11 | 360,001 | 0.003 |" in text
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        "results.json",
        "results.md",
        "results.png",
    }
