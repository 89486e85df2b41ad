"""Harmonic mean of precision and recall."""

import datasets
import evaluate
from sklearn.metrics import f1_score


class F1(evaluate.Metric):
    """
    `compute(predictions=..., references=..., average="binary")` gives `{"f1": float}`.

    `average` is scikit-learn's: "binary" scores label 1, "macro" is the mean over the labels that occur, "micro"
    counts all decisions together. A label that is never predicted scores 0. Load with "multilabel" for label lists.
    """

    def _info(self) -> evaluate.MetricInfo:
        value = datasets.Value("int64")
        if self.config_name == "multilabel":
            value = datasets.Sequence(value)
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=self.__doc__,
            features=datasets.Features({"predictions": value, "references": value}),
        )

    def _compute(self, predictions, references, average: str = "binary") -> dict[str, float]:
        return {"f1": float(f1_score(references, predictions, average=average, zero_division=0))}
