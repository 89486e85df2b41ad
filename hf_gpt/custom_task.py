"""The task of anybody's own files, with a column mapping."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .task_readers import read_by_suffix
from .task_spec import TEXT_COLUMNS, Cut, Layout, TaskSpec

DEFAULT_METRICS = {
    None: ("accuracy",),
    "single_label_classification": ("accuracy", "f1_macro"),
    "multi_label_classification": ("f1_micro", "f1_macro", "accuracy"),
    "regression": ("pearsonr", "spearmanr"),
    "ordinal": ("pearsonr", "spearmanr"),
}


def custom_task(
    family: str,
    train_file: str | os.PathLike[str],
    validation_file: str | os.PathLike[str] | None = None,
    test_file: str | os.PathLike[str] | None = None,
    *,
    text_column: str | None = None,
    premise_column: str | None = None,
    hypothesis_column: str | None = None,
    context_column: str | None = None,
    question_column: str | None = None,
    choices_column: str | None = None,
    choice_columns: Sequence[str] | None = None,
    label_column: str = "label",
    id_column: str | None = None,
    label_names: Sequence[str] | Mapping[str, str] | None = None,
    problem_type: str | None = None,
    score_range: tuple[float, float] | None = None,
    first_choice: int | str = 0,
    validation_size: float = 0.1,
    group_by: Sequence[str] = (),
    delimiter: str | None = None,
    quoted: bool = True,
    encoding: str = "utf-8",
    metrics: Sequence[str] | None = None,
    name: str = "custom",
) -> TaskSpec:
    """
    The task of anybody's own CSV, TSV, JSON lines or Parquet files (the text formats also as ``.gz`` or ``.xz``).

    Args:
        family (`str`): `classification` (takes `text_column`), `entailment` or `similarity` (take `premise_column`
            and `hypothesis_column`), or `multiple-choice` (takes `context_column`, optionally `question_column`, and
            either `choices_column`, a list, or `choice_columns`, one text each).
        train_file, validation_file, test_file (path): relative to the data folder given to `load_task`, or to the
            working directory. Without a validation file, `validation_size` rows (or that share) are cut from the
            training file; rows that agree in the normalised columns `group_by` stay on one side.
        label_column (`str`, defaults to `"label"`): the label; in multi-label files a list, or text with `|` between
            labels. The test file may lack it.
        label_names (sequence or mapping of `str`, *optional*): the labels in order, or, as a mapping, the file's
            labels and the names to use for them. Without it, the labels of the training file, sorted.
        problem_type (`str`, *optional*): one of `PROBLEM_TYPES`, by default single-label classification.
        score_range (pair of `float`, *optional*): lowest and highest score; ordinal tasks need it, counted from 0.
        first_choice (`int` or `str`, defaults to 0): how the file writes the first choice: 0, 1 or "A".
        delimiter, quoted, encoding: how delimited and text files are read (see `read_delimited`).

    Raises:
        `ValueError`: for arguments that do not fit the family.
    """
    columns: dict[str, Any] = {
        "text": text_column,
        "premise": premise_column,
        "hypothesis": hypothesis_column,
        "context": context_column,
        "question": question_column,
        "choices": choices_column or (tuple(choice_columns) if choice_columns else None),
    }
    wanted = TEXT_COLUMNS.get(family, ())
    arguments = {column: f"{column}_column" for column in columns} | {"choices": "choices_column or choice_columns"}
    missing = [arguments[column] for column in wanted if columns[column] is None and column != "question"]
    surplus = [arguments[column] for column in columns if columns[column] is not None and column not in wanted]
    if wanted and (missing or surplus):
        wrong = "needs " + ", ".join(missing) if missing else "does not take " + ", ".join(surplus)
        raise ValueError(f"A custom {family} task {wrong}.")
    if choices_column and choice_columns:
        raise ValueError("Give choices_column (one column with a list) or choice_columns (one each), not both.")
    if problem_type is None and family != "multiple-choice":
        problem_type = "single_label_classification"
    if problem_type == "ordinal" and score_range is None:
        raise ValueError("An ordinal task needs score_range=(lowest, highest).")
    columns |= {"label": label_column, "id": id_column}
    labels = tuple(map(str, label_names)) if isinstance(label_names, Mapping) else None
    names = label_names.values() if isinstance(label_names, Mapping) else label_names
    layout = Layout(
        {column: source for column, source in columns.items() if source is not None},
        train=os.fspath(train_file),
        validation=os.fspath(validation_file) if validation_file else None,
        test=os.fspath(test_file) if test_file else None,
        read=partial(read_by_suffix, delimiter=delimiter, quoted=quoted, encoding=encoding),
        labels=labels,
        first_choice=first_choice,
    )
    return TaskSpec(
        name=name,
        family=family,
        description="A data set of your own",
        problem_type=problem_type,
        label_names=tuple(map(str, names)) if names is not None else None,
        score_range=score_range,
        metrics=tuple(metrics or DEFAULT_METRICS.get(problem_type, ())),
        source="your own files",
        layouts=(layout,),
        default_dir=Path(),
        cut=None if validation_file else Cut(validation_size, tuple(group_by)),
    )
