"""What people get to see of a task: its data before training, chance level, predictions and submissions after it."""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from scipy.special import expit, softmax

from ..files import atomic
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import IGNORED_LABEL
from ..trees.token_tree import TokenTree
from .encode import EMPTY, best_answers, describe_encoded
from .load import TaskData
from .metrics import TRAINER_PADDING, predictions_from_logits
from .spec import MULTI_LABEL, TaskSpec

# A model that has made fewer updates need not have learnt anything.
_FEW_UPDATES = 30
# The names under which GLUE and the Story Cloze test take predictions on test rows.
STORY_CLOZE = "rocstories"
SUBMISSION_FILES = {
    "cola": "CoLA.tsv",
    "sst2": "SST-2.tsv",
    "mrpc": "MRPC.tsv",
    "qqp": "QQP.tsv",
    "stsb": "STS-B.tsv",
    "mnli": "MNLI-m.tsv",
    "mnli_mismatched": "MNLI-mm.tsv",
    "qnli": "QNLI.tsv",
    "rte": "RTE.tsv",
    STORY_CLOZE: "story_cloze.csv",
}


def describe_task(task: TaskData, encoded: dict[str, Dataset], tokenizer: GPTTokenizer) -> str:
    """Splits, statistics, labels and the first training example decoded, for the eye before training starts."""
    spec, first = task.spec, encoded["train"][0]
    lines = [f"Task {spec.name} ({spec.family}), version {spec.version}"]
    for split, rows in encoded.items():
        lines.append(f"  {split}: {describe_encoded(rows)}")
        lines += [f"    {task.notes[split]}"] if task.notes.get(split) else []
    lines += [f"  WARNING: {warning}" for warning in task.warnings]
    if spec.label_names:
        counts = Counter() if spec.problem_type == MULTI_LABEL else Counter(_flat(encoded["train"]["label"]))
        names = (f"{number} {name}" for number, name in enumerate(spec.label_names))
        shown = (f"{name} ({counts[number]:,})" if counts else name for number, name in enumerate(names))
        lines.append(f"  labels: {', '.join(shown)}")
    texts = [first["input_ids"]]
    if spec.family == "question-answering":
        label = f"answer {first['answers'][0]!r}"
    elif spec.family == "tagging":
        tags = (written_label(tag, spec) for tag in first["label"])
        label = "words with their labels " + " ".join(map("/".join, zip(first["words"], tags, strict=True)))
    else:
        tree = TokenTree.from_row(first)
        texts = [[tree.input_ids[index] for index in tree.path(number)] for number in range(len(tree.path_ends))]
        label = f"label {written_label(first['label'], spec)}"
        if spec.family == "multiple-choice":
            label = f"right choice {first['label'] + 1} of {len(texts)}"
    lines.append(f"First training example ({first['id']}), {label}:")
    return "\n".join([*lines, *(f"  {tokenizer.decode(ids)}" for ids in texts)])


def chance_level(spec: TaskSpec, train: Dataset, evaluated: Dataset) -> float:
    """
    What answering without reading the text reaches in the main metric: the share of the most frequent training class,
    but no less than one in the number of classes, or of one choice in those of an item; for F1 always answering with
    the second class; 0 for correlations and entities.
    """
    if spec.main_metric == "f1":
        share = float(np.mean([label == 1 for label in evaluated["label"]]))
        return 2 * share / (1 + share)
    if spec.main_metric != "accuracy":
        return 0.0
    if spec.family == "multiple-choice":
        return float(np.mean([1 / len(ends) for ends in evaluated["path_ends"]]))
    majority = Counter(_flat(train["label"])).most_common(1)[0][0]
    return max(1 / spec.num_labels, float(np.mean([label == majority for label in _flat(evaluated["label"])])))


def _flat(labels: Iterable[Any]) -> Iterator[Any]:
    """The labels of rows, or of all their words."""
    for label in labels:
        yield from label if isinstance(label, list) else (label,)


def chance_warning(
    spec: TaskSpec, train: Dataset, evaluated: Dataset, score: float, updates: int | None = None
) -> str | None:
    """
    A warning if a score after so many updates cannot be distinguished from chance (two standard errors), else
    `None`.
    """
    chance = chance_level(spec, train, evaluated)
    margin = 2 * math.sqrt(max(chance * (1 - chance), 0.25 * (chance == 0)) / max(1, len(evaluated)))
    if score > chance + margin:
        return None
    level = f"{chance:.3f} on {len(evaluated):,} rows"
    found = f"{spec.main_metric} {score:.3f} cannot be distinguished from chance ({level})"
    if updates is not None and updates < _FEW_UPDATES:
        return f"{found} after {updates} update{'s' * (updates != 1)}: train on more rows, or for longer."
    hint = "Check the labels and the first example above, or try other --num_train_epochs, --learning_rate and --seed"
    return f"{found}: the model has learnt nothing from these labels. {hint}; small pretrained models need more."


