"""From a `TaskSpec` to data sets: finding the files or the Hub's copy, reading them into an Arrow cache, cutting."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from datasets.exceptions import DatasetGenerationError

from .task_readers import Record, find_files, input_error, read_by_suffix
from .task_spec import SPLITS, Cut, Layout, RowReader, TaskSpec, separate_labels, written_label

# Part of every cache key: raise it when the normalised rows themselves change.
ROW_FORMAT = 1


@dataclass(frozen=True)
class TaskData:
    """
    A task's rows.

    Args:
        spec (`TaskSpec`): the task, with the label names that were inferred where it declared none.
        splits (`datasets.DatasetDict`): `train`, `validation` and, unless its file is missing, `test`.
        notes (`dict` of `str` to `str`): for each split, a sentence on how it was made.
    """

    spec: TaskSpec
    splits: datasets.DatasetDict
    notes: dict[str, str]


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
    if spec.infers_labels:
        multiple = spec.problem_type == "multi_label_classification"
        spec = replace(spec, label_names=_inferred_labels(sources["train"], multiple))

    parts, notes = {}, {}
    for split, source in sources.items():
        parts[split], notes[split] = _read_split(spec, source, split, cache_dir)
    if "train" in parts:
        for split, cut in cuts.items():
            _cut_off(split, cut, parts, notes, seed)
    if "test" in wanted and "test" not in parts:
        names = " or ".join(spec.files["test"])
        notes["test"] = f"left out: there is no {names}" if names else "left out: none was named"
    ordered = {split: parts[split] for split in SPLITS if split in wanted and split in parts}
    kept = {split: notes[split] for split in SPLITS if split in wanted and split in notes}
    return TaskData(spec, datasets.DatasetDict(ordered), kept)


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
    if train is not None and train.layout.cut is not None:
        found, cuts = {}, dict.fromkeys(rules, train.layout.cut)
    found["train"] = train
    for split in wanted:
        can_be_cut = split in cuts and train is not None
        if found.get(split) is None and not can_be_cut and (split != "test" or required):
            named = split if spec.files[split] else "train"
            raise FileNotFoundError(_missing_file_message(spec, directory, named))
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
    expected = " or ".join(spec.files[split]) or "none: the task has no such file"
    if directory.is_dir():
        names = sorted(path.name for path in directory.iterdir())
        found = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "") or "nothing"
    else:
        found = "no such folder"
    return (
        f"{spec.name}: the {split} file is missing in {directory}. Expected: {expected} "
        f"(.gz or .xz after the name is fine). Found: {found}. Get it from {spec.source or 'its publisher'} and name "
        "its folder with --data_dir, or ask only for the splits that are there."
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


def _inferred_labels(source: _Source, multiple: bool) -> tuple[str, ...]:
    """The labels that the training file uses, sorted: as numbers where all are whole numbers."""
    column = source.layout.columns["label"]
    labels: set[str] = set()
    for record in source.records():
        if column not in record.fields:
            raise input_error(
                record.where,
                f"there is no column {column!r}.",
                f"The columns there are: {', '.join(record.fields)}.",
            )
        label = record.fields[column]
        listed = separate_labels(label) if multiple else [label]
        labels.update(written_label(one) for one in listed if one is not None)
    labels.discard("")
    if len(labels) < 2:
        found = f"only the label {labels.pop()!r}" if labels else "no label"
        raise input_error(
            source.name,
            f"{found} was found, at least 2 were expected.",
            "Check the label column, or give label_names.",
        )
    numbers = all(label.lstrip("-").isdecimal() for label in labels)
    return tuple(sorted(labels, key=int if numbers else str))


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
            raise input_error(
                source.name, f"no rows were found for the {split} split.", "The file may be empty or the wrong one."
            )
        _write_whole(counts_file, json.dumps(reader.counts))

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
    if source.layout.cut is not None:
        note = f"{source.name} stands for the whole data set: {rows.num_rows:,} rows"
    if counts.get("empty"):
        note += f", {counts['empty']:,} more left out for an empty text"
    if counts.get("skipped"):
        note += f", {counts['skipped']:,} more left out for want of a gold label"
    if counts.get("unlabelled"):
        note += f", {counts['unlabelled']:,} of them without a gold label"
    return rows, note


def _fingerprint(spec: TaskSpec, source: _Source, split: str) -> str:
    """A key that changes with the files (path, size, time of change), the task's version, and how it is read."""
    layout = {name: getattr(source.layout, name) for name in source.layout.__dataclass_fields__ if name != "cut"}
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


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _cut_off(
    split: str, cut: Cut, parts: dict[str, datasets.Dataset], notes: dict[str, str], seed: int | None
) -> None:
    """Moves the rows that a rule picks from `train` to another split, and says so in the notes."""
    train = parts["train"]
    seed = cut.seed if seed is None else seed
    held_out = _held_out(train, cut, seed, split, notes["train"])
    parts[split] = train.select(np.flatnonzero(held_out))
    parts["train"] = train.select(np.flatnonzero(~held_out))
    size = int(held_out.sum())
    together = f", rows with the same {' and '.join(cut.group_by)} kept together" if cut.group_by else ""
    notes[split] = f"{size:,} rows cut from the training part (seed {seed}{together})"
    notes["train"] += f"; {size:,} cut off for {split}, {parts['train'].num_rows:,} left"


def _held_out(train: datasets.Dataset, cut: Cut, seed: int, split: str, name: str) -> np.ndarray:
    """
    Which rows to hold out, as a boolean array.

    Groups are taken in the order of NumPy's legacy permutation as long as they fit. Where every row is its own group
    that picks the rows scikit-learn's `train_test_split(test_size=size, random_state=seed)` picks, which the release
    used for Story Cloze.
    """
    rows = train.num_rows
    size = int(cut.size) if cut.size >= 1 else max(1, round(cut.size * rows))
    if not (cut.size > 0 and size < rows):
        raise ValueError(f"{name}: {size} rows cannot be held out of {rows} for {split}. Provide more rows.")
    groups = np.arange(rows)
    if cut.group_by:
        numbers: dict[bytes, int] = {}
        batches = train.select_columns(list(cut.group_by)).iter(batch_size=1000)
        keys = (key for batch in batches for key in zip(*(batch[name] for name in cut.group_by), strict=True))
        groups = np.fromiter(
            (numbers.setdefault(hashlib.md5(repr(key).encode()).digest(), len(numbers)) for key in keys), int, rows
        )
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
            f"hold out. Hold out more rows, or provide a {split} file."
        )
    return chosen[groups]
