"""Share of predictions that equal their reference; for multi-label rows, that equal it in every label."""

import datasets
import evaluate
from sklearn.metrics import accuracy_score


class Accuracy(evaluate.Metric):
    """`compute(predictions=..., references=...)` gives `{"accuracy": float}`; "multilabel" takes lists of labels."""

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

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"accuracy": float(accuracy_score(references, predictions))}
