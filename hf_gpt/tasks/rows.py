"""The fields of a publisher's record -> the normalised row of a task (see `spec`); what is wrong is a `ValueError`."""

import math
from typing import Any

from ..trees.collators import IGNORED_LABEL
from .formats import Fields, field_of
from .spec import MULTI_LABEL, TEXT_COLUMNS, TEXT_TO_TEXT, Layout, TaskSpec

_MARKS = {"": False, "0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


class EmptyTextError(ValueError):
    """A row lacks a text."""


def row_of(spec: TaskSpec, layout: Layout, split: str, fields: Fields, number: int) -> tuple[Fields | None, str]:
    """
    The row of a record's fields, whose id is `number` if they have none, or None if it is left out; and what the note
    on its split counts it as. A test row without a text, or a skipped wrong one, stays with empty texts.
    """
    names, is_test = _several(layout.columns.get("id", ())), split == "test"
    for name in (*names, *spec.keep_columns) if is_test and spec.reads_own_files else ():
        field_of(fields, name)
    row: Fields = {"id": next((str(fields[name]) for name in names if name in fields), str(number))}
    if spec.keep_columns:
        row["kept"] = ["" if fields.get(name) is None else str(fields[name]) for name in spec.keep_columns]
    try:
        row |= {name: _text_of(spec, layout, is_test, fields, name) for name in TEXT_COLUMNS[spec.family]}
        if spec.family == "question-answering":
            return row | _answers(spec, layout, is_test, fields, row["passage"]), ""
        raw, is_missing = _raw_label(spec, layout, is_test, fields)
        if written(raw) in layout.skip_labels and not (is_test and is_missing):
            return None, "more left out for want of a gold label"
        if not is_missing:
            return row | {"label": _label(spec, layout, raw, row)}, ""
        if not is_test:
            raise ValueError(f"the label in {layout.columns['label']!r} is empty")
        note = "of them without a gold label"
    except ValueError as error:
        lacks_text = isinstance(error, EmptyTextError)
        if is_test and spec.family != "question-answering" and (lacks_text or layout.skip_bad_rows):
            row |= {name: {"choices": ["", ""], "words": [""]}.get(name, "") for name in TEXT_COLUMNS[spec.family]}
            note = "of them predicted as empty"
        elif layout.skip_bad_rows:
            return None, "more left out as they are wrong"
        elif lacks_text and layout.skip_empty:
            return None, "more left out for an empty text"
        else:
            raise
    return row | {"label": [IGNORED_LABEL] * len(row["words"]) if "words" in row else spec.unlabelled}, note


def labels_of(raw: Any, spec: TaskSpec, layout: Layout) -> list[str]:
    """The labels of a cell, as text: one, or where rows may have several those of a list, or that are separated."""
    several = spec.family == "tagging" or spec.problem_type == MULTI_LABEL
    if several and isinstance(raw, str):
        parts = raw.split(None if spec.family == "tagging" else layout.label_separator)
        raw = [part for part in parts if part.strip()]
    labels = raw if several and isinstance(raw, list) else [raw]
    for label in labels:
        if label is None or isinstance(label, list | dict):
            raise ValueError(f"a label was expected, a {type(label).__name__} was found (see --problem_type)")
    return list(map(written, labels))


def _several(column: str | tuple[str, ...]) -> tuple[str, ...]:
    return column if isinstance(column, tuple) else (column,)


def _text_of(spec: TaskSpec, layout: Layout, is_test: bool, fields: Fields, name: str) -> str | list[str]:
    """One text of a row: a text, the choices from a column each or a list of them, or the words."""
    column, may_be_empty = layout.columns.get(name, ()), layout.skip_empty and is_test
    if name not in ("choices", "words"):
        may_be_empty = may_be_empty or (name == "question" and spec.family == "multiple-choice")
        return " ".join(_text(field_of(fields, part), part, may_be_empty) for part in _several(column))
    values = [field_of(fields, part) for part in column] if isinstance(column, tuple) else field_of(fields, column)
    if name == "words" and isinstance(values, str):
        values = values.split()
    if not isinstance(values, list | None):
        raise ValueError(f"{column!r} holds a {type(values).__name__}, a list of {name} was expected")
    while isinstance(column, tuple) and values and not written(values[-1]):
        values.pop()
    least = 2 if name == "choices" else 1
    if len(values or ()) < least:
        raise EmptyTextError(f"{len(values or ())} {name} where at least {least} are needed")
    return [_text(value, f"{column}[{number}]", may_be_empty) for number, value in enumerate(values)]


def _text(value: Any, column: str, may_be_empty: bool) -> str:
    if not written(value):
        if may_be_empty:
            return ""
        raise EmptyTextError(f"the text of {column!r} is empty")
    if not isinstance(value, str):
        raise ValueError(f"{column!r} holds a {type(value).__name__}, a text was expected")
    return value.strip()


def _raw_label(spec: TaskSpec, layout: Layout, is_test: bool, fields: Fields) -> tuple[Any, bool]:
    """What the label's field, or fields, hold; and whether that is no label, which test rows may have."""
    column = layout.columns["label"]
    if isinstance(column, tuple):
        if is_test and not any(written(fields.get(name)) for name in column):
            return None, True
        marks = {name: written(field_of(fields, name)).lower() for name in column}
        if wrong := [name for name, mark in marks.items() if mark not in _MARKS]:
            raise ValueError(f"{wrong[0]!r} holds {marks[wrong[0]]!r}, 0 or 1 was expected")
        return [name for name, mark in marks.items() if _MARKS[mark]], False
    raw = fields.get(column) if is_test else field_of(fields, column)
    text, names = written(raw), layout.labels or spec.label_names or ()
    # -1 stands for a label that is kept secret, as on the Hub, wherever it cannot be a label.
    can_be_a_label = text in names or (spec.has_scores and spec.score_range is None) or spec.family == TEXT_TO_TEXT
    is_secret = is_test and text == "-1" and not can_be_a_label
    return raw, is_secret or not (text or isinstance(raw, list))


def _label(spec: TaskSpec, layout: Layout, raw: Any, row: Fields) -> Any:
    if spec.family == TEXT_TO_TEXT:
        return _text(raw, layout.columns["label"], may_be_empty=False)
    if spec.family == "multiple-choice":
        answer, first, answers = written(raw), layout.first_choice, row["choices"]
        if first != "text":
            is_letter = isinstance(first, str)
            answers = [chr(ord(first) + n) if is_letter else str(first + n) for n in range(len(answers))]
        if answers.count(answer) != 1:
            raise ValueError(f"the answer {answer!r} is not exactly one of {', '.join(answers)} (see first_choice)")
        return answers.index(answer)
    if spec.has_scores:
        (low, high), score = spec.score_range or (-math.inf, math.inf), float(raw)
        if not math.isfinite(score) or not low <= score <= high:
            raise ValueError(f"the score {raw!r} is not a number from {low:g} to {high:g}")
        return score
    names, labels = layout.labels or spec.label_names or (), labels_of(raw, spec, layout)
    for label in labels:
        if label not in names:
            raise ValueError(f"the label {label!r} is not one of {', '.join(names)}")
    numbers = list(map(names.index, labels))
    if spec.problem_type == MULTI_LABEL:
        return [float(number in numbers) for number in range(len(names))]
    if spec.family == "tagging" and len(labels) != len(row["words"]):
        raise ValueError(f"{len(row['words'])} words and {len(labels)} labels: give each word one")
    return numbers if spec.family == "tagging" else numbers[0]


def _answers(spec: TaskSpec, layout: Layout, is_test: bool, fields: Fields, text: str) -> Fields:
    """All answers as texts, and where the first begins and ends in the passage without the blanks around it."""
    answers, passage = fields.get(layout.columns["label"]), fields[layout.columns["passage"]]
    texts, starts = (answers["text"], answers["answer_start"]) if answers else ([], [])
    for answer, start in zip(texts, starts, strict=True):
        if not answer.strip() or start < 0 or passage[start : start + len(answer)] != answer:
            raise ValueError(f"the answer {answer!r} is not in the passage at its answer_start {start}")
    if texts:
        begin = starts[0] - passage.index(text)
        return {"answers": texts, "label": [max(0, begin), begin + len(texts[0])]}
    if not is_test:
        raise ValueError("the question has no answer, which only test rows can do without (SQuAD 2.0 has such)")
    return {"answers": [], "label": spec.unlabelled}


def written(raw: Any) -> str:
    """A field as text, empty for None: 1, 1.0, "1" and " 1 " are the same label."""
    return str(int(raw) if isinstance(raw, float) and raw.is_integer() else "" if raw is None else raw).strip()
