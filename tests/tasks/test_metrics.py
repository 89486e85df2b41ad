"""Metrics: logits and labels in, numbers out."""

import math

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_gpt.tasks import get_task
from hf_gpt.tasks.metrics import compute_metrics_for
from hf_gpt.tasks.spec import Layout, TaskSpec

from ..support.task_files import write_metric

# Two predicted as in the reference, one not: enough to tell every average apart.
CLASS_LOGITS, CLASS_LABELS = np.eye(3)[[0, 1, 1, 2]], np.array([0, 1, 2, 2])
ORDINAL = {"problem_type": "ordinal", "score_range": (0, 5)}
REGRESSION = {"problem_type": "regression"}
SEVERAL = {"problem_type": "multi_label_classification", "label_names": ("a", "b")}
CHOICES = {"problem_type": None, "family": "multiple-choice"}


def spec(*metrics, problem_type="single_label_classification", family="classification", **kwargs):
    return TaskSpec("made-up", family, "", Layout({}), metrics, problem_type, **kwargs)


def measure(task, logits, labels):
    return compute_metrics_for(task)(EvalPrediction(predictions=logits, label_ids=np.asarray(labels)))


# Of an ordinal task rows of mean 5, 0 and 2.5: in line with the labels only when the whole distribution counts.
BINS = [[-50.0] * 5 + [50.0], [50.0] + [-50.0] * 5, [0.0] * 6]
# 2 true positives, 1 true negative, 1 + 1 wrong.
BINARY = {"f1": 2 / 3, "matthews_correlation": (2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2)}
MEASURED = {
    "classes": ({}, CLASS_LOGITS, CLASS_LABELS, {"accuracy": 3 / 4, "f1_macro": 7 / 9, "f1_micro": 3 / 4}),
    "half": ({}, CLASS_LOGITS.astype(np.float16), CLASS_LABELS, {"accuracy": 3 / 4}),
    "tuple": ({}, (CLASS_LOGITS, np.zeros(7)), CLASS_LABELS, {"accuracy": 3 / 4}),
    "binary": ({}, np.eye(2)[[1, 1, 0, 0, 1]], [1, 0, 0, 1, 1], BINARY),
    "one answer": ({}, np.eye(2)[[1, 1, 1]], [1, 0, 1], {"matthews_correlation": 0}),
    "unlabelled": ({}, CLASS_LOGITS, [0, 1, -100, -100], {"accuracy": 1}),
    "no label": ({}, CLASS_LOGITS, [-100] * 4, {}),
    "ranks": (REGRESSION, np.array([[1.0], [2.0], [9.0]]), [1.0, 2.0, 3.0], {"spearmanr": 1, "pearsonr": 0.9177}),
    "constant": (REGRESSION, np.ones((3, 1)), [1.0, 2.0, 3.0], {"pearsonr": 0, "spearmanr": 0}),
    "no score": (REGRESSION, np.array([[-1.0], [0.0], [7.0]]), [-1.0, 0.0, math.nan], {"pearsonr": 1}),
    "bins": (ORDINAL, np.array(BINS), [5.0, 0.0, 2.5], {"pearsonr": 1}),
    "several": (
        *(SEVERAL, np.array([[2.0, -1.0], [0.5, 0.5], [-3.0, -3.0]]), [[1.0, 0.0], [1.0, 0.0], [-100.0, -100.0]]),
        {"f1_micro": 4 / 5, "accuracy": 1 / 2},
    ),
    "choices": (CHOICES, np.array([[-120.0, -110.0, -np.inf], [0.0, 1.0, 2.0]]), [1, 2], {"accuracy": 1}),
    "filled up": (CHOICES, np.array([[-120.0, -110.0, -100.0], [0.0, 1.0, 2.0]]), [1, 2], {"accuracy": 1}),
}


@pytest.mark.parametrize("case", MEASURED)
def test_metrics_of_logits(case):
    facts, logits, labels, expected = MEASURED[case]
    task = spec(*(expected or {"accuracy": 0}), **facts)
    assert measure(task, logits, labels) == {name: pytest.approx(value, abs=1e-4) for name, value in expected.items()}


def test_any_metric_of_evaluate_by_its_path(tmp_path):
    path = write_metric(tmp_path / "own.py", "int64", '{"wrong": sum(map(int.__ne__, predictions, references))}')
    assert measure(spec("accuracy", path), CLASS_LOGITS, CLASS_LABELS) == {"accuracy": 3 / 4, path: 1}
    with pytest.raises(ValueError, match=r"no metric 'bleu'.*accuracy"):
        compute_metrics_for(spec("bleu"))


@pytest.mark.parametrize("bad", [np.nan, -np.inf], ids=["nan", "no-choice-left"])
def test_logits_that_are_not_numbers_are_an_error(bad):
    with pytest.raises(ValueError, match="diverged"):
        measure(spec("accuracy"), np.full((1, 3), bad), [0])


def test_metrics_of_words_and_entities():
    """Padding has no label; an entity counts as a whole, and `conlleval` counts no B- that an I- lacks."""
    task = get_task("conll2003")
    gold = [["B-PER", "I-PER", "O"], ["B-LOC"]]
    found = [["B-PER", "O", "B-LOC"], ["B-LOC"]]
    labels, logits = np.full((2, 3), -100), np.full((2, 3, 9), -100.0)
    for row, (gold_tags, found_tags) in enumerate(zip(gold, found, strict=True)):
        labels[row, : len(gold_tags)] = [task.label_names.index(tag) for tag in gold_tags]
        logits[row, : len(found_tags)] = np.eye(9)[[task.label_names.index(tag) for tag in found_tags]]
    scores = measure(task, (logits, None), labels)
    expected = {"entity_f1": 2 / 5, "entity_precision": 1 / 3, "entity_recall": 1 / 2, "accuracy": 2 / 4}
    assert scores == {name: pytest.approx(value) for name, value in expected.items()}
    assert measure(task, logits, np.full((2, 3), -100)) == {}
