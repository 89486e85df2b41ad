"""What a task is, declared: `TaskSpec`, where its rows lie (`Layout`, `Hub`), and how one record becomes one row.

The normalised rows of the four families are

    classification        {"id", "text", "label"}
    entailment            {"id", "premise", "hypothesis", "label"}
    similarity            {"id", "premise", "hypothesis", "label"}
    multiple-choice       {"id", "context", "question", "choices", "label"}

`label` is an `int`; a `float` for regression and ordinal scores; a list of 0.0 and 1.0, one per label name, for
multi-label classification. A test row without a gold label has the label -1 (NaN where the label is a score, as -1
can be a score). `question` is empty where an item has none; an item that is a bare question has it as its context.
The rows of one data set may have different numbers of choices.
"""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Features, List, Value

from .readers import BadRowError, Record, input_error

SPLITS = ("train", "validation", "test")
TEXT_COLUMNS = {
    "classification": ("text",),
    "entailment": ("premise", "hypothesis"),
    "similarity": ("premise", "hypothesis"),
    "multiple-choice": ("context", "question", "choices"),
}
PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression", "ordinal")
UNLABELLED = -1
LABEL_SEPARATOR = "|"
# What else people write between the labels of a row, the likeliest first.
LABEL_SEPARATORS = (";", "|", ",", "/", "+", "&", "\t")
# `Layout.first_choice` where the file writes the right choice's text.
CHOICE_TEXT = "text"
# Bad rows that a message names.
_NAMED_ROWS = 3
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"


@dataclass(frozen=True)
class Cut:
    """
    How a part that is not published, or not at hand, is cut from the training part.

    Args:
        size (`float`): the number of rows where it is 1 or more, else the share of the rows.
        group_by (tuple of `str`): rows that agree in these normalised columns stay on one side.
        seed (`int`, defaults to 0): used unless the caller gives one.
        folded (`bool`, defaults to `False`): whether texts that differ in case and white space alone agree, as the
            tokenizer reads them alike. The declared data sets compare texts as they are, which keeps their parts.
    """

    size: float
    group_by: tuple[str, ...] = ()
    seed: int = 0
    folded: bool = False


@dataclass(frozen=True)
class Layout:
    """
    One way in which a data set's files are published.

    Args:
        columns (mapping of `str` to `str` or tuple of `str`): the file's field for each normalised column. A tuple
            joins fields by a space for a text, and lists them for `choices`, where empty fields at the end mean that
            the row has fewer choices; for `label` it names one column of 0 and 1 for each label of a multi-label
            task. Without `id`, rows are numbered; without `question`, it is empty.
        train, validation, test (`str`, *optional*): file name or glob pattern below the data folder.
        read (reader, *optional*): how a file becomes records; chosen by the file's name when left out.
        prepare (function, *optional*): from one record's fields to the fields of one or more items, for files that
            nest them.
        labels (tuple of `str`, *optional*): how the file writes the labels, in the order of the task's `label_names`;
            the label names themselves when left out.
        skip_labels (tuple of `str`): rows with these labels are left out and counted; `""` stands for no label.
        skip_empty (`bool`, defaults to `False`): whether rows with an empty text are left out and counted, for data
            sets that were published with some. Test rows are kept as they are: scores are over all of them.
        skip_bad_rows (`bool`, defaults to `False`): whether rows that are wrong are left out and counted, too.
        label_separator (`str`, defaults to `"|"`): what stands between the labels of a row that has several.
        first_choice (`int` or `str`, defaults to 0): how the file writes the first choice's index: 0, 1 or "A"; "text"
            where it writes the right choice's text instead of an index.
        split_field (`str`, *optional*): the field that names a row's split, where one file holds all splits.
        many (`bool`, defaults to `False`): whether a pattern may stand for several files, read in order.
    """

    columns: Mapping[str, str | tuple[str, ...]]
    train: str | None = None
    validation: str | None = None
    test: str | None = None
    read: Callable[..., Iterator[Record]] | None = None
    prepare: Callable[[dict[str, Any]], Iterable[dict[str, Any]]] | None = None
    labels: tuple[str, ...] | None = None
    skip_labels: tuple[str, ...] = ()
    skip_empty: bool = False
    skip_bad_rows: bool = False
    label_separator: str = LABEL_SEPARATOR
    first_choice: int | str = 0
    split_field: str | None = None
    many: bool = False


@dataclass(frozen=True)
class Hub:
    """Where the Hugging Face Hub has the data set, and what its columns are called there (see `Layout`)."""

    id: str
    layout: Layout
    config: str | None = None
    revision: str | None = None
    data_dir: str | None = None


