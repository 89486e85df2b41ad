"""From a task to the Trainer's `compute_metrics`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from ..trees.collators import IGNORED_LABEL
from .question_answering import best_answers
from .spec import UNLABELLED, TaskSpec

if TYPE_CHECKING:
    import evaluate
    from datasets import Dataset
    from transformers import EvalPrediction


# What a task calls a metric -> its name on the Hub, and what `compute` is told.
METRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "accuracy": ("accuracy", {}),
    "f1": ("f1", {"average": "binary"}),
    "f1_macro": ("f1", {"average": "macro"}),
    "f1_micro": ("f1", {"average": "micro"}),
    "matthews_correlation": ("matthews_correlation", {}),
    "pearsonr": ("pearsonr", {}),
    "spearmanr": ("spearmanr", {}),
    **{f"entity_{score}": ("seqeval", {"score": score}) for score in ("f1", "precision", "recall")},
    "exact_match": ("squad", {"score": "exact_match"}),
    "answer_f1": ("squad", {"score": "f1"}),
}
# The Trainer fills up the rows of narrower batches with this, where batches differ in their number of choices.
TRAINER_PADDING = -100


def load_metric(name: str) -> "evaluate.EvaluationModule":
    """One of the `FUNCTIONS` of `metric_module` as a module of `evaluate`."""
    # `evaluate` takes seconds to import and is wanted only here.
    import evaluate

    return evaluate.load(str(Path(__file__).with_name("metric_module.py")), name, keep_in_memory=True)


def compute_metrics_for(
    spec: TaskSpec, rows: "Dataset | None" = None
) -> Callable[["EvalPrediction"], dict[str, float]]:
    """
    The `compute_metrics` function that a `Trainer` calls with all logits and labels of an evaluation. Rows (words)
    without a gold label are left out; where no row has one, the result is empty. Logits of choices that an item does
    not have are -inf, or the Trainer's padding; answers stand in the passages of `rows`, the encoded rows that are
    evaluated. A `ValueError` for an unknown metric, and from the returned function for logits that are not numbers.
    """
    unknown = [name for name in spec.metrics if name not in METRICS]
    if unknown:
        raise ValueError(f"There is no metric {unknown[0]!r}. Known metrics: {', '.join(METRICS)}.")
    modules = {name: load_metric(METRICS[name][0]) for name in spec.metrics}

    def compute_metrics(prediction: "EvalPrediction") -> dict[str, float]:
        logits, labels = logits_of(prediction.predictions, spec), np.asarray(prediction.label_ids)
        labelled = _labelled(labels, spec)
        if not labelled.any():
            return {}
        if spec.family == "question-answering":
            answered = rows.select(np.flatnonzero(labelled))
            texts = [text for text, _ in best_answers(answered, logits[labelled])]
            given = {"predictions": texts, "references": answered["answers"][:]}
        else:
            predictions = predictions_from_logits(logits[labelled], spec)
            given = {"predictions": predictions, "references": labels[labelled].astype(predictions.dtype)}
        scores = {}
        for name, module in modules.items():
            key, options = METRICS[name]
            compared = given
            if key == "seqeval":
                compared = {side: _tags_of_sentences(values, labelled, spec) for side, values in given.items()}
            scores[name] = module.compute(**compared, **options)[key]
        return scores

    return compute_metrics


def logits_of(predictions: np.ndarray | tuple[np.ndarray, ...], spec: TaskSpec) -> np.ndarray:
    """
    The logits among what the Trainer returns as predictions: the first, if the model returns more; of question
    answering those of beginnings and ends as `(rows, tokens, 2)`, a `ValueError` if they are not numbers.
    """
    if spec.family != "question-answering":
        return np.asarray(predictions[0] if isinstance(predictions, tuple) else predictions)
    logits = np.stack(predictions[:2], -1) if isinstance(predictions, tuple) else np.asarray(predictions)
    if np.isnan(logits).any():
        raise _diverged()
    return logits


def _tags_of_sentences(tags: np.ndarray, labelled: np.ndarray, spec: TaskSpec) -> list[list[str]]:
    """The names of `(words,)` tags, by sentence; `labelled` of shape `(sentences, longest)` says where they stand."""
    ends = labelled.sum(axis=1).cumsum()
    return [[spec.label_names[tag] for tag in sentence] for sentence in np.split(tags, ends[:-1])]


def _labelled(labels: np.ndarray, spec: TaskSpec) -> np.ndarray:
    """
    Which rows (of tagging, words) have a gold label: a score that is not NaN, or a class that is neither -1 nor -100
    (encoded rows).
    """
    missing = np.isnan(labels) if spec.has_scores else np.isin(labels, (UNLABELLED, IGNORED_LABEL))
    if spec.family == "tagging":
        return ~missing
    return ~missing.reshape(len(labels), -1).all(axis=1)


def predictions_from_logits(logits: np.ndarray, spec: TaskSpec) -> np.ndarray:
    """
    What logits of shape `(rows, classes)` say, per row (or word): a class, a choice, 0 or 1 for each of several
    labels, or a score. For an ordinal task the columns are the whole scores from 0 up, and the prediction is the mean
    over their probabilities. Logits that are not numbers are a `ValueError`.
    """
    logits = logits.astype(np.float64)
    if spec.family == "multiple-choice":
        logits = np.where(logits == TRAINER_PADDING, -np.inf, logits)
    if np.isnan(logits).any() or (logits == -np.inf).all(axis=-1).any():
        raise _diverged()
    if spec.problem_type == "regression":
        return logits.reshape(len(logits))
    if spec.problem_type == "ordinal":
        return softmax(logits, axis=1) @ np.arange(logits.shape[1])
    if spec.problem_type == "multi_label_classification":
        return (logits > 0).astype(np.int64)
    return logits.argmax(axis=1)


def _diverged() -> ValueError:
    return ValueError(
        "The model's logits are not numbers, so nothing can be measured: training has diverged. Lower the learning "
        "rate, or train in fp32 or bf16 instead of fp16."
    )
