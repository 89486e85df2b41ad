"""What the scripts of measurements count, run, choose and show, and what they refuse. Nothing here looks at a time."""

import json

import baselines
import benchmark
import harness
import literature
import numpy as np
import paper
import pytest
import tasks
import torch
from benchmark import CLASSIFY, DELIMITER, START, Workload, make_workload, padding_share, random_rows, useful_flops

from hf_gpt.tasks import load_task

from ..support.runs import REPOSITORY

MODEL = REPOSITORY / "model_cards" / "gpt-mini"
TINY = benchmark.SIZES["tiny"]
ROWS = [[[1, 2, 3, 9], [1, 2, 4, 5, 9]], [[1, 6, 9], [1, 7, 9]]]
WORKLOAD = Workload("two rows", "multiple-choice", grouped=[ROWS], shuffled=[ROWS[::-1]])


def test_shapes_keep_their_lengths_and_both_sides_have_the_same_rows():
    shape = {"choices": 3, "context": (5, 5), "choice": (2, 2)}
    (row,) = random_rows(shape, 1, np.random.default_rng(0))
    assert [len(path) for path in row] == [10, 10, 10]
    assert {tuple(path[:6]) for path in row} == {(START, *row[0][1:6])}
    assert all(path[6] == DELIMITER and path[-1] == CLASSIFY for path in row)
    made = make_workload("ROCStories-shaped", "multiple-choice", seed=1)
    assert [len(batch) for batch in made.grouped] == [len(batch) for batch in made.shuffled] == [8, 8]
    assert sorted(made.rows) == sorted(row for batch in made.shuffled for row in batch)
    assert made.grouped != made.shuffled


def test_padding_and_operations_are_counted():
    # As trees: 1 2 3 9 4 5 9 and 1 6 9 7 9, so 12 of 14; as sequences 4 + 5 + 3 + 3 of 20.
    assert padding_share(WORKLOAD.grouped, as_trees=True) == pytest.approx(1 - 12 / 14)
    assert padding_share(WORKLOAD.grouped, as_trees=False) == pytest.approx(1 - 15 / 20)
    tokens, seen = 7 + 5, (1 + 2 + 3 + 4 + 3 + 4 + 5) + (1 + 2 + 3 + 2 + 3)
    parents = 5 + 3  # 1, 2, 3, 4 and 5; 1, 6 and 7
    blocks = 2 * (24 * 8**2 * tokens + 4 * 8 * seen)
    size = {"n_embd": 8, "n_layer": 2}
    assert useful_flops(ROWS, size, trains=False) == blocks
    assert useful_flops(ROWS, size) == 3 * (blocks + 2 * 8 * 40481 * parents)


@pytest.mark.parametrize("suite", ["multiple-choice", "classification", "pretrain", "features", "generate"])
def test_every_contender_takes_its_turn_and_the_stock_model_has_our_logits(suite, monkeypatch):
    monkeypatch.setattr(benchmark, "NEW_TOKENS", 2)
    rows = ROWS if suite == "multiple-choice" else [[[1, 2, 3, 9]], [[1, 6, 9, 9]]]
    made = Workload("two rows", suite, [rows], [rows])
    names = benchmark.contenders(made)
    assert (benchmark.UNSHARED in names) == (suite == "multiple-choice")
    for name in names:
        benchmark.build(name, made, TINY, "cpu")()
    if suite in ("multiple-choice", "classification"):
        assert benchmark.logits_difference(made, TINY) < 1e-6


def test_peak_memory_is_what_a_turn_takes_at_most_whatever_was_freed_before():
    torch.ones(4 * 2**24).sum()  # freed again

    def turn():
        for _ in range(2):
            torch.ones(2**24).sum()

    assert harness.peak_memory(turn) == pytest.approx(4 * 2**24, rel=0.1)


