"""From a `TaskSpec` to data sets: records become normalised rows in an Arrow cache, missing splits are held out."""

import difflib
import hashlib
import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
from datasets.exceptions import DatasetGenerationError
from datasets.fingerprint import Hasher

from ..files import COMPRESSIONS, reading, write_text
from ..trees.collators import IGNORED_LABEL
from .catalogue import get_task
from .formats import Record, field_of, read_by_suffix
from .spec import CHOICE_TEXT, MULTI_LABEL, SPLITS, Cut, Layout, TaskSpec

# Part of every cache key: raise it when the normalised rows themselves change.
ROW_FORMAT = 3
# Many classes, with hardly two rows each, are a column of something else; a class with few rows is called out.
_MANY_CLASSES, _FEW_ROWS = 10, 5


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


class EmptyTextError(ValueError):
    """A row lacks a text."""


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
    if folder is None and spec.hub is None:
        raise FileNotFoundError(f"{spec.name}: the Hub has no copy of this data set. {_how_to_get(spec)}")
    wanted = tuple(splits or SPLITS)
    published = {split for split in SPLITS if _is_published(spec, folder, split)}
    cuts = {"validation": spec.cut, "test": spec.test_cut}
    cuts = {split: cut for split, cut in cuts.items() if cut and split not in published}
    needed = {*wanted, *(["train"] if spec.infers_labels or cuts.keys() & set(wanted) else [])}
    for split in (*wanted, "train") if folder is not None else ():
        is_cut = split in cuts and "train" in published
        is_optional = split == "test" and splits is None and not (spec.reads_own_files and spec.files[split])
        if split in needed - published and not is_cut and not is_optional:
            raise _missing_file(spec, folder, split)
    cache = Path(cache_dir or datasets.config.HF_DATASETS_CACHE)
    sources = {split: _source(spec, folder, split, cache) for split in SPLITS if split in needed & published}
    if spec.infers_labels:
        spec = replace(spec, label_names=_inferred_labels(spec, sources["train"]))

    parts, notes = {}, {}
    for split, source in sources.items():
        parts[split], notes[split] = _read_split(spec, source, split, cache)
    for split, cut in cuts.items() if "train" in parts else ():
        _hold_out(split, cut, parts, notes, seed, spec)
    if "test" in wanted and "test" not in parts:
        names = " or ".join(spec.files["test"])
        notes["test"] = f"left out: there is no {names}" if names else "left out: none was named"
    ordered = {split: parts[split] for split in SPLITS if split in wanted and split in parts}
    kept = {split: notes[split] for split in SPLITS if split in wanted and split in notes}
    own = {split: rows for split, rows in ordered.items() if split not in cuts}
    warnings = (*_warnings(spec, own, ordered["train"]),) if "train" in ordered else ()
    return TaskData(spec, datasets.DatasetDict(ordered), kept, warnings)


# Where rows are read from.


def find_files(directory: Path, patterns: Sequence[str]) -> list[Path]:
    """
    The files of `directory` that the first name or glob pattern stands for that any do, sorted by path; empty when
    there is none. The plain name is looked for first, then the name with ``.gz``, then with ``.xz``.
    """
    for pattern, suffix in itertools.product(patterns, COMPRESSIONS):
        exact = directory / (pattern + suffix)
        if exact.is_file():
            return [exact]
        found = [] if Path(pattern).is_absolute() else sorted(filter(Path.is_file, directory.glob(pattern + suffix)))
        if found:
            return found
    return []


def _is_published(spec: TaskSpec, folder: Path | None, split: str) -> bool:
    if folder is None:
        return spec.hub is not None and bool(getattr(spec.hub.layout, split))
    return bool(find_files(folder, spec.files[split]))


def _missing_file(spec: TaskSpec, folder: Path, split: str) -> FileNotFoundError:
    """The error that says what was expected and what is there."""
    if spec.reads_own_files and not spec.files[split]:
        classes = ", which the classes are taken from, or name them with --class_names" * (split == "train")
        return FileNotFoundError(f"{spec.name}: no {split} file was named. Give --{split}_file{classes}.")
    patterns = spec.files[split] or spec.files["train"]
    where = (folder / patterns[0]).parent if spec.reads_own_files else folder
    found = sorted(path.name for path in where.iterdir()) if where.is_dir() else []
    near = difflib.get_close_matches(Path(patterns[0]).name, found, n=1)
    there = f"Did you mean {near[0]}?" if near else f"Found: {', '.join(found[:8]) or 'nothing'}."
    hint = f"Correct --{split}_file, or name the folder that it is relative to with --data_dir."
    return FileNotFoundError(
        f"{spec.name}: the {split if spec.files[split] else 'train'} file is missing: there is no "
        f"{' or '.join(patterns)} in {folder.absolute()} (.gz or .xz after the name is fine). {there} "
        f"{hint if spec.reads_own_files else _how_to_get(spec)}"
    )


