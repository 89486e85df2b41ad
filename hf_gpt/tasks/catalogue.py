"""The tasks by name, declared in `catalogue.yaml`, a paragraph a data set; and the table of them."""

from functools import partial
from pathlib import Path
from typing import Any

import yaml

from . import formats
from .spec import SINGLE_LABEL, SPLITS, HeldOut, Hub, Layout, TaskSpec

BUNDLED_DATA = Path(__file__).resolve().parent / "data"
_OWN_FILES = (
    "your own: --train_file; --text_column, or --premise_column and --hypothesis_column, or --context_column and "
    "--choice_columns, or --words_column; --label_column"
)


def _tuples(value: Any) -> Any:
    """Lists as tuples, which a declaration cannot change."""
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _layout(kind: type[Layout], entry: dict[str, Any]) -> Layout:
    """
    A layout as the catalogue has it: readers and functions by name, a split's one file without a list; on the Hub
    splits have the usual names unless the catalogue names some.
    """
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
    kinds = {"layout": Layout, "hub": Hub}
    entry |= {field: _layout(kind, entry[field]) for field, kind in kinds.items() if field in entry}
    entry |= {field: HeldOut(**entry[field]) for field in ("held_out", "test_held_out") if field in entry}
    entry |= {"default_dir": BUNDLED_DATA} if entry.pop("bundled", False) else {}
    return TaskSpec(name, **entry)


def _read_catalogue() -> dict[str, TaskSpec]:
    text = Path(__file__).with_name("catalogue.yaml").read_text(encoding="utf-8")
    entries = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # the quicker of PyYAML's two
    return {name: _spec(name, entry) for name, entry in _tuples(entries).items()}


TASKS: dict[str, TaskSpec] = _read_catalogue()


def get_task(name: str) -> TaskSpec:
    """The task of that name; a `ValueError` with the known ones if there is none."""
    if name == "custom":
        raise ValueError("The task 'custom' needs its files and columns: build it with custom_task(...).")
    if name not in TASKS:
        raise ValueError(f"There is no task {name!r}. Known tasks: {', '.join(sorted(TASKS))}, custom.")
    return TASKS[name]


def task_table() -> str:
    """The tasks in the order of the catalogue, and `custom`, as a table of text."""
    table: list[tuple[str, ...]] = [("task", "family", "metrics", "paper", "licence", "files")]
    for spec in TASKS.values():
        score = f"{spec.paper_score:.1f}" if spec.paper_score is not None else "-"
        table.append((spec.name, spec.family, ", ".join(spec.metrics), score, spec.licence, spec.how_to_get))
    table.append(("custom", "any", "by the kind of label", "-", "yours", _OWN_FILES))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)
