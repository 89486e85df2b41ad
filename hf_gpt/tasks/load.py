"""From a `TaskSpec` to data sets: records become normalised rows in an Arrow cache, missing splits are held out."""

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
from datasets.exceptions import DatasetGenerationError
from datasets.fingerprint import Hasher

from ..files import COMPRESSIONS, listing, reading, write_text
from .catalogue import get_task
from .formats import Record, field_of, read_by_suffix
from .rows import is_empty, labels_of, row_of
from .spec import MULTI_LABEL, SPLITS, HeldOut, Layout, TaskSpec

# Part of every cache key: raise it when the normalised rows themselves change.
ROW_FORMAT = 4
# A class with fewer training rows is called out.
_FEW_ROWS = 5


@dataclass(frozen=True)
class TaskData:
    """
    A task's rows: the task, with the label names that were inferred where it declared none; its splits `train`,
    `validation` and, unless its file is missing, `test`; by split a note on how it was made; and warnings, what is
    likely to be wrong with the data.
    """

    spec: TaskSpec
    splits: datasets.DatasetDict
    notes: dict[str, str]
    warnings: tuple[str, ...] = ()


class Source(NamedTuple):
    """Where a split is read from: its layout, its records, its name for people, and what its content depends on."""

    layout: Layout
    records: Callable[[], Iterator[Record]]
    name: str
    stamp: Any


