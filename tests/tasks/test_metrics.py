"""Metrics: modules loaded by path, offline, and logits turned into what the modules compare."""

import math

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_gpt.tasks import get_task
from hf_gpt.tasks.metrics import (
    METRICS,
    compute_metrics_for,
    metric_function,
    predictions_from_logits,
)
from hf_gpt.tasks.spec import Layout, TaskSpec

# Two predicted as in the reference, one not: enough to tell every average apart.
CLASS_LOGITS = np.eye(3)[[0, 1, 1, 2]]
CLASS_LABELS = np.array([0, 1, 2, 2])


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def spec(*metrics, problem_type="single_label_classification", family="classification", **kwargs):
    return TaskSpec(
        name="made-up",
        family=family,
        description="",
        metrics=metrics,
        layout=Layout({}),
        problem_type=problem_type,
        **kwargs,
    )


def measure(task, logits, labels):
    return compute_metrics_for(task)(EvalPrediction(predictions=logits, label_ids=np.asarray(labels)))


@pytest.mark.parametrize("name", METRICS)
def test_perfect_predictions_score_one(name):
    gold = given = np.array([0, 1, 1])
    if name.startswith("entity"):
        gold = given = [["B-X", "I-X"], ["O"]]
    elif METRICS[name][0] == "squad":
        gold, given = [["home", "School, too"]], ["school too"]
    assert metric_function(name)(gold, given) == pytest.approx(1.0)


MODULE = """
import datasets
import evaluate

class Wrong(evaluate.Metric):
    def _info(self):
        features = datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return {"wrong": sum(p != r for p, r in zip(predictions, references))}
"""


def test_any_metric_of_evaluate_by_its_path(tmp_path):
    (tmp_path / "wrong.py").write_text(MODULE, encoding="utf-8")
    path = str(tmp_path / "wrong.py")
    assert measure(spec("accuracy", path), CLASS_LOGITS, CLASS_LABELS) == {"accuracy": 3 / 4, path: 1}


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("accuracy", 3 / 4), ("f1_macro", (1 + 2 / 3 + 2 / 3) / 3), ("f1_micro", 3 / 4)],
)
def test_class_metrics(metric, expected):
    assert measure(spec(metric), CLASS_LOGITS, CLASS_LABELS) == {metric: pytest.approx(expected)}


def test_f1_scores_label_one_and_matthews_follows_its_formula():
    logits, labels = np.eye(2)[[1, 1, 0, 0, 1]], [1, 0, 0, 1, 1]  # 2 true positives, 1 true negative, 1 + 1 wrong
    expected = {"f1": 2 / 3, "matthews_correlation": (2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2)}
    assert measure(spec(*expected), logits, labels) == {name: pytest.approx(value) for name, value in expected.items()}


def test_matthews_is_zero_for_one_answer_to_everything():
    assert measure(spec("matthews_correlation"), np.eye(2)[[1, 1, 1]], [1, 0, 1]) == {"matthews_correlation": 0}


def test_regression_takes_one_column_and_ranks_differ_from_values():
    scores = measure(
        spec("pearsonr", "spearmanr", problem_type="regression"), np.array([[1.0], [2.0], [9.0]]), [1.0, 2.0, 3.0]
    )
    assert scores["spearmanr"] == pytest.approx(1)
    assert scores["pearsonr"] == pytest.approx(np.corrcoef([1, 2, 9], [1, 2, 3])[0, 1])


def test_constant_scores_correlate_with_nothing():
    scores = measure(spec("pearsonr", "spearmanr", problem_type="regression"), np.ones((3, 1)), [1.0, 2.0, 3.0])
    assert scores == {"pearsonr": 0, "spearmanr": 0}


def test_ordinal_score_is_the_mean_of_the_bins():
    # Rows of mean 5, 0 and 2.5: in line with the labels only when the whole distribution counts.
    certain_high, certain_low, undecided = [-50.0] * 5 + [50.0], [50.0] + [-50.0] * 5, [0.0] * 6
    task = spec("pearsonr", problem_type="ordinal", score_range=(0, 5))
    scores = measure(task, np.array([certain_high, certain_low, undecided]), [5.0, 0.0, 2.5])
    assert scores == {"pearsonr": pytest.approx(1)}


