"""From a `TaskSpec` to data sets: finding the files or the Hub's copy, reading them into an Arrow cache, cutting."""

import difflib
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from datasets.exceptions import DatasetGenerationError

from ..files import write_text
from .readers import BadRowError, Record, find_files, input_error, read_by_suffix
from .spec import (
    LABEL_SEPARATORS,
    MULTI_LABEL,
    SPLITS,
    Cut,
    Layout,
    RowReader,
    TaskSpec,
    field_of,
    is_empty,
    labels_in,
)

# Part of every cache key: raise it when the normalised rows themselves change.
ROW_FORMAT = 1
# So many classes, with hardly two rows each, are a column of something else.
_MANY_CLASSES = 10


@dataclass(frozen=True)
class TaskData:
    """
    A task's rows.

    Args:
        spec (`TaskSpec`): the task, with the label names that were inferred where it declared none.
        splits (`datasets.DatasetDict`): `train`, `validation` and, unless its file is missing, `test`.
        notes (`dict` of `str` to `str`): for each split, a sentence on how it was made.
        warnings (tuple of `str`): sentences on what is likely to be wrong with the data.
    """

    spec: TaskSpec
    splits: datasets.DatasetDict
    notes: dict[str, str]
    warnings: tuple[str, ...] = ()


def load_spec(
    spec: TaskSpec,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    seed: int | None = None,
    splits: Sequence[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> TaskData:
    """
    Reads and checks a task's rows; they lie in an Arrow cache on disk, never whole in memory.

    Args:
        spec (`TaskSpec`): the task.
        data_dir (path, *optional*): the folder with the publisher's files. Without it, the repository's own data, or
            the Hub.
        seed (`int`, *optional*, defaults to the task's own): for a validation part that has to be cut.
        splits (sequence of `str`, *optional*): read only these, and fail if one is missing. By default all are read,
            and a test file that is not there is noted and left out.
        cache_dir (path, *optional*): where the rows are cached; `datasets`' own folder by default.

    Raises:
        `FileNotFoundError`: when a file is missing, listing what was expected and what was found.
        `ConnectionError`: when the Hub cannot be reached.
        `ValueError`: when something in a file is wrong, naming file and line.
    """
    unknown = [split for split in splits or () if split not in SPLITS]
    if unknown:
        raise ValueError(f"There is no split {unknown[0]!r}: a task has {', '.join(SPLITS)}.")
    wanted = tuple(splits or SPLITS)
    directory = data_dir if data_dir is not None else spec.default_dir
    if directory is not None:
        sources, cuts = _file_sources(spec, Path(directory).expanduser(), wanted, required=splits is not None)
    else:
        sources, cuts = _hub_sources(spec, wanted, cache_dir)
    warnings: list[str] = []
    if spec.infers_labels:
        labels, warnings = _inferred_labels(spec, sources["train"])
        spec = replace(spec, label_names=labels)

    parts, notes = {}, {}
    for split, source in sources.items():
        parts[split], notes[split] = _read_split(spec, source, split, cache_dir)
    if "train" in parts:
        for split, cut in cuts.items():
            _cut_off(split, cut, parts, notes, seed, spec)
    if "test" in wanted and "test" not in parts:
        names = " or ".join(spec.files["test"])
        notes["test"] = f"left out: there is no {names}" if names else "left out: none was named"
    ordered = {split: parts[split] for split in SPLITS if split in wanted and split in parts}
    kept = {split: notes[split] for split in SPLITS if split in wanted and split in notes}
    if "train" in ordered:
        given = {split: rows for split, rows in ordered.items() if split not in cuts}
        warnings += _shared_texts(spec, given) if len(given) > 1 else []
    return TaskData(spec, datasets.DatasetDict(ordered), kept, tuple(warnings))


@dataclass(frozen=True)
class _Source:
    """Where one split is read from: records on demand, a name for messages, and what the cache key depends on."""

    layout: Layout
    records: Callable[[], Iterable[Record]]
    name: str
    stamp: tuple[Any, ...]


def _file_sources(
    spec: TaskSpec, directory: Path, wanted: Sequence[str], required: bool
) -> tuple[dict[str, _Source], dict[str, Cut]]:
    """What to read for the wanted splits, and what to cut from the training part wherever that is read."""
    found = {split: _file_source(spec, directory, split) for split in ("validation", "test")}
    rules = {"validation": spec.cut, "test": spec.test_cut}
    cuts = {split: rule for split, rule in rules.items() if rule is not None and found[split] is None}
    train = None
    if "train" in wanted or spec.infers_labels or any(found[split] is None for split in wanted):
        train = _file_source(spec, directory, "train")
    found["train"] = train
    for split in wanted:
        can_be_cut = split in cuts and train is not None
        can_be_left_out = split == "test" and not required and not (spec.reads_own_files and spec.files[split])
        if found.get(split) is None and not can_be_cut and not can_be_left_out:
            named = split if spec.files[split] or spec.reads_own_files else "train"
            raise FileNotFoundError(_missing_file_message(spec, directory, named))
    if spec.infers_labels and train is None:
        raise FileNotFoundError(_missing_file_message(spec, directory, "train"))
    if not ("train" in wanted or spec.infers_labels or cuts.keys() & set(wanted)):
        found["train"] = None
    read = {split: found.get(split) for split in SPLITS if split in wanted or split == "train"}
    return {split: source for split, source in read.items() if source is not None}, cuts


def _file_source(spec: TaskSpec, directory: Path, split: str) -> _Source | None:
    for layout in spec.layouts:
        pattern = getattr(layout, split)
        paths = find_files(directory, pattern) if pattern else []
        if not paths:
            continue
        if len(paths) > 1 and not layout.many:
            names = ", ".join(path.name for path in paths)
            raise ValueError(f"{directory}: {pattern} stands for several files ({names}). Keep one of them there.")
        read = layout.read or read_by_suffix
        return _Source(
            layout,
            partial(_records_of_files, read, paths),
            ", ".join(path.name for path in paths) if len(paths) < 4 else f"{len(paths)} files of {pattern}",
            tuple(_file_stamp(path) for path in paths),
        )
    return None


def _file_stamp(path: Path) -> tuple[str, int, int]:
    stat = path.stat()
    return str(path.resolve()), stat.st_size, stat.st_mtime_ns


def _records_of_files(read: Callable[[Path], Iterator[Record]], paths: Sequence[Path]) -> Iterator[Record]:
    for path in paths:
        yield from read(path)


def _missing_file_message(spec: TaskSpec, directory: Path, split: str) -> str:
    if not spec.files[split]:
        classes = ", which the classes are taken from, or name them with --class_names" if spec.infers_labels else ""
        return f"{spec.name}: no {split} file was named. Give --{split}_file{classes if split == 'train' else ''}."
    # A name may have folders in it.
    folder = (directory / spec.files[split][0]).parent if spec.reads_own_files else directory
    expected = " or ".join(Path(name).name if spec.reads_own_files else name for name in spec.files[split])
    guess = ""
    if folder.is_dir():
        names = sorted(path.name for path in folder.iterdir())
        found = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "") or "nothing"
        near = [name for one in spec.files[split] for name in difflib.get_close_matches(Path(one).name, names, n=1)]
        guess = f" Did you mean {near[0]}?" if near else ""
    else:
        found = "no such folder"
    remedy = f"Get it from {spec.source or 'its publisher'} and name its folder with --data_dir, or ask only for the "
    remedy += "splits that are there."
    if spec.reads_own_files:
        remedy = f"Correct --{split}_file, or name the folder that it is relative to with --data_dir."
    return (
        f"{spec.name}: the {split} file is missing: there is no {expected} in {folder.absolute()} (.gz or .xz after "
        f"the name is fine).{guess} Found: {found}. {remedy}"
    )


def _hub_sources(
    spec: TaskSpec, wanted: Sequence[str], cache_dir: str | os.PathLike[str] | None
) -> tuple[dict[str, _Source], dict[str, Cut]]:
    files = "; ".join(f"{split}: {' or '.join(names)}" for split, names in spec.files.items() if names)
    remedy = f"Get the files from {spec.source} ({files}) and name their folder with --data_dir."
    if spec.hub is None:
        raise FileNotFoundError(f"{spec.name}: the Hub has no copy of this data set. {remedy}")
    hub, sources = spec.hub, {}
    rules = {"validation": spec.cut, "test": spec.test_cut}
    cuts = {split: rule for split, rule in rules.items() if rule and getattr(hub.layout, split) is None}
    for split in SPLITS:
        hub_split = getattr(hub.layout, split)
        if hub_split is None or (split not in wanted and not (split == "train" and cuts.keys() & set(wanted))):
            continue
        try:
            rows = datasets.load_dataset(
                hub.id,
                hub.config,
                revision=hub.revision,
                data_dir=hub.data_dir,
                split=hub_split,
                cache_dir=cache_dir and os.fspath(cache_dir),
            )
        except OSError as error:
            raise ConnectionError(
                f"{spec.name}: {hub.id} could not be read from the Hub ({error}). {remedy}"
            ) from error
        name = f"{hub.id} ({hub_split})"
        decode = spec.family != "multiple-choice"
        sources[split] = _Source(
            hub.layout, partial(_records_of_dataset, rows, name, decode), name, (hub.id, rows._fingerprint)
        )
    return sources, cuts


def _records_of_dataset(rows: datasets.Dataset, name: str, decode: bool) -> Iterator[Record]:
    classes = {
        column: feature for column, feature in rows.features.items() if isinstance(feature, datasets.ClassLabel)
    }
    for number, fields in enumerate(rows, 1):
        for column, feature in classes.items() if decode else ():
            if fields[column] is not None and fields[column] >= 0:
                fields[column] = feature.int2str(fields[column])
        yield Record(name, number, fields, "row")


def _inferred_labels(spec: TaskSpec, source: _Source) -> tuple[tuple[str, ...], list[str]]:
    """
    The labels that the training file uses, sorted (as numbers where all are whole numbers), and warnings about them.

    Raises:
        `ValueError`: for fewer than two, and for what looks like scores, several labels in one, or another column.
    """
    column = source.layout.columns["label"]
    labels: Counter[str] = Counter()
    records = several = 0
    bad: BadRowError | None = None
    for record in source.records():
        records += 1
        raw = field_of(record, column)
        if is_empty(raw):
            continue
        try:
            found = labels_in(record, raw, spec, source.layout)
        except BadRowError as error:  # all of them are counted when the rows are read
            bad = bad or error
            continue
        several += len(found) != 1
        labels.update(found)
    if not records:
        raise _no_rows(source, "train", records)
    if bad is not None and not labels:
        raise bad
    if len(labels) < 2:
        only = f"only the label {next(iter(labels))!r}" if labels else "no label"
        raise input_error(
            source.name,
            f"{only} was found in {column!r}, at least 2 were expected.",
            "Check --label_column, or name all classes with --class_names (in Python label_names).",
        )
    if spec.problem_type == MULTI_LABEL:
        warnings = _check_several_labels(source, labels, several)
    else:
        warnings = _check_classes(source, labels)
    whole = all(label.lstrip("-").isdecimal() and _number(label) is not None for label in labels)
    return tuple(sorted(labels, key=int if whole else str)), warnings


def _check_classes(source: _Source, labels: Counter[str]) -> list[str]:
    """Raise a `ValueError` where the one label of each row looks like a score, or like no label; else warnings."""
    way_out = "If these are classes, name them all with --class_names (in Python label_names)."
    numbers = [number for number in map(_number, labels) if number is not None]
    are_numbers = len(numbers) == len(labels)
    decimal = next((label for label in labels if are_numbers and not _number(label).is_integer()), None)
    is_scattered = len(labels) >= _MANY_CLASSES and 2 * len(labels) > labels.total()
    if decimal is not None or is_scattered:
        found = f"{len(labels):,} different labels in {labels.total():,} rows"
        if decimal is not None:
            found = f"the labels are numbers with decimals, such as {decimal}"
        question = "Did you mean --problem_type regression?" if are_numbers else "Is --label_column the right one?"
        raise input_error(source.name, f"{found}.", f"{question} {way_out}")
    joined = _joined_labels(labels)
    if joined is None:
        return []
    return [
        f"{joined[0]!r} is a class of its own. If it stands for several labels, add --problem_type {MULTI_LABEL} "
        f"--label_separator {joined[1]!r}."
    ]


def _check_several_labels(source: _Source, labels: Counter[str], several: int) -> list[str]:
    """Raise a `ValueError` where a label of multi-label rows looks like several in one; else warnings."""
    joined = _joined_labels(labels)
    if joined is None and not several:
        joined = next(((label, mark) for mark in LABEL_SEPARATORS[:3] for label in labels if mark in label), None)
    if joined is not None:
        raise input_error(
            source.name,
            f"the label {joined[0]!r} looks like several labels with {joined[1]!r} between them.",
            f"Add --label_separator {joined[1]!r}. If it is one label, name all with --class_names.",
        )
    if several:
        return []
    return [
        f"Every row of {source.name} has exactly one label. If that is always so, leave out --problem_type "
        f"{MULTI_LABEL}; if not, say what stands between labels (--label_separator)."
    ]


def _joined_labels(labels: Iterable[str]) -> tuple[str, str] | None:
    """A label that consists of others, or shares a part with another, and what stands between its parts."""
    alone = set(labels)
    for separator in LABEL_SEPARATORS:
        parts = {label: [part.strip() for part in label.split(separator)] for label in labels if separator in label}
        counts = Counter(part for label in parts for part in set(parts[label]))
        for label, pieces in parts.items():
            if all(pieces) and any(part in alone or counts[part] > 1 for part in pieces):
                return label, separator
    return None


def _number(label: str) -> float | None:
    try:
        number = float(label)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _no_rows(source: _Source, split: str, records: int) -> ValueError:
    why = f"none of its {records:,} records is one" if records else "it is empty, but for a header at most"
    return input_error(
        source.name, f"no rows were found for the {split} split: {why}.", "Check that it is the right file."
    )


def _read_split(
    spec: TaskSpec, source: _Source, split: str, cache_dir: str | os.PathLike[str] | None
) -> tuple[datasets.Dataset, str]:
    fingerprint = _fingerprint(spec, source, split)
    cache = Path(cache_dir or datasets.config.HF_DATASETS_CACHE)
    counts_file = cache / "hf_gpt_tasks" / f"{fingerprint}.json"

    def generate() -> Iterator[dict[str, Any]]:
        reader = RowReader(spec, source.layout, split)
        yield from reader.rows(source.records())
        if not reader.counts["rows"]:
            raise reader.bad_rows[0] if reader.bad_rows else _no_rows(source, split, reader.counts["records"])
        bad_rows = [error.summary for error in reader.bad_rows]
        write_text(counts_file, json.dumps(reader.counts | {"bad_rows": bad_rows}))

    try:
        # Our own fingerprint: hashing the generator would hash code objects, which differ between Python versions,
        # and with it every later `map` over the rows would be cached afresh.
        rows = datasets.Dataset.from_generator(
            generate,
            features=spec.features,
            cache_dir=str(cache),
            split=datasets.NamedSplit(split),
            fingerprint=fingerprint,
        )
    except DatasetGenerationError as error:
        cause = error.__cause__
        if isinstance(cause, ValueError | OSError):
            raise cause from None
        raise
    counts = json.loads(counts_file.read_text(encoding="utf-8")) if counts_file.is_file() else {}
    note = f"{source.name}: {rows.num_rows:,} rows"
    if counts.get("empty"):
        note += f", {counts['empty']:,} more left out for an empty text"
    if counts.get("bad"):
        more = "; and so on" if counts["bad"] > len(counts["bad_rows"]) else ""
        note += f", {counts['bad']:,} more left out as they are wrong ({'; '.join(counts['bad_rows'])}{more})"
    if counts.get("skipped"):
        note += f", {counts['skipped']:,} more left out for want of a gold label"
    if counts.get("unlabelled"):
        note += f", {counts['unlabelled']:,} of them without a gold label"
    return rows, note


def _fingerprint(spec: TaskSpec, source: _Source, split: str) -> str:
    """A key that changes with the files (path, size, time of change), the task's version, and how it is read."""
    layout = {name: getattr(source.layout, name) for name in source.layout.__dataclass_fields__}
    identity = [
        ROW_FORMAT,
        split,
        spec.name,
        spec.version,
        spec.family,
        spec.problem_type,
        spec.label_names,
        spec.score_range,
        layout,
        source.stamp,
    ]
    return hashlib.sha256(json.dumps(identity, default=_describe, sort_keys=True).encode()).hexdigest()[:32]


def _describe(value: Any) -> Any:
    if isinstance(value, partial):
        return [_describe(value.func), value.args, value.keywords]
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    return dict(value)


def _cut_off(
    split: str,
    cut: Cut,
    parts: dict[str, datasets.Dataset],
    notes: dict[str, str],
    seed: int | None,
    spec: TaskSpec,
) -> None:
    """Moves the rows that a rule picks from `train` to another split, and says so in the notes."""
    train = parts["train"]
    seed = cut.seed if seed is None else seed
    held_out = _held_out(train, cut, seed, split, notes["train"], spec)
    parts[split] = train.select(np.flatnonzero(held_out))
    parts["train"] = train.select(np.flatnonzero(~held_out))
    size = int(held_out.sum())
    together = f", rows with the same {' and '.join(cut.group_by)} kept together" if cut.group_by else ""
    together += ", whatever their case and white space" if cut.group_by and cut.folded else ""
    notes[split] = f"{size:,} rows cut from the training part (seed {seed}{together})"
    notes["train"] += f"; {size:,} cut off for {split}, {parts['train'].num_rows:,} left"


def _held_out(train: datasets.Dataset, cut: Cut, seed: int, split: str, name: str, spec: TaskSpec) -> np.ndarray:
    """
    Which rows to hold out, as a boolean array.

    Groups are taken in the order of NumPy's legacy permutation as long as they fit. Where every row is its own group
    that picks the rows scikit-learn's `train_test_split(test_size=size, random_state=seed)` picks, which the release
    used for Story Cloze.
    """
    rows = train.num_rows
    size = 0
    if 0 < cut.size < math.inf:
        size = int(cut.size) if cut.size >= 1 else max(1, round(cut.size * rows))
    if not 0 < size < rows:
        raise ValueError(f"{name}: {size} rows cannot be held out of {rows} for {split}. Provide more rows.")
    groups = np.arange(rows)
    if cut.group_by:
        keys = _text_keys(train, cut.group_by, cut.folded, spec.family == "similarity")
        _, first_rows, groups = np.unique(keys, return_index=True, return_inverse=True)
        groups = np.argsort(np.argsort(first_rows))[groups]  # numbered as they come
    counts = np.bincount(groups)
    chosen = np.zeros(len(counts), dtype=bool)
    room = size
    for group in np.random.RandomState(seed).permutation(len(counts)):
        if counts[group] <= room:
            chosen[group] = True
            room -= counts[group]
        if room == 0:
            break
    if not chosen.any():
        raise ValueError(
            f"{name}: no group of rows with the same {' and '.join(cut.group_by)} is as small as the {size} rows to "
            f"hold out. Hold out more rows (with --task custom, --validation_size), or provide a {split} file."
        )
    return chosen[groups]


def _text_keys(rows: datasets.Dataset, columns: Sequence[str], folded: bool, in_any_order: bool) -> np.ndarray:
    """
    A number for the texts of each row, so that rows with the same texts have the same (but once in 2**64 cases).

    Args:
        rows (`datasets.Dataset`): normalised rows.
        columns (`Sequence[str]`): names of text columns; the choices of a row are compared in any order.
        folded (`bool`): whether case and white space do not count.
        in_any_order (`bool`): whether two texts mean the same in either order.
    """

    def fold(text: str) -> str:
        return " ".join(text.split()).casefold() if folded else text

    def key(texts: Iterable[str | list[str]]) -> int:
        parts = [sorted(map(fold, text)) if isinstance(text, list) else fold(text) for text in texts]
        digest = hashlib.blake2b(repr(sorted(parts) if in_any_order else parts).encode(), digest_size=8).digest()
        return int.from_bytes(digest)

    batches = rows.select_columns(list(columns)).iter(batch_size=1000)
    keys = (key(texts) for batch in batches for texts in zip(*(batch[name] for name in columns), strict=True))
    return np.fromiter(keys, np.uint64, rows.num_rows)


def _shared_texts(spec: TaskSpec, parts: dict[str, datasets.Dataset]) -> Iterator[str]:
    """A warning for each part some of whose rows have the texts of training rows."""
    keys = {
        split: _text_keys(rows, spec.text_columns, folded=True, in_any_order=spec.family == "similarity")
        for split, rows in parts.items()
    }
    for split in ("validation", "test"):
        count = int(np.isin(keys[split], keys["train"]).sum()) if split in keys else 0
        if count:
            yield (
                f"{count:,} of the {len(keys[split]):,} {split} rows have texts that training rows have too (apart "
                "from case and white space): their scores say little about new texts."
            )