@dataclass(frozen=True)
class TaskSpec:
    """
    One data set, declared.

    Args:
        name (`str`): what `--task` calls it.
        family (`str`): `classification`, `entailment`, `similarity` or `multiple-choice`.
        description (`str`): one line on what is asked.
        layouts (tuple of `Layout`): the forms in which its files are read; the first that matches is used.
        metrics (tuple of `str`, defaults to `("accuracy",)`): names known to `hf_gpt.tasks.metrics`, the main one
            first.
        problem_type (`str`, *optional*): one of `PROBLEM_TYPES`; None for multiple choice.
        label_names (tuple of `str`, *optional*): the labels in the order of their indices.
        score_range (pair of `float`, *optional*): lowest and highest score of a regression or ordinal task.
        version (`int`, defaults to 1): raised when the same files are read into other rows.
        licence, source (`str`): what the publisher says of the data's use, and where to get the data.
        hub (`Hub`, *optional*): its place on the Hub.
        default_dir (`Path`, *optional*): where its files lie when no data folder is named.
        cut, test_cut (`Cut`, *optional*): the rules for a validation and a test part whose file is not there.
        paper_score (`float`, *optional*): what the GPT paper reports, in percent of the main metric, on test.
    """

    name: str
    family: str
    description: str
    layouts: tuple[Layout, ...] = field(repr=False)
    metrics: tuple[str, ...] = ("accuracy",)
    problem_type: str | None = None
    label_names: tuple[str, ...] | None = None
    score_range: tuple[float, float] | None = None
    version: int = 1
    licence: str = ""
    source: str = ""
    hub: Hub | None = field(default=None, repr=False)
    default_dir: Path | None = None
    cut: Cut | None = None
    test_cut: Cut | None = None
    paper_score: float | None = None

    def __post_init__(self) -> None:
        if self.family not in TEXT_COLUMNS:
            raise ValueError(f"Unknown task family {self.family!r}; it must be one of {', '.join(TEXT_COLUMNS)}.")
        if self.family == "multiple-choice":
            if self.problem_type is not None or self.label_names is not None:
                raise ValueError(
                    "A multiple-choice task has no problem_type and no label_names: leave them out (as flags "
                    "--problem_type, --class_names, --label_columns and --label_separator)."
                )
        elif self.problem_type not in PROBLEM_TYPES:
            raise ValueError(
                f"A {self.family} task needs a problem_type out of {', '.join(PROBLEM_TYPES)}, "
                f"not {self.problem_type!r}."
            )
        if self.problem_type == "ordinal":
            low, high = self.score_range or (None, None)
            if low != 0 or not float(high).is_integer() or high < 1:
                raise ValueError(
                    "An ordinal task has a bin for each whole score from 0 up, which is not so for "
                    f"score_range={self.score_range}. Shift the scores so that the lowest is 0, or use "
                    "--problem_type regression."
                )

    @property
    def main_metric(self) -> str:
        return self.metrics[0]

    @property
    def hub_id(self) -> str | None:
        return self.hub.id if self.hub else None

    @property
    def reads_own_files(self) -> bool:
        """Whether the files are a user's own, named one by one, and not a publisher's."""
        return self.default_dir == Path()

    @property
    def text_columns(self) -> tuple[str, ...]:
        return TEXT_COLUMNS[self.family]

    @property
    def has_scores(self) -> bool:
        """Whether labels are numbers on a scale, not classes."""
        return self.problem_type in ("regression", "ordinal")

    @property
    def num_labels(self) -> int | None:
        """Outputs of the head: one per class or bin, one for regression; None where they are not known, or choices."""
        if self.problem_type == "ordinal":
            return int(self.score_range[1]) + 1
        if self.problem_type == "regression":
            return 1
        return len(self.label_names) if self.label_names else None

    @property
    def how_to_get(self) -> str:
        """Where a user finds the files, and their names in the publisher's own form, for the table of tasks."""
        if self.default_dir is not None:
            return "carried in the package"
        published = self.layouts[0]
        # GLUE publishes its test part in a form of its own.
        tests = [layout.test for layout in self.layouts if layout.test]
        names = dict.fromkeys(
            filter(None, (published.train, published.validation, published.test or next(iter(tests), None)))
        )
        text = f"{', '.join(names)} from {self.source}"
        if self.hub:
            text += f"; Hub: {self.hub.id}" + (f" ({part})" if (part := self.hub.config or self.hub.data_dir) else "")
        return text

    @property
    def infers_labels(self) -> bool:
        """Whether the label names are still to be taken from the training rows."""
        return self.label_names is None and str(self.problem_type).endswith("classification")

    @property
    def files(self) -> dict[str, tuple[str, ...]]:
        """The file names or patterns expected in the data folder, per split, best first."""
        named = {split: [getattr(layout, split) for layout in self.layouts] for split in SPLITS}
        return {split: tuple(dict.fromkeys(filter(None, names))) for split, names in named.items()}

    @property
    def features(self) -> Features:
        """The declared columns of the normalised rows."""
        text = {name: Value("string") for name in ("id", *self.text_columns)}
        if "choices" in text:
            text["choices"] = List(Value("string"))
        if self.problem_type == MULTI_LABEL:
            label = List(Value("float32"))
        else:
            label = Value("float32" if self.has_scores else "int64")
        return Features({**text, "label": label})

    @property
    def unlabelled(self) -> int | float | list[float]:
        """The label of a row that has none."""
        if self.problem_type == MULTI_LABEL:
            return [float(UNLABELLED)] * len(self.label_names or ())
        return math.nan if self.has_scores else UNLABELLED


