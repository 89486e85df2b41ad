"""How one record of a file becomes one normalised row (see `spec`), or an error that names its place."""

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from ..files import input_error
from .readers import BadRowError, EmptyTextError, Record
from .spec import CHOICE_TEXT, LABEL_SEPARATORS, MULTI_LABEL, SPLITS, UNLABELLED, Layout, TaskSpec

# Bad rows that a message names.
_NAMED_ROWS = 3


class RowReader:
    """
    Turns the records of one split into normalised rows, and counts what it leaves out (`counts`; `bad_rows` are the
    first that are wrong). Only rows of `test` may lack gold labels. A row of `test` without a text, or one that is
    wrong where bad rows are skipped, stays as one of empty texts without a label (`empty_rows` names the first):
    predictions have a line for every row of the file.
    """

    def __init__(self, spec: TaskSpec, layout: Layout, split: str) -> None:
        self.spec, self.layout, self.split = spec, layout, split
        self.counts = {"records": 0, "rows": 0, "skipped": 0, "empty": 0, "unlabelled": 0, "bad": 0, "blank": 0}
        self.bad_rows: list[BadRowError] = []
        self.empty_rows: list[str] = []
        self.label_ids = {label: index for index, label in enumerate(layout.labels or spec.label_names or ())}

    def rows(self, records: Iterable[Record]) -> Iterator[dict[str, Any]]:
        """
        The rows of `records`; a `ValueError` names file and line of a missing column, an empty text, fewer than two
        choices, or a label outside the label set. From the first bad row on the others are only counted, unless bad
        rows are skipped.
        """
        items = 0
        for record in records:
            self.counts["records"] += 1
            if self.split != "test" and record.fields and all(map(is_empty, record.fields.values())):
                continue
            for number, item in enumerate(self._items(record), items):
                items = number + 1
                if self.layout.split_field and self._split_of(item) != self.split:
                    continue
                if self.layout.skip_empty and self.split != "test" and self._has_empty_text(item):
                    self.counts["empty"] += 1
                    continue
                try:
                    row = self._row(item, number)
                except BadRowError as error:
                    if self._stays_empty(error):
                        self.counts["rows"] += 1
                        self.counts["blank"] += 1
                        if len(self.empty_rows) < _NAMED_ROWS:
                            self.empty_rows.append(error.summary)
                        yield self._empty_row(item, number)
                        continue
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
            raise input_error(record.where, f"the split is {split!r}.", f"Write one of {', '.join(SPLITS)} there.")
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

    def _stays_empty(self, error: BadRowError) -> bool:
        is_optional = self.split == "test" and self.spec.family != "question-answering"
        return is_optional and (self.layout.skip_bad_rows or isinstance(error, EmptyTextError))

    def _empty_row(self, record: Record, number: int) -> dict[str, Any]:
        texts = {name: {"choices": ["", ""], "words": [""]}.get(name, "") for name in self.spec.text_columns}
        label = [UNLABELLED] if "words" in texts else self.spec.unlabelled
        return {**self._keys(record, number), **texts, "label": label}

    def _keys(self, record: Record, number: int) -> dict[str, Any]:
        """The row's `id`, by default its number from 0, and the columns that are kept as the file has them."""
        columns = self.layout.columns
        row: dict[str, Any] = {"id": str(number)}
        # Only predictions want the columns that own files are asked for: training files need not have them.
        if "id" in columns and (
            self.split == "test" or not self.spec.reads_own_files or columns["id"] in record.fields
        ):
            row["id"] = _encodable(record, str(field_of(record, columns["id"])))
        if self.spec.keep_columns:
            read = field_of if self.split == "test" else lambda record, name: record.fields.get(name)
            values = [read(record, name) for name in self.spec.keep_columns]
            row["kept"] = ["" if value is None else _encodable(record, str(value)) for value in values]
        return row

    def _row(self, record: Record, number: int) -> dict[str, Any] | None:
        columns = self.layout.columns
        raw_label = self._raw_label(record)
        if raw_label is not None and written_label(raw_label) in self.layout.skip_labels:
            return None
        row = self._keys(record, number)
        optional = ("question",) if self.spec.family == "multiple-choice" else ()
        for name in self.spec.text_columns:
            if name == "choices":
                row[name] = self._choices(record)
            elif name == "words":
                row[name] = self._words(record)
            elif name in optional and not (name in columns and field_of(record, columns[name])):
                row[name] = ""
            else:
                row[name] = self._text(record, columns[name])
        if self.spec.family == "question-answering":
            row["answers"], row["label"] = self._answers(record, raw_label)
            self.counts["unlabelled"] += not row["answers"]
        elif raw_label is None:
            self.counts["unlabelled"] += 1
            row["label"] = [UNLABELLED] * len(row["words"]) if "words" in row else self.spec.unlabelled
        elif "words" in row:
            row["label"] = self._tags(record, raw_label, len(row["words"]))
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
        if is_empty(value):
            raise EmptyTextError(record, f"the text of {column!r} is empty.", "Fill it in or leave the row out.")
        if not isinstance(value, str):
            problem = f"{column!r} holds a {type(value).__name__}, a text was expected."
            raise BadRowError(record, problem, "Correct the row.")
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
            values = [] if is_empty(values) else values
            if not isinstance(values, list | tuple):
                problem = f"{column!r} holds a {type(values).__name__}, a list of choices was expected."
                remedy = "Where each choice has a column of its own, name those columns (--choice_columns)."
                raise BadRowError(record, problem, remedy)
            names = [f"{column}[{index}]" for index in range(len(values))]
        if len(values) < 2:
            problem = f"{len(values)} choice{'s' * (len(values) != 1)} where at least 2 were expected."
            raise EmptyTextError(record, problem, "Complete the choices or leave the row out.")
        return [self._checked_text(record, name, value) for name, value in zip(names, values, strict=False)]

    def _words(self, record: Record) -> list[str]:
        column = self.layout.columns["words"]
        words = field_of(record, column)
        words = words.split() if isinstance(words, str) else words
        if not words:
            raise EmptyTextError(record, f"{column!r} holds no words.", "Fill them in or leave the row out.")
        if not isinstance(words, list | tuple):
            problem = f"{column!r} holds a {type(words).__name__}; a list of words was expected."
            raise BadRowError(record, problem, "Or give words separated by spaces.")
        return [self._checked_text(record, f"{column}[{index}]", word) for index, word in enumerate(words)]

    def _tags(self, record: Record, raw: Any, words: int) -> list[int]:
        tags = labels_in(record, raw, self.spec, self.layout)
        if len(tags) != words:
            problem = f"{words} word{'s' * (words != 1)} in {self.layout.columns['words']!r} and "
            problem += f"{len(tags)} label{'s' * (len(tags) != 1)} in {self.layout.columns['label']!r}."
            raise BadRowError(record, problem, "Give each word one label.")
        return [self._class_index(record, tag) for tag in tags]

    def _answers(self, record: Record, raw: Any) -> tuple[list[str], list[int]]:
        """All answers as texts, and where the first begins and ends in the passage without the blanks around it."""
        columns = self.layout.columns
        passage, key = field_of(record, columns["passage"]), field_of(record, columns["id"])
        texts, starts = ([], []) if raw is None else (raw["text"], raw["answer_start"])
        for text, start in zip(texts, starts, strict=True):
            problem = f"the answer {text!r} to question {key} is not at its answer_start {start!r}."
            if not isinstance(text, str) or not text.strip() or not isinstance(start, int) or start < 0:
                raise BadRowError(record, problem, "A text and the number of its first character were expected.")
            if passage[start : start + len(text)] != text:
                found = passage.find(text)
                remedy = f"It begins at {found}." if found >= 0 else "It is not in the passage: take what is there."
                raise BadRowError(record, problem, remedy)
        if not texts and self.split == "test":
            return [], self.spec.unlabelled
        if not texts:
            remedy = "Only test rows can do without one; leave out what the passage does not answer (SQuAD 2.0)."
            raise BadRowError(record, f"question {key} has no answer.", remedy)
        begin = starts[0] - (len(passage) - len(passage.lstrip()))
        return [_encodable(record, text) for text in texts], [max(0, begin), begin + len(texts[0])]

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
                problem = f"the label in {column!r} is empty."
                raise BadRowError(record, problem, "Only test rows can do without a gold label.")
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
        if label in self.label_ids:
            return self.label_ids[label]
        separator = separator_between(label, self.label_ids)
        remedy = "Correct the row, or with --task custom name all classes (--class_names)."
        if separator is not None:
            kind = "" if self.spec.problem_type == MULTI_LABEL else f" --problem_type {MULTI_LABEL}"
            remedy = f"Its parts are: did you mean{kind} --label_separator {separator!r}?"
        raise BadRowError(record, f"the label {label!r} is not one of {', '.join(self.label_ids)}.", remedy)

    def _score(self, record: Record, raw: Any) -> float:
        low, high = self.spec.score_range or (-math.inf, math.inf)
        score = number_of(raw)
        if not math.isfinite(score) or not low <= score <= high:
            between = f" from {low:g} to {high:g}" if self.spec.score_range else ""
            raise BadRowError(record, f"the score {raw!r} is not a number{between}.", "Correct the row.")
        return score

    def _choice_index(self, record: Record, raw: Any, choices: Sequence[str]) -> int:
        written, first = written_label(raw), self.layout.first_choice
        if first == CHOICE_TEXT:
            answers, counted = choices, "by its text"
        else:
            numbers = range(len(choices))
            answers = [chr(ord(first) + n) if isinstance(first, str) else str(first + n) for n in numbers]
            counted = f"counted {answers[0]} to {answers[-1]}"
        if answers.count(written) == 1:
            return answers.index(written)
        guess = _likely_first_choice(written, choices)
        remedy = "Correct the row, or say how the file writes the first choice (--first_choice)."
        if guess not in (None, str(first)):
            remedy = f"Did you mean --first_choice {guess}? It says how the file writes the first choice."
        problem = f"the answer {written!r} is not one of the row's {len(choices)} choices, {counted}."
        raise BadRowError(record, problem, remedy)


