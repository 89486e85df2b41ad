"""Texts from Jinja templates that the package carries."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape


def render_template(path: Path, **values: Any) -> str:
    """
    A text from a template, which may import macros from others beside it; a name that is not given is an error. In
    templates of pages (`.html.jinja`) values are escaped.

    Args:
        path (`Path`): the template.
        values: what it is filled in with; `cell` makes a value fit into a cell of a table.
    """
    loader = FileSystemLoader(path.parent)
    layout = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    escape = select_autoescape(enabled_extensions=("html.jinja",), default=False)
    environment = Environment(loader=loader, undefined=StrictUndefined, autoescape=escape, **layout)
    environment.filters["cell"] = lambda value: " ".join(str(value).split()).replace("|", "\\|")
    return environment.get_template(path.name).render(values)