def test_multi_label_thresholds_each_label():
    task = spec("f1_micro", "accuracy", problem_type="multi_label_classification", label_names=("a", "b"))
    logits = np.array([[2.0, -1.0], [0.5, 0.5], [-3.0, -3.0]])
    scores = measure(task, logits, [[1.0, 0.0], [1.0, 0.0], [-100.0, -100.0]])
    assert scores == {"f1_micro": pytest.approx(4 / 5), "accuracy": pytest.approx(1 / 2)}


@pytest.mark.parametrize("padding", [-np.inf, -100.0], ids=["minus-infinity", "trainer-padding"])
def test_missing_choices_are_never_chosen(padding):
    task = spec("accuracy", problem_type=None, family="multiple-choice")
    logits = np.array([[-120.0, -110.0, padding], [0.0, 1.0, 2.0]], dtype=np.float32)
    assert measure(task, logits, [1, 2]) == {"accuracy": 1}


def test_rows_without_gold_label_are_left_out():
    assert measure(spec("accuracy"), CLASS_LOGITS, [0, 1, -100, -100]) == {"accuracy": 1}
    regression = spec("pearsonr", problem_type="regression")
    assert measure(regression, np.array([[-1.0], [0.0], [7.0]]), [-1.0, 0.0, math.nan]) == {
        "pearsonr": pytest.approx(1)
    }


def test_no_gold_label_at_all_gives_no_metric():
    assert measure(spec("accuracy"), CLASS_LOGITS, [-100] * 4) == {}


def test_logits_come_first_in_a_tuple():
    assert measure(spec("accuracy"), (CLASS_LOGITS, np.zeros(7)), [0, 1, 1, 2]) == {"accuracy": 1}


def test_half_precision_logits_and_repeated_use():
    compute = compute_metrics_for(spec("accuracy"))
    batch = EvalPrediction(predictions=CLASS_LOGITS.astype(np.float16), label_ids=CLASS_LABELS)
    assert compute(batch) == compute(batch) == {"accuracy": 3 / 4}


def test_unknown_metric_is_named_before_training():
    with pytest.raises(ValueError, match=r"no metric 'bleu'.*accuracy"):
        compute_metrics_for(spec("bleu"))


@pytest.mark.parametrize("bad", [np.nan, -np.inf], ids=["nan", "no-choice-left"])
def test_logits_that_are_not_numbers_are_an_error(bad):
    with pytest.raises(ValueError, match="diverged"):
        measure(spec("accuracy"), np.full((1, 3), bad), [0])


def test_ordinal_predictions_are_scores():
    task = spec("pearsonr", problem_type="ordinal", score_range=(0, 5))
    between = np.array([[0, 0, 0, 0, 0.8, 0.2], [0.5, 0.5, 0, 0, 0, 0]])
    certain = np.log(between + 1e-30)
    assert predictions_from_logits(certain, task) == pytest.approx([4.2, 0.5])


@pytest.mark.parametrize("score_range", [None, (1, 5), (0, 4.5)])
def test_ordinal_scores_count_from_zero(score_range):
    with pytest.raises(ValueError, match=r"whole score from 0 up.*shift the scores"):
        spec("pearsonr", problem_type="ordinal", score_range=score_range)


def test_metrics_of_words_and_entities():
    """Padding has no label; an entity counts as a whole, and `conlleval` counts no B- that an I- lacks."""
    task = get_task("conll2003")
    names = ("O", "B-PER", "I-PER", "B-LOC")
    gold = [["B-PER", "I-PER", "O"], ["B-LOC"]]
    found = [["B-PER", "O", "B-LOC"], ["B-LOC"]]
    index = {name: task.label_names.index(name) for name in names}
    labels, logits = np.full((2, 3), -100), np.full((2, 3, 9), -100.0)
    for row, (gold_tags, found_tags) in enumerate(zip(gold, found, strict=True)):
        labels[row, : len(gold_tags)] = [index[tag] for tag in gold_tags]
        logits[row, : len(found_tags)] = np.eye(9)[[index[tag] for tag in found_tags]]
    scores = compute_metrics_for(task)(EvalPrediction((logits, None), labels))
    expected = {"entity_f1": 2 / 5, "entity_precision": 1 / 3, "entity_recall": 1 / 2, "accuracy": 2 / 4}
    assert scores == {name: pytest.approx(value) for name, value in expected.items()}
    assert compute_metrics_for(task)(EvalPrediction(logits, np.full((2, 3), -100))) == {}