class RowReader:
    """
    Turns the records of one split into normalised rows, and counts what it leaves out (`counts`; `bad_rows` are the
    first that are wrong).

    Args:
        spec (`TaskSpec`): the task.
        layout (`Layout`): how the records are laid out.
        split (`str`): which split they belong to; only `test` may lack gold labels.
    """

    def __init__(self, spec: TaskSpec, layout: Layout, split: str) -> None:
        self.spec, self.layout, self.split = spec, layout, split
        self.counts = {"records": 0, "rows": 0, "skipped": 0, "empty": 0, "unlabelled": 0, "bad": 0}
        self.bad_rows: list[BadRowError] = []
        raw_labels = layout.labels or spec.label_names or ()
        self.label_ids = {label: index for index, label in enumerate(raw_labels)}

    def rows(self, records: Iterable[Record]) -> Iterator[dict[str, Any]]:
        """
        The rows of `records`.

        Raises:
            `ValueError`: naming file and line, for a missing column, an empty text, fewer than two choices, or a
            label outside the label set. From the first bad row on the others are only counted, unless bad rows are
            skipped.
        """
        for record in records:
            self.counts["records"] += 1
            for item in self._items(record):
                if self.layout.split_field and self._split_of(item) != self.split:
                    continue
                if self.layout.skip_empty and self.split != "test" and self._has_empty_text(item):
                    self.counts["empty"] += 1
                    continue
                try:
                    row = self._row(item)
                except BadRowError as error:
                    self.counts["bad"] += 1
                    if len(self.bad_rows) < _NAMED_ROWS:
                        self.bad_rows.append(error)
                    continue
                if row is None:
                    self.counts["skipped"] += 1
                    continue
                self.counts["rows"] += 1
                if self.layout.skip_bad_rows or not self.bad_rows:
                    yield row
        if self.bad_rows and not self.layout.skip_bad_rows:
            raise self._bad_rows_error()

    def _bad_rows_error(self) -> ValueError:
        """The first bad row in full, how many there are, and the next ones in short."""
        first, *others = self.bad_rows
        bad, good = self.counts["bad"], self.counts["rows"]
        text = str(first)
        if others:
            more = "; and so on" if bad > len(self.bad_rows) else ""
            text += f" {bad:,} of the {bad + good:,} rows are wrong, the next: "
            text += f"{'; '.join(error.summary for error in others)}{more}."
        if self.spec.reads_own_files and good:
            text += f" --skip_bad_rows leaves {'them' if others else 'such rows'} out."
        return ValueError(text)

    def _has_empty_text(self, record: Record) -> bool:
        for name in self.spec.text_columns:
            column = self.layout.columns.get(name)
            if column is None or name == "question":
                continue
            values = [field_of(record, part) for part in (column if isinstance(column, tuple) else (column,))]
            texts = values[0] if name == "choices" and isinstance(values[0], list) else values
            if any(map(is_empty, texts)):
                return True
        return False

    def _split_of(self, record: Record) -> str:
        split = field_of(record, self.layout.split_field)
        if split not in SPLITS:
            raise input_error(
                record.where, f"the split is {split!r}.", f"Write one of {', '.join(SPLITS)} in that field."
            )
        return split

    def _items(self, record: Record) -> Iterator[Record]:
        if self.layout.prepare is None:
            yield record
            return
        try:
            for fields in self.layout.prepare(record.fields):
                yield record._replace(fields=fields)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError) as error:
            raise input_error(
                record.where,
                f"the record is not laid out as {self.spec.name} publishes it ({type(error).__name__}: {error}).",
                f"The fields there are: {', '.join(record.fields)}. Compare with the files of {self.spec.source}.",
            ) from error

    def _row(self, record: Record) -> dict[str, Any] | None:
        columns = self.layout.columns
        raw_label = self._raw_label(record)
        if raw_label is not None and written_label(raw_label) in self.layout.skip_labels:
            return None
        row: dict[str, Any] = {"id": f"{self.split}-{record.number}"}
        if "id" in columns:
            row["id"] = _encodable(record, str(field_of(record, columns["id"])))
        for name in self.spec.text_columns:
            if name == "choices":
                row[name] = self._choices(record)
            elif name == "question" and not (name in columns and field_of(record, columns[name])):
                row[name] = ""
            else:
                row[name] = self._text(record, columns[name])
        if raw_label is None:
            self.counts["unlabelled"] += 1
            row["label"] = self.spec.unlabelled
        else:
            row["label"] = self._label(record, raw_label, row.get("choices", ()))
        return row

    def _text(self, record: Record, column: str | tuple[str, ...]) -> str:
        if isinstance(column, tuple):
            return " ".join(self._text(record, part) for part in column)
        return self._checked_text(record, column, field_of(record, column))

    def _checked_text(self, record: Record, column: str, value: Any) -> str:
        if self.layout.skip_empty and is_empty(value):
            return ""
        if not isinstance(value, str):
            found = "nothing" if value is None else f"a {type(value).__name__}"
            raise BadRowError(record, f"{column!r} holds {found}, a text was expected.", "Correct the row.")
        if not value.strip():
            raise BadRowError(record, f"the text of {column!r} is empty.", "Fill it in or leave the row out.")
        return _encodable(record, value.strip())

    def _choices(self, record: Record) -> list[str]:
        column = self.layout.columns["choices"]
        if isinstance(column, tuple):
            values = [field_of(record, part) for part in column]
            while values and (values[-1] is None or not str(values[-1]).strip()):
                values.pop()
            names = column
        else:
            values = field_of(record, column)
            if not isinstance(values, list | tuple):
                raise BadRowError(
                    record,
                    f"{column!r} holds a {type(values).__name__}, a list of choices was expected.",
                    "Where each choice has a column of its own, name those columns (--choice_columns).",
                )
            names = [f"{column}[{index}]" for index in range(len(values))]
        if len(values) < 2:
            raise BadRowError(
                record,
                f"{len(values)} choice{'s' * (len(values) != 1)} where at least 2 were expected.",
                "Complete the choices or leave the row out.",
            )
        return [self._checked_text(record, name, value) for name, value in zip(names, values, strict=False)]

    def _raw_label(self, record: Record) -> Any:
        """The label as the file has it; None for a test row that has no gold label."""
        column = self.layout.columns["label"]
        if isinstance(column, tuple):
            if self.split == "test" and all(is_empty(record.fields.get(name)) for name in column):
                return None
            return [name for name in column if _is_marked(record, name)]
        if self.split != "test":
            label = field_of(record, column)
            if is_empty(label):
                if "" in self.layout.skip_labels:
                    return ""
                raise BadRowError(
                    record, f"the label in {column!r} is empty.", "Only test rows can do without a gold label."
                )
            return label
        label = record.fields.get(column)
        written = "" if label is None else written_label(label)
        # -1 stands for a label that is not told, as on the Hub, wherever it cannot be a label.
        can_be_a_label = written in self.label_ids or (self.spec.has_scores and self.spec.score_range is None)
        missing = not written or (written == str(UNLABELLED) and not can_be_a_label)
        return None if missing else label

    def _label(self, record: Record, raw: Any, choices: Sequence[str]) -> int | float | list[float]:
        if self.spec.family == "multiple-choice":
            return self._choice_index(record, raw, choices)
        if self.spec.has_scores:
            return self._score(record, raw)
        chosen = [self._class_index(record, label) for label in labels_in(record, raw, self.spec, self.layout)]
        if self.spec.problem_type == MULTI_LABEL:
            return [float(index in chosen) for index in range(len(self.label_ids))]
        return chosen[0]

    def _class_index(self, record: Record, label: str) -> int:
        try:
            return self.label_ids[label]
        except KeyError:
            pass
        separator = separator_between(label, self.label_ids)
        remedy = "Correct the row, or with --task custom name all classes (--class_names, in Python label_names)."
        if separator is not None:
            kind = "" if self.spec.problem_type == MULTI_LABEL else f" --problem_type {MULTI_LABEL}"
            remedy = f"Its parts are: did you mean{kind} --label_separator {separator!r}?"
        raise BadRowError(record, f"the label {label!r} is not one of {', '.join(self.label_ids)}.", remedy)

    def _score(self, record: Record, raw: Any) -> float:
        low, high = self.spec.score_range or (-math.inf, math.inf)
        try:
            score = float(raw)
        except (TypeError, ValueError, OverflowError):
            score = math.nan
        if not math.isfinite(score) or not low <= score <= high:
            between = f" from {low:g} to {high:g}" if self.spec.score_range else ""
            raise BadRowError(record, f"the score {raw!r} is not a number{between}.", "Correct the row.")
        return score

    def _choice_index(self, record: Record, raw: Any, choices: Sequence[str]) -> int:
        first = self.layout.first_choice
        written = written_label(raw)
        try:
            if first == CHOICE_TEXT:
                index = choices.index(written) if choices.count(written) == 1 else None
            else:
                index = ord(written) - ord(first) if isinstance(first, str) else int(written) - first
        except (TypeError, ValueError):
            index = None
        if index is None or not 0 <= index < len(choices):
            counted = "by its text"
            if first != CHOICE_TEXT:
                last = chr(ord(first) + len(choices) - 1) if isinstance(first, str) else first + len(choices) - 1
                counted = f"counted {first} to {last}"
            guess = _likely_first_choice(written, choices)
            remedy = "Correct the row, or say how the file writes the first choice (--first_choice)."
            if guess not in (None, str(first)):
                remedy = f"Did you mean --first_choice {guess}? It says how the file writes the first choice."
            raise BadRowError(
                record,
                f"the answer {written!r} is not one of the row's {len(choices)} choices, {counted}.",
                remedy,
            )
        return index


