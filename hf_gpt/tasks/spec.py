"""What a task is, declared.

Normalised rows have `id`, the family's `TEXT_COLUMNS` (a bare question is the context), and `label`: an `int`; a
`float` for scores; 0.0 or 1.0 per label name where there may be several; an `int` per word; of questions where the
first of the `answers` begins and ends in the passage, in characters; the text to write. A test row without one has
-100, of scores NaN, of texts to write "".
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Features, List, Value

from ..trees.collators import IGNORED_LABEL
from ..trees.transforms import FAMILIES

SPLITS = ("train", "validation", "test")
# The family whose label is a text, which the language model itself writes.
TEXT_TO_TEXT = "text-to-text"
TEXT_COLUMNS = FAMILIES | {TEXT_TO_TEXT: ("text",)}
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
PROBLEM_TYPES = (SINGLE_LABEL, MULTI_LABEL, "regression", "ordinal")
# Of tags that are O, or B- (a first word) or I- (a further one) and the kind of an entity.
ENTITY_METRICS = ("entity_f1", "entity_precision", "entity_recall", "accuracy")


@dataclass(frozen=True)
class HeldOut:
    """
    How a split without a file is held out of the training rows: `size` rows, or below 1 their share. Rows of the same
    texts in `group_by` (with `folded` but for case and white space) stay together.
    """

    size: float
    group_by: tuple[str, ...] = ()
    seed: int = 0
    folded: bool = False


@dataclass(frozen=True)
class Layout:
    """
    How a data set's files are published.

    Args:
        columns: for each column of the normalised rows the file's field, or a tuple of fields: texts are joined by
            spaces, choices have a column each, of ids the first that is there counts, several labels have a column of
            0 and 1 each.
        train, validation, test: names or glob patterns, of which the first that is there is read; on the Hub the names
            of its splits. `split_field` names a row's split, where one file holds all.
        read, prepare: from a path to its records (by default as the file's name says); from one record's fields to the
            fields of one or more items.
        labels: how the file writes the task's `label_names`, if otherwise.
        skip_labels, skip_empty, skip_bad_rows: rows with these labels (`""`: without one), with an empty text, or that
            are wrong are left out and counted; of test rows none is.
        first_choice: the first choice as the file writes it: 0, 1, "A", or "text" for its text.
    """

    columns: Mapping[str, str | tuple[str, ...]]
    train: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    read: Callable[[Path], Iterator] | None = None
    prepare: Callable[[dict[str, Any]], Iterable[dict[str, Any]]] | None = None
    labels: tuple[str, ...] | None = None
    skip_labels: tuple[str, ...] = ()
    skip_empty: bool = False
    skip_bad_rows: bool = False
    label_separator: str = "|"
    first_choice: int | str = 0
    split_field: str | None = None


@dataclass(frozen=True, kw_only=True)
class Hub(Layout):
    """Where the Hugging Face Hub has the data set, and what its columns and splits are called there."""

    id: str
    config: str | None = None
    revision: str | None = None
    data_dir: str | None = None


@dataclass(frozen=True)
class TaskSpec:
    """
    One data set, declared: what `--task` calls it, its family (a key of `TEXT_COLUMNS`), and what is asked.

    Args:
        metrics: see `hf_gpt.tasks.metrics`, the main one first; of tagging by default those that go with its labels.
        problem_type: one of `PROBLEM_TYPES`; None for multiple choice, question answering and text-to-text.
        label_names: the labels in the order of their indices.
        score_range: lowest and highest score of a regression or ordinal task.
        version: raised when the same files are read into other rows.
        default_dir: where its files lie when no data folder is named.
        keep_columns: columns of the file that predictions have as well, as the list `kept` of a row.
        held_out, test_held_out: rules for a validation and a test split without a file.
        paper_score: what the GPT paper reports, in percent of the main metric, on test.
    """

    name: str
    family: str
    description: str
    layout: Layout = field(repr=False)
    metrics: tuple[str, ...] = ("accuracy",)
    problem_type: str | None = None
    label_names: tuple[str, ...] | None = None
    score_range: tuple[float, float] | None = None
    version: int = 1
    licence: str = ""
    source: str = ""
    hub: Hub | None = field(default=None, repr=False)
    default_dir: Path | None = None
    keep_columns: tuple[str, ...] = ()
    held_out: HeldOut | None = None
    test_held_out: HeldOut | None = None
    paper_score: float | None = None

    def __post_init__(self) -> None:
        if self.family not in TEXT_COLUMNS:
            raise ValueError(f"Unknown task family {self.family!r}; it must be one of {', '.join(TEXT_COLUMNS)}.")
        has_classes = self.family not in ("multiple-choice", "question-answering", TEXT_TO_TEXT)
        types = (SINGLE_LABEL,) if self.family == "tagging" else PROBLEM_TYPES if has_classes else (None,)
        if self.problem_type not in types or (self.label_names and not has_classes):
            raise ValueError(f"A {self.family} task has the problem_type {' or '.join(map(str, types))} alone.")
        if self.family == "tagging" and self.label_names and not self.metrics:
            is_entity = {label[:2] for label in self.label_names} - {"O"} in ({"B-"}, {"B-", "I-"})
            object.__setattr__(self, "metrics", ENTITY_METRICS if is_entity else ("accuracy",))
        low, high = self.score_range or (None, 0)
        if self.problem_type == "ordinal" and (low != 0 or high < 1 or high % 1):
            raise ValueError(f"Of an ordinal task score_range is 0 and a whole number, not {self.score_range}.")

    @property
    def main_metric(self) -> str:
        """`str`: the metric by which the best checkpoint is chosen."""
        return self.metrics[0]

    @property
    def reads_own_files(self) -> bool:
        """Whether the files are a user's own, named one by one, and not a publisher's."""
        return self.default_dir == Path()

    @property
    def has_scores(self) -> bool:
        """Whether labels are numbers on a scale, not classes."""
        return self.problem_type in ("regression", "ordinal")

    @property
    def num_labels(self) -> int | None:
        """Outputs of the head: one per class or bin, one for regression; None where they are not known, or choices."""
        if self.has_scores:
            return int(self.score_range[1]) + 1 if self.problem_type == "ordinal" else 1
        return len(self.label_names) if self.label_names else None

    @property
    def how_to_get(self) -> str:
        """Where a user finds the files, and their names in the publisher's own form."""
        names = dict.fromkeys(name for split in SPLITS for name in getattr(self.layout, split)[:1])
        hub = f"; Hub: {self.hub.id} {self.hub.config or self.hub.data_dir or ''}".rstrip() if self.hub else ""
        return "bundled" if self.default_dir else f"{', '.join(names)} from {self.source}{hub}"

    @property
    def features(self) -> Features:
        """The declared columns of the normalised rows."""
        is_several = self.problem_type == MULTI_LABEL
        text, label = Value("string"), Value("float32" if self.has_scores or is_several else "int64")
        label = text if self.family == TEXT_TO_TEXT else label
        if is_several or self.family in ("tagging", "question-answering"):
            label = List(label)
        more = {"answers": self.family == "question-answering", "kept": self.keep_columns}
        names = ["id", *TEXT_COLUMNS[self.family], *filter(more.get, more)]
        lists = ("choices", "words", "answers", "kept")
        return Features({name: List(text) if name in lists else text for name in names} | {"label": label})

    @property
    def unlabelled(self) -> int | float | str | list[float] | list[int]:
        """The label of a row that has none (of one word, in tagging)."""
        if self.family == TEXT_TO_TEXT:
            return ""
        if self.problem_type == MULTI_LABEL:
            return [float(IGNORED_LABEL)] * len(self.label_names or ())
        if self.family == "question-answering":
            return [IGNORED_LABEL] * 2
        return math.nan if self.has_scores else IGNORED_LABEL
