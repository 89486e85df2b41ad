"""Label names that a task does not declare: inferred from its training rows, which must look like labels."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from datasets import Dataset

from ..files import input_error
from .readers import BadRowError
from .rows import field_of, is_empty, labels_in, number_of
from .sources import Source
from .spec import LABEL_SEPARATORS, MULTI_LABEL, TaskSpec

# So many classes, with hardly two rows each, are a column of something else.
_MANY_CLASSES = 10
# A class with fewer rows is called out.
_RARE = 5


def inferred_labels(spec: TaskSpec, source: Source) -> tuple[tuple[str, ...], list[str]]:
    """
    The labels that the training file uses, sorted (as numbers where all are whole numbers), and warnings about them; a
    `ValueError` for fewer than two, and for what looks like scores, several labels in one, or another column.
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
        raise source.without_rows("train", records)
    if bad is not None and not labels:
        raise bad
    if len(labels) < 2:
        only = f"only the label {next(iter(labels))!r}" if labels else "no label"
        problem = f"{only} was found in {column!r}, at least 2 were expected."
        raise input_error(source.name, problem, "Check --label_column, or name all classes with --class_names.")
    if spec.family == "tagging":
        warnings = []
    elif spec.problem_type == MULTI_LABEL:
        warnings = _check_several_labels(source, labels, several)
    else:
        warnings = _check_classes(source, labels)
    whole = all(label.lstrip("-").isdecimal() and math.isfinite(number_of(label)) for label in labels)
    return tuple(sorted(labels, key=int if whole else str)), warnings


def doubtful_classes(spec: TaskSpec, train: Dataset) -> Iterator[str]:
    """Warnings about classes that differ in case alone, or have hardly any of the training rows (or words)."""
    if spec.label_names is None:
        return
    if spec.problem_type == MULTI_LABEL:
        labels = Counter(dict(enumerate(np.sum(train["label"][:], axis=0, dtype=int).tolist())))
    else:
        labels = Counter(np.hstack(train["label"][:]).tolist())
    folded: dict[str, list[str]] = {}
    for name in spec.label_names:
        folded.setdefault(name.casefold(), []).append(name)
    for names in folded.values():
        if len(names) > 1:
            yield f"The labels {' and '.join(map(repr, names))} differ in case alone, and are classes of their own."
    rare = [f"{name!r} has {labels[index]}" for index, name in enumerate(spec.label_names) if labels[index] < _RARE]
    if rare:
        more = f", and {len(rare) - 5} more classes have as few" if len(rare) > 5 else ""
        what = "words" if spec.family == "tagging" else "rows"
        yield f"Too few training {what} to learn a class from: {', '.join(rare[:5])}{more}."


def _check_classes(source: Source, labels: Counter[str]) -> list[str]:
    """Raise a `ValueError` where the one label of each row looks like a score, or like no label; else warnings."""
    way_out = "If these are classes, name them all with --class_names."
    are_numbers = all(math.isfinite(number_of(label)) for label in labels)
    decimal = next((label for label in labels if are_numbers and not number_of(label).is_integer()), None)
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


def _check_several_labels(source: Source, labels: Counter[str], several: int) -> list[str]:
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