def field_of(record: Record, column: str) -> Any:
    """
    A field of a record.

    Raises:
        `ValueError`: if there is no such column, naming those there are.
    """
    try:
        return record.fields[column]
    except KeyError:
        raise input_error(
            record.where,
            f"there is no column {column!r}.",
            f"The columns there are: {', '.join(map(str, record.fields))}.",
        ) from None


def written_label(raw: Any) -> str:
    """A label as text: 1, 1.0, "1" and " 1 " are the same label."""
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    return str(raw).strip()


def _encodable(record: Record, text: str) -> str:
    """A text as it is, if it can be written as UTF-8."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise BadRowError(record, f"{text[:40]!r} holds half of a surrogate pair.", "Write the whole character.")
    return text


def is_empty(text: Any) -> bool:
    """Whether a field has nothing in it."""
    return text is None or (isinstance(text, str) and not text.strip())


def _is_marked(record: Record, column: str) -> bool:
    """Whether a row has the label that a column of 0 and 1 stands for."""
    value = field_of(record, column)
    marks = {"": False, "1": True, "1.0": True, "true": True} | dict.fromkeys(("0", "0.0", "false"), False)
    mark = marks.get("" if value is None else written_label(value).lower())
    if mark is None:
        raise BadRowError(record, f"{column!r} holds {value!r}, 0 or 1 was expected.", "Correct the row.")
    return mark


def _likely_first_choice(answer: str, choices: Sequence[str]) -> str | None:
    """How a file seems to write the first choice that has this answer."""
    if choices.count(answer) == 1:
        return CHOICE_TEXT
    if len(answer) == 1 and answer.isascii() and answer.isalpha():
        return "A" if answer.isupper() else "a"
    return "1" if answer == str(len(choices)) else None


def labels_in(record: Record, raw: Any, spec: TaskSpec, layout: Layout) -> list[str]:
    """
    The labels of a cell, as text: one, or where rows may have several as many as a list or the separator says.

    Raises:
        `ValueError`: for a list where one label is expected, or one of anything but labels.
    """
    multiple = spec.problem_type == MULTI_LABEL
    labels = [raw]
    if multiple and isinstance(raw, str):
        labels = [part for part in raw.split(layout.label_separator) if part.strip()]
    elif multiple and isinstance(raw, list | tuple):
        labels = list(raw)
    for label in labels:
        if label is None or isinstance(label, list | tuple | dict):
            remedy = "Correct the row." if multiple else f"Did you mean --problem_type {MULTI_LABEL}?"
            raise BadRowError(record, f"a label was expected, a {type(label).__name__} was found.", remedy)
    return [_encodable(record, written_label(label)) for label in labels]


def separator_between(label: str, known: Container[str]) -> str | None:
    """The separator by which a label falls into several that are known."""
    for separator in LABEL_SEPARATORS:
        parts = [part.strip() for part in label.split(separator)]
        if len(parts) > 1 and all(part in known for part in parts):
            return separator
    return None
