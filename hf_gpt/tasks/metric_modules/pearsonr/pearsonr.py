"""Pearson's coefficient: linear correlation from -1 to 1; 0 where either side never varies (undefined there)."""

import datasets
import evaluate
from scipy.stats import pearsonr


class PearsonR(evaluate.Metric):
    """`compute(predictions=..., references=...)` gives `{"pearsonr": float}`; it takes at least two pairs."""

    def _info(self) -> evaluate.MetricInfo:
        value = datasets.Value("float64")
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=self.__doc__,
            features=datasets.Features({"predictions": value, "references": value}),
        )

    def _compute(self, predictions, references) -> dict[str, float]:
        if len(set(predictions)) < 2 or len(set(references)) < 2:
            return {"pearsonr": 0.0}
        return {"pearsonr": float(pearsonr(references, predictions).statistic)}
