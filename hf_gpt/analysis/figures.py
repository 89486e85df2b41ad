"""Figures by matplotlib, without a screen, and pages of `templates/`, each with the numbers that it shows as JSON."""

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import atomic, templates, write_json, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKS = "os^Dv*P<>X"


def check_libraries() -> None:
    """Raise a `ValueError` where matplotlib or captum is missing."""
    if missing := [name for name in ("matplotlib", "captum") if importlib.util.find_spec(name) is None]:
        raise ValueError(f'Analyses need {" and ".join(missing)}: pip install "hf-gpt[analysis]".')


def render_page(template: str, title: str, data: Any) -> str:
    """A page from the template of a name; see `hf_gpt.files.templates.render_page`."""
    return templates.render_page(Path(__file__).parent / "templates" / f"{template}.html.jinja", title, data)


def write_page(path: Path, title: str, data: Any, template: str = "") -> None:
    """
    Write a page to an HTML file, by default from the template that has its name, and what it shows to a JSON file next
    to it, each atomically. Of `coloured` each of the `texts` has `words`, `values` (a number each) and optionally
    `label` and `view`: texts of one view are coloured on one scale.
    """
    write_text(path, render_page(template or path.stem, title, data))
    write_json(path.with_suffix(".json"), data)


def terminal_text(words: Sequence[str], values: Sequence[float]) -> str:
    """A line of words, each with its value."""
    return " ".join(f"{word}({value:+.2f})" for word, value in zip(words, values, strict=True))


def new_figure(width: float = 8, height: float = 5, title: str = "") -> "Figure":
    """An empty figure of so many inches, laid out so that nothing overlaps; it is drawn without a screen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize="medium", wrap=True)
    return figure


def write_figure(path: Path, figure: "Figure", data: Any) -> None:
    """Write a figure to a PNG and what it shows to a JSON file next to it, each atomically."""
    with atomic(path) as temporary, warnings.catch_warnings():
        # What the font lacks is a box in the figure, and itself on the page.
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        figure.savefig(temporary, format="png", dpi=110)
    write_json(path.with_suffix(".json"), data)


def cells_figure(shares: np.ndarray, words: Sequence[Sequence[str]], columns: Sequence[str], title: str) -> "Figure":
    """A word in each cell of a matrix of shares `(layers, columns)`, on the darker a ground the larger its share."""
    figure = new_figure(max(5, 1.5 + 0.75 * shares.shape[1]), 1.6 + 0.32 * len(shares), title)
    axes = figure.subplots()
    # Half of the colours, on which black can be read.
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=2, aspect="auto")
    axes.set(ylabel="layer", yticks=range(len(shares)))
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", parse_math=False)
    for row, column in np.ndindex(shares.shape):
        place = {"ha": "center", "va": "center", "fontsize": 7, "parse_math": False}
        axes.text(column, row, words[row][column][:10], **place)
    return figure


def heads_figure(weights: np.ndarray, title: str) -> "Figure":
    """Attention `(layers, heads, length, length)`, from layer 1, as a grid of squares, the darker the more."""
    layers, heads = weights.shape[:2]
    figure = new_figure(1.1 * heads + 0.5, 1.1 * layers + 0.6, title)
    panels = figure.subplots(layers, heads, squeeze=False, subplot_kw={"xticks": [], "yticks": []})
    for block, head in np.ndindex(layers, heads):
        panels[block, head].imshow(weights[block, head], cmap="Greys", vmin=0, vmax=1)
        panels[0, head].set_title(f"head {head}", fontsize="small")
        panels[block, 0].set_ylabel(f"layer {block + 1}", fontsize="small")
    return figure


def curves_figure(
    panels: Mapping[str, Mapping[str, Sequence]], title: str, across: str = "", names: Sequence[str] = ()
) -> "Figure":
    """Panels of named curves over 0, 1, ... or `names`: values, `(places,)`, or mean, low and high, `(3, places)`."""
    height, line = (6, "") if names else (3.5, "-")
    figure = new_figure(max(6, 0.4 * len(names)), 0.6 + height * len(panels), title)
    for axes, (name, curves) in zip(figure.subplots(len(panels), squeeze=False).flat, panels.items(), strict=True):
        for (curve, values), mark in zip(curves.items(), _MARKS, strict=False):
            mean, low, high = np.broadcast_to(values, (3, np.shape(values)[-1]))
            ends, places = [mean - low, high - mean], np.arange(len(mean)) + 0.15 * len(axes.containers) * bool(names)
            axes.errorbar(places, mean, ends, label=curve, marker=mark, linestyle=line, capsize=2)
        axes.set(title=name, xlabel=across)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if names:
            axes.set_xticks(range(len(names)), names, rotation=60, ha="right")
        axes.legend(fontsize="x-small")
    return figure
