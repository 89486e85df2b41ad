"""The benchmark's workloads, counts and tables, and what it refuses. Nothing here looks at a time."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "scripts" / "measure"
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def scripts_on_path():
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))


@pytest.fixture
def workload():
    from benchmarking.workloads import Workload

    rows = [[[1, 2, 3, 9], [1, 2, 4, 5, 9]], [[1, 6, 9], [1, 7, 9]]]
    return Workload("two rows", "multiple-choice", grouped=[rows], shuffled=[rows[::-1]])


def test_shapes_keep_their_lengths():
    from benchmarking.workloads import CLASSIFY, DELIMITER, START, Shape, make_workload

    (row,) = Shape(3, (5, 5), (2, 2), 1).rows(1, np.random.default_rng(0))
    assert [len(path) for path in row] == [10, 10, 10]
    assert {tuple(path[:6]) for path in row} == {(START, *row[0][1:6])}
    assert all(path[6] == DELIMITER and path[-1] == CLASSIFY for path in row)
    made = make_workload("ROCStories-shaped", "multiple-choice", seed=1)
    assert [len(batch) for batch in made.grouped] == [len(batch) for batch in made.shuffled] == [8, 8]
    grouped, shuffled = ({str(row) for batch in side for row in batch} for side in (made.grouped, made.shuffled))
    assert grouped == shuffled
    assert made.grouped != made.shuffled


def test_padding_share(workload):
    from benchmarking.workloads import padding_share

    # As trees: 1 2 3 9 4 5 9 and 1 6 9 7 9, so 12 of 14; as sequences 4 + 5 + 3 + 3 of 20.
    assert padding_share(workload.grouped, as_trees=True) == pytest.approx(1 - 12 / 14)
    assert padding_share(workload.grouped, as_trees=False) == pytest.approx(1 - 15 / 20)


def test_useful_flops(workload):
    from benchmarking.workloads import VOCABULARY, useful_flops

    tokens, seen = 7 + 5, (1 + 2 + 3 + 4 + 3 + 4 + 5) + (1 + 2 + 3 + 2 + 3)
    parents = 5 + 3  # 1, 2, 3, 4 and 5; 1, 6 and 7
    blocks = 2 * (24 * 8**2 * tokens + 4 * 8 * seen)
    size = {"n_embd": 8, "n_layer": 2}
    assert useful_flops(workload.rows, size, predicts=False, passes=1) == blocks
    assert useful_flops(workload.rows, size) == 3 * (blocks + 2 * 8 * (VOCABULARY + 3) * parents)


@pytest.mark.parametrize("suite", ["multiple-choice", "pretrain", "features", "generate"])
def test_every_contender_takes_its_turn(suite, monkeypatch):
    from benchmarking import contenders
    from benchmarking.measure import SIZES
    from benchmarking.workloads import Workload

    monkeypatch.setattr(contenders, "NEW_TOKENS", 2)
    rows = [[[1, 2, 3, 9], [1, 2, 4, 9]]] if suite == "multiple-choice" else [[[1, 2, 3, 9]]]
    made = Workload("one row", suite, [rows], [rows])
    names = contenders.contenders(made)
    assert (contenders.UNSHARED in names) == (suite == "multiple-choice")
    for name in names:
        contenders.build(name, made, SIZES["tiny"], CPU)()


def test_logits_are_those_of_the_stock_model(workload):
    from benchmarking.contenders import logits_difference
    from benchmarking.measure import SIZES

    assert logits_difference(workload, SIZES["tiny"]) < 1e-6


def test_tables():
    from benchmarking.report import padding_table, sweep_growth, table

    result = {
        "suite": "choices",
        "median_seconds": {"hf_gpt": 0.5, "openai-gpt": 1.0, "gpt2": 2.0},
        "ratio": {"hf_gpt": 1.0, "openai-gpt": 2.0, "gpt2": 4.0},
        "padding": {"hf_gpt": 0.01, "peers": 0.2},
        "peak_memory": {"hf_gpt": 1, "openai-gpt": 4},
        "share_of_product_rate": 0.9,
        "logits_difference": 2e-7,
    }
    twice = {**result, "median_seconds": {"hf_gpt": 0.6, "openai-gpt": 2.0, "gpt2": 4.0}}
    padding = {"suite": "padding", "rows": 1000, "padding": {"hf_gpt": 0.02, "evaluation": 0.01, "peers": 0.5}}
    results = {"1 choices": result, "2 choices": twice, "TREC, padding": padding}
    lines = table(results).splitlines()
    assert lines[2] == "| 1 choices | 0.50 s | 2.00 x | 4.00 x | - | 0.25 | 1.0%, 20.0% | 90% | 2e-07 |"
    assert len(lines) == 4
    assert padding_table(results).splitlines()[2] == "| TREC | 1,000 | 2.0% | 1.0% | 50.0% |"
    assert sweep_growth(results, "choices") == "- 2 choices: hf_gpt 1.20 x, openai-gpt 2.00 x, gpt2 2.00 x"
    assert table({"TREC, padding": padding}) == ""


def test_decoding_table():
    from benchmarking.decoding import CASES, decoding_table

    assert CASES["batch 16, 4 beams"] == (16, 4)
    medians = {"batch 16, greedy": {"hf_gpt": 2.0, "hf_gpt, bfloat16 weights": 1.0, "gpt2": 3.0, "products": 1.5}}
    lines = decoding_table({"new_tokens": 32, "median_seconds": medians}).splitlines()
    assert lines[2:] == ["| batch 16, greedy | 256.0 | 1.50 x | 0.50 x | 75% |"]


def run_benchmark(*arguments):
    command = [sys.executable, str(SCRIPTS / "benchmark.py"), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suites", "sorting"], "unknown suite sorting"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--suites", "classification"], "give the folder it is in with --data_dir"),
    ],
    ids=["suite", "rounds", "data"],
)
def test_wrong_arguments(arguments, message, tmp_path, monkeypatch, capsys):
    import benchmark

    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--output_dir", str(tmp_path / "out"), *arguments])
    with pytest.raises(SystemExit):
        benchmark.main()
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_run_goes_on_and_does_not_mix(tmp_path):
    arguments = [
        "--suites",
        "generate",
        "--size",
        "tiny",
        "--rounds",
        1,
        "--memory",
        "false",
        "--output_dir",
        tmp_path,
    ]
    first = run_benchmark(*arguments)
    assert first.returncode == 0, first.stderr
    before = (tmp_path / "results.json").read_text()
    assert "64 tokens behind 16" in json.loads(before)["results"]
    assert run_benchmark(*arguments).returncode == 0
    assert (tmp_path / "results.json").read_text() == before  # nothing was measured again
    other = run_benchmark(*arguments, "--seed", 1)
    assert other.returncode == 2
    assert "holds results of other settings (seed)" in other.stderr
