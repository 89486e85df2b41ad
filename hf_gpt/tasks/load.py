"""From a `TaskSpec` to data sets: records become normalised rows in an Arrow cache, missing splits are held out."""

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
from .rows import labels_of, row_of, written
from .spec import MULTI_LABEL, SINGLE_LABEL, SPLITS, TEXT_COLUMNS, HeldOut, Layout, TaskSpec

# Part of every cache key: raise it when the normalised rows themselves change.
ROW_FORMAT = 5


@dataclass(frozen=True)
class TaskData:
    """The task with its label names; rows and how they were made, by split; and warnings."""

    spec: TaskSpec
    splits: datasets.DatasetDict
    notes: dict[str, str]
    warnings: tuple[str, ...] = ()


class Source(NamedTuple):
    """Where a split is read from; `stamp` changes with the content."""

    layout: Layout
    records: Callable[[], Iterator[Record]]
    name: str
    stamp: Any


def load_task(
    task: str | TaskSpec,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    splits: Sequence[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> TaskData:
    """
    Reads and checks a task's rows; they lie in an Arrow cache on disk (`cache_dir`), never whole in memory. Without
    `data_dir`, the folder with the publisher's files, they are the bundled ones, or the Hub's. By default all splits
    are read, and a test file that is not there is noted and left out; of `splits` each must be there. A
    `FileNotFoundError`, `ConnectionError` or `ValueError` says what is missing or wrong, with its place.
    """
    spec = get_task(task) if isinstance(task, str) else task
    if unknown := [split for split in splits or () if split not in SPLITS]:
        raise ValueError(f"There is no split {unknown[0]!r}: a task has {', '.join(SPLITS)}.")
    directory = data_dir if data_dir is not None else spec.default_dir
    folder = None if directory is None else Path(directory).expanduser()
    cache = Path(cache_dir or datasets.config.HF_DATASETS_CACHE)
    found = {split: getattr(spec.hub, split, ()) for split in SPLITS}
    if folder is not None:
        found = {split: _find_files(folder, getattr(spec.layout, split)) for split in SPLITS}
    rules = {"validation": spec.held_out, "test": spec.test_held_out} if found["train"] else {}
    rules = {split: rule for split, rule in rules.items() if rule and not found[split]}
    there = {split for split in SPLITS if found[split] or split in rules}

    wanted = set(splits or SPLITS)
    if splits is None and not (spec.reads_own_files and spec.layout.test):
        wanted -= {"test"} - there
    infers_labels = spec.label_names is None and spec.problem_type in (SINGLE_LABEL, MULTI_LABEL)
    needed = wanted | ({"train"} if infers_labels or rules.keys() & wanted else set())
    for split in sorted(needed - there, key=SPLITS.index):
        raise _missing_file(spec, folder, split)
    source_of = partial(_hub_source, cache=cache) if folder is None else _file_source
    sources = {split: source_of(spec, found[split]) for split in SPLITS if split in needed and found[split]}
    if infers_labels:
        spec = replace(spec, label_names=_inferred_labels(spec, sources["train"]))

    rows, notes = datasets.DatasetDict(), {}
    for split, source in sources.items():
        rows[split], notes[split] = _read_split(spec, source, split, cache)
    for split, rule in rules.items() if "train" in sources else ():
        _hold_out(split, rule, spec, rows, notes)
    if splits is None and "test" not in rows:
        names = " or ".join(spec.layout.test)
        notes["test"] = f"left out: there is no {names}" if names else "left out: none was named"
    rows = datasets.DatasetDict({split: rows[split] for split in SPLITS if split in wanted})
    warnings = tuple(_warnings(spec, rows, rules)) if "train" in rows else ()
    return TaskData(spec, rows, {split: notes[split] for split in (splits or SPLITS)}, warnings)


def _find_files(directory: Path, patterns: Sequence[str]) -> list[Path]:
    """The files, sorted, that the first name or glob pattern stands for that any do, plain or else compressed."""
    for pattern, suffix in itertools.product(patterns, COMPRESSIONS):
        exact = directory / (pattern + suffix)
        found = [] if Path(pattern).is_absolute() else sorted(filter(Path.is_file, directory.glob(pattern + suffix)))
        if exact.is_file() or found:
            return [exact] if exact.is_file() else found
    return []


def _missing_file(spec: TaskSpec, folder: Path | None, split: str) -> FileNotFoundError:
    names = " or ".join(getattr(spec.layout, split))
    hint = f"Get {spec.how_to_get}, and name their folder with --data_dir"
    if spec.reads_own_files:
        hint = f"Name it with --{split}_file" + ", or all classes with --class_names" * (split == "train")
    where = "on the Hub" if folder is None else f"in {folder.absolute()}, only {listing(folder)}"
    return FileNotFoundError(f"{spec.name}: the {split} file is missing: there is no {names} {where}. {hint}.")


def _file_source(spec: TaskSpec, paths: list[Path]) -> Source:
    read = spec.layout.read or read_by_suffix
    name = paths[0].name if len(paths) == 1 else f"{len(paths)} files from {paths[0].name} to {paths[-1].name}"
    stamp = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return Source(spec.layout, lambda: itertools.chain.from_iterable(map(read, paths)), name, stamp)


def _hub_source(spec: TaskSpec, splits: tuple[str, ...], cache: Path) -> Source:
    hub, (hub_split,) = spec.hub, splits
    try:
        where = {"revision": hub.revision, "data_dir": hub.data_dir, "cache_dir": str(cache)}
        rows = datasets.load_dataset(hub.id, hub.config, split=hub_split, **where)
    except OSError as error:
        problem = f"{hub.id} could not be read from the Hub ({error})"
        hint = f"Get {spec.how_to_get}, and name their folder with --data_dir."
        raise ConnectionError(f"{spec.name}: {problem}. {hint}") from error
    # Of labels of words there are lists; a right choice stays a number.
    features = {column: getattr(feature, "feature", feature) for column, feature in rows.features.items()}
    has_names = spec.family != "multiple-choice"
    classes = {name: each for name, each in features.items() if has_names and isinstance(each, datasets.ClassLabel)}

    def records() -> Iterator[Record]:
        for number, fields in enumerate(rows):
            known = [column for column in classes if fields[column] not in (None, -1)]
            names = {column: classes[column].int2str(fields[column]) for column in known}
            yield f"{hub.id}, {hub_split} row {number}", fields | names

    return Source(hub, records, f"{hub.id} ({hub_split})", rows._fingerprint)


def _inferred_labels(spec: TaskSpec, source: Source) -> tuple[str, ...]:
    """The labels of the training file, sorted (as numbers where all are whole); a `ValueError` for fewer than two."""
    column, labels = source.layout.columns["label"], set()
    for where, fields in source.records():
        with reading(where):
            raw = field_of(fields, column)
            labels.update(labels_of(raw, spec, source.layout) if written(raw) else [])
    if len(labels) < 2:
        found = f"{source.name}: {' and '.join(labels) or 'no labels'} were found in {column!r}"
        raise ValueError(f"{found}: check --label_column, or name 2 or more classes with --class_names.")
    return tuple(sorted(labels, key=int if all(label.removeprefix("-").isdecimal() for label in labels) else str))


def _read_split(spec: TaskSpec, source: Source, split: str, cache: Path) -> tuple[datasets.Dataset, str]:
    """The rows of a split, read or from the cache, and a note on them."""
    fingerprint = Hasher.hash((ROW_FORMAT, spec, source.layout, split, source.stamp))
    note_file, layout = cache / "hf_gpt_tasks" / f"{fingerprint}.txt", source.layout

    def generate() -> Iterator[dict[str, Any]]:
        counts, number = Counter(), itertools.count()
        for where, fields in source.records():
            if split != "test" and fields and not any(map(written, fields.values())):
                continue
            with reading(where):
                items = [*layout.prepare(fields)] if layout.prepare else [fields]
                if layout.split_field:
                    items = [item for item in items if field_of(item, layout.split_field) == split]
                rows = [row_of(spec, layout, split, item, next(number)) for item in items]
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
    """`Dataset.from_generator` with a key of our own (by default it hashes code), whose errors stay what they are."""
    try:
        return datasets.Dataset.from_generator(generate, fingerprint=fingerprint, **settings)
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, ValueError | OSError):
            raise error.__cause__ from None
        raise


def _hold_out(split: str, rule: HeldOut, spec: TaskSpec, splits: datasets.DatasetDict, notes: dict[str, str]) -> None:
    """
    Moves groups of rows with the same texts from `train` to another split, in the order of NumPy's legacy permutation
    as long as they fit: of single rows those of scikit-learn's `train_test_split`, as the release did for Story Cloze.
    """
    train, rows = splits["train"], splits["train"].num_rows
    # A small sample of a set that holds out a fixed number, such as the 374 of Story Cloze, gives a fifth.
    share = 0.2 if rule.size >= rows and not spec.reads_own_files else rule.size
    size = int(min(share, rows) if share >= 1 else max(share > 0, round(share * rows)))
    numbers: dict[int, int] = {}  # of groups, as they come
    keys = _text_keys(train, rule.group_by, spec, rule.folded) if rule.group_by else range(rows)
    groups, left = np.array([numbers.setdefault(key, len(numbers)) for key in keys]), size
    counts = np.bincount(groups)
    chosen = np.zeros(len(counts), dtype=bool)
    for group in np.random.RandomState(rule.seed).permutation(len(counts)):
        if counts[group] <= left:
            chosen[group], left = True, left - counts[group]
    chosen = chosen[groups]
    count = int(chosen.sum())
    together = f", rows with the same {' and '.join(rule.group_by)} kept together" if rule.group_by else ""
    if not 0 < count < rows:
        problem = f"{size} rows cannot be held out of {rows} for {split}{together}"
        raise ValueError(f"{notes['train']}: {problem}. See --validation_size, or provide a {split} file.")
    splits[split] = train.select(np.flatnonzero(chosen))
    splits["train"] = train.select(np.flatnonzero(~chosen))
    notes[split] = f"{count:,} rows held out of the training rows (seed {rule.seed}{together})"
    notes["train"] += f"; {count:,} held out for {split}, {rows - count:,} left"


def _text_keys(rows: datasets.Dataset, columns: Sequence[str], spec: TaskSpec, folded: bool) -> list[int]:
    """A number for the texts of each row, the same for the same; `folded`: case and white space do not count."""

    def fold(text: str) -> str:
        return " ".join(text.split()).casefold() if folded else text

    def key(texts: tuple[str | list[str], ...]) -> int:
        parts = [tuple(sorted(map(fold, text))) if isinstance(text, list) else fold(text) for text in texts]
        return hash(tuple(sorted(parts) if spec.family == "similarity" else parts))

    values = ([" ".join(words) for words in rows[name]] if name == "words" else rows[name][:] for name in columns)
    return list(map(key, zip(*values, strict=True)))


def _warnings(spec: TaskSpec, splits: datasets.DatasetDict, held_out: dict[str, HeldOut]) -> Iterator[str]:
    """What is likely to be wrong with the rows, of published splits and those that were `held_out`."""
    train = splits["train"]
    labels, first, columns = train["label"][:], {}, TEXT_COLUMNS[spec.family]
    rows = [first.setdefault(key, row) for row, key in enumerate(_text_keys(train, columns, spec, True))]
    if spec.label_names:
        folded = Counter(map(str.casefold, spec.label_names))
        if alike := [repr(name) for name in spec.label_names if folded[name.casefold()] > 1]:
            yield f"The labels {' and '.join(alike)} differ in case alone, and are classes of their own."
        counts = np.sum(labels, axis=0) if spec.problem_type == MULTI_LABEL else Counter(np.hstack(labels).tolist())
        rare = [f"{name!r} has {counts[n]:.0f}" for n, name in enumerate(spec.label_names) if counts[n] < 5]
        if rare:
            yield f"Too few training examples to learn a class from: {', '.join(rare[:9])}{', ...' * (len(rare) > 9)}."
    differing = [row for row, other in enumerate(rows) if labels[row] != labels[other]]
    if differing and spec.label_names and spec.family != "tagging":
        one, other = train["id"][differing[0]], train["id"][rows[differing[0]]]
        found = f"{len(differing):,} of the {len(labels):,} training rows have the texts of an earlier row"
        yield f"{found} (apart from case and white space) and another label, the first {one} those of {other}."
    for split in (split for split in splits if split != "train" and split not in held_out):
        if count := sum(key in first for key in _text_keys(splits[split], columns, spec, True)):
            found = f"{count:,} of the {len(splits[split]):,} {split} rows have texts that training rows have too"
            yield f"{found} (apart from case and white space): their scores say little about new texts."
