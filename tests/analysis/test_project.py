"""Points are scikit-learn's, and pages what they show."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from hf_gpt.analysis.project import projected

from ..support.browser import opened

TEXTS = ["She opened the door.", "He closed the door.", "The night was cold."]


def test_points_are_sklearns():
    vectors = np.random.default_rng(0).normal(size=(40, 6))
    np.testing.assert_allclose(projected(vectors), PCA(2).fit_transform(vectors))
    assert projected(vectors[:9], "tsne").shape == (9, 2)


@pytest.mark.parametrize("unit", ["sentence", "word"])
def test_projection_by_command(unit, analyzed):
    more = ("--words", "the", "door") if unit == "word" else ()
    found, _ = analyzed("project", "--text", *TEXTS, "--unit", unit, *more)
    points = found["projection"]
    if unit == "word":
        assert set(points["labels"]) == {"the", "door"}
        assert points["contexts"][1] == "She opened the [door]."
    assert len(points["layers"]["2"]) == len(points["labels"]) == {"sentence": 3, "word": 5}[unit]


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
