"""Predictions in GLUE's and Story Cloze's own forms."""

import pytest

from hf_gpt.tasks import TASKS, get_task
from hf_gpt.tasks.submissions import GLUE_FILES, can_submit, submission_text, write_submission


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
    text = submission_text(get_task(task), ["0", "1"], predictions)
    assert text == "\n".join(["index\tprediction", *lines, ""])


def test_glue_rows_are_ordered_by_index():
    assert submission_text(get_task("sst2"), ["2", "0", "1"], [1, 0, 0]).splitlines()[1:] == ["0\t0", "1\t0", "2\t1"]


@pytest.mark.parametrize("name", GLUE_FILES)
def test_every_glue_task_has_a_form(name):
    last = 5.0 if name == "stsb" else TASKS[name].num_labels - 1
    written = submission_text(TASKS[name], ["0"], [last]).splitlines()[1].split("\t")[1]
    assert written in ("5.000", "1", "contradiction", "not_entailment")


def test_story_cloze_counts_endings_from_one():
    text = submission_text(get_task("rocstories"), ["b9,x", "a1"], [1, 0])
    assert text == 'InputStoryid,AnswerRightEnding\n"b9,x",2\na1,1\n'


def test_what_can_be_handed_in():
    assert can_submit(get_task("rocstories"), ["x"])
    assert can_submit(get_task("rte"), ["1", "0"])
    assert not can_submit(get_task("rte"), ["test-1", "test-2"])
    assert not can_submit(get_task("copa"), ["0"])


@pytest.mark.parametrize(
    ("task", "ids", "predictions", "message"),
    [
        ("copa", ["0"], [0], "copa has no submission form. Those that have: cola"),
        ("rte", ["0", "2"], [0, 1], "not GLUE's, 0 to 1.*Predict all rows"),
        ("rte", ["0", "0"], [0, 1], "not GLUE's"),
        ("rte", ["0"], [0, 1], "1 ids and 2 predictions"),
        ("rte", ["0"], [2], "prediction 2 is not an index from 0 to 1"),
        ("rte", ["0"], [0.5], "prediction 0.5 is not an index"),
        ("rocstories", ["a"], [-1], "prediction -1 is not an index"),
    ],
    ids=["no-form", "row-missing", "row-twice", "lengths", "label", "probability", "ending"],
)
def test_wrong_predictions(task, ids, predictions, message):
    with pytest.raises(ValueError, match=message):
        submission_text(get_task(task), ids, predictions)


@pytest.mark.parametrize(("task", "name"), [("mnli", "MNLI-m.tsv"), ("rocstories", "story_cloze.csv")])
def test_file_is_written_whole_or_not_at_all(task, name, tmp_path):
    path = write_submission(get_task(task), ["0"], [1], tmp_path / "new")
    assert path == tmp_path / "new" / name
    written = path.read_text()
    with pytest.raises(ValueError, match="not an index"):
        write_submission(get_task(task), ["0"], [7], tmp_path / "new")
    assert path.read_text() == written
    assert [file.name for file in path.parent.iterdir()] == [name]