def load_task(
    task: str | TaskSpec,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    seed: int | None = None,
    splits: Sequence[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> TaskData:
    """
    Reads and checks a task's rows; they lie in an Arrow cache on disk, never whole in memory.

    Args:
        data_dir (path, *optional*): the folder with the publisher's files. Without it, the bundled data, or the Hub.
        seed (`int`, *optional*, defaults to the task's own): for a validation split that has to be held out.
        splits (sequence of `str`, *optional*): read only these, and fail if one is missing. By default all are read,
            and a test file that is not there is noted and left out.
        cache_dir (path, *optional*): where the rows are cached; `datasets`' own folder by default.

    Raises:
        `FileNotFoundError`, `ConnectionError`, `ValueError`: when a file is missing, the Hub cannot be reached, there
            is no such task, or something in a file is wrong, naming file and place.
    """
    spec = get_task(task) if isinstance(task, str) else task
    if unknown := [split for split in splits or () if split not in SPLITS]:
        raise ValueError(f"There is no split {unknown[0]!r}: a task has {', '.join(SPLITS)}.")
    directory = data_dir if data_dir is not None else spec.default_dir
    folder = None if directory is None else Path(directory).expanduser()
    wanted = tuple(splits or SPLITS)
    published = {split for split in SPLITS if _is_published(spec, folder, split)}
    rules = {"validation": spec.held_out, "test": spec.test_held_out}
    rules = {split: rule for split, rule in rules.items() if rule and split not in published}
    needed = {*wanted, *(["train"] if spec.infers_labels or rules.keys() & set(wanted) else [])}
    for split in dict.fromkeys((*wanted, "train")):
        is_optional = split == "test" and splits is None and not (spec.reads_own_files and spec.files[split])
        is_made = split in rules and "train" in published
        if split in needed - published and not is_made and not is_optional:
            raise _missing_file(spec, folder, split)
    cache = Path(cache_dir or datasets.config.HF_DATASETS_CACHE)
    sources = {split: _source(spec, folder, split, cache) for split in SPLITS if split in needed & published}
    if spec.infers_labels:
        spec = replace(spec, label_names=_inferred_labels(spec, sources["train"]))

    data = TaskData(spec, datasets.DatasetDict(), {})
    for split, source in sources.items():
        data.splits[split], data.notes[split] = _read_split(spec, source, split, cache)
    for split, rule in rules.items() if "train" in sources else ():
        _hold_out(split, rule, data, seed)
    if "test" not in data.splits:
        names = " or ".join(spec.files["test"])
        data.notes["test"] = f"left out: there is no {names}" if names else "left out: none was named"
    ordered = {split: data.splits[split] for split in SPLITS if split in wanted and split in data.splits}
    notes = {split: data.notes[split] for split in SPLITS if split in wanted and split in data.notes}
    own = {split: rows for split, rows in ordered.items() if split not in rules}
    warnings = (*_warnings(spec, own, ordered["train"]),) if "train" in ordered else ()
    return TaskData(spec, datasets.DatasetDict(ordered), notes, warnings)


# Where rows are read from.


def find_files(directory: Path, patterns: Sequence[str]) -> list[Path]:
    """
    The files of `directory` that the first name or glob pattern stands for that any do, sorted by path; empty when
    there is none. The plain name is looked for first, then the name with ``.gz``, then with ``.xz``.
    """
    for pattern, suffix in itertools.product(patterns, COMPRESSIONS):
        exact = directory / (pattern + suffix)
        found = [] if Path(pattern).is_absolute() else sorted(filter(Path.is_file, directory.glob(pattern + suffix)))
        if exact.is_file() or found:
            return [exact] if exact.is_file() else found
    return []


def _is_published(spec: TaskSpec, folder: Path | None, split: str) -> bool:
    if folder is None:
        return spec.hub is not None and bool(getattr(spec.hub, split))
    return bool(find_files(folder, spec.files[split]))


def _missing_file(spec: TaskSpec, folder: Path | None, split: str) -> FileNotFoundError:
    """The error that says what was expected and what is there."""
    names, hint = spec.files[split] or spec.files["train"], _how_to_get(spec)
    if spec.reads_own_files:
        classes = ", which the classes are taken from, or name them with --class_names" * (split == "train")
        hint = f"Name it with --{split}_file (relative to --data_dir){classes}."
    if folder is None:
        return FileNotFoundError(f"{spec.name}: the Hub has no copy of the {split} rows. {hint}")
    if spec.reads_own_files and not spec.files[split]:
        return FileNotFoundError(f"{spec.name}: there is no {split} file. {hint}")
    where = (folder / names[0]).parent if spec.reads_own_files else folder
    return FileNotFoundError(
        f"{spec.name}: the {split} file is missing: there is no {' or '.join(names)} in {folder.absolute()} (.gz or "
        f".xz after the name is fine). Found: {listing(where)}. {hint}"
    )


def _how_to_get(spec: TaskSpec) -> str:
    return f"Get {spec.how_to_get}, and name their folder with --data_dir."


def _source(spec: TaskSpec, folder: Path | None, split: str, cache: Path) -> Source:
    if folder is None:
        return _hub_source(spec, split, cache)
    patterns, read = spec.files[split], spec.layout.read or read_by_suffix
    paths = find_files(folder, patterns)
    if len(paths) > 1 and not spec.layout.many:
        names = ", ".join(path.name for path in paths)
        raise ValueError(f"{folder}: {patterns[0]} stands for several files ({names}). Keep one of them there.")
    name = paths[0].name if len(paths) == 1 else f"{len(paths)} files of {patterns[0]}"
    stamp = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return Source(spec.layout, lambda: itertools.chain.from_iterable(map(read, paths)), name, stamp)


def _hub_source(spec: TaskSpec, split: str, cache: Path) -> Source:
    hub = spec.hub
    (hub_split,) = getattr(hub, split)
    try:
        where = {"revision": hub.revision, "data_dir": hub.data_dir, "cache_dir": str(cache)}
        rows = datasets.load_dataset(hub.id, hub.config, split=hub_split, **where)
    except OSError as error:
        problem = f"{spec.name}: {hub.id} could not be read from the Hub ({error})"
        raise ConnectionError(f"{problem}. {_how_to_get(spec)}") from error
    # Of labels of words there are lists.
    features = {column: getattr(feature, "feature", feature) for column, feature in rows.features.items()}
    classes = {name: feature for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)}
    classes = {} if spec.family == "multiple-choice" else classes

    def records() -> Iterator[Record]:
        for number, fields in enumerate(rows):
            named = {column: _class_name(fields[column], feature) for column, feature in classes.items()}
            yield Record(hub.id, f"{hub_split} row {number}", fields | named)

    return Source(hub, records, f"{hub.id} ({hub_split})", rows._fingerprint)


def _class_name(value: Any, feature: datasets.ClassLabel) -> Any:
    if isinstance(value, list):
        return [_class_name(item, feature) for item in value]
    return feature.int2str(value) if value is not None and value >= 0 else value


def _inferred_labels(spec: TaskSpec, source: Source) -> tuple[str, ...]:
    """The labels of the training file, sorted (as numbers where all are whole); a `ValueError` for fewer than two."""
    column, labels = source.layout.columns["label"], set()
    for record in source.records():
        with reading(record.path, record.place):
            raw = field_of(record.fields, column)
            labels.update([] if is_empty(raw) else labels_of(raw, spec, source.layout))
    if len(labels) < 2:
        raise ValueError(
            f"{source.name}: {' and '.join(labels) or 'no labels'} were found in {column!r}, at least 2 labels were "
            "expected: check --label_column, or name all classes with --class_names."
        )
    is_whole = all(label.removeprefix("-").isdecimal() for label in labels)
    return tuple(sorted(labels, key=int if is_whole else str))


# Records become rows.


def _read_split(spec: TaskSpec, source: Source, split: str, cache: Path) -> tuple[datasets.Dataset, str]:
    """The rows of a split, read or from the cache, and a note on them."""
    # All that rows depend on: the files (path, size, time of change), the task, how they are read.
    fingerprint = Hasher.hash((ROW_FORMAT, spec, source.layout, split, source.stamp))
    note_file = cache / "hf_gpt_tasks" / f"{fingerprint}.txt"

    def generate() -> Iterator[dict[str, Any]]:
        counts, number, layout = Counter(), itertools.count(), source.layout
        for record in source.records():
            if split != "test" and record.fields and all(map(is_empty, record.fields.values())):
                continue
            with reading(record.path, record.place):
                items = [*layout.prepare(record.fields)] if layout.prepare else [record.fields]
                if layout.split_field:
                    items = [fields for fields in items if field_of(fields, layout.split_field) == split]
                rows = [row_of(spec, layout, split, fields, next(number)) for fields in items]
            counts.update(what for _, what in rows)
            kept = [row for row, _ in rows if row is not None]
            counts["kept"] += len(kept)
            yield from kept
        if not counts.pop("kept", 0):
            raise ValueError(f"{source.name}: no rows were found for the {split} split: is it the wrong file?")
        write_text(note_file, "".join(f", {count:,} {what}" for what, count in counts.items() if what))

    settings = {"cache_dir": str(cache), "split": datasets.NamedSplit(split)}
    rows = cached_rows(generate, fingerprint, features=spec.features, **settings)
    more = note_file.read_text(encoding="utf-8") if note_file.is_file() else ""
    return rows, f"{source.name}: {rows.num_rows:,} rows{more}"


def cached_rows(
    generate: Callable[[], Iterator[dict[str, Any]]], fingerprint: str, **settings: Any
) -> datasets.Dataset:
    """
    The rows of a generator, in the cache of `datasets` under a key of our own (hashing the generator would hash code);
    errors of the generator stay what they are. For `settings` see `Dataset.from_generator`.
    """
    try:
        return datasets.Dataset.from_generator(generate, fingerprint=fingerprint, **settings)
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, ValueError | OSError):
            raise error.__cause__ from None
        raise


