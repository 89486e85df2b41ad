"""Figures by matplotlib, without a screen, each with the numbers that it shows as JSON next to it."""

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import atomic, write_json
from ..files.templates import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Of what is measured, and of what it is compared with.
_INK, _GREY = "#1b4f8f", "#8a8a8a"
_TEXT = {"va": "center", "parse_math": False}


def check_libraries() -> None:
    """Raise a `ValueError` where matplotlib or captum is missing."""
    if missing := [name for name in ("matplotlib", "captum") if importlib.util.find_spec(name) is None]:
        raise ValueError(f'Analyses need {" and ".join(missing)}: pip install "hf-gpt[analysis]".')


def new_figure(width: float = 8, height: float = 5) -> "Figure":
    """An empty figure of so many inches, laid out so that nothing overlaps; it is drawn without a screen."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def write_figure(path: Path, figure: "Figure", data: Any) -> None:
    """Write a figure to a PNG and what it shows to a JSON file next to it, each atomically."""
    with atomic(path) as temporary, warnings.catch_warnings():
        # What the font lacks is a box in the figure, and itself on the page.
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        figure.savefig(temporary, format="png", dpi=110)
    write_json(path.with_suffix(".json"), data)


def _one_panel(width: float, height: float, title: str, **style: Any) -> tuple["Figure", "Axes"]:
    figure = new_figure(width, height)
    axes = figure.subplots()
    axes.set_title(title, fontsize="medium", **style)
    return figure, axes


def _panels(count: int, width: float, height: float, title: str) -> tuple["Figure", list["Axes"]]:
    """A figure with so many panels of so many inches, three in a row at most."""
    columns = min(3, count)
    rows = -(-count // columns)
    figure = new_figure(width * columns + 0.5, height * rows + 0.6)
    figure.suptitle(title, fontsize="medium")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[count:]:
        axes.axis("off")
    return figure, panels[:count]


def _spread(rows: Sequence[Mapping[str, Any]], name: str = "accuracy") -> tuple[np.ndarray, np.ndarray]:
    """A number of each row, and how far below and above it its interval goes, `(2, rows)`."""
    values, *ends = np.array([[row[key] for key in (name, "low", "high")] for row in rows]).T
    return values, np.abs(ends - values)


def _shade(share: float) -> tuple[float, ...]:
    """The ground of a number from -1 to 1."""
    return (*(part / 255 for part in COLOURS["more" if share > 0 else "less"]), abs(share))


def grid_figure(
    values: np.ndarray, title: str, rows: str, columns: str, row_names: Sequence = (), column_names: Sequence = ()
) -> "Figure":
    """A matrix as shades, which read as well in grey; rows and columns have numbers from 0 unless they have names."""
    figure, axes = _one_panel(max(5, 1.5 + 0.6 * values.shape[1]), 1.5 + 0.45 * values.shape[0], title, wrap=True)
    axes.set(xlabel=columns, ylabel=rows)
    axes.set_yticks(range(len(values)), row_names or range(len(values)))
    turned = {"rotation": 60, "ha": "right", "parse_math": False} if column_names else {}
    axes.set_xticks(range(values.shape[1]), column_names or range(values.shape[1]), **turned)
    figure.colorbar(axes.imshow(values, cmap="viridis", aspect="auto"))
    return figure


def heads_figure(weights: np.ndarray, title: str) -> "Figure":
    """Attention `(layers, heads, length, length)`, from layer 1, as a grid of squares, the darker the more."""
    layers, heads = weights.shape[:2]
    figure = new_figure(1.1 * heads + 0.5, 1.1 * layers + 0.6)
    figure.suptitle(title, fontsize="small")
    for (block, head), axes in np.ndenumerate(figure.subplots(layers, heads, squeeze=False)):
        axes.imshow(weights[block, head], cmap="Greys", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
        if block == 0:
            axes.set_title(f"head {head}", fontsize="small")
        if head == 0:
            axes.set_ylabel(f"layer {block + 1}", fontsize="small")
    return figure


def statistics_figure(values: np.ndarray, names: Sequence[str], title: str, across: str) -> "Figure":
    """
    Statistics `(statistics, 3, places)`, or `(statistics, 3, layers, heads)` of all heads, from layer 1, as means over
    texts with their intervals: a panel each, if there is any.
    """
    shown = [number for number in range(len(names)) if not np.isnan(values[number]).all()]
    figure = new_figure(8, 1.5 * len(shown) + 0.5)
    figure.suptitle(f"{title}: mean over texts with 95% interval", fontsize="medium")
    panels = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    for axes, number in zip(panels, shown, strict=True):
        mean, low, high = values[number].reshape(3, -1)
        axes.errorbar(range(len(mean)), mean, [mean - low, high - mean], fmt="o", markersize=3, color=_INK)
        axes.set_ylabel(names[number], fontsize="small")
    panels[-1].set(xlabel=across, xticks=range(0, len(mean), 1 + len(mean) // 13))
    if values.ndim == 4:
        layers, heads = values.shape[2:]
        for axes, block in product(panels, range(1, layers)):
            axes.axvline(block * heads - 0.5, color="#cfcfcf", linewidth=0.8)
        middles = [heads * (block + 0.5) - 0.5 for block in range(layers)]
        panels[-1].set_xticks(middles, [f"layer {block + 1}" for block in range(layers)])
    return figure


def intervals_figure(rows: Sequence[dict[str, Any]], title: str) -> "Figure":
    """Bars of rows with `name`, `change`, `low` and `high`, the first at the top."""
    figure, axes = _one_panel(7, 0.6 + 0.28 * len(rows), title)
    change, spread = _spread(rows, "change")
    axes.barh(range(len(rows)), change, xerr=spread, color="#8fb0d8", ecolor="#1a1a1a", capsize=2)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.invert_yaxis()
    axes.axvline(0, color="#1a1a1a", linewidth=0.8)
    return figure


def curves_figure(
    curves: Mapping[str, Sequence[float]], title: str, across: str, up: str, at: Sequence[float] | None = None
) -> "Figure":
    """Named curves over 0, 1, 2, ... or over the places `at`; each has a mark and a line of its own."""
    figure, axes = _one_panel(7, 4, title)
    styles = cycle(zip("os^Dvx", ("-", "--", ":", "-.", "-", "--"), strict=True))
    for (name, values), (mark, line) in zip(curves.items(), styles, strict=False):
        places = range(len(values)) if at is None else at
        axes.plot(places, values, marker=mark, linestyle=line, markersize=4, label=name)
    axes.set(xlabel=across, ylabel=up)
    axes.legend()
    return figure


def text_figure(texts: Sequence[Mapping[str, Any]], title: str, width: int = 90) -> "Figure":
    """Texts whose `words` stand on grounds by their `values`, so many characters a line, below their label."""
    lines, most = [], max((abs(value) for text in texts for value in text["values"]), default=0) or 1.0
    for text in texts:
        if text.get("label") is not None:
            lines.append([(0, f"{text['label']}:", 0.0)])
        line, used = [], 0
        for word, value in zip(text["words"], text["values"], strict=True):
            if used + len(word) > width:
                lines.append(line)
                line, used = [], 0
            line.append((used, word, value / most))
            used += len(word) + 1
        lines.append(line)
    figure, axes = _one_panel(9, 0.7 + 0.26 * len(lines), title, loc="left")
    axes.set(xlim=(0, width), ylim=(len(lines), -0.5))
    axes.axis("off")
    for row, line in enumerate(lines):
        for column, word, share in line:
            ground = {"boxstyle": "square,pad=0.15", "facecolor": _shade(share), "linewidth": 0}
            axes.text(column, row, word, bbox=ground, family="monospace", fontsize=8.5, **_TEXT)
    return figure


def shares_figure(rows: Sequence[Mapping[str, Any]], title: str, across: str, chance: float) -> "Figure":
    """Shares of rows with `name`, `of`, `accuracy`, `low` and `high`: a line for each name, a mark for each `of`."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    figure, axes = _one_panel(7, 1.2 + 0.26 * len(names), title)
    marks = zip(dict.fromkeys(row["of"] for row in rows), "ox", (_INK, _GREY), strict=False)
    for number, (of, mark, colour) in enumerate(marks):
        own = [row for row in rows if row["of"] == of]
        values, spread = _spread(own)
        places = [names.index(row["name"]) + 0.2 * number for row in own]
        axes.errorbar(values, places, xerr=spread, fmt=mark, color=colour, markersize=4, capsize=2, label=of)
    axes.axvline(chance, color=_GREY, linewidth=0.8, linestyle=":")
    axes.set(yticks=range(len(names)), yticklabels=[name.strip() for name in names], xlim=(0, 1), xlabel=across)
    axes.invert_yaxis()
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
    return figure


