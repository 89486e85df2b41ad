"""Where a task's rows are read from: its publisher's files in a folder, or the Hub's copy."""

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import datasets

from ..files import COMPRESSIONS, input_error, listing
from .readers import Record, read_by_suffix
from .spec import SPLITS, Cut, Layout, TaskSpec


@dataclass(frozen=True)
class Source:
    """
    Where one split is read from: how its records are laid out, a function that gives them from the first on, a name
    for messages, and for the key of the cache what the content depends on.
    """

    layout: Layout
    records: Callable[[], Iterable[Record]]
    name: str
    stamp: tuple[Any, ...]

    def without_rows(self, split: str, records: int) -> ValueError:
        """The error for a source that gave records, but no rows."""
        why = f"none of its {records:,} records is one" if records else "it is empty, but for a header at most"
        return input_error(
            self.name, f"no rows were found for the {split} split: {why}.", "Check that it is the right file."
        )


def find_sources(
    spec: TaskSpec,
    directory: Path | None,
    wanted: Sequence[str],
    required: bool,
    cache_dir: str | os.PathLike[str] | None,
) -> tuple[dict[str, Source], dict[str, Cut]]:
    """
    What to read for the wanted splits, from the folder with the publisher's files or else the Hub, and what to cut
    from the training part wherever that is read. A file that is missing (of the test part, if that is `required`) is a
    `FileNotFoundError` with what was expected and found, a Hub that cannot be reached a `ConnectionError`.
    """
    if directory is None:
        if spec.hub is None:
            raise FileNotFoundError(f"{spec.name}: the Hub has no copy of this data set. {_files_remedy(spec)}")
        published = {split for split in SPLITS if getattr(spec.hub.layout, split)}
    else:
        files = {split: _file_source(spec, directory, split) for split in SPLITS}
        published = {split for split in SPLITS if files[split]}
    rules = {"validation": spec.cut, "test": spec.test_cut}
    cuts = {split: cut for split, cut in rules.items() if cut and split not in published}
    needed = {*wanted, *(["train"] if spec.infers_labels or cuts.keys() & set(wanted) else [])}
    if directory is None:
        return {split: _hub_source(spec, split, cache_dir) for split in SPLITS if split in needed & published}, cuts
    for split in (*wanted, "train"):
        is_cut = split in cuts and "train" in published
        is_optional = split == "test" and not required and not (spec.reads_own_files and spec.files[split])
        if split in needed and split not in published and not is_cut and not is_optional:
            named = split if spec.files[split] or spec.reads_own_files else "train"
            raise FileNotFoundError(_missing_file_message(spec, directory, named))
    return {split: files[split] for split in SPLITS if split in needed & published}, cuts


def find_files(directory: Path, pattern: str) -> list[Path]:
    """
    The files of `directory` that a name or glob pattern stands for, sorted by path; empty when there is none. The
    plain name is looked for first, then the name with ``.gz``, then with ``.xz``; the first that exists wins, so that
    a file and its compressed copy are not read twice.
    """
    for suffix in COMPRESSIONS:
        exact = directory / (pattern + suffix)
        if exact.is_file():
            return [exact]
        found = [] if Path(pattern).is_absolute() else sorted(filter(Path.is_file, directory.glob(pattern + suffix)))
        if found:
            return found
    return []


def _file_source(spec: TaskSpec, directory: Path, split: str) -> Source | None:
    for layout in spec.layouts:
        pattern = getattr(layout, split)
        paths = find_files(directory, pattern) if pattern else []
        if not paths:
            continue
        if len(paths) > 1 and not layout.many:
            names = ", ".join(path.name for path in paths)
            raise ValueError(f"{directory}: {pattern} stands for several files ({names}). Keep one of them there.")
        read = layout.read or read_by_suffix
        name = ", ".join(path.name for path in paths) if len(paths) < 4 else f"{len(paths)} files of {pattern}"
        stamps = [(path.resolve(), path.stat()) for path in paths]
        stamp = tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stamps)
        return Source(layout, lambda read=read, paths=paths: chain.from_iterable(map(read, paths)), name, stamp)
    return None


def _missing_file_message(spec: TaskSpec, directory: Path, split: str) -> str:
    if not spec.files[split]:
        classes = ", which the classes are taken from, or name them with --class_names" if spec.infers_labels else ""
        return f"{spec.name}: no {split} file was named. Give --{split}_file{classes if split == 'train' else ''}."
    # A name may have folders in it.
    folder = (directory / spec.files[split][0]).parent if spec.reads_own_files else directory
    expected = " or ".join(Path(name).name if spec.reads_own_files else name for name in spec.files[split])
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    near = [name for one in spec.files[split] for name in difflib.get_close_matches(Path(one).name, names, n=1)]
    found = f"Did you mean {near[0]}?" if near else f"Found: {listing(folder)}."
    remedy = f"Correct --{split}_file, or name the folder that it is relative to with --data_dir."
    if not spec.reads_own_files:
        remedy = f"Get it from {spec.source or 'its publisher'} and name its folder with --data_dir, or ask only for "
        remedy += "the splits that are there."
    return (
        f"{spec.name}: the {split} file is missing: there is no {expected} in {folder.absolute()} (.gz or .xz after "
        f"the name is fine). {found} {remedy}"
    )


def _hub_source(spec: TaskSpec, split: str, cache_dir: str | os.PathLike[str] | None) -> Source:
    hub = spec.hub
    hub_split = getattr(hub.layout, split)
    try:
        where = {"revision": hub.revision, "data_dir": hub.data_dir, "cache_dir": cache_dir and os.fspath(cache_dir)}
        rows = datasets.load_dataset(hub.id, hub.config, split=hub_split, **where)
    except OSError as error:
        problem = f"{spec.name}: {hub.id} could not be read from the Hub ({error})."
        raise ConnectionError(f"{problem} {_files_remedy(spec)}") from error
    name = f"{hub.id} ({hub_split})"
    decode = spec.family != "multiple-choice"
    return Source(hub.layout, partial(_records_of_dataset, rows, name, decode), name, (hub.id, rows._fingerprint))


def _files_remedy(spec: TaskSpec) -> str:
    files = "; ".join(f"{split}: {' or '.join(names)}" for split, names in spec.files.items() if names)
    return f"Get the files from {spec.source} ({files}) and name their folder with --data_dir."


def _records_of_dataset(rows: datasets.Dataset, name: str, decode: bool) -> Iterator[Record]:
    # Of labels of words there are lists.
    features = {column: getattr(feature, "feature", feature) for column, feature in rows.features.items()}
    classes = {column: feature for column, feature in features.items() if isinstance(feature, datasets.ClassLabel)}

    def decoded(value: Any, feature: datasets.ClassLabel) -> Any:
        if isinstance(value, list):
            return [decoded(item, feature) for item in value]
        return feature.int2str(value) if value is not None and value >= 0 else value

    for number, fields in enumerate(rows, 1):
        for column, feature in classes.items() if decode else ():
            fields[column] = decoded(fields[column], feature)
        yield Record(name, number, fields, "row")