def field_of(record: Record, column: str) -> Any:
    """A field of a record; a `ValueError` names the columns there are, if this is none."""
    try:
        return record.fields[column]
    except KeyError:
        remedy = f"The columns there are: {', '.join(map(str, record.fields))}."
        raise input_error(record.where, f"there is no column {column!r}.", remedy) from None


def written_label(raw: Any) -> str:
    """A label as text: 1, 1.0, "1" and " 1 " are the same label."""
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    return str(raw).strip()


def number_of(label: Any) -> float:
    """The number that a label is, NaN if it is none."""
    try:
        return float(label)
    except (TypeError, ValueError, OverflowError):
        return math.nan


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
    written = "" if value is None else written_label(value).lower()
    if written not in ("", "0", "0.0", "false", "1", "1.0", "true"):
        raise BadRowError(record, f"{column!r} holds {value!r}, 0 or 1 was expected.", "Correct the row.")
    return written in ("1", "1.0", "true")


def _likely_first_choice(answer: str, choices: Sequence[str]) -> str | None:
    """How a file seems to write the first choice that has this answer."""
    if choices.count(answer) == 1:
        return CHOICE_TEXT
    if len(answer) == 1 and answer.isascii() and answer.isalpha():
        return "A" if answer.isupper() else "a"
    return "1" if answer == str(len(choices)) else None


def labels_in(record: Record, raw: Any, spec: TaskSpec, layout: Layout) -> list[str]:
    """
    The labels of a cell, as text: one, or where rows may have several as many as a list or the separator (of tags
    white space) says. A list where one label is expected, or one of anything but labels, is a `ValueError`.
    """
    has_tags = spec.family == "tagging"
    multiple = has_tags or spec.problem_type == MULTI_LABEL
    labels = [raw]
    if multiple and isinstance(raw, str):
        labels = [part for part in raw.split(None if has_tags else layout.label_separator) if part.strip()]
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
