"""What people get to see of a task: its data before training, chance level and predictions after it."""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from scipy.special import expit, softmax

from ..files import atomic
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import IGNORED_LABEL
from .encode import EMPTY, best_answers, describe_encoded
from .load import TaskData
from .metrics import predictions_from_logits
from .spec import MULTI_LABEL, TEXT_TO_TEXT, TaskSpec


def describe_task(task: TaskData, encoded: dict[str, Dataset], tokenizer: GPTTokenizer) -> str:
    """Splits, statistics, labels and the first training example decoded, for the eye before training starts."""
    spec, first = task.spec, encoded["train"][0]
    lines = [f"Task {spec.name} ({spec.family}), version {spec.version}"]
    for split, rows in encoded.items():
        lines += [f"  {split}: {describe_encoded(rows)}", f"    {task.notes[split]}"]
    lines += [f"  WARNING: {warning}" for warning in task.warnings]
    if spec.label_names:
        counts = Counter(_flat(encoded["train"])) if spec.problem_type != MULTI_LABEL else Counter()
        names = (f"{n} {name}" + f" ({counts[n]:,})" * bool(counts) for n, name in enumerate(spec.label_names))
        lines.append(f"  labels: {', '.join(names)}")
    label = first["answers"] if spec.family == "question-answering" else written_label(first["label"], spec)
    lines.append(f"First training example ({first['id']}), label {label}:")
    return "\n".join([*lines, f"  {tokenizer.decode(first['input_ids'])}"])


def chance_level(spec: TaskSpec, train: Dataset, evaluated: Dataset) -> float:
    """
    What answering without reading reaches in the main metric: the most frequent training class, but no less than one
    in the number of classes or choices; for F1 the second class; 0 for correlations and entities.
    """
    if spec.main_metric == "f1":
        share = float(np.mean([label == 1 for label in evaluated["label"]]))
        return 2 * share / (1 + share)
    if spec.main_metric != "accuracy":
        return 0.0
    if spec.family == "multiple-choice":
        return float(np.mean([1 / len(ends) for ends in evaluated["path_ends"]]))
    majority = Counter(_flat(train)).most_common(1)[0][0]
    return max(1 / spec.num_labels, float(np.mean([label == majority for label in _flat(evaluated)])))


def _flat(rows: Dataset) -> list[Any]:
    """The labels of rows, or of all their words."""
    return np.hstack(rows["label"][:]).tolist()


def chance_warning(spec: TaskSpec, train: Dataset, evaluated: Dataset, score: float) -> str | None:
    """A warning if a score cannot be distinguished from chance (two standard errors)."""
    chance = chance_level(spec, train, evaluated)
    margin = 2 * math.sqrt(max(chance * (1 - chance), 0.25 * (chance == 0)) / max(1, len(evaluated)))
    if score > chance + margin:
        return None
    found = f"{spec.main_metric} {score:.3f} cannot be distinguished from chance ({chance:.3f} on"
    return f"{found} {len(evaluated):,} rows): check the labels, or train on more rows or for longer."


def write_predictions(path: Path, encoded: Dataset, logits: np.ndarray | list[str], spec: TaskSpec) -> None:
    """
    A table in the order of the rows, tab-separated, with quotes as pandas reads them: `id`, the columns that are kept,
    `label`, `prediction` (both empty where there is none), and one probability (or score) per class or choice; of
    tagging a line for each word, with its `number` and itself behind the `id`; of answers their probability; of texts
    that were written, which take the place of logits, the `reference`.
    """
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(_table(encoded, logits, spec))


def _table(encoded: Dataset, logits: np.ndarray, spec: TaskSpec) -> Iterator[list[str]]:
    kept = [name for name in ("id", "kept", "label", "answers", EMPTY, "words") if name in encoded.column_names]
    rows: Iterable[dict[str, Any]] = encoded.select_columns(kept)
    if spec.family == "question-answering":
        yield ["id", "label", "prediction", "probability"]
        for row, (text, probability) in zip(rows, best_answers(encoded, logits), strict=True):
            yield [row["id"], next(iter(row["answers"]), ""), text, f"{probability:.6g}"]
        return
    if spec.family == TEXT_TO_TEXT:
        yield ["id", *spec.keep_columns, "reference", "prediction"]
        for row, text in zip(rows, logits, strict=True):
            yield [row["id"], *row.get("kept", ()), row["label"], text]
        return
    columns = []
    if spec.family == "tagging":
        columns = ["number", "word"]
        logits = np.concatenate([found[: len(row["words"])] for found, row in zip(logits, rows, strict=True)])
        rows = (
            {**row, "number": number, "word": word, "label": label}
            for row in rows
            for number, (word, label) in enumerate(zip(row["words"], row["label"], strict=True), 1)
        )
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
    if spec.family == "tagging" and isinstance(label, list):
        return " ".join(written_label(tag, spec) for tag in label)
    if isinstance(label, list):
        return "|".join(name for name, chosen in zip(spec.label_names, label, strict=True) if chosen > 0)
    if label != label or (label == IGNORED_LABEL and not spec.has_scores):
        return ""
    if spec.has_scores:  # as short as it differs from its neighbours, which is how the file had it
        return np.format_float_positional(np.float32(label), trim="-")
    return spec.label_names[label] if spec.label_names else str(label)
