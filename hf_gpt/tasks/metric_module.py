"""
The metrics as a module of `evaluate`, loaded by its path: no network. Its configuration is the metric's name.

    evaluate.load("hf_gpt/tasks/metric_module.py", "f1").compute(predictions=..., references=..., average="macro")
"""

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


# Names and options are those of the Hub's modules; a label that is never predicted has an F1 of 0.
FUNCTIONS: dict[str, Callable] = {
    "accuracy": accuracy_score,
    "f1": partial(f1_score, zero_division=0),
    "matthews_correlation": matthews_corrcoef,
    "pearsonr": partial(_correlation, pearsonr),
    "spearmanr": partial(_correlation, spearmanr),
    "seqeval": _entities,
}


class TaskMetric(evaluate.Metric):
    """`compute(predictions=..., references=...)` gives `{name: float}`; multi-label rows are lists of 0 and 1,
    those of `seqeval` lists of tags."""

    def _info(self) -> evaluate.MetricInfo:
        value = datasets.Value("float64" if self.config_name in ("pearsonr", "spearmanr") else "int64")
        kinds = (value, datasets.List(value))
        if self.config_name == "seqeval":
            kinds = (datasets.List(datasets.Value("string")),)
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=self.__doc__,
            features=[datasets.Features({"predictions": kind, "references": kind}) for kind in kinds],
        )

    def _compute(self, predictions: list, references: list, **options: Any) -> dict[str, float]:
        return {self.config_name: float(FUNCTIONS[self.config_name](references, predictions, **options))}
