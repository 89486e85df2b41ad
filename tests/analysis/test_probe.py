"""Probes find what was put into states by hand, and nothing where there is nothing; treebanks and their properties."""

import lzma

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from hf_gpt import GPTModel
from hf_gpt.analysis import probe as probing
from hf_gpt.analysis import text_states
from hf_gpt.analysis.probe import Unit, probe, probe_task, read_conllu, split, static_model

TREE = """# sent_id = 1
# text = The old dogs didn't chase a cat.
1	The	the	DET	DT	Definite=Def	3	det	_	_
2	old	old	ADJ	JJ	Degree=Pos	3	amod	_	_
3	dogs	dog	NOUN	NNS	Number=Plur	6	nsubj	_	_
4-5	didn't	_	_	_	_	_	_	_	_
4	did	do	AUX	VBD	Mood=Ind|Tense=Past|VerbForm=Fin	6	aux	_	_
5	n't	not	PART	RB	_	6	advmod	_	_
6	chase	chase	VERB	VB	VerbForm=Inf	0	root	_	_
7	a	a	DET	DT	_	8	det	_	_
8	cat	cat	NOUN	NN	Number=Sing	6	obj	_	SpaceAfter=No
9	.	.	PUNCT	.	_	6	punct	_	_

# text = She sleeps
1	She	she	PRON	PRP	Number=Sing	2	nsubj	_	_
2	sleeps	sleep	VERB	VBZ	Tense=Pres|VerbForm=Fin	0	root	_	_
"""


def made_units(classes: np.ndarray, types=None) -> list[Unit]:
    types = range(len(classes)) if types is None else types
    return [Unit(row, row, str(each), str(kind)) for row, (each, kind) in enumerate(zip(classes, types, strict=True))]


def test_probes_find_the_layer_that_holds_the_label():
    """Noise, in which the class stands in one layer alone."""
    classes = np.random.default_rng(1).integers(2, size=400)
    states = np.random.default_rng(0).normal(size=(3, 400, 8)).astype(np.float32)
    states[1, :, 2] += 4 * classes
    found = probe_task("made", [*made_units(classes), Unit(0, 0, None, "")], {"model": states}, states[0])
    layers, static, majority = found["curves"].values()
    assert layers[1]["accuracy"] > 0.9 > 0.65 > max(layers[0]["accuracy"], layers[2]["accuracy"])
    assert layers[1]["low"] < layers[1]["accuracy"] < layers[1]["high"]
    assert layers[1]["selectivity"] > 0.3
    assert max(static[2]["accuracy"], majority[2]["accuracy"]) < 0.65
    assert (found["train"], found["test"], found["classes"]) == (300, 100, 2)


def test_what_is_learnt_by_heart_has_no_selectivity():
    """Each type has states of its own: labels at random are predicted as well as those that mean something."""
    types = np.random.default_rng(0).integers(10, size=600)
    states = np.eye(10, dtype=np.float32)[types][None] * 3
    (layer,) = probe_task("made", made_units(types % 2, types), {"model": states}, states[0])["curves"]["model"]
    assert layer["accuracy"] > 0.95
    assert abs(layer["selectivity"]) < 0.05


def test_no_text_is_in_both_parts():
    texts, labels = np.repeat(np.arange(40), 5), np.arange(200) % 2
    train, test = split("made", texts, labels, most=150)
    assert len(train) + len(test) == 150
    assert not set(texts[train]) & set(texts[test])
    # A single class is no error.
    assert probe(np.random.default_rng(0).normal(size=(200, 3)), np.zeros(200), train, test)["accuracy"] == 1
    for units in (made_units(np.zeros(10)), []):
        with pytest.raises(ValueError, match="made has too few labelled texts"):
            probe_task("made", units, {}, np.zeros((10, 2)))


def test_properties_of_a_treebank(tmp_path):
    (tmp_path / "en_test.conllu").write_text(TREE)
    sentences = read_conllu(tmp_path / "en_test.conllu")
    assert [text for text, _ in sentences] == ["The old dogs didn't chase a cat.", "She sleeps"]
    text, words = sentences[0]
    assert [text[word.start : word.end] for word in words] == [word.form for word in words]
    assert {name: [unit.label for unit in units] for name, units in probing.sentence_tasks(sentences).items()} == {
        "length": ["2", "0"],
        "depth": ["3", "2"],
        "tense": ["Past", "Pres"],
        "subject number": ["Plur", "Sing"],
    }
    rows = {(0, words[2].start, words[2].end): 5, (0, words[3].start, words[3].end): 6}
    found = probing.word_tasks(sentences, rows)
    assert found["pos"] == [Unit(0, 5, "NOUN", "dogs"), Unit(0, 6, "AUX", "did")]
    assert [unit.label for unit in found["previous"]] == ["old", "dogs"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\tThe\n", r"en-ud-train\.conllu, line 1: 2 columns where 10 were expected"),
        (TREE.replace("\t6\tnsubj", "\t16\tnsubj"), "there is no head 16 in the sentence"),
        # Of a word that is not written alone.
        ("\t".join(["1.1", *"_" * 9]), r"en-ud-train\.conllu, line 1: the sentence has no words"),
    ],
)
def test_treebanks_as_they_are_published(tmp_path, text, message):
    with pytest.raises(ValueError, match="there is no sentence"):
        read_conllu(tmp_path)
    (tmp_path / "en-ud-dev.conllu.xz").write_bytes(lzma.compress(TREE.encode()))
    (tmp_path / "en-ud-train.conllu").write_text(TREE)
    assert len(read_conllu(tmp_path)) == 4
    (tmp_path / "en-ud-train.conllu").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_conllu(tmp_path)


@torch.no_grad()
def test_states_are_the_models(tiny_checkpoint):
    model, tokenizer = GPTModel.from_pretrained(tiny_checkpoint).eval(), AutoTokenizer.from_pretrained(tiny_checkpoint)
    texts = ["She closed the old doors", "She sleeps"]
    states, _ = text_states(model, tokenizer, texts)
    by_word, places = text_states(model, tokenizer, texts, by_word=True)
    for number, text in enumerate(texts):
        hidden = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        last = places.index((number, text.rindex(" ") + 1, len(text)))
        for layer, expected in enumerate(hidden):
            np.testing.assert_allclose(states[layer][number], expected[0].mean(0), atol=1e-5)
            np.testing.assert_allclose(by_word[layer][last], expected[0, -1], atol=1e-5)
    static, _ = text_states(static_model(model), tokenizer, ["She sleeps", "sleeps She"], [0])
    np.testing.assert_allclose(static[0][0], static[0][1], atol=1e-6)
    assert model.embed_positions.weight.any()


def test_probes_by_command(analyzed, tiny_checkpoint, tmp_path):
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "a.conllu").write_text(f"{TREE}\n" * 30)
    found, printed = analyzed("probe", "--file", tmp_path / "bank", "--tasks", "tense", "pos")
    assert list(found["probes"]) == ["tense", "pos"]
    assert found["probes"]["tense"]["curves"][tiny_checkpoint.name][2]["accuracy"] == 1
    assert len(found["probes"]["pos"]["curves"]["random weights"]) == 3
    assert "pos: " in printed
    found, _ = analyzed("probe", "--max_texts", 60)
    assert list(found["probes"]) == ["label"]