def _how_to_get(spec: TaskSpec) -> str:
    files = "; ".join(f"{split}: {' or '.join(names)}" for split, names in spec.files.items() if names)
    return f"Get the files from {spec.source} ({files}) and name their folder with --data_dir."


def _source(spec: TaskSpec, folder: Path | None, split: str, cache: Path) -> Source:
    if folder is None:
        return _hub_source(spec, split, cache)
    layout, patterns = spec.layout, spec.files[split]
    paths = find_files(folder, patterns)
    if len(paths) > 1 and not layout.many:
        names = ", ".join(path.name for path in paths)
        raise ValueError(f"{folder}: {patterns[0]} stands for several files ({names}). Keep one of them there.")
    read = layout.read or read_by_suffix
    name = paths[0].name if len(paths) == 1 else f"{len(paths)} files of {patterns[0]}"
    stamp = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return Source(layout, lambda: itertools.chain.from_iterable(map(read, paths)), name, stamp)


def _hub_source(spec: TaskSpec, split: str, cache: Path) -> Source:
    hub = spec.hub
    (hub_split,) = getattr(hub.layout, split)
    try:
        where = {"revision": hub.revision, "data_dir": hub.data_dir, "cache_dir": str(cache)}
        rows = datasets.load_dataset(hub.id, hub.config, split=hub_split, **where)
    except OSError as error:
        problem = f"{spec.name}: {hub.id} could not be read from the Hub ({error})."
        raise ConnectionError(f"{problem} {_how_to_get(spec)}") from error

    def records() -> Iterator[Record]:
        # Of labels of words there are lists.
        features = {column: getattr(feature, "feature", feature) for column, feature in rows.features.items()}
        classes = {name: feature for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)}
        for number, fields in enumerate(rows):
            for column, feature in classes.items() if spec.family != "multiple-choice" else ():
                fields[column] = _class_name(fields[column], feature)
            yield Record(hub.id, f"{hub_split} row {number}", fields)

    return Source(hub.layout, records, f"{hub.id} ({hub_split})", rows._fingerprint)


def _class_name(value: Any, feature: datasets.ClassLabel) -> Any:
    if isinstance(value, list):
        return [_class_name(item, feature) for item in value]
    return feature.int2str(value) if value is not None and value >= 0 else value


# Records become rows.


def _read_split(spec: TaskSpec, source: Source, split: str, cache: Path) -> tuple[datasets.Dataset, str]:
    """The rows of a split, read or from the cache, and a note on them."""
    fingerprint = _fingerprint(ROW_FORMAT, spec, source.layout, split, source.stamp)
    note_file = cache / "hf_gpt_tasks" / f"{fingerprint}.txt"

    def generate() -> Iterator[dict[str, Any]]:
        left_out: Counter[str] = Counter()
        count = 0
        for row in _rows(spec, source, split, left_out):
            count += 1
            yield row
        if not count:
            raise ValueError(
                f"{source.name}: no rows were found for the {split} split: it is empty, or the wrong file."
            )
        write_text(note_file, "".join(f", {number:,} {what}" for what, number in left_out.items()))

    settings = {"cache_dir": str(cache), "split": datasets.NamedSplit(split)}
    rows = cached_rows(generate, fingerprint, features=spec.features, **settings)
    more = note_file.read_text(encoding="utf-8") if note_file.is_file() else ""
    return rows, f"{source.name}: {rows.num_rows:,} rows{more}"


def _fingerprint(*facts: Any) -> str:
    """A cache key of all that rows depend on: the files (path, size, time of change), the task, how they are read."""
    return Hasher.hash(facts)


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


