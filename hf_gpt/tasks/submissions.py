"""Predictions on test rows in the forms in which GLUE and the Story Cloze test take them."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from ..files import write_text
from .spec import TaskSpec

# Task -> GLUE's file name. GLUE writes labels of inference by name, other classes by index, and scores as they are.
GLUE_FILES = {
    "cola": "CoLA.tsv",
    "sst2": "SST-2.tsv",
    "mrpc": "MRPC.tsv",
    "qqp": "QQP.tsv",
    "stsb": "STS-B.tsv",
    "mnli": "MNLI-m.tsv",
    "mnli_mismatched": "MNLI-mm.tsv",
    "qnli": "QNLI.tsv",
    "rte": "RTE.tsv",
}
STORY_CLOZE = "rocstories"
STORY_CLOZE_FILE = "story_cloze.csv"


def can_submit(spec: TaskSpec, ids: Sequence[str]) -> bool:
    """
    Whether predictions for the test rows of these ids can be handed in: for GLUE they must be the index that GLUE's
    own test file gives each row, which other publications of the same data set do not have.
    """
    if spec.name == STORY_CLOZE:
        return True
    return spec.name in GLUE_FILES and _glue_order(ids) is not None


def submission_text(spec: TaskSpec, ids: Sequence[str], predictions: Sequence[int] | Sequence[float]) -> str:
    """
    The text of a submission file: for GLUE lines of index, tab and prediction, by index; for Story Cloze rows of story
    id, comma and the right ending, counted from 1. Both begin with a header. Predictions are, for each row, the index
    of a class or choice, or a score. A `ValueError` for a task without such a form, ids that are not GLUE's, or a
    prediction that is no label.
    """
    if len(ids) != len(predictions):
        raise ValueError(f"There are {len(ids)} ids and {len(predictions)} predictions: give one for each row.")
    if spec.name == STORY_CLOZE:
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("InputStoryid", "AnswerRightEnding"))
        writer.writerows((row, _index_below(choice, 2) + 1) for row, choice in zip(ids, predictions, strict=True))
        return file.getvalue()
    if spec.name not in GLUE_FILES:
        known = ", ".join((*GLUE_FILES, STORY_CLOZE))
        raise ValueError(f"{spec.name} has no submission form. Those that have: {known}.")
    order = _glue_order(ids)
    if order is None:
        raise ValueError(
            f"{spec.name}: the ids of the test rows are not GLUE's, 0 to {len(ids) - 1}. Predict all rows of the "
            "test file from https://gluebenchmark.com/tasks, or of the Hub's nyu-mll/glue."
        )
    lines = [f"{number}\t{_glue_prediction(spec, predictions[row])}" for number, row in enumerate(order)]
    return "\n".join(["index\tprediction", *lines]) + "\n"


def write_submission(
    spec: TaskSpec, ids: Sequence[str], predictions: Sequence[int] | Sequence[float], folder: str | os.PathLike[str]
) -> Path:
    """Writes `submission_text` into `folder`, under the name that the task's judges want; atomic."""
    text = submission_text(spec, ids, predictions)
    path = Path(folder) / (STORY_CLOZE_FILE if spec.name == STORY_CLOZE else GLUE_FILES[spec.name])
    write_text(path, text)
    return path


def _glue_order(ids: Sequence[str]) -> list[int] | None:
    """Which row has index 0, 1, ...; None where the ids are not all the indices from 0 up."""
    rows = {row_id: row for row, row_id in enumerate(ids)}
    order = [rows.get(str(number)) for number in range(len(ids))]
    return None if None in order else order


def _glue_prediction(spec: TaskSpec, prediction: int | float) -> str:
    if spec.has_scores:
        low, high = spec.score_range
        return f"{min(max(float(prediction), low), high):.3f}"
    index = _index_below(prediction, len(spec.label_names))
    return spec.label_names[index] if spec.family == "entailment" else str(index)


def _index_below(prediction: int | float, count: int) -> int:
    index = int(prediction)
    if index != prediction or not 0 <= index < count:
        raise ValueError(f"The prediction {prediction!r} is not an index from 0 to {count - 1}; give argmax indices.")
    return index
