"""Predictions on test rows in the forms in which GLUE and the Story Cloze test take them."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from datasets import Dataset

from ..files import write_text
from .metrics import predictions_from_logits
from .spec import TaskSpec

STORY_CLOZE = "rocstories"
# The names that the judges want; all but one are GLUE's.
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


def write_submission(folder: Path, encoded: Dataset, logits: np.ndarray, spec: TaskSpec) -> Path | None:
    """Writes `submission_text`, if a task has one, into `folder`; atomic."""
    if spec.name not in SUBMISSION_FILES:
        return None
    text = submission_text(spec, encoded["id"][:], predictions_from_logits(logits, spec))
    if text is None:
        return None
    path = folder / SUBMISSION_FILES[spec.name]
    write_text(path, text)
    return path


def submission_text(spec: TaskSpec, ids: Sequence[str], predictions: Sequence[int] | Sequence[float]) -> str | None:
    """
    The text of a submission file: for GLUE lines of index, tab and prediction, by index; for Story Cloze rows of story
    id, comma and the right ending, counted from 1. Both begin with a header. Predictions are, for each row, the index
    of a class or choice, or a score. `None` where GLUE's ids are not the index that its own test file gives each row,
    which other publications of the same data set do not have.
    """
    if spec.name == STORY_CLOZE:
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("InputStoryid", "AnswerRightEnding"))
        writer.writerows((row, choice + 1) for row, choice in zip(ids, predictions, strict=True))
        return file.getvalue()
    by_id = dict(zip(ids, predictions, strict=True))
    numbers = [str(number) for number in range(len(ids))]
    if by_id.keys() != set(numbers):
        return None
    return "\n".join(["index\tprediction", *(f"{n}\t{_glue_prediction(spec, by_id[n])}" for n in numbers)]) + "\n"


def _glue_prediction(spec: TaskSpec, prediction: int | float) -> str:
    """Labels of inference by name, other classes by index, and scores as they are."""
    if spec.has_scores:
        return f"{np.clip(prediction, *spec.score_range):.3f}"
    return spec.label_names[prediction] if spec.family == "entailment" else str(prediction)