def _rows(spec: TaskSpec, source: Source, split: str, left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    """
    The normalised rows of a split's records. What is left out, and of what rows there are how many lack something, is
    counted in `left_out`. A test row without a text, or one that is wrong where bad rows are skipped, stays as one of
    empty texts without a label: predictions have a line for every row of the file.
    """
    layout, number = source.layout, -1
    for record in source.records():
        if split != "test" and record.fields and all(map(_is_empty, record.fields.values())):
            continue
        with reading(record.path, record.place):
            items = [*layout.prepare(record.fields)] if layout.prepare else [record.fields]
        for fields in items:
            number += 1
            if layout.split_field and fields.get(layout.split_field) != split:
                if fields.get(layout.split_field) not in SPLITS:
                    raise ValueError(f"{record.where}: {layout.split_field!r} must be one of {', '.join(SPLITS)}.")
                continue
            try:
                with reading(record.path, record.place):
                    row = _keys(spec, layout, split, fields, number)
                    row |= _texts(spec, layout, split, fields)
                    row |= _label(spec, layout, split, fields, row, left_out)
            except ValueError as error:
                what = _outcome(spec, layout, split, error.__cause__ or error)
                if what is None:
                    hint = " --skip_bad_rows leaves such rows out." if spec.reads_own_files else ""
                    raise ValueError(f"{error}{hint}") from error
                left_out[what] += 1
                if "predicted" not in what:
                    continue
                row = _keys(spec, layout, split, fields, number)
                row |= {name: {"choices": ["", ""], "words": [""]}.get(name, "") for name in spec.text_columns}
                row["label"] = [IGNORED_LABEL] if "words" in row else spec.unlabelled
            if row["label"] is not None:
                yield row


def _outcome(spec: TaskSpec, layout: Layout, split: str, error: BaseException) -> str | None:
    """What becomes of a row with an error, for the note on its split; None where the error stands."""
    is_empty = isinstance(error, EmptyTextError)
    if split == "test" and spec.family != "question-answering" and (is_empty or layout.skip_bad_rows):
        return "of them predicted as empty"
    if is_empty and layout.skip_empty:
        return "more left out for an empty text"
    return "more left out as they are wrong" if layout.skip_bad_rows else None


def _keys(spec: TaskSpec, layout: Layout, split: str, fields: dict[str, Any], number: int) -> dict[str, Any]:
    """The row's `id`, by default its number from 0, and the columns that predictions have as well."""
    column = layout.columns.get("id")
    columns = column if isinstance(column, tuple) else (column,)
    row: dict[str, Any] = {
        "id": next((_encodable(str(fields[name])) for name in columns if name in fields), str(number))
    }
    if column and split == "test" and spec.reads_own_files:
        field_of(fields, column)
    if spec.keep_columns:
        # Training files need not have them.
        values = [field_of(fields, name) if split == "test" else fields.get(name) for name in spec.keep_columns]
        row["kept"] = ["" if value is None else _encodable(str(value)) for value in values]
    return row


def _texts(spec: TaskSpec, layout: Layout, split: str, fields: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    may_be_empty = layout.skip_empty and split == "test"
    for name in spec.text_columns:
        column = layout.columns.get(name)
        is_optional = may_be_empty or (name == "question" and spec.family == "multiple-choice")
        if name in ("choices", "words"):
            values = (
                [field_of(fields, part) for part in column] if isinstance(column, tuple) else field_of(fields, column)
            )
            values = values.split() if isinstance(values, str) and name == "words" else values or []
            if not isinstance(values, list):
                raise ValueError(f"{column!r} holds a {type(values).__name__}, a list of {name} was expected")
            while isinstance(column, tuple) and values and _is_empty(values[-1]):
                values.pop()
            if len(values) < (2 if name == "choices" else 1):
                raise EmptyTextError(f"{len(values)} {name} where at least {2 if name == 'choices' else 1} are needed")
            row[name] = [_text(value, f"{column}[{place}]", may_be_empty) for place, value in enumerate(values)]
        elif column is None:
            row[name] = ""
        else:
            parts = column if isinstance(column, tuple) else (column,)
            row[name] = " ".join(_text(field_of(fields, part), part, is_optional) for part in parts)
    return row


def _text(value: Any, column: str, may_be_empty: bool) -> str:
    if _is_empty(value):
        if may_be_empty:
            return ""
        raise EmptyTextError(f"the text of {column!r} is empty")
    if not isinstance(value, str):
        raise ValueError(f"{column!r} holds a {type(value).__name__}, a text was expected")
    return _encodable(value.strip())


def _label(
    spec: TaskSpec, layout: Layout, split: str, fields: dict[str, Any], row: dict[str, Any], left_out: Counter[str]
) -> dict[str, Any]:
    """The columns of a row's label; a label of None where the row is left out for want of a gold label."""
    column = layout.columns["label"]
    if isinstance(column, tuple):
        is_missing = split == "test" and all(_is_empty(fields.get(name)) for name in column)
        raw: Any = None if is_missing else [name for name in column if _is_marked(fields, name)]
    else:
        raw = fields.get(column) if split == "test" else field_of(fields, column)
    if spec.family == "question-answering":
        return _answers(spec, raw, row["passage"], fields[layout.columns["passage"]], split)
    names, written = layout.labels or spec.label_names or (), _written(raw)
    can_be_a_label = written in names or (spec.has_scores and spec.score_range is None)
    # -1 stands for a label that is kept secret, as on the Hub, wherever it cannot be a label.
    is_missing = raw is None or not (written or isinstance(raw, list))
    is_missing |= split == "test" and written == "-1" and not can_be_a_label
    if written in layout.skip_labels and not (split == "test" and is_missing):
        left_out["more left out for want of a gold label"] += 1
        return {"label": None}
    if is_missing:
        if split != "test":
            raise ValueError(f"the label in {column!r} is empty")
        left_out["of them without a gold label"] += 1
        return {"label": [IGNORED_LABEL] * len(row["words"]) if "words" in row else spec.unlabelled}
    if spec.family == "multiple-choice":
        return {"label": _choice(written, layout.first_choice, row["choices"])}
    if spec.has_scores:
        return {"label": _score(raw, spec.score_range)}
    labels = [_class_index(label, names) for label in labels_of(raw, spec, layout)]
    if spec.family == "tagging" and len(labels) != len(row["words"]):
        raise ValueError(f"{len(row['words'])} words and {len(labels)} labels: give each word one")
    if spec.problem_type == MULTI_LABEL:
        return {"label": [float(index in labels) for index in range(len(names))]}
    return {"label": labels if spec.family == "tagging" else labels[0]}


def labels_of(raw: Any, spec: TaskSpec, layout: Layout) -> list[str]:
    """
    The labels of a cell, as text: one, or where rows may have several as many as a list or the separator (of tags
    white space) says. A list where one label is expected is a `ValueError`.
    """
    several = spec.family == "tagging" or spec.problem_type == MULTI_LABEL
    if several and isinstance(raw, str):
        raw = [
            part for part in raw.split(None if spec.family == "tagging" else layout.label_separator) if part.strip()
        ]
    labels = raw if several and isinstance(raw, list) else [raw]
    for label in labels:
        if label is None or isinstance(label, list | dict):
            hint = "" if several else f" (several labels a row are --problem_type {MULTI_LABEL})"
            raise ValueError(f"a label was expected, a {type(label).__name__} was found{hint}")
    return [_encodable(_written(label)) for label in labels]


def _class_index(label: str, names: Sequence[str]) -> int:
    if label not in names:
        raise ValueError(f"the label {label!r} is not one of {', '.join(names)}")
    return names.index(label)


def _choice(written: str, first: int | str, choices: Sequence[str]) -> int:
    answers, numbers = choices, range(len(choices))
    if first != CHOICE_TEXT:
        answers = [chr(ord(first) + number) if isinstance(first, str) else str(first + number) for number in numbers]
    if answers.count(written) != 1:
        counted = "by its text" if first == CHOICE_TEXT else f"counted {answers[0]} to {answers[-1]}"
        raise ValueError(
            f"the answer {written!r} is not one of the row's {len(choices)} choices, {counted} (first_choice)"
        )
    return answers.index(written)


def _score(raw: Any, score_range: tuple[float, float] | None) -> float:
    low, high = score_range or (-math.inf, math.inf)
    score = _number(raw)
    if not math.isfinite(score) or not low <= score <= high:
        between = f" from {low:g} to {high:g}" if score_range else ""
        raise ValueError(f"the score {raw!r} is not a number{between}")
    return score


def _answers(spec: TaskSpec, raw: Any, text: str, passage: str, split: str) -> dict[str, Any]:
    """All answers as texts, and where the first begins and ends in the passage without the blanks around it."""
    texts, starts = ([], []) if raw is None else (raw["text"], raw["answer_start"])
    for answer, start in zip(texts, starts, strict=True):
        if not answer.strip() or start < 0 or passage[start : start + len(answer)] != answer:
            found = passage.find(answer)
            where = f"it begins at {found}" if found >= 0 and answer.strip() else "it is not in the passage"
            raise ValueError(f"the answer {answer!r} is not at its answer_start {start}: {where}")
    if not texts and split != "test":
        raise ValueError("the question has no answer, which only test rows can do without (SQuAD 2.0 has such)")
    if not texts:
        return {"answers": [], "label": spec.unlabelled}
    begin = starts[0] - passage.index(text)
    return {"answers": texts, "label": [max(0, begin), begin + len(texts[0])]}


def _written(raw: Any) -> str:
    """A label as text: 1, 1.0, "1" and " 1 " are the same label."""
    return str(int(raw) if isinstance(raw, float) and raw.is_integer() else "" if raw is None else raw).strip()


def _number(label: Any) -> float:
    """The number that a label is, NaN if it is none."""
    try:
        return float(label)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _encodable(text: str) -> str:
    text.encode()  # half of a surrogate pair cannot be written
    return text


def _is_empty(text: Any) -> bool:
    return text is None or (isinstance(text, str) and not text.strip())


def _is_marked(fields: dict[str, Any], column: str) -> bool:
    """Whether a row has the label that a column of 0 and 1 stands for."""
    value = _written(field_of(fields, column)).lower()
    if value not in ("", "0", "0.0", "false", "1", "1.0", "true"):
        raise ValueError(f"{column!r} holds {value!r}, 0 or 1 was expected")
    return value in ("1", "1.0", "true")


def _inferred_labels(spec: TaskSpec, source: Source) -> tuple[str, ...]:
    """
    The labels that the training file uses, sorted (as numbers where all are whole numbers); a `ValueError` for fewer
    than two, and for what looks like scores or another column.
    """
    column = source.layout.columns["label"]
    labels: Counter[str] = Counter()
    for record in source.records():
        with reading(record.path, record.place):
            raw = field_of(record.fields, column)
            labels.update([] if _is_empty(raw) else labels_of(raw, spec, source.layout))
    if len(labels) < 2:
        raise ValueError(
            f"{source.name}: {' and '.join(labels) or 'no labels'} were found in {column!r}, at least 2 labels were "
            "expected: check --label_column, or name all classes with --class_names."
        )
    numbers = [_number(label) for label in labels]
    are_numbers = all(map(math.isfinite, numbers))
    is_scattered = len(labels) >= _MANY_CLASSES and 2 * len(labels) > labels.total()
    is_single = spec.problem_type != MULTI_LABEL and spec.family != "tagging"
    if is_single and (is_scattered or (are_numbers and not all(number.is_integer() for number in numbers))):
        guess = "Did you mean --problem_type regression?" if are_numbers else "Is --label_column the right one?"
        raise ValueError(
            f"{source.name}: there are {len(labels):,} different labels in {labels.total():,} rows, such as "
            f"{next(iter(labels))!r}. {guess} If these are classes, name them all with --class_names."
        )
    is_whole = are_numbers and all(label.lstrip("-").isdecimal() for label in labels)
    return tuple(sorted(labels, key=int if is_whole else str))


# Rows are held out, and looked at.


def _hold_out(
    split: str,
    cut: Cut,
    parts: dict[str, datasets.Dataset],
    notes: dict[str, str],
    seed: int | None,
    spec: TaskSpec,
) -> None:
    """Moves the rows that a rule picks from `train` to another split, and notes that."""
    train, seed = parts["train"], cut.seed if seed is None else seed
    rows, size = train.num_rows, 0
    if 0 < cut.size < math.inf:
        size = int(cut.size) if cut.size >= 1 else max(1, round(cut.size * rows))
    less = ""
    if cut.size >= rows and not spec.reads_own_files:
        # A sample of the publisher's file, to try a task.
        size, less = rows // 5, f" instead of {int(cut.size):,}, as there are only {rows:,}"
    if not 0 < size < rows:
        raise ValueError(f"{notes['train']}: {size} rows cannot be held out of {rows} for {split}. Provide more rows.")
    held_out = _chosen_rows(train, cut, size, seed, spec)
    size = int(held_out.sum())
    if not size:
        raise ValueError(
            f"{notes['train']}: no group of rows with the same {' and '.join(cut.group_by)} is small enough to hold "
            f"out. Hold out more rows (with --task custom, --validation_size), or provide a {split} file."
        )
    parts[split] = train.select(np.flatnonzero(held_out))
    parts["train"] = train.select(np.flatnonzero(~held_out))
    together = f", rows with the same {' and '.join(cut.group_by)} kept together" if cut.group_by else ""
    together += ", whatever their case and white space" if cut.group_by and cut.folded else ""
    notes[split] = f"{size:,} rows{less} held out of the training rows (seed {seed}{together})"
    notes["train"] += f"; {size:,} held out for {split}, {parts['train'].num_rows:,} left"


def _chosen_rows(train: datasets.Dataset, cut: Cut, size: int, seed: int, spec: TaskSpec) -> np.ndarray:
    """
    Which rows to hold out, as a boolean array.

    Groups are taken in the order of NumPy's legacy permutation as long as they fit. Where every row is its own group
    that picks the rows scikit-learn's `train_test_split(test_size=size, random_state=seed)` picks, which the release
    used for Story Cloze.
    """
    groups = np.arange(train.num_rows)
    if cut.group_by:
        keys = _text_keys(train, cut.group_by, cut.folded, spec.family == "similarity")
        _, first_rows, groups = np.unique(keys, return_index=True, return_inverse=True)
        groups = np.argsort(np.argsort(first_rows))[groups]  # numbered as they come
    counts = np.bincount(groups)
    chosen = np.zeros(len(counts), dtype=bool)
    for group in np.random.RandomState(seed).permutation(len(counts)):
        if counts[group] <= size:
            chosen[group] = True
            size -= counts[group]
        if size == 0:
            break
    return chosen[groups]


def _text_keys(rows: datasets.Dataset, columns: Sequence[str], folded: bool, in_any_order: bool) -> np.ndarray:
    """
    A number for the texts of each row, so that rows with the same texts have the same (but once in 2**64 cases). The
    choices of a row are compared in any order, its words as they come; `folded`: case and white space do not count;
    `in_any_order`: two texts mean the same in either order.
    """

    def fold(text: str) -> str:
        return " ".join(text.split()).casefold() if folded else text

    def key(texts: Iterable[str | list[str]]) -> int:
        parts = [sorted(map(fold, text)) if isinstance(text, list) else fold(text) for text in texts]
        digest = hashlib.blake2b(repr(sorted(parts) if in_any_order else parts).encode(), digest_size=8).digest()
        return int.from_bytes(digest)

    values = ([" ".join(words) for words in rows[name]] if name == "words" else rows[name][:] for name in columns)
    return np.fromiter(map(key, zip(*values, strict=True)), np.uint64, rows.num_rows)


def _warnings(spec: TaskSpec, own: dict[str, datasets.Dataset], train: datasets.Dataset) -> Iterator[str]:
    """
    What is likely to be wrong: classes that differ in case alone or have hardly any row, equal texts with different
    labels, and published rows (`own`) with the texts of training rows.
    """
    unordered = spec.family == "similarity"
    keys = {
        split: _text_keys(rows, spec.text_columns, folded=True, in_any_order=unordered)
        for split, rows in {**own, "train": train}.items()
    }
    labels = train["label"][:]
    if spec.label_names:
        yield from _doubtful_classes(spec, labels)
    if spec.label_names and spec.family != "tagging":
        first: dict[int, int] = {}
        pairs = ((first.setdefault(key, row), row) for row, key in enumerate(keys["train"].tolist()))
        pairs = [(one, other) for one, other in pairs if labels[one] != labels[other]]
        if pairs:
            one, other = (train["id"][row] for row in pairs[0])
            yield (
                f"{len(pairs):,} of the {len(labels):,} training rows have the texts of an earlier row (apart from "
                f"case and white space) and another label, the first {other} those of {one}: which is right?"
            )
    for split in [split for split in own if split != "train"]:
        count = int(np.isin(keys[split], keys["train"]).sum())
        if count:
            yield (
                f"{count:,} of the {len(keys[split]):,} {split} rows have texts that training rows have too (apart "
                "from case and white space): their scores say little about new texts."
            )


def _doubtful_classes(spec: TaskSpec, labels: list[Any]) -> Iterator[str]:
    folded: dict[str, list[str]] = {}
    for name in spec.label_names:
        folded.setdefault(name.casefold(), []).append(name)
    for names in folded.values():
        if len(names) > 1:
            yield f"The labels {' and '.join(map(repr, names))} differ in case alone, and are classes of their own."
    counts = np.sum(labels, axis=0) if spec.problem_type == MULTI_LABEL else Counter(np.hstack(labels).tolist())
    rows = {name: int(counts[index]) for index, name in enumerate(spec.label_names)}
    rare = [f"{name!r} has {count}" for name, count in rows.items() if count < _FEW_ROWS]
    if rare:
        more = f", and {len(rare) - 5} more classes have as few" if len(rare) > 5 else ""
        what = "words" if spec.family == "tagging" else "rows"
        yield f"Too few training {what} to learn a class from: {', '.join(rare[:5])}{more}."
