"""The task of anybody's own files, with a column mapping."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .readers import read_by_suffix
from .spec import CHOICE_TEXT, LABEL_SEPARATOR, MULTI_LABEL, SINGLE_LABEL, TEXT_COLUMNS, Cut, Layout, TaskSpec

DEFAULT_METRICS = {
    None: ("accuracy",),
    SINGLE_LABEL: ("accuracy", "f1_macro"),
    MULTI_LABEL: ("f1_micro", "f1_macro", "accuracy"),
    "regression": ("pearsonr", "spearmanr"),
    "ordinal": ("pearsonr", "spearmanr"),
}
# The row of `task_table`.
CUSTOM_ROW = {
    "task": "custom",
    "family": "any",
    "labels": "-",
    "metrics": "by the kind of label",
    "paper": "-",
    "hub": "-",
    "files": "your own: --train_file; --text_column, or --premise_column and --hypothesis_column, or --context_column "
    "and --choice_columns, or --words_column; --label_column",
    "licence": "yours",
    "description": "A data set of your own: CSV, TSV, JSON lines or Parquet",
}
# As a command line can hardly hold it.
_ESCAPES = {r"\t": "\t", "tab": "\t"}


def custom_task(
    family: str | None = None,
    train_file: str | os.PathLike[str] | None = None,
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
    words_column: str | None = None,
    label_column: str = "label",
    label_columns: Sequence[str] | None = None,
    label_separator: str | None = None,
    id_column: str | None = None,
    label_names: Sequence[str] | Mapping[str, str] | None = None,
    problem_type: str | None = None,
    score_range: tuple[float, float] | None = None,
    first_choice: int | str = 0,
    validation_size: float = 0.1,
    group_by: Sequence[str] | None = None,
    skip_bad_rows: bool = False,
    delimiter: str | None = None,
    quoted: bool = True,
    encoding: str = "utf-8",
    metrics: Sequence[str] | None = None,
    name: str = "custom",
) -> TaskSpec:
    """
    The task of anybody's own CSV, TSV, JSON lines or Parquet files (the text formats also as ``.gz`` or ``.xz``).

    The flags of the command line have the same names, but `--task_family` for `family` and `--class_names` for
    `label_names`.

    Args:
        family (`str`, *optional*): `classification` (takes `text_column`), `entailment` or `similarity` (take
            `premise_column` and `hypothesis_column`), or `multiple-choice` (takes `context_column`, optionally
            `question_column`, and either `choices_column`, a list, or `choice_columns`, one text each), or `tagging`
            (takes `words_column`; it and the labels are lists of the same length, or text parted by white space). By
            default the one that takes the columns that are given, of pairs `entailment`.
        train_file, validation_file, test_file (path): relative to the data folder given to `load_task`, or to the
            working directory. Without a validation file, `validation_size` rows (or that share) are cut from the
            training file. Where only other splits are read and the labels are named, it can be left out.
        label_column (`str`, defaults to `"label"`): the label; in multi-label files a list, or text with
            `label_separator` between labels. The test file may lack it.
        label_columns (sequence of `str`, *optional*): for multi-label files with a column of 0 and 1 for each label:
            those columns, whose names are the labels.
        label_separator (`str`, defaults to `"|"` in multi-label files): what stands between labels; makes the task
            a multi-label one.
        label_names (sequence or mapping of `str`, *optional*): the labels in order, or, as a mapping, the file's
            labels and the names to use for them. Without it, the labels of the training file, sorted.
        problem_type (`str`, *optional*): one of `PROBLEM_TYPES`, by default single-label classification.
        score_range (pair of `float`, *optional*): lowest and highest score; ordinal tasks need it, counted from 0.
        first_choice (`int` or `str`, defaults to 0): how the file writes the first choice: 0, 1 or "A", or "text"
            where it writes the text of the right choice.
        group_by (sequence of `str`, *optional*): normalised columns; rows that agree in all of them, but for case and
            white space, stay on one side of the cut. By default all texts, of multiple choice context and question.
        skip_bad_rows (`bool`, defaults to `False`): leave out rows that are wrong (an empty text, no label, a label
            that is not known), and count them.
        delimiter, quoted, encoding: how delimited and text files are read (see `read_delimited`).

    Raises:
        `ValueError`: for arguments that do not fit the family or each other.
    """
    if choices_column and choice_columns:
        raise ValueError("Give --choices_column (one column with a list) or --choice_columns (one each), not both.")
    texts = _given(
        text=text_column,
        premise=premise_column,
        hypothesis=hypothesis_column,
        context=context_column,
        question=question_column,
        words=words_column,
    )
    columns = texts | _given(choices=choices_column or (tuple(choice_columns) if choice_columns else None))
    family = family or _family_of(columns)
    _check_columns(family, columns)
    several = MULTI_LABEL if label_columns or label_separator else None
    problem_type = problem_type or several or (SINGLE_LABEL if family != "multiple-choice" else None)
    _check_labels(problem_type, label_names, label_columns, label_separator, score_range, first_choice)
    names = label_names.values() if isinstance(label_names, Mapping) else label_columns or label_names
    files = _given(train=train_file, validation=validation_file, test=test_file)
    layout = Layout(
        columns | _given(label=tuple(label_columns) if label_columns else label_column, id=id_column),
        **{split: os.fspath(file) for split, file in files.items()},
        read=_reader(delimiter, quoted, encoding),
        labels=tuple(map(str, label_names)) if isinstance(label_names, Mapping) else None,
        skip_bad_rows=skip_bad_rows,
        label_separator=_ESCAPES.get(label_separator, label_separator) or LABEL_SEPARATOR,
        first_choice=first_choice,
    )
    held_out = Cut(validation_size, tuple(texts if group_by is None else group_by), folded=True)
    return TaskSpec(
        name,
        family,
        "A data set of your own",
        (layout,),
        tuple(metrics or (DEFAULT_METRICS.get(problem_type, ()) if family != "tagging" else ())),
        problem_type,
        label_names=tuple(map(str, names)) if names is not None else None,
        score_range=tuple(score_range) if score_range else None,
        source="your own files",
        default_dir=Path(),
        cut=None if validation_file else held_out,
    )


def _given(**columns: Any) -> dict[str, Any]:
    return {name: source for name, source in columns.items() if source is not None}


def _family_of(columns: Mapping[str, Any]) -> str:
    """The family that takes columns of these names."""
    if "words" in columns:
        return "tagging"
    if columns.keys() & {"context", "question", "choices"}:
        return "multiple-choice"
    return "entailment" if columns.keys() & {"premise", "hypothesis"} else "classification"


def _check_columns(family: str, columns: Mapping[str, Any]) -> None:
    wanted = TEXT_COLUMNS.get(family, ())
    flags = {"choices": "--choice_columns or --choices_column"}
    missing = [column for column in wanted if column not in columns and column != "question"]
    surplus = [column for column in columns if column not in wanted]
    if wanted and (missing or surplus):
        named = ", ".join(flags.get(column, f"--{column}_column") for column in missing or surplus)
        remedy = (
            "" if columns else " Texts in pairs have --premise_column and --hypothesis_column, multiple choice has "
        )
        remedy += "" if columns else "--context_column and --choice_columns."
        raise ValueError(f"A custom {family} task {'needs' if missing else 'does not take'} {named}.{remedy}")


def _check_labels(
    problem_type: str | None,
    label_names: Sequence[str] | Mapping[str, str] | None,
    label_columns: Sequence[str] | None,
    label_separator: str | None,
    score_range: Sequence[float] | None,
    first_choice: int | str,
) -> None:
    if (label_columns or label_separator) and problem_type != MULTI_LABEL:
        raise ValueError(f"--label_columns and --label_separator are for --problem_type {MULTI_LABEL}.")
    if label_columns and (label_names or label_separator):
        raise ValueError(
            "--label_columns names one column of 0 and 1 for each class: leave out --class_names (in Python "
            "label_names) and --label_separator."
        )
    for flag, names in {
        "--class_names (in Python label_names)": label_names,
        "--label_columns": label_columns,
    }.items():
        if names is not None and (len(names) < 2 or len(set(map(str, names))) < len(names)):
            raise ValueError(f"{flag} must name at least 2 different classes, not {', '.join(map(str, names))}.")
    if problem_type == "ordinal" and score_range is None:
        raise ValueError("An ordinal task needs --score_range, the lowest score (0) and the highest.")
    if score_range is not None and len(score_range) != 2:
        raise ValueError(f"--score_range is two numbers, the lowest score and the highest, not {len(score_range)}.")
    if isinstance(first_choice, str) and len(first_choice) != 1 and first_choice != CHOICE_TEXT:
        raise ValueError(f"--first_choice is 0, 1, a letter or {CHOICE_TEXT}, not {first_choice!r}.")


def _reader(delimiter: str | None, quoted: bool, encoding: str) -> Callable:
    """How the files are read, or a `ValueError` for a delimiter or an encoding that no file can have."""
    delimiter = _ESCAPES.get(delimiter, delimiter)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError(rf"--delimiter is one character, such as ';', or '\t' for a tab, not {delimiter!r}.")
    try:
        has_plain_lines = "\n".encode(encoding) == b"\n"
    except (LookupError, ValueError):
        has_plain_lines = False
    if not has_plain_lines:
        raise ValueError(
            f"--encoding {encoding}: there is no such encoding, or its line ends are not those of ASCII (UTF-16). "
            "Save the file as UTF-8."
        )
    return partial(read_by_suffix, delimiter=delimiter, quoted=quoted, encoding=encoding)