def write_predictions(path: Path, encoded: Dataset, logits: np.ndarray, spec: TaskSpec) -> None:
    """
    A table of predictions in the order of the rows: `id`, the columns that are kept, `label` (empty where there is
    none), `prediction`, and one probability (or score) per class or choice; of tagging a line for each word, with its
    `number` and itself behind the `id`; of question answering the texts of the first answer and of the predicted one,
    with its probability. All but the first columns are empty where a row has no text. Tab-separated, with quotes as
    pandas reads them; written atomically.
    """
    table = _table_of_answers if spec.family == "question-answering" else _table_of_labels
    _write_table(path, table(encoded, logits, spec))


def _write_table(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t", lineterminator="\n").writerows(rows)


def _table_of_answers(encoded: Dataset, logits: np.ndarray, spec: TaskSpec) -> Iterator[list[str]]:
    yield ["id", "label", "prediction", "probability"]
    found = best_answers(encoded, logits)
    for row, (text, probability) in zip(encoded.select_columns(["id", "answers"]), found, strict=True):
        yield [row["id"], next(iter(row["answers"]), ""), text, f"{probability:.6g}"]


def _table_of_labels(encoded: Dataset, logits: np.ndarray, spec: TaskSpec) -> Iterator[list[str]]:
    names = ("id", "kept", "label", EMPTY, *(["words"] if spec.family == "tagging" else []))
    rows: Iterable[dict[str, Any]] = encoded.select_columns([name for name in names if name in encoded.column_names])
    columns = []
    if spec.family == "tagging":
        columns = ["number", "word"]
        logits = np.concatenate([found[: len(row["words"])] for found, row in zip(logits, rows, strict=True)])
        rows = (
            {**row, "number": number, "word": word, "label": label}
            for row in rows
            for number, (word, label) in enumerate(zip(row["words"], row["label"], strict=True), 1)
        )
    logits = np.where(logits == TRAINER_PADDING, -np.inf, logits) if spec.family == "multiple-choice" else logits
    predictions = predictions_from_logits(logits, spec)
    names = [f"p({label})" for label in spec.label_names or range(logits.shape[-1])]
    values = expit(logits) if spec.problem_type == MULTI_LABEL else softmax(logits, axis=-1)
    if spec.problem_type == "regression":
        values, names = logits.reshape(len(logits), 1), ["score"]
    yield ["id", *spec.keep_columns, *columns, "label", "prediction", *names]
    for row, prediction, numbers in zip(rows, predictions, values, strict=True):
        cells = [row["id"], *row.get("kept", ()), *(row[name] for name in columns)]
        written = f"{prediction:.6g}" if spec.has_scores else written_label(prediction.tolist(), spec)
        found = [written_label(row["label"], spec), written, *(f"{number:.6g}" for number in numbers)]
        yield [*cells, *([""] * len(found) if row[EMPTY] else found)]


def written_label(label: Any, spec: TaskSpec) -> str:
    """A label as people read it: its name, the names of several, a choice's number, a score; empty for none."""
    if isinstance(label, list):
        return "|".join(name for name, chosen in zip(spec.label_names, label, strict=True) if chosen > 0)
    if label != label or (label == IGNORED_LABEL and not spec.has_scores):
        return ""
    if spec.has_scores:  # as short as it differs from its neighbours, which is how the file had it
        return np.format_float_positional(np.float32(label), trim="-")
    return spec.label_names[label] if spec.label_names else str(label)


def write_submission(folder: Path, encoded: Dataset, logits: np.ndarray, spec: TaskSpec) -> Path | None:
    """
    Writes the file that GLUE or the Story Cloze test takes into `folder`, atomically: for GLUE lines of index, tab and
    prediction, by index; for Story Cloze rows of story id, comma and the right ending, counted from 1. None where a
    task has no such form, or GLUE's ids are not the index that its own test file gives each row.
    """
    ids, is_story = encoded["id"][:], spec.name == STORY_CLOZE
    if spec.name not in SUBMISSION_FILES or not (is_story or set(ids) == set(map(str, range(len(ids))))):
        return None
    predictions = predictions_from_logits(logits, spec)
    written = (predictions + is_story).tolist()
    if spec.has_scores:
        written = [f"{score:.3f}" for score in np.clip(predictions, *spec.score_range)]
    elif spec.family == "entailment":  # by name; other classes by index
        written = [spec.label_names[prediction] for prediction in predictions]
    header = ("InputStoryid", "AnswerRightEnding") if is_story else ("index", "prediction")
    rows = sorted(zip(ids, written, strict=True), key=lambda row: 0 if is_story else int(row[0]))
    _write_table(folder / SUBMISSION_FILES[spec.name], [header, *rows])
    return folder / SUBMISSION_FILES[spec.name]