WRONG = {
    "suite": (benchmark, ["--suites", "sorting"], "invalid choice: 'sorting'"),
    "rounds": (benchmark, ["--rounds", "0"], "--rounds must be at least 1"),
    "data": (benchmark, ["--suites", "classification"], "trec6"),
    "task": (tasks, ["--tasks", "sorting"], "invalid choice: 'sorting'"),
    "models": (tasks, ["--tasks", "questions", "--study", "models", "--models", "a"], "--models NAME=FOLDER"),
    "together": (tasks, ["--tasks", "questions", "--study", "together"], "two tasks or more"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments(wrong, script, tmp_path):
    module, flags, message = WRONG[wrong]
    status, _, errors = script(module, *flags, "--output_dir", tmp_path / "out")
    assert (status, errors.count("\n")) == (2, 1)
    assert message in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_benchmark_resumes_and_does_not_mix(script, tmp_path):
    flags = ["--output_dir", tmp_path, "--suites", "generate", "--size", "tiny", "--rounds", 1]
    assert script(benchmark, *flags)[0] == 0
    before = (tmp_path / "results.json").read_text()
    names = {*benchmark.contenders(Workload("decoding", "generate", [], []))}
    assert set(json.loads(before)["results"]["64 tokens behind 16, batch 1"]["peak_memory"]) == names
    assert script(benchmark, *flags)[0] == 0
    assert (tmp_path / "results.json").read_text() == before  # nothing was measured again
    status, _, errors = script(benchmark, *flags, "--seed", 1)
    assert (status, "holds results of other settings (seed)" in errors) == (2, True)


def test_learning_rates_are_chosen_on_validation(script, tmp_path):
    """Also: finished runs are not repeated, missing data is named, other settings are not mixed."""
    rows = {"train": 1200, "validation": 100, "test": 270}
    # With the first seed the middle rate is best on validation, and another one on test.
    runs = {"0.0005-1": (0.3, 0.9), "0.001-1": (0.4, 0.5), "0.002-1": (0.2, 0.8)}
    runs |= {"0.001-2": (0.25, 0.75), "0.001-3": (0.25, 0.625)}
    for column in ("pretrained", "no-auxiliary-loss", "random-weights"):
        for name, (validation, test) in runs.items():
            metrics = {"validation": {"accuracy": validation}, "test": {"accuracy": test}}
            record = {"main_metric": "accuracy", "metrics": metrics, "chance": 0.167, "rows": rows}
            (folder := tmp_path / f"questions-{column}-{name}").mkdir()
            (folder / "run.json").write_text(json.dumps(record))
    flags = ["--tasks", "questions", "sst2", "--output_dir", tmp_path, "--model", MODEL]
    _, printed, errors = script(tasks, *flags)
    assert "No data for sst2: left out." in errors
    *_, line = printed.splitlines()
    assert line.startswith("| questions | accuracy | 0.167 | 1,200 | test, 270 | 0.")
    assert line.endswith(" | 0.625 (0.500 to 0.750); 0.001" * 3 + " |")
    status, _, errors = script(tasks, *flags, "--rows", 7)
    assert (status, "holds results of other settings" in errors) == (2, True)


@pytest.fixture
def study(script, monkeypatch, tmp_path):
    """`study(*flags)`: a small study with one seed of one epoch; its results and what it printed, line by line."""
    monkeypatch.setitem(tasks.COMMON, "num_train_epochs", 1)

    def run(*flags):
        small = ["--model", MODEL, "--eval_rows", 16, "--max_length", 16, "--seeds", 1, "--output_dir", tmp_path]
        status, printed, errors = script(tasks, *small, *flags)
        assert status == 0, errors
        return json.loads((tmp_path / "results.json").read_text()), printed.splitlines()

    return run


@pytest.mark.whole
def test_tasks_together_are_one_run_and_what_fine_tuning_forgets(study, tmp_path):
    (tmp_path / "text.txt").write_text("She opened the door of the old house, and the dog ran to her.")
    flags = ["--learning_rates", 0.01, "--text_file", tmp_path / "text.txt"]
    results, shown = study("--study", "together", "--tasks", "questions", "stories", "--rows", 16, *flags)
    record = json.loads((tmp_path / "together-0.01-1" / "run.json").read_text())
    scores = {task: [each["metrics"]["test"][each["main_metric"]]] for task, each in record["tasks"].items()}
    assert scores == {task: result["cells"]["together"]["scores"] for task, result in results.items()}
    before = json.loads((tmp_path / "perplexity.json").read_text())["perplexity_per_token"]
    (after,) = results["stories"]["cells"]["alone"]["perplexities"]
    assert after > before == results["stories"]["perplexity_before"] > 10
    assert shown[-4] == "| fine-tuned on | before | alone | together |"
    assert shown[-1] == f"| stories | {before:.1f} | {after:.1f} | - |"


@pytest.mark.whole
def test_ways_of_training(study, tmp_path):
    flags = ["--columns", "full", "frozen", "prefix", "--learning_rates", 0.001, "--frozen_rates", 0.01]
    results, shown = study("--study", "adapters", "--tasks", "questions", "--rows", 16, *flags)
    cells = results["questions"]["cells"]
    assert {name: cell["rate"] for name, cell in cells.items()} == {"full": 0.001, "frozen": 0.01, "prefix": 0.01}
    assert cells["frozen"]["trained_parameters"] == 6 * 209  # six classes on 208 features and a bias
    assert [line.split(" | ")[3] for line in shown[-4:]] == ["baseline", "full", "frozen", "prefix"]
    assert (tmp_path / "results.png").stat().st_size > 10_000
    assert not list(tmp_path.rglob("model.safetensors"))


def test_baselines():
    """By chance the questions would be 0.17 right, the choices of stories, which give nothing away, 0.5."""
    assert baselines.score(load_task("questions"), "test", 400, 200) > 0.6
    assert 0.3 < baselines.score(load_task("stories"), "test", 100, 100) < 0.7
    train = [{"words": ["The", "run", "runs"], "label": [0, 1, 2]}, {"words": ["run", "dog", "cat"], "label": [1] * 3}]
    rows = [{"words": ["the", "RUN", "unknown", "runs"], "label": [0, 1, 1, 1]}]
    assert baselines.most_frequent_tags(train, rows) == 0.75


def test_the_papers_tables_name_what_is_missing_and_resume(tiny_checkpoint, script, tmp_path):
    (tmp_path / "data" / "cola").mkdir(parents=True)
    lines = [f"x\t{number % 2}\t\tthe {word} was old {number}" for number, word in enumerate(("house", "dog") * 12)]
    for name in ("in_domain_train.tsv", "in_domain_dev.tsv"):
        (tmp_path / "data" / "cola" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    flags = ["--model", tiny_checkpoint, "--data_dir", tmp_path / "data", "--output_dir", output := tmp_path / "out"]
    flags += ["--tasks", "cola", "rte", "--seeds", 2, "--max_train_rows", 8, "--num_train_epochs", 1]
    status, printed, errors = script(paper, *flags, "--max_length", 16)
    assert status == 0, errors
    ablations = [line for line in printed.splitlines() if line.startswith("| cola | 45.4 | ")]
    assert [[" | 18.9 | " in line, " | 47.9 | " in line] for line in ablations] == [[True, True]]
    assert "| rte | accuracy | 56.0 | - | missing: no folder rte |" in printed
    assert not [*output.rglob("model.safetensors")]
    metrics = {file: file.stat().st_mtime_ns for file in output.rglob("metrics.json")}
    assert len(metrics) == 6  # three variants, two seeds
    assert script(paper, *flags, "--max_length", 16)[1].endswith(printed[printed.index("Table 2") :])
    assert {file: file.stat().st_mtime_ns for file in output.rglob("metrics.json")} == metrics
    assert script(paper, *flags, "--max_length", 12)[0] == 2  # other settings


def test_a_model_next_to_the_literature(tiny_checkpoint, script, tmp_path):
    (tmp_path / "text.txt").write_text("the house was old . " * 20, encoding="utf-8")
    flags = ["--model_name_or_path", tiny_checkpoint, "--ptb", tmp_path / "text.txt"]
    status, printed, _ = script(literature, *flags, "--lambada", tmp_path / "text.txt")
    _, _, row, *reported = [
        line.strip("| ").split(" | ") for line in printed[printed.index("| model |") :].splitlines()
    ]
    assert (status, row[1], row[5], len(reported)) == (0, "-", "-", 8)
    assert float(row[2].replace(",", "")) > 1