def probes_figure(tasks: Mapping[str, Mapping[str, Any]], title: str) -> "Figure":
    """Accuracy over the layers of each model with its interval, a panel for each task; see `probing.probe_task`."""
    figure, panels = _panels(len(tasks), 3.6, 2.7, f"{title}: accuracy with 95% interval")
    for axes, (name, task) in zip(panels, tasks.items(), strict=True):
        for (model, each), mark, colour in zip(task["models"].items(), "ox", (_INK, _GREY), strict=False):
            values, spread = _spread(each["layers"])
            at = range(len(values))
            axes.errorbar(at, values, yerr=spread, marker=mark, color=colour, markersize=4, capsize=2, label=model)
        axes.axhline(task["static"]["accuracy"], color="#2a7a3a", linestyle="--", label="static embeddings")
        axes.axhline(task["majority"]["accuracy"], color="#1a1a1a", linestyle=":", label="most frequent label")
        axes.set(xlabel="layer", ylim=(0, 1.02))
        axes.set_title(name, fontsize="medium")
    panels[0].legend(fontsize="x-small")
    return figure


def guesses_figure(shown: Mapping[str, Any], title: str) -> "Figure":
    """The first guess of every layer (`guesses`) after every token (`tokens`), the darker the likelier."""
    words = [[places[0][0] for places in layer] for layer in shown["guesses"]]
    chances = np.array([[places[0][1] for places in layer] for layer in shown["guesses"]])
    figure, axes = _one_panel(1 + 0.75 * chances.shape[1], 1.2 + 0.32 * len(chances), title)
    axes.imshow([[_shade(-chance) for chance in layer] for layer in chances], aspect="auto")
    axes.set(ylabel="layer", yticks=range(len(chances)))
    axes.set_xticks(range(len(shown["tokens"])), shown["tokens"], rotation=45, ha="right", parse_math=False)
    for layer, place in np.ndindex(chances.shape):
        axes.text(place, layer, words[layer][place][:10], ha="center", fontsize=7, **_TEXT)
    return figure


def points_figure(layers: Mapping[int, Sequence[Sequence[float]]], labels: Sequence[str], title: str) -> "Figure":
    """Points `(units, 2)` of each layer, a panel each; labels differ by mark and colour."""
    figure, panels = _panels(len(layers), 3.4, 3, title)
    names, marks = list(dict.fromkeys(labels)), "os^Dv*P<>X"
    for axes, (layer, points) in zip(panels, layers.items(), strict=True):
        for number, name in enumerate(names):
            own = np.array([point for point, label in zip(points, labels, strict=True) if label == name])
            axes.scatter(*own.T, marker=marks[number % len(marks)], s=14, alpha=0.7, label=name or None)
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"layer {layer}", fontsize="small")
    if 1 < len(names) <= len(marks):
        panels[0].legend(fontsize="x-small")
    return figure
