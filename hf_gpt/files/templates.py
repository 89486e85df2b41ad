"""Texts and pages from Jinja templates of the package."""

import functools
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from . import finite

# What numbers above 0 and below are drawn in, the paler the nearer to 0: alike in grey, and dark text is read on both.
COLOURS = {"more": (232, 112, 78), "less": (88, 150, 222)}


@functools.cache
def get_template(path: Path) -> Template:
    """
    A template, which may import others next to it, to `render` with values; a name that is not given is an error.
    `cell` makes a value fit into a cell of a table. Pages (`.html.jinja`) escape their values.
    """
    loader = FileSystemLoader([path.parent, Path(__file__).parent])
    blanks = dict.fromkeys(("trim_blocks", "lstrip_blocks", "keep_trailing_newline"), True)
    environment = Environment(loader=loader, undefined=StrictUndefined, autoescape=path.suffix == ".jinja", **blanks)
    environment.filters["cell"] = lambda value: " ".join(str(value).split()).replace("|", "\\|")
    return environment.get_template(path.name)


def render_page(template: Path, title: str, data: Any = None, **values: Any) -> str:
    """A page from a template that extends `page.html.jinja`: it fetches nothing; its script reads `data` as `DATA`."""
    return get_template(template).render(title=title, data=finite(data), colours=COLOURS, **values)
