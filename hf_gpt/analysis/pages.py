"""
Pages that need nothing else: one HTML file with style, script and data, from a template of `templates/`.

A template extends `page.html.jinja`, whose policy lets the browser fetch nothing, and reads its data by `DATA` in its
script.
"""

from pathlib import Path
from typing import Any

from ..files import finite, write_text
from ..files.templates import render_template

_TEMPLATES = Path(__file__).parent / "templates"


def render_page(template: str, title: str, data: Any) -> str:
    """
    A page.

    Args:
        template (`str`): name of its template.
        title (`str`): of the page.
        data: what the page shows, of what JSON has; NaN and infinity become null.
    """
    return render_template(_TEMPLATES / f"{template}.html.jinja", title=title, data=finite(data))


def write_page(path: Path, title: str, data: Any, template: str | None = None) -> None:
    """Write a page atomically; see `render_page`. Without `template` that is the name of the file."""
    write_text(path, render_page(template or path.stem, title, data))
