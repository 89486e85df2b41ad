"""How time and memory of our training step grow with what a user can enlarge, and whether the data side keeps up."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from hf_gpt import GPTConfig, GPTForMultipleChoice, GPTTokenizer
from hf_gpt.analysis.figures import new_figure
from hf_gpt.tasks import load_task
from hf_gpt.tasks.encode import encode_rows
from hf_gpt.trees.collators import TokenTreeCollator, collate_trees
from hf_gpt.trees.token_tree import TokenTree
from hf_gpt.trees.transforms import InputTransform, SpecialIds

from .measure import in_own_process, in_turns, rise_of_memory, timed
from .workloads import CLASSIFY, DELIMITER, PAD, START

# Every axis is doubled twice from here, the others stay: rows of a batch, tokens of context, choices, and so on.
BASE = {"rows": 2, "length": 100, "choices": 2, "vocabulary": 10_000, "layers": 2}
ENDING = 10  # tokens of a choice
# Operations a second of a large GPU (H100, dense bfloat16, its maker's data sheet) of which training does two fifths.
GPU_OPERATIONS = 0.4 * 989e12
GPT1_PARAMETERS = 116e6
DATA_ROWS = 4000


def points() -> dict[str, dict[str, int]]:
    """Every setting that is measured, by its name; the base is one of each axis."""
    return {
        f"{axis} {value * times}": {**BASE, axis: value * times} for axis, value in BASE.items() for times in (1, 2, 4)
    }


def training_step(size: dict, setting: Mapping[str, int], seed: int, device: torch.device) -> Any:
    """A function without arguments: forward and backward of the joint loss of one batch."""
    random, vocabulary = np.random.default_rng(seed), setting["vocabulary"]
    specials = [vocabulary - PAD - 1 + token for token in (START, DELIMITER, CLASSIFY, PAD)]
    names = ("start_token_id", "delimiter_token_id", "classify_token_id", "pad_token_id")
    config = dict(zip(names, specials, strict=True), bos_token_id=specials[0], vocab_size=vocabulary)
    config = GPTConfig(**{**size, **config, "n_layer": setting["layers"]})
    model = GPTForMultipleChoice(config).to(device).train()
    trees = []
    for _ in range(setting["rows"]):
        context = random.integers(0, specials[0], setting["length"]).tolist()
        endings = random.integers(0, specials[0], (setting["choices"], ENDING)).tolist()
        trees.append(
            TokenTree.from_paths([[specials[0], *context, specials[1], *each, specials[2]] for each in endings])
        )
    batch = {**collate_trees(trees, specials[3]), "labels": torch.zeros(len(trees), dtype=torch.long)}
    batch = {name: value.to(device) for name, value in batch.items()}

    def step() -> None:
        model.zero_grad()
        model(**batch).loss.backward()

    return step


def step_memory(*arguments: Any) -> int:
    """By how much the first step raises this process's peak memory (bytes)."""
    return rise_of_memory(training_step(*arguments), arguments[-1])


def scaling(size: dict, rounds: int, seed: int, device: torch.device) -> dict[str, Any]:
    """Median seconds of a step at every point, all taking turns, its peak memory, and the exponents of both."""
    torch.manual_seed(seed)
    named = points()
    steps = {name: training_step(size, setting, seed, device) for name, setting in named.items()}
    seconds, medians = in_turns(steps, rounds, device, "scaling")
    steps.clear()
    memory = {
        name: in_own_process(step_memory, size, setting, seed, device)
        for name, setting in tqdm(named.items(), desc="memory", unit="point")
    }
    exponents = {axis: {"time": exponent(axis, medians), "memory": exponent(axis, memory)} for axis in BASE}
    return {
        "suite": "scaling",
        "base": {**BASE, "ending": ENDING, "n_embd": size["n_embd"]},
        "seconds": seconds,
        "median_seconds": medians,
        "peak_memory": memory,
        "exponents": exponents,
    }


def _along(axis: str, measured: Mapping[str, float]) -> tuple[list[int], list[float]]:
    values = [BASE[axis] * times for times in (1, 2, 4)]
    return values, [measured[f"{axis} {value}"] for value in values]


