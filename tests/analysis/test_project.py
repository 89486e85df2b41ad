"""Points are scikit-learn's, neighbours and analogies those that were put there, pages and figures what they show."""

import numpy as np
import pytest

from hf_gpt.analysis.project import nearest, token_id
from hf_gpt.loading import open_source

from ..support.browser import opened

TEXTS = ["She opened the door.", "He closed the door.", "The night was cold."]


def test_neighbours_and_analogies_that_are_known():
    # Rows: man, king, woman, queen, apple, as (royal, female, fruit) around a mean that all share.
    vectors = np.array([[-1, -1, 0], [1, -1, 0], [-1, 1, 0], [1, 1, 0], [0, 0, 3.0]]) + 50
    (best, cosine), *_ = found = nearest(vectors, [0, 1, 2])
    assert (best, len(found), cosine > 0.9) == (3, 2, True)
    assert len(nearest(vectors, [4], count=9)) == 4


def test_words_that_are_one_token(tiny_checkpoint, stock_gpt2):
    for folder, word in ((tiny_checkpoint, "Door"), (stock_gpt2, "the")):
        tokenizer = open_source(str(folder)).tokenizer()
        assert [token_id(tokenizer, word)] == tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
    with pytest.raises(ValueError, match="'doorkeepers' is not one token"):
        token_id(open_source(str(tiny_checkpoint)).tokenizer(), "doorkeepers")


@pytest.mark.parametrize("unit", ["sentence", "word"])
def test_projection_by_command(unit, analyzed, tiny_checkpoint):
    more = ("--words", "the", "door", "--method", "tsne") if unit == "word" else ()
    near = ("--nearest", "door", "--analogy", "he", "his", "she", "--count", 3)
    found, printed = analyzed("project", "--text", *TEXTS, "--unit", unit, *more, *near)
    points, neighbours = found["projection"], found["nearest"]
    if unit == "word":
        assert set(points["labels"]) == {"the", "door"}
        assert points["contexts"][1] == "She opened the [door]."
    assert len(points["layers"]["2"]) == len(points["labels"]) == {"sentence": 3, "word": 5}[unit]
    assert len(neighbours["he : his = she : ?"]) == len(neighbours["door"]) == 3
    assert f"{neighbours['door'][0]['cosine']:.3f}  {neighbours['door'][0]['name']}" in printed


def test_the_map_can_be_read_and_searched(analyzed, tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\nShe ran.,a\n<i>He</i> sat.,b\nThey slept.,a\n")
    analyzed("project", "--file", tmp_path / "rows.csv")
    with opened(tmp_path / "out" / "projection.html") as page:
        marks = page.locator("#map text")
        assert (marks.count(), page.locator("#legend label").count()) == (3, 2)
        marks.nth(1).focus()
        assert "<i>He</i> sat." in page.locator("#read").inner_text()
        page.locator("#find").fill("slept")
        assert [mark.get_attribute("data-on") for mark in marks.all()] == ["no", "no", "yes"]
        before = [mark.get_attribute("y") for mark in marks.all()]
        page.locator("#layer").select_option("0")
        assert [mark.get_attribute("y") for mark in marks.all()] != before
