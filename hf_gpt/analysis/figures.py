"""Figures by matplotlib, without a screen, each with the numbers that it shows as JSON next to it."""

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import atomic, write_json
from ..files.templates import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = "os^Dv*P<>X"
_INK = "#1b4f8f", "#8a8a8a", "#2a7a3a", "#1a1a1a", "#b05a1a", "#7a3a8a"
_PLAIN = {"parse_math": False}


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


def _panels(count: int, width: float, height: float, title: str, columns: int = 1) -> tuple["Figure", list["Axes"]]:
    """A figure with so many panels of so many inches, in so many columns at most."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = new_figure(width * columns + 0.5, height * rows + 0.6)
    figure.suptitle(title, fontsize="medium", wrap=True)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[count:]:
        axes.axis("off")
    return figure, panels[:count]


def _shade(share: float) -> tuple[float, ...]:
    """The ground of a number from -1 to 1."""
    return (*(part / 255 for part in COLOURS["more" if share > 0 else "less"]), abs(share))


def grid_figure(
    values: np.ndarray,
    title: str,
    rows: str,
    columns: str,
    row_names: Sequence = (),
    column_names: Sequence = (),
    words: Sequence[Sequence[str]] | None = None,
) -> "Figure":
    """
    A matrix as shades, which read as well in grey; rows and columns have numbers from 0 unless they have names. With
    `words`, which stand in the cells, values are from 0 to 1, the darker the larger.
    """
    cell = (0.6, 0.45) if words is None else (0.75, 0.32)
    figure, (axes,) = _panels(1, max(5, 1 + cell[0] * values.shape[1]), 1 + cell[1] * len(values), title)
    axes.set(xlabel=columns, ylabel=rows)
    axes.set_yticks(range(len(values)), row_names or range(len(values)))
    turned = {"rotation": 60, "ha": "right", **_PLAIN} if column_names else {}
    axes.set_xticks(range(values.shape[1]), column_names or range(values.shape[1]), **turned)
    if words is None:
        figure.colorbar(axes.imshow(values, cmap="viridis", aspect="auto"))
        return figure
    axes.imshow([[_shade(-value) for value in row] for row in values], aspect="auto")
    for row, column in np.ndindex(values.shape):
        axes.text(column, row, words[row][column][:10], ha="center", va="center", fontsize=7, **_PLAIN)
    return figure


def heads_figure(weights: np.ndarray, title: str) -> "Figure":
    """Attention `(layers, heads, length, length)`, from layer 1, as a grid of squares, the darker the more."""
    layers, heads = weights.shape[:2]
    figure, panels = _panels(layers * heads, 1.1, 1.1, title, heads)
    for axes, (block, head) in zip(panels, np.ndindex(layers, heads), strict=True):
        axes.imshow(weights[block, head], cmap="Greys", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
        axes.set_title("" if block else f"head {head}", fontsize="small")
        axes.set_ylabel("" if head else f"layer {block + 1}", fontsize="small")
    return figure


def curves_figure(
    panels: Mapping[str, Mapping[str, Sequence]],
    title: str,
    across: str,
    at: Sequence[float] | None = None,
    line: str = "-",
    columns: int = 1,
    ticks: Mapping[float, str] | None = None,
) -> "Figure":
    """
    Named curves over 0, 1, 2, ... or over the places `at`, each by a mark and a colour of its own: a panel for each of
    `panels`, in which a curve is its values, `(places,)`, or mean, low and high, `(3, places)`.
    """
    figure, all_axes = _panels(len(panels), 7 if columns == 1 else 3.6, 4 if len(panels) == 1 else 2.2, title, columns)
    for axes, (name, curves) in zip(all_axes, panels.items(), strict=True):
        for (curve, values), mark, ink in zip(curves.items(), cycle(_MARKS), cycle(_INK), strict=False):
            mean, low, high = np.broadcast_to(values, (3, np.shape(values)[-1]))
            style = {"marker": mark, "color": ink, "linestyle": line, "markersize": 4, "capsize": 2}
            axes.errorbar(
                range(len(mean)) if at is None else at, mean, [mean - low, high - mean], label=curve, **style
            )
        axes.set_title(name, fontsize="small")
        if ticks:
            axes.set_xticks([*ticks], [*ticks.values()])
        elif at is None:
            axes.xaxis.get_major_locator().set_params(integer=True)
    if len(curves) > 1:
        all_axes[0].legend(fontsize="x-small")
    all_axes[-1].set_xlabel(across)
    return figure


def rows_figure(rows: Sequence[Mapping[str, Any]], title: str, value: str, mark: float) -> "Figure":
    """
    Numbers of rows with `name`, `of` (whose they are), `value`, `low` and `high`: a line for each name, a mark for
    each `of`, the first name at the top, and a dotted line at `mark`.
    """
    names = list(dict.fromkeys(row["name"] for row in rows))
    figure, (axes,) = _panels(1, 7, 0.6 + 0.26 * len(names), title)
    for number, of in enumerate(dict.fromkeys(row["of"] for row in rows)):
        own = [row for row in rows if row["of"] == of]
        values, *ends = np.array([[row[key] for key in (value, "low", "high")] for row in own]).T
        places = [names.index(row["name"]) + 0.2 * number for row in own]
        style = {"fmt": _MARKS[number], "color": _INK[number], "markersize": 4, "capsize": 2}
        axes.errorbar(values, places, xerr=np.abs(ends - values), label=of, **style)
    axes.axvline(mark, color=_INK[1], linewidth=0.8, linestyle=":")
    axes.set(yticks=range(len(names)), yticklabels=[name.strip() for name in names], xlabel=value)
    axes.invert_yaxis()
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
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
    figure, (axes,) = _panels(1, 9, 0.26 * len(lines), title)
    axes.set(xlim=(0, width), ylim=(len(lines), -0.5))
    axes.axis("off")
    for row, line in enumerate(lines):
        for column, word, share in line:
            ground = {"boxstyle": "square,pad=0.15", "facecolor": _shade(share), "linewidth": 0}
            axes.text(column, row, word, bbox=ground, family="monospace", fontsize=8.5, va="center", **_PLAIN)
    return figure


def points_figure(layers: Mapping[int, Sequence[Sequence[float]]], labels: Sequence[str], title: str) -> "Figure":
    """Points `(units, 2)` of each layer, a panel each; labels differ by mark and colour."""
    figure, panels = _panels(len(layers), 3.4, 3, title, 3)
    names = list(dict.fromkeys(labels))
    for axes, (layer, points) in zip(panels, layers.items(), strict=True):
        for name, mark in zip(names, cycle(_MARKS), strict=False):
            own = np.array([point for point, label in zip(points, labels, strict=True) if label == name])
            axes.scatter(*own.T, marker=mark, s=14, alpha=0.7, label=name or None)
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"layer {layer}", fontsize="small")
    if 1 < len(names) <= len(_MARKS):
        panels[0].legend(fontsize="x-small")
    return figure