def exponent(axis: str, measured: Mapping[str, float]) -> float:
    """Of the power of an axis that fits what was measured best: the slope over both logarithms."""
    return float(np.polyfit(*np.log(_along(axis, measured)), 1)[0])


def scaling_table(result: Mapping[str, Any]) -> str:
    """A Markdown table of both ends of every axis and of the exponents."""
    lines = ["| doubled twice | step | exponent | peak memory | exponent |", "|---|---|---|---|---|"]
    for axis, found in result["exponents"].items():
        values, seconds = _along(axis, result["median_seconds"])
        _, memory = _along(axis, result["peak_memory"])
        cells = [
            f"{axis} {values[0]:,} to {values[-1]:,}",
            f"{seconds[0]:.2f} to {seconds[-1]:.2f} s",
            f"{found['time']:.2f}",
        ]
        cells += [f"{memory[0] / 1e6:.0f} to {memory[-1] / 1e6:.0f} MB", f"{found['memory']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def plot_scaling(result: Mapping[str, Any], path: Path) -> None:
    """Draw time and memory over every axis, both logarithmic, as a PNG."""
    figure = new_figure(9, 3.8)
    for axes, key, label in zip(
        figure.subplots(1, 2), ("median_seconds", "peak_memory"), ("time", "peak memory"), strict=True
    ):
        for axis, found in result["exponents"].items():
            _, measured = _along(axis, result[key])
            fitted = found["time" if label == "time" else "memory"]
            axes.plot((1, 2, 4), np.array(measured) / measured[0], marker="o", label=f"{axis}: {fitted:.2f}")
        axes.plot((1, 2, 4), (1, 2, 4), color="grey", linestyle="dotted", label="linear")
        axes.set(xscale="log", yscale="log", xlabel="times as many", ylabel=f"{label}, times as much")
        axes.set_xticks((1, 2, 4), ("1", "2", "4"))
        axes.set_yticks((1, 2, 4), ("1", "2", "4"))
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


def data_side(data_dir: Path, tokenizer: GPTTokenizer, seed: int, folder: Path) -> dict[str, Any]:
    """
    Rows a second of one thread that reads SNLI's validation file, lays its rows out as trees and pads batches, beside
    those that a step of GPT-1 on a large GPU would take: 6 operations a parameter and token.
    """
    cpu, found, data = torch.device("cpu"), {}, []
    found["reading"] = timed(
        lambda: data.append(load_task("snli", data_dir / "snli", splits=["validation"], cache_dir=folder)), cpu
    )
    (task,) = data
    split = task.splits["validation"]
    tokenizer(["The first text waits for the rules of words."])
    rows = split.select(np.random.default_rng(seed).permutation(len(split))[:DATA_ROWS])[:]
    transform = InputTransform(task.spec.family, SpecialIds(START, DELIMITER, CLASSIFY), max_length=512)
    found["tokenizing"] = timed(
        lambda: data.append(encode_rows(rows, task.spec.text_columns, tokenizer, transform)), cpu
    )
    columns = data[1]
    trees = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    trees.sort(key=lambda tree: tree["length"])
    batches: Sequence[list[dict]] = [trees[start : start + 32] for start in range(0, len(trees), 32)]
    collator = TokenTreeCollator(PAD)
    found["collating"] = timed(lambda: [collator(batch) for batch in batches], cpu)
    number, tokens = len(trees), sum(tree["length"] for tree in trees)
    rates = {name: (len(split) if name == "reading" else number) / seconds for name, seconds in found.items()}
    rates["a step on a large GPU"] = GPU_OPERATIONS / (6 * GPT1_PARAMETERS * tokens / number)
    return {"suite": "data", "rows": number, "tokens": tokens, "rows_per_second": rates}


def data_table(result: Mapping[str, Any]) -> str:
    """A Markdown table of rows a second."""
    lines = ["| SNLI, one thread | rows a second |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {rate:,.0f} |" for name, rate in result["rows_per_second"].items())])
