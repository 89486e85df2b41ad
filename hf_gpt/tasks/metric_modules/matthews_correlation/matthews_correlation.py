"""Matthews correlation coefficient: agreement beyond chance from -1 to 1; 0 where either side never varies."""

import datasets
import evaluate
from sklearn.metrics import matthews_corrcoef


class MatthewsCorrelation(evaluate.Metric):
    """`compute(predictions=..., references=...)` gives `{"matthews_correlation": float}`."""

    def _info(self) -> evaluate.MetricInfo:
        value = datasets.Value("int64")
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=self.__doc__,
            features=datasets.Features({"predictions": value, "references": value}),
        )

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"matthews_correlation": float(matthews_corrcoef(references, predictions))}
