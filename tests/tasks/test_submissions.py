"""Predictions in GLUE's and Story Cloze's own forms."""

import numpy as np
import pytest
from datasets import Dataset

from hf_gpt.tasks import TASKS, get_task
from hf_gpt.tasks.report import STORY_CLOZE, SUBMISSION_FILES, submission_rows, write_submission


@pytest.mark.parametrize(
    ("task", "predictions", "lines"),
    [
        ("cola", [0, 1], ["0\t0", "1\t1"]),
        ("mrpc", [1, 0], ["0\t1", "1\t0"]),
        ("mnli", [2, 1], ["0\tcontradiction", "1\tneutral"]),
        ("mnli_mismatched", [0, 1], ["0\tentailment", "1\tneutral"]),
        ("qnli", [1, 0], ["0\tnot_entailment", "1\tentailment"]),
        ("rte", [0, 0], ["0\tentailment", "1\tentailment"]),
        ("stsb", [5.2, 3.14159], ["0\t5.000", "1\t3.142"]),
    ],
)
def test_glue(task, predictions, lines):
    rows = submission_rows(get_task(task), ["0", "1"], predictions)
    assert ["\t".join(row) for row in rows] == ["index\tprediction", *lines]


def test_glue_rows_are_ordered_by_index():
    assert submission_rows(get_task("sst2"), ["2", "0", "1"], [1, 0, 0])[1:] == [("0", "0"), ("1", "0"), ("2", "1")]


@pytest.mark.parametrize("name", [name for name in SUBMISSION_FILES if name != STORY_CLOZE])
def test_every_glue_task_has_a_form(name):
    last = 5.0 if name == "stsb" else TASKS[name].num_labels - 1
    written = submission_rows(TASKS[name], ["0"], [last])[1][1]
    assert written in ("5.000", "1", "contradiction", "not_entailment")


def test_what_cannot_be_handed_in(tmp_path):
    """Rows of another publication, rows that are missing or stand twice, and tasks without judges."""
    for ids in (["7a", "7b"], ["0", "2"], ["0", "0"]):
        assert submission_rows(get_task("rte"), ids, [0, 1]) is None
    rows, logits = Dataset.from_dict({"id": ["0"]}), np.array([[0.0, 1.0]])
    assert write_submission(tmp_path, rows, logits, get_task("copa")) is None
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("task", "name", "answer"), [("rte", "RTE.tsv", "0\tnot_entailment"), ("rocstories", "story_cloze.csv", "0,2")]
)
def test_file_for_the_judges(task, name, answer, tmp_path):
    rows, logits = Dataset.from_dict({"id": ["0"]}), np.array([[0.0, 1.0]])
    path = write_submission(tmp_path / "new", rows, logits, get_task(task))
    assert path == tmp_path / "new" / name
    assert path.read_text().splitlines()[1:] == [answer]
    assert [file.name for file in path.parent.iterdir()] == [name]
