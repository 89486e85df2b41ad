"""Pages of `templates/`, and text whose words have a number each: on a page, and in a terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import templates, write_json, write_text


def render_page(template: str, title: str, data: Any) -> str:
    """A page from the template of a name; see `hf_gpt.files.templates.render_page`."""
    return templates.render_page(Path(__file__).parent / "templates" / f"{template}.html.jinja", title, data)


def write_page(path: Path, title: str, data: Any) -> None:
    """Write a page atomically, from the template that has the name of the file."""
    write_text(path, render_page(path.stem, title, data))


def write_coloured(path: Path, title: str, texts: Sequence[Mapping[str, Any]]) -> None:
    """
    Coloured texts as a page, and their numbers as JSON, at a path without a suffix. A text has `words`, `values` (a
    number each) and, optionally, `label` and `view`: texts of one view are coloured on one scale; the page lets choose
    one.
    """
    record = {"title": title, "texts": list(texts)}
    write_text(path.with_suffix(".html"), render_page("coloured", title, record))
    write_json(path.with_suffix(".json"), record)


def terminal_text(words: Sequence[str], values: Sequence[float]) -> str:
    """A line of words, each with its value."""
    return " ".join(f"{word}({value:+.2f})" for word, value in zip(words, values, strict=True))
