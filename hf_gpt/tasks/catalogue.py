"""The tasks by name, declared in `catalogue.yaml`, a paragraph a data set; and the table of them."""

import difflib
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from . import formats
from .spec import SINGLE_LABEL, SPLITS, Cut, Hub, Layout, TaskSpec

BUNDLED_DATA = Path(__file__).resolve().parent / "data"
_COLUMNS = ("task", "family", "metrics", "paper", "licence", "files")
_OWN_FILES = (
    "your own: --train_file; --text_column, or --premise_column and --hypothesis_column, or --context_column and "
    "--choice_columns, or --words_column; --label_column"
)


def _plain(value: Any) -> Any:
    """Lists as tuples, which a declaration cannot change."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def _layout(entry: dict[str, Any]) -> Layout:
    """A layout as the catalogue has it: readers and functions by name, a split's one file without a list."""
    names = {split: entry[split] for split in SPLITS if split in entry}
    names = {split: (name,) if isinstance(name, str) else name for split, name in names.items()}
    if "read" in entry:
        entry["read"] = getattr(formats, f"read_{entry['read']}")
        if options := entry.pop("read_options", {}):
            entry["read"] = partial(entry["read"], **options)
    if "prepare" in entry:
        entry["prepare"] = getattr(formats, entry["prepare"])
    return Layout(**entry | names)


def _hub(entry: dict[str, Any]) -> Hub:
    """A place on the Hub, whose splits have the usual names unless the catalogue says otherwise."""
    places = {name: entry.pop(name) for name in ("id", "config", "revision", "data_dir") if name in entry}
    if not entry.keys() & set(SPLITS):
        entry |= dict(zip(SPLITS, SPLITS, strict=True))
    return Hub(layout=_layout(entry), **places)


def _spec(name: str, entry: dict[str, Any]) -> TaskSpec:
    if "label_names" in entry:
        entry["problem_type"] = SINGLE_LABEL
    for field, kind in (("layout", _layout), ("hub", _hub)):
        if field in entry:
            entry[field] = kind(entry[field])
    entry |= {field: Cut(**entry[field]) for field in ("cut", "test_cut") if field in entry}
    entry |= {"default_dir": BUNDLED_DATA} if entry.pop("bundled", False) else {}
    return TaskSpec(name, **entry)


def _read_catalogue() -> dict[str, TaskSpec]:
    text = Path(__file__).with_name("catalogue.yaml").read_text(encoding="utf-8")
    entries = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # the quicker of PyYAML's two
    return {name: _spec(name, _plain(entry)) for name, entry in entries.items()}


TASKS: dict[str, TaskSpec] = _read_catalogue()


def get_task(name: str) -> TaskSpec:
    """The task of that name; a `ValueError` when there is none, listing those there are and the nearest name."""
    if name in TASKS:
        return TASKS[name]
    if name == "custom":
        raise ValueError(
            "The task 'custom' needs its files and columns: build it with custom_task(...), or on the command line "
            "with --task custom --train_file FILE --text_column NAME --label_column NAME."
        )
    near = difflib.get_close_matches(name.lower(), TASKS, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"There is no task {name!r}.{guess} Known tasks: {', '.join(sorted(TASKS))}, custom.")


def task_table() -> str:
    """The tasks in the order of the catalogue, and `custom`, as a table of text."""
    table: list[tuple[str, ...]] = [_COLUMNS]
    for spec in TASKS.values():
        score = f"{spec.paper_score:.1f}" if spec.paper_score is not None else "-"
        table.append((spec.name, spec.family, ", ".join(spec.metrics), score, spec.licence, spec.how_to_get))
    table.append(("custom", "any", "by the kind of label", "-", "yours", _OWN_FILES))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)