# Rows are held out, and looked at.


def _hold_out(split: str, rule: HeldOut, data: TaskData, seed: int | None) -> None:
    """Moves the rows that a rule picks from `train` to another split, and notes that."""
    train, notes, spec = data.splits["train"], data.notes, data.spec
    seed, rows, less = rule.seed if seed is None else seed, train.num_rows, ""
    size = int(min(rule.size, rows) if rule.size >= 1 else max(rule.size > 0, round(rule.size * rows)))
    if size == rows and not spec.reads_own_files:  # a sample of the publisher's file, to try a task
        size, less = rows // 5, f" instead of {rule.size:,}, as there are only {rows:,}"
    chosen = _chosen_rows(train, rule, size, seed, spec)
    together = f", rows with the same {' and '.join(rule.group_by)} kept together" if rule.group_by else ""
    together += ", whatever their case and white space" if rule.group_by and rule.folded else ""
    if not 0 < (count := int(chosen.sum())) < rows:
        raise ValueError(
            f"{notes['train']}: {size} rows cannot be held out of {rows} for {split}{together}. Hold out another "
            f"number (with --task custom, --validation_size), or provide a {split} file."
        )
    data.splits[split] = train.select(np.flatnonzero(chosen))
    data.splits["train"] = train.select(np.flatnonzero(~chosen))
    notes[split] = f"{count:,} rows{less} held out of the training rows (seed {seed}{together})"
    notes["train"] += f"; {count:,} held out for {split}, {rows - count:,} left"


