"""Tables and pictures of results."""

import statistics
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from hf_gpt.analysis.figures import new_figure

from .contenders import UNSHARED

SWEEPS = {"choices": "choices of a row", "context": "tokens of context behind which 4 choices stand"}

COLUMNS = {
    "work": lambda name, result: name,
    "hf_gpt": lambda name, result: _seconds(result["median_seconds"]["hf_gpt"]),
    "openai-gpt": lambda name, result: _ratio(result, "openai-gpt"),
    "gpt2": lambda name, result: _ratio(result, "gpt2"),
    "nothing shared": lambda name, result: _ratio(result, UNSHARED),
    "memory": lambda name, result: _memory(result),
    "padding, ours and theirs": lambda name, result: "{hf_gpt:.1%}, {peers:.1%}".format(**result["padding"]),
    "product rate": lambda name, result: _percent(result.get("share_of_product_rate")),
    "logits differ": lambda name, result: (
        f"{result['logits_difference']:.0e}" if "logits_difference" in result else "-"
    ),
}


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def _ratio(result: Mapping[str, Any], name: str) -> str:
    return f"{result['ratio'][name]:.2f} x" if name in result["ratio"] else "-"


def _memory(result: Mapping[str, Any]) -> str:
    peak = result.get("peak_memory")
    return f"{peak['hf_gpt'] / peak['openai-gpt']:.2f}" if peak else "-"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def spread(values: Collection[float], digits: int = 3) -> str:
    """The median and, of several, in brackets the lowest and the highest."""
    brackets = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.{digits}f}{brackets}"


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """
    A Markdown table, one workload a row: our median time of a turn, how many times as long the others took, our peak
    memory as a share of openai-gpt's, and our share of the rate of the model's own matrix products.
    """
    timed = {name: result for name, result in results.items() if "padding" in result and "ratio" in result}
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"] if timed else []
    for name, result in timed.items():
        lines.append(f"| {' | '.join(cell(name, result) for cell in COLUMNS.values())} |")
    return "\n".join(lines)


def padding_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table of the padding in an epoch of each data set; empty where none was measured."""
    measured = {name: result for name, result in results.items() if result["suite"] == "padding"}
    lines = ["| rows of 32 to a batch | rows | training | evaluation | random batches of single sequences |"]
    lines.append("|---" * 5 + "|")
    for name, result in measured.items():
        shares = " | ".join(f"{result['padding'][kind]:.1%}" for kind in ("hf_gpt", "evaluation", "peers"))
        lines.append(f"| {name.removesuffix(', padding')} | {result['rows']:,} | {shares} |")
    return "\n".join(lines) if measured else ""


def sweep_growth(results: Mapping[str, Mapping[str, Any]], suite: str) -> str:
    """How the cost of each contender grows from one workload of a sweep to the next."""
    swept = {name: result for name, result in results.items() if result["suite"] == suite}
    lines, before = [], None
    for name, result in swept.items():
        if before is not None:
            growth = {who: value / before[who] for who, value in result["median_seconds"].items() if who in before}
            lines.append(f"- {name}: " + ", ".join(f"{who} {value:.2f} x" for who, value in growth.items()))
        before = result["median_seconds"]
    return "\n".join(lines)


def plot_sweeps(results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw cost against the number of choices and the length of the context, ours and the peers', as a PNG."""
    present = [suite for suite in SWEEPS if any(result["suite"] == suite for result in results.values())]
    figure = new_figure(5.5 * len(present), 4)
    for axes, suite in zip(figure.subplots(1, len(present), squeeze=False)[0], present, strict=True):
        swept = {name: result for name, result in results.items() if result["suite"] == suite}
        values = [int("".join(filter(str.isdigit, name))) for name in swept]
        for who in ("hf_gpt", "openai-gpt", "gpt2"):
            axes.plot(values, [result["median_seconds"][who] for result in swept.values()], marker="o", label=who)
        axes.set(xlabel=SWEEPS[suite], ylabel="seconds of a training step, one row", ylim=(0, None))
        axes.set_xticks(values)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)
