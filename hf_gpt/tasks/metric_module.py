"""
The metrics as a module of `evaluate`, loaded by its path: no network. Its configuration is the metric's name.

    evaluate.load("hf_gpt/tasks/metric_module.py", "f1").compute(predictions=..., references=..., average="macro")
"""

import re
import string
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import datasets
import evaluate
import seqeval.metrics
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef


def _correlation(function: Callable, references: list[float], predictions: list[float]) -> float:
    """A correlation; 0 where either side never varies, as it is undefined there."""
    if len(set(predictions)) < 2 or len(set(references)) < 2:
        return 0.0
    return function(references, predictions).statistic


def _entities(references: list[list[str]], predictions: list[list[str]], score: str) -> float:
    """`precision`, `recall` or `f1` of whole entities (Ramshaw and Marcus, 1995), as conlleval counts them."""
    return getattr(seqeval.metrics, f"{score}_score")(references, predictions, zero_division=0)


def _words_of_answer(text: str) -> list[str]:
    """As SQuAD's own script compares them: lower-cased, without punctuation and articles."""
    return re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_NO_PUNCTUATION)).split()


def _overlap(answer: list[str], prediction: list[str]) -> float:
    common = (Counter(answer) & Counter(prediction)).total()
    return 2 * common / (len(answer) + len(prediction)) if common else 0.0


def _answers(references: list[list[str]], predictions: list[str], score: str) -> float:
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


_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
# Names and options are those of the Hub's modules; a label that is never predicted has an F1 of 0.
FUNCTIONS: dict[str, Callable] = {
    "accuracy": accuracy_score,
    "f1": partial(f1_score, zero_division=0),
    "matthews_correlation": matthews_corrcoef,
    "pearsonr": partial(_correlation, pearsonr),
    "spearmanr": partial(_correlation, spearmanr),
    "seqeval": _entities,
    "squad": _answers,
}


class TaskMetric(evaluate.Metric):
    """`compute(predictions=..., references=...)` gives `{name: float}`; multi-label rows are lists of 0 and 1,
    those of `seqeval` lists of tags; of `squad` predictions are texts, and references lists of them."""

    def _info(self) -> evaluate.MetricInfo:
        value = datasets.Value("float64" if self.config_name in ("pearsonr", "spearmanr") else "int64")
        kinds = (value, datasets.List(value))
        if self.config_name == "seqeval":
            kinds = (datasets.List(datasets.Value("string")),)
        pairs = [(kind, kind) for kind in kinds]
        if self.config_name == "squad":
            pairs = [(datasets.Value("string"), datasets.List(datasets.Value("string")))]
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=self.__doc__,
            features=[datasets.Features({"predictions": ours, "references": gold}) for ours, gold in pairs],
        )

    def _compute(self, predictions: list, references: list, **options: Any) -> dict[str, float]:
        return {self.config_name: float(FUNCTIONS[self.config_name](references, predictions, **options))}