def _chosen_rows(train: datasets.Dataset, rule: HeldOut, size: int, seed: int, spec: TaskSpec) -> np.ndarray:
    """
    Which rows to hold out, as a boolean array.

    Groups are taken in the order of NumPy's legacy permutation as long as they fit. Where every row is its own group
    that picks the rows scikit-learn's `train_test_split(test_size=size, random_state=seed)` picks, which the release
    used for Story Cloze.
    """
    groups = np.arange(train.num_rows)
    if rule.group_by:
        numbers: dict[int, int] = {}  # as they come
        keys = _text_keys(train, rule.group_by, rule.folded, spec.family == "similarity")
        groups = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
    counts = np.bincount(groups)
    chosen = np.zeros(len(counts), dtype=bool)
    for group in np.random.RandomState(seed).permutation(len(counts)):
        if counts[group] <= size:
            chosen[group], size = True, size - counts[group]
    return chosen[groups]


def _text_keys(rows: datasets.Dataset, columns: Sequence[str], folded: bool, in_any_order: bool) -> list[int]:
    """
    A number for the texts of each row, in this process, so that rows with the same texts have the same. The choices of
    a row are compared in any order, its words as they come; `folded`: case and white space do not count;
    `in_any_order`: two texts mean the same in either order.
    """

    def fold(text: str) -> str:
        return " ".join(text.split()).casefold() if folded else text

    def key(texts: Iterable[str | list[str]]) -> int:
        parts = [tuple(sorted(map(fold, text))) if isinstance(text, list) else fold(text) for text in texts]
        return hash(tuple(sorted(parts) if in_any_order else parts))

    values = ([" ".join(words) for words in rows[name]] if name == "words" else rows[name][:] for name in columns)
    return list(map(key, zip(*values, strict=True)))


def _warnings(spec: TaskSpec, own: dict[str, datasets.Dataset], train: datasets.Dataset) -> Iterator[str]:
    """
    What is likely to be wrong: classes that differ in case alone or have hardly any row, equal texts with different
    labels, and published rows (`own`) with the texts of training rows.
    """
    keys_of = partial(_text_keys, columns=spec.text_columns, folded=True, in_any_order=spec.family == "similarity")
    keys, labels, first = keys_of(train), train["label"][:], {}
    if spec.label_names:
        yield from _doubtful_classes(spec, labels)
    pairs = ((first.setdefault(key, row), row) for row, key in enumerate(keys))
    pairs = [(one, other) for one, other in pairs if labels[one] != labels[other]]
    if pairs and spec.label_names and spec.family != "tagging":
        one, other = (train["id"][row] for row in pairs[0])
        yield (
            f"{len(pairs):,} of the {len(labels):,} training rows have the texts of an earlier row (apart from case "
            f"and white space) and another label, the first {other} those of {one}: which is right?"
        )
    for split, rows in own.items():
        count = sum(key in first for key in keys_of(rows)) if split != "train" else 0
        if count:
            yield (
                f"{count:,} of the {len(rows):,} {split} rows have texts that training rows have too (apart from case "
                "and white space): their scores say little about new texts."
            )


def _doubtful_classes(spec: TaskSpec, labels: list[Any]) -> Iterator[str]:
    folded = Counter(name.casefold() for name in spec.label_names)
    if alike := [name for name in spec.label_names if folded[name.casefold()] > 1]:
        yield f"The labels {' and '.join(map(repr, alike))} differ in case alone, and are classes of their own."
    counts = np.sum(labels, axis=0) if spec.problem_type == MULTI_LABEL else Counter(np.hstack(labels).tolist())
    rows = {name: int(counts[index]) for index, name in enumerate(spec.label_names)}
    rare = [f"{name!r} has {count}" for name, count in rows.items() if count < _FEW_ROWS]
    if rare:
        more = f", and {len(rare) - 5} more classes have as few" if len(rare) > 5 else ""
        what = "words" if spec.family == "tagging" else "rows"
        yield f"Too few training {what} to learn a class from: {', '.join(rare[:5])}{more}."
