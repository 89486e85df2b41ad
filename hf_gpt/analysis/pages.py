"""Pages of `templates/`, and text whose words have a number each: in a terminal, on a page, and in a figure."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import templates, write_text
from .figures import text_figure, write_figure


def render_page(template: str, title: str, data: Any) -> str:
    """A page from the template of a name; see `hf_gpt.files.templates.render_page`."""
    return templates.render_page(Path(__file__).parent / "templates" / f"{template}.html.jinja", title, data)


def write_page(path: Path, title: str, data: Any) -> None:
    """Write a page atomically, from the template that has the name of the file."""
    write_text(path, render_page(path.stem, title, data))


def terminal_text(words: Sequence[str], values: Sequence[float], colours: bool | None = None) -> str:
    """
    A line of words on grounds by their values, red above 0 and blue below, for terminals of 24-bit colours; without
    `colours` (by default where the output is no terminal) each word with its value.
    """
    if not (sys.stdout.isatty() if colours is None else colours):
        return " ".join(f"{word}({value:+.2f})" for word, value in zip(words, values, strict=True))
    parts, most = [], max(map(abs, values), default=0) or 1.0
    for word, value in zip(words, values, strict=True):
        full = templates.COLOURS["more" if value > 0 else "less"]
        ground = ";".join(str(round(255 - abs(value) / most * (255 - part))) for part in full)
        parts.append(f"\x1b[48;2;{ground};38;2;0;0;0m{word}\x1b[0m")
    return " ".join(parts)


def write_coloured(path: Path, title: str, texts: Sequence[Mapping[str, Any]]) -> None:
    """
    Coloured texts as a page, and as a figure with its numbers next to it, at a path without a suffix. A text has
    `words`, `values` (a number each) and, optionally, `label` and `view`: texts of one view are coloured on one scale;
    the page lets choose one, the figure shows the first.
    """
    record = {"title": title, "texts": list(texts)}
    first = [text for text in texts if text.get("view") == texts[0].get("view")]
    write_text(path.with_suffix(".html"), render_page("coloured", title, record))
    write_figure(path.with_suffix(".png"), text_figure(first, title), record)
