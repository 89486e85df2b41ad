"""From a task to the Trainer's `compute_metrics`: functions of scikit-learn and scipy, or any metric of evaluate."""

import re
import string
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from ..trees.collators import IGNORED_LABEL
from .encode import best_answers
from .spec import MULTI_LABEL, TaskSpec

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import EvalPrediction

# What a task calls a metric -> its name on the Hub, and the options there.
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
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def metric_function(name: str) -> Callable[[Any, Any], float]:
    """
    A metric of `METRICS`, or one of the library `evaluate` by its id or path (whose code is then run), as a function
    of references and predictions. A label that is never predicted has an F1 of 0, a correlation with what never varies
    is 0. Of entities both are lists of tags for each sentence; of answers predictions are texts and references lists
    of them. A `ValueError` if there is none of that name.
    """
    if name not in METRICS:
        return _evaluate_metric(name)
    kind, options = METRICS[name]
    if kind in ("pearsonr", "spearmanr"):
        from scipy import stats

        return partial(_correlation, getattr(stats, kind))
    if kind == "seqeval":
        import seqeval.metrics

        return partial(getattr(seqeval.metrics, f"{options['score']}_score"), zero_division=0)
    if kind == "squad":
        return partial(_answer_score, **options)
    from sklearn import metrics

    functions = {"accuracy": metrics.accuracy_score, "matthews_correlation": metrics.matthews_corrcoef}
    return functions.get(kind) or partial(metrics.f1_score, zero_division=0, **options)


def _evaluate_metric(name: str) -> Callable[[Any, Any], float]:
    import evaluate

    try:
        module = evaluate.load(name)
    except (OSError, ImportError, ValueError) as error:
        known = ", ".join(METRICS)
        raise ValueError(f"There is no metric {name!r}: {known} are known, and evaluate says: {error}") from error

    def measure(references: Any, predictions: Any) -> float:
        values = module.compute(references=references, predictions=predictions)
        return values.get(module.name, next(iter(values.values())))

    return measure


def _correlation(function: Callable, references: np.ndarray, predictions: np.ndarray) -> float:
    if len(set(predictions)) < 2 or len(set(references)) < 2:
        return 0.0
    return function(references, predictions).statistic


def _answer_score(references: list[list[str]], predictions: list[str], score: str) -> float:
    """
    `exact_match` or `f1` of words, the mean over the questions of the best over a question's answers (Rajpurkar et
    al., 2016, section 6.1); from 0 to 1, where the Hub's module has percent.
    """
    compare = {"exact_match": list.__eq__, "f1": _overlap}[score]
    best = [
        max(compare(_words_of_answer(answer), _words_of_answer(prediction)) for answer in answers)
        for answers, prediction in zip(references, predictions, strict=True)
    ]
    return sum(best) / len(best)


def _words_of_answer(text: str) -> list[str]:
    """As SQuAD's own script compares them: lower-cased, without punctuation and articles."""
    return re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_NO_PUNCTUATION)).split()


def _overlap(answer: list[str], prediction: list[str]) -> float:
    common = (Counter(answer) & Counter(prediction)).total()
    return 2 * common / (len(answer) + len(prediction)) if common else 0.0


def compute_metrics_for(
    spec: TaskSpec, rows: "Dataset | None" = None
) -> Callable[["EvalPrediction"], dict[str, float]]:
    """
    The `compute_metrics` function that a `Trainer` calls with all logits and labels of an evaluation. Rows (words)
    without a gold label are left out; where no row has one, the result is empty. Logits of choices that an item does
    not have are -inf, or the Trainer's padding; answers stand in the passages of `rows`, the encoded rows that are
    evaluated. A `ValueError` for an unknown metric, and from the returned function for logits that are not numbers.
    """
    functions = {name: metric_function(name) for name in spec.metrics}

    def compute_metrics(prediction: "EvalPrediction") -> dict[str, float]:
        logits, labels = logits_of(prediction.predictions, spec), np.asarray(prediction.label_ids)
        labelled = ~lacks_label(labels)
        if spec.family != "tagging":
            labelled = labelled.reshape(len(labels), -1).any(axis=1)
        if not labelled.any():
            return {}
        if spec.family == "question-answering":
            answered = rows.select(np.flatnonzero(labelled))
            pair = answered["answers"][:], [text for text, _ in best_answers(answered, logits[labelled])]
        else:
            predictions = predictions_from_logits(logits[labelled], spec)
            pair = labels[labelled].astype(predictions.dtype), predictions
        scores = {}
        for name, function in functions.items():
            is_entity = name in METRICS and METRICS[name][0] == "seqeval"
            compared = [_tags_of_sentences(side, labelled, spec) for side in pair] if is_entity else pair
            scores[name] = float(function(*compared))
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


def lacks_label(labels: np.ndarray) -> np.ndarray:
    """Which labels are none: -100, or of scores NaN; a boolean of the same shape."""
    return np.isnan(labels) | (
        (labels == IGNORED_LABEL) & (np.issubdtype(labels.dtype, np.integer) | (labels.ndim > 1))
    )


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
    if spec.problem_type == MULTI_LABEL:
        return (logits > 0).astype(np.int64)
    return logits.argmax(axis=1)


def _diverged() -> ValueError:
    return ValueError(
        "The model's logits are not numbers, so nothing can be measured: training has diverged. Lower the learning "
        "rate, or train in fp32 or bf16 instead of fp16."
    )
