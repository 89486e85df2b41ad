"""From a task to the Trainer's `compute_metrics`: functions of scikit-learn and scipy, or any metric of evaluate."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pkgutil import resolve_name
from typing import Any

import numpy as np
from datasets import Dataset
from scipy.special import softmax

from ..trees.collators import IGNORED_LABEL
from .encode import best_answers
from .spec import MULTI_LABEL, TaskSpec

# What a task calls a metric -> its name on the Hub, the options there, and the function of a library.
METRICS: dict[str, tuple[str, dict[str, Any], str]] = {
    "accuracy": ("accuracy", {}, "sklearn.metrics.accuracy_score"),
    "f1": ("f1", {"average": "binary"}, "sklearn.metrics.f1_score"),
    "f1_macro": ("f1", {"average": "macro"}, "sklearn.metrics.f1_score"),
    "f1_micro": ("f1", {"average": "micro"}, "sklearn.metrics.f1_score"),
    "matthews_correlation": ("matthews_correlation", {}, "sklearn.metrics.matthews_corrcoef"),
    "pearsonr": ("pearsonr", {}, "scipy.stats.pearsonr"),
    "spearmanr": ("spearmanr", {}, "scipy.stats.spearmanr"),
    "entity_f1": ("seqeval", {"score": "f1"}, "seqeval.metrics.f1_score"),
    "entity_precision": ("seqeval", {"score": "precision"}, "seqeval.metrics.precision_score"),
    "entity_recall": ("seqeval", {"score": "recall"}, "seqeval.metrics.recall_score"),
    "exact_match": ("squad", {"score": "exact_match"}, f"{__name__}.exact_match"),
    "answer_f1": ("squad", {"score": "f1"}, f"{__name__}.answer_f1"),
}
_ENTITY_METRICS = {name for name, (kind, *_) in METRICS.items() if kind == "seqeval"}
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def metric_function(name: str) -> Callable[[Any, Any], float]:
    """
    A metric of `METRICS`, or of the library `evaluate` by its id or path (whose code is then run), as a function of
    references and predictions. Undefined F1s and correlations are 0. A `ValueError` if there is none of that name.
    """
    if name in METRICS:
        kind, options, path = METRICS[name]
        function = resolve_name(path)
        if kind in ("f1", "seqeval"):
            return partial(function, zero_division=0, **options if kind == "f1" else {})
        return partial(_correlation, function) if kind in ("pearsonr", "spearmanr") else function
    metric = _load_metric(name)

    def measure(references: Any, predictions: Any) -> float:
        values = metric.compute(references=references, predictions=predictions)
        return values.get(metric.name, next(iter(values.values())))

    return measure


def _load_metric(name: str) -> Any:
    import evaluate

    try:
        return evaluate.load(name)
    except (OSError, ImportError, ValueError) as error:
        known = ", ".join(METRICS)
        raise ValueError(f"There is no metric {name!r}: {known} are known, and evaluate says: {error}") from error


def text_metrics(names: Sequence[str]) -> Callable[[list[str], list[str]], dict[str, float]]:
    """
    Metrics of texts, `exact_match`, `answer_f1` (as of SQuAD's answers) or those of evaluate by id or path, as a
    function of references and predictions. Each number of one that has several is named: `rougeL`, `sacrebleu_score`.
    """
    known = [name for name, (kind, *_) in METRICS.items() if kind == "squad"]
    if wrong := [name for name in names if name in METRICS and name not in known]:
        raise ValueError(f"{wrong[0]} does not measure texts: give {', '.join(known)}, or a metric of evaluate.")
    loaded = {name: metric_function(name) if name in known else _load_metric(name) for name in names}

    def measure(references: list[str], predictions: list[str]) -> dict[str, float]:
        scores = {}
        for name, metric in loaded.items():
            if name in known:
                scores[name] = metric([[reference] for reference in references], predictions)
                continue
            found = metric.compute(references=references, predictions=predictions)
            numbers = {key: float(value) for key, value in found.items() if np.ndim(value) == 0}
            scores |= {key if key.startswith(metric.name) else f"{metric.name}_{key}": numbers[key] for key in numbers}
        return scores

    return measure


def _correlation(function: Callable, references: np.ndarray, predictions: np.ndarray) -> float:
    is_constant = len(set(predictions)) < 2 or len(set(references)) < 2
    return 0.0 if is_constant else function(references, predictions).statistic


def _f1_of_words(answer: list[str], prediction: list[str]) -> float:
    common = (Counter(answer) & Counter(prediction)).total()
    return 2 * common / (len(answer) + len(prediction)) if common else 0.0


def _mean_of_best(compare: Callable, references: list[list[str]], predictions: list[str]) -> float:
    """The mean of the best over each question's answers, compared as SQuAD's own script does."""

    def words(text: str) -> list[str]:
        return re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_NO_PUNCTUATION)).split()

    pairs = zip(references, predictions, strict=True)
    return float(np.mean([max(compare(words(one), words(found)) for one in answers) for answers, found in pairs]))


exact_match = partial(_mean_of_best, list.__eq__)
answer_f1 = partial(_mean_of_best, _f1_of_words)


def compute_metrics_for(spec: TaskSpec, rows: Dataset | None = None) -> Callable[[Any], dict[str, float]]:
    """
    What a `Trainer` calls with all logits and labels (`EvalPrediction`), of question answering on the encoded `rows`.
    Rows (words) without a gold label are left out, of none the result is empty. Logits that are not numbers are a
    `ValueError`.
    """
    functions = {name: metric_function(name) for name in spec.metrics}

    def compute_metrics(prediction: Any) -> dict[str, float]:
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
        compared = dict.fromkeys(functions, pair)
        for name in functions.keys() & _ENTITY_METRICS:
            ends = labelled.sum(axis=1).cumsum()[:-1]  # of sentences, among the words with a label
            named = [np.split(np.array(spec.label_names)[side], ends) for side in pair]
            compared[name] = [[sentence.tolist() for sentence in side] for side in named]
        return {name: float(function(*compared[name])) for name, function in functions.items()}

    return compute_metrics


def logits_of(predictions: np.ndarray | tuple[np.ndarray, ...], spec: TaskSpec) -> np.ndarray:
    """
    The logits among what the Trainer returns as predictions; of question answering as `(rows, tokens, 2)`, of choices
    that a row lacks minus infinity. A `ValueError` if some are no numbers.
    """
    if isinstance(predictions, tuple):
        predictions = np.stack(predictions[:2], -1) if spec.family == "question-answering" else predictions[0]
    logits = np.asarray(predictions)
    if spec.family == "multiple-choice":  # the Trainer fills up the rows of narrower batches
        logits = np.where(logits == IGNORED_LABEL, -np.inf, logits)
    # A row, not a token or word of it: those that it lacks are minus infinity.
    if np.isnan(logits).any() or np.isneginf(logits).all(axis=tuple(range(1, logits.ndim))).any():
        raise ValueError("The model's logits are not numbers: training has diverged. Lower the learning rate.")
    return logits


def lacks_label(labels: np.ndarray) -> np.ndarray:
    """Which labels are none: -100, or of scores NaN; a boolean of the same shape."""
    is_class = np.issubdtype(labels.dtype, np.integer) or labels.ndim > 1
    return labels == IGNORED_LABEL if is_class else np.isnan(labels)


def predictions_from_logits(logits: np.ndarray, spec: TaskSpec) -> np.ndarray:
    """
    What logits of shape `(rows, classes)` say, per row (or word): a class, a choice, 0 or 1 for each of several
    labels, or a score, of an ordinal task the mean over the probabilities of the whole scores from 0 up.
    """
    logits = logits.astype(np.float64)
    if spec.problem_type == "regression":
        return logits.reshape(len(logits))
    if spec.problem_type == "ordinal":
        return softmax(logits, axis=1) @ np.arange(logits.shape[1])
    return (logits > 0).astype(np.int64) if spec.problem_type == MULTI_LABEL else logits.argmax(axis=1)
