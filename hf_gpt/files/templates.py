"""Texts from Jinja templates that the package carries."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render_template(path: Path, **values: Any) -> str:
    """
    A text from a template, which may import macros from others beside it; a name that is not given is an error.

    Args:
        path (`Path`): the template.
        values: what it is filled in with; `cell` makes a value fit into a cell of a table.
    """
    loader = FileSystemLoader(path.parent)
    layout = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    environment = Environment(loader=loader, undefined=StrictUndefined, **layout)
    environment.filters["cell"] = lambda value: " ".join(str(value).split()).replace("|", "\\|")
    return environment.get_template(path.name).render(values)
