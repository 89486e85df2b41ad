"""Points are scikit-learn's, neighbours and analogies those that were put there, pages and figures what they show."""

import json

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from transformers import AutoTokenizer

from hf_gpt import GPTModel
from hf_gpt.analysis.project import analogy, nearest, projected, text_vectors, token_row, token_vectors
from hf_gpt.loading import open_source

from ..support.browser import opened
from ..support.stock_models import save_gpt2

TEXTS = ["She opened the door.", "He closed the door.", "The night was cold."]


def test_points_are_sklearns():
    vectors = np.random.default_rng(0).normal(size=(40, 6))
    np.testing.assert_allclose(projected(vectors), PCA(2).fit_transform(vectors))
    assert projected(vectors[:9], "tsne").shape == (9, 2)
    with pytest.raises(ValueError, match="2 vectors make no map"):
        projected(vectors[:2])


def test_neighbours_and_analogies_that_are_known():
    # Rows: man, king, woman, queen, apple, as (royal, female, fruit) around a mean that all share.
    vectors = np.array([[-1, -1, 0], [1, -1, 0], [-1, 1, 0], [1, 1, 0], [0, 0, 3.0]]) + 50
    (best, cosine), *_ = found = analogy(vectors, 0, 1, 2)
    assert (best, len(found), cosine > 0.9) == (3, 2, True)
    assert nearest(vectors, vectors[1] + [0.1, 0, 0], count=1)[0][0] == 1
    assert len(nearest(vectors, vectors[4], count=9, without=[4])) == 4


def test_vectors_are_the_models(tiny_checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    model = GPTModel.from_pretrained(tiny_checkpoint).eval()
    vectors = text_vectors(model, tokenizer, TEXTS, by_word=True)
    assert vectors.names[:5] == ["She", "opened", "the", "door", "."]
    assert vectors.contexts[3] == "She opened the [door]."
    with torch.no_grad():
        hidden = model(**tokenizer(TEXTS[1], return_tensors="pt"), output_hidden_states=True).hidden_states
    for layer, states in enumerate(hidden):
        np.testing.assert_allclose(vectors.layers[layer][9], states[0, -1], atol=1e-5)
    tokens = token_vectors(model, tokenizer)
    (door,) = tokenizer("door")["input_ids"]
    row = token_row(tokenizer, tokens, "Door")
    np.testing.assert_array_equal(tokens.layers[0][row], model.embed_tokens.weight[door].detach())
    with pytest.raises(ValueError, match="'doorkeepers' is not one token"):
        token_row(tokenizer, tokens, "doorkeepers")


def test_words_of_gpt2_are_found(tmp_path):
    save_gpt2(tmp_path)
    source = open_source(str(tmp_path))
    model, tokenizer = source.model(GPTModel), source.tokenizer()
    (token_id,) = tokenizer(" the")["input_ids"]
    table = token_vectors(model, tokenizer)
    row = token_row(tokenizer, table, "the")
    np.testing.assert_array_equal(table.layers[0][row], model.embed_tokens.weight[token_id].detach())


@pytest.mark.parametrize("unit", ["sentence", "word", "token"])
def test_projection_by_command(unit, analyzed):
    more = ("--words", "the", "door") if unit == "word" else ()
    near = ("--nearest", "door", "--analogy", "he", "his", "she", "--count", 3)
    out, printed = analyzed("project", "--text", *TEXTS, "--unit", unit, *more, *near)
    found = json.loads((out / "projection.json").read_text())
    assert list(found["layers"]) == (["0"] if unit == "token" else ["0", "1", "2"])
    assert len(found["layers"]["0"]) == len(found["labels"]) == {"sentence": 3, "word": 5, "token": 10}[unit]
    assert (set(found["labels"]) == {"the", "door"}) == (unit == "word")
    assert (out / "projection.png").stat().st_size > 1000
    neighbours = json.loads((out / "nearest.json").read_text())
    assert len(neighbours["he : his = she : ?"]) == len(neighbours["door"]["static"]) == 3
    assert neighbours["door"]["in context"][0]["context"] == "She opened the [door]."
    assert "door, static" in printed


def test_the_map_can_be_read_and_searched(analyzed, tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\nShe ran.,a\n<i>He</i> sat.,b\nThey slept.,a\n")
    out, _ = analyzed("project", "--file", tmp_path / "rows.csv")
    with opened(out / "projection.html") as page:
        marks = page.locator("#map text")
        assert (marks.count(), page.locator("#legend label").count()) == (3, 2)
        marks.nth(1).focus()
        assert "<i>He</i> sat." in page.locator("#read").inner_text()
        page.locator("#find").fill("slept")
        assert [mark.get_attribute("data-on") for mark in marks.all()] == ["no", "no", "yes"]
        before = [mark.get_attribute("y") for mark in marks.all()]
        page.locator("#layer").select_option("0")
        assert [mark.get_attribute("y") for mark in marks.all()] != before
