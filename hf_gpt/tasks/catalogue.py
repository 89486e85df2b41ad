"""The tasks by name, declared in `catalogue.yaml`, a paragraph a data set; and the table of them."""

import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from . import formats
from .spec import SINGLE_LABEL, SPLITS, HeldOut, Hub, Layout, TaskSpec

BUNDLED_DATA = Path(__file__).resolve().parent / "data"


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _layout(kind: type[Layout], entry: dict[str, Any]) -> Layout:
    """Functions stand there by name, one file without a list, on the Hub the usual splits are left out."""
    if kind is Hub and not entry.keys() & set(SPLITS):
        entry |= dict(zip(SPLITS, SPLITS, strict=True))
    for split in entry.keys() & set(SPLITS):
        entry[split] = (entry[split],) if isinstance(entry[split], str) else entry[split]
    if "read" in entry:
        entry["read"] = partial(getattr(formats, f"read_{entry['read']}"), **entry.pop("read_options", {}))
    if "prepare" in entry:
        entry["prepare"] = getattr(formats, entry["prepare"])
    return kind(**entry)


def _spec(name: str, entry: dict[str, Any]) -> TaskSpec:
    if "label_names" in entry:
        entry["problem_type"] = SINGLE_LABEL
    makers = {"layout": partial(_layout, Layout), "hub": partial(_layout, Hub)}
    makers |= dict.fromkeys(("held_out", "test_held_out"), lambda rule: HeldOut(**rule))
    entry |= {field: make(entry[field]) for field, make in makers.items() if field in entry}
    return TaskSpec(name, default_dir=BUNDLED_DATA if entry.pop("bundled", False) else None, **entry)


_TEXT = Path(__file__).with_name("catalogue.yaml").read_text(encoding="utf-8")
_ENTRIES = _tuples(yaml.load(_TEXT, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))  # the quicker of the two
TASKS: dict[str, TaskSpec] = {name: _spec(name, entry) for name, entry in _ENTRIES.items()}


def get_task(name: str) -> TaskSpec:
    """The task of that name; a `ValueError` with the known ones if there is none."""
    if name not in TASKS:
        known = ", ".join(sorted(TASKS))
        raise ValueError(f"There is no task {name!r}, only {known}, and your own files by custom_task(...).")
    return TASKS[name]


def task_table() -> str:
    """The tasks in the order of the catalogue, and `custom`, as a text of 110 columns."""
    table: list[tuple[str, ...]] = [("task", "family", "metrics", "paper", "licence; files")]
    for spec in TASKS.values():
        files = f"{spec.licence}; {spec.how_to_get}"
        table.append((spec.name, spec.family, ", ".join(spec.metrics), str(spec.paper_score or "-"), files))
    table.append(("custom", "any", "by the kind of label", "-", "yours; --train_file and flags of its columns"))
    indented = {"initial_indent": " " * 4, "subsequent_indent": " " * 4, "break_on_hyphens": False}
    lines = []
    for name, family, metrics, score, files in table:
        lines += [f"{name:18}{family:20}{metrics:50}{score}", *textwrap.wrap(files, 110, **indented)]
    return "\n".join(lines)
