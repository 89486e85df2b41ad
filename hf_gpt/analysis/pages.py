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


def write_page(path: Path, title: str, data: Any, template: str | None = None) -> None:
    """
    Write a page atomically.

    Args:
        path (`Path`): the file; without `template`, the name of its template, too.
        title (`str`): of the page.
        data: what the page shows, of what JSON has; NaN and infinity become null.
        template (`str`, *optional*): name of another template.
    """
    file = _TEMPLATES / f"{template or path.stem}.html.jinja"
    write_text(path, render_template(file, title=title, data=finite(data)))
