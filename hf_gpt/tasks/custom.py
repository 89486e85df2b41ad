"""The task of anybody's own files, with a column mapping."""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from ..files import flag
from ..model.configuration_gpt import GPTConfig
from .formats import read_by_suffix
from .spec import MULTI_LABEL, SINGLE_LABEL, SPLITS, TEXT_COLUMNS, TEXT_TO_TEXT, HeldOut, Layout, TaskSpec

DEFAULT_METRICS = {
    None: ("accuracy",),
    SINGLE_LABEL: ("accuracy", "f1_macro"),
    MULTI_LABEL: ("f1_micro", "f1_macro", "accuracy"),
    **dict.fromkeys(("regression", "ordinal"), ("pearsonr", "spearmanr")),
    "tagging": (),
    TEXT_TO_TEXT: ("exact_match",),
}
_FAMILIES = "classification, entailment, similarity, multiple-choice, tagging or text-to-text"
_TAB = {r"\t": "\t"}  # which a command line can hardly hold


@dataclass
class CustomTask:
    """
    The task of anybody's own CSV, TSV, JSON lines or Parquet files (plain, ``.gz`` or ``.xz``), relative to the data
    folder given to `load_task`, or to the working directory; without a training file the labels must be named.
    """

    task_family: str | None = flag(None, f"{_FAMILIES}; by default as the columns say (of pairs entailment).")
    train_file: str | None = flag(None, "CSV, TSV, JSONL or Parquet file.")
    validation_file: str | None = flag(None, "By default rows are held out of the training file.")
    test_file: str | None = flag(None, "May lack labels.")
    validation_size: float = flag(0.1, "Rows, or below 1 their share, that are held out of the training file.")
    text_column: str | None = flag(None, "Text to classify, or to answer with another text.")
    target_column: str | None = flag(None, "Text that the model is to write: a summary, a translation.")
    prompt: str | None = flag(None, "With --target_column: what stands between text and target (default: TL;DR:).")
    max_new_tokens: int | None = flag(None, "With --target_column: tokens of a row for it; by default a quarter.")
    num_beams: int | None = flag(None, "With --target_column: texts that beam search keeps; by default greedy.")
    premise_column: str | None = flag(None, "First text of a pair.")
    hypothesis_column: str | None = flag(None, "Second text of a pair.")
    context_column: str | None = flag(None, "What the choices follow.")
    question_column: str | None = flag(None, "Question behind the context.")
    choice_columns: list[str] | None = flag(None, "One column per choice, or a single one that holds lists.")
    words_column: str | None = flag(None, "Lists of words, or words separated by spaces; so are their labels.")
    label_column: str = flag("label", "Class, score, or index of the right choice.")
    label_separator: str | None = flag(None, "What stands between labels where a row may have several, such as ';'.")
    label_columns: list[str] | None = flag(None, "Where a row may have several labels: a column of 0 and 1 for each.")
    id_column: str | None = flag(None, "What predictions.tsv calls a row; by default its number in the file, from 0.")
    keep_columns: list[str] | None = flag(None, "Columns of the test file to copy into predictions.tsv.")
    class_names: list[str] | None = flag(None, "All classes; by default those found.")
    problem_type: str | None = flag(None, f"{SINGLE_LABEL}, {MULTI_LABEL}, regression or ordinal.")
    score_range: list[float] | None = flag(None, "With --problem_type ordinal: the lowest score, 0, and the highest.")
    metrics: list[str] | None = flag(None, "Main one first; also those of evaluate by id or path, whose code is run.")
    first_choice: str = flag("0", "How the file writes the first choice: 0, 1 or A; text if it has the choice's text.")
    skip_bad_rows: bool = flag(False, "Leave out, and count, rows without a text or a known label.")
    delimiter: str | None = flag(None, "What separates columns, such as ';' or '\\t'; by default as the name says.")
    quoted: bool = flag(True, "Whether double quotes enclose fields.")
    encoding: str = flag("utf-8", "Encoding of text files.")

    def with_labels_of(self, config: GPTConfig) -> Self:
        """The same with the kind of label and the classes of a fine-tuned model, where they are not given."""
        known: dict[str, Any] = {"problem_type": config.problem_type}
        if config.problem_type == "ordinal":
            known["score_range"] = [0.0, config.num_labels - 1.0]
        elif config.problem_type != "regression" and self.label_columns is None:
            known["class_names"] = list(config.id2label.values())
        return replace(self, **{name: getattr(self, name) or value for name, value in known.items()})

    def spec(self) -> TaskSpec:
        """The task as it is declared; a `ValueError` for arguments that do not fit the family or each other."""
        names = ("text", "premise", "hypothesis", "context", "question", "words")
        columns: dict[str, Any] = {name: getattr(self, f"{name}_column") for name in names}
        one, *more = self.choice_columns or [None]
        columns["choices"] = (one, *more) if more else one
        columns = {name: column for name, column in columns.items() if column is not None}
        family = self._family(columns)
        has_classes = family not in ("multiple-choice", TEXT_TO_TEXT)
        problem_type = self.problem_type or (SINGLE_LABEL if has_classes else None)
        if self.problem_type is None and (self.label_columns or self.label_separator):
            problem_type = MULTI_LABEL
        classes = self.label_columns or self.class_names
        if classes is not None and len(set(classes)) < max(2, len(classes)):
            raise ValueError(f"{', '.join(classes)} are not 2 or more different --class_names or --label_columns.")

        files = {split: getattr(self, f"{split}_file") for split in SPLITS}
        table = {"quoted": self.quoted, "encoding": self.encoding}
        table |= {"delimiter": _TAB.get(self.delimiter, self.delimiter)} if self.delimiter else {}
        columns["label"] = tuple(self.label_columns) if self.label_columns else self.label_column
        if family == TEXT_TO_TEXT:
            columns["label"] = self.target_column or ""  # no column: texts are written alone
        layout = Layout(
            columns | ({"id": self.id_column} if self.id_column else {}),
            **{split: (os.fspath(file),) if file is not None else () for split, file in files.items()},
            read=partial(read_by_suffix, **table),
            skip_bad_rows=self.skip_bad_rows,
            label_separator=_TAB.get(self.label_separator, self.label_separator) or "|",
            first_choice=int(self.first_choice) if self.first_choice.isdecimal() else self.first_choice,
        )
        texts = tuple(name for name in names if name in columns)
        rule = None if self.validation_file else HeldOut(self.validation_size, texts, folded=True)
        return TaskSpec(
            "custom",
            family,
            "A data set of your own",
            layout,
            tuple(self.metrics or DEFAULT_METRICS.get(family, DEFAULT_METRICS.get(problem_type, ()))),
            problem_type,
            label_names=tuple(classes) if classes else None,
            score_range=tuple(self.score_range) if self.score_range else None,
            source="your own files",
            default_dir=Path(),
            keep_columns=tuple(self.keep_columns or ()),
            held_out=rule,
        )

    def _family(self, columns: dict[str, Any]) -> str:
        """The family, by default the one that takes these columns; a `ValueError` if it takes others."""
        takes = {"words": "tagging", "choices": "multiple-choice", "premise": "entailment"}
        default = next((name for column, name in takes.items() if column in columns), "classification")
        has_target = self.target_column is not None
        family = self.task_family or (TEXT_TO_TEXT if has_target else default)
        is_other = has_target != (family == TEXT_TO_TEXT) and (has_target or self.train_file is not None)
        if is_other or (self.prompt is not None and not has_target):
            raise ValueError(f"--prompt, --task_family {TEXT_TO_TEXT} and --target_column go together.")
        if family == "question-answering":
            raise ValueError("Questions of your own are SQuAD's: --task squad, with a folder of them as --data_dir.")
        wanted = TEXT_COLUMNS.get(family, columns)
        if {*columns, "question"} != {*wanted, "question"}:
            flags = {"choices": "--choice_columns", "question": "maybe --question_column"}
            named = " and ".join(flags.get(name, f"--{name}_column") for name in wanted)
            raise ValueError(f"A custom {family} task takes {named}, not {', '.join(columns) or 'no column'}.")
        return family


def custom_task(*arguments: Any, **named: Any) -> TaskSpec:
    """The task of your own files that a `CustomTask` of these arguments describes."""
    return CustomTask(*arguments, **named).spec()
