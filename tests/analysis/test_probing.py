"""Probes find what was put into states by hand, and nothing where there is nothing; treebanks and their properties."""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from hf_gpt import GPTModel
from hf_gpt.analysis.probing import (
    PROBES,
    ProbeTask,
    control_labels,
    label_task,
    probe,
    probe_mix,
    probe_task,
    read_conllu,
    sentence_tasks,
    split,
    states_of,
    static_model,
    word_tasks,
)

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


@pytest.fixture
def treebank(tmp_path) -> Path:
    path = tmp_path / "en_test.conllu"
    path.write_text(TREE)
    return path


def made_task(classes: np.ndarray, types=None) -> ProbeTask:
    units = np.arange(len(classes))
    return ProbeTask("made", units, units, classes.astype(str), units.astype(str) if types is None else types)


def made_states(classes: np.ndarray, layer: int = 1, layers: int = 3, width: int = 8) -> np.ndarray:
    """Noise, in which the class stands in one layer alone."""
    random = np.random.default_rng(0)
    states = random.normal(size=(layers, len(classes), width)).astype(np.float32)
    states[layer, :, 2] += 4 * classes
    return states


@pytest.mark.parametrize("kind", PROBES)
def test_probes_find_the_layer_that_tells(kind):
    classes = np.random.default_rng(1).integers(2, size=400)
    states, task = made_states(classes), made_task(classes)
    found = probe_task(task, {"model": states}, states[0], kind)
    layers = found["models"]["model"]["layers"]
    assert layers[1]["accuracy"] > 0.9 > 0.65 > max(layers[0]["accuracy"], layers[2]["accuracy"])
    assert layers[1]["low"] < layers[1]["accuracy"] < layers[1]["high"]
    assert layers[1]["selectivity"] > 0.3
    assert found["static"]["accuracy"] < 0.65
    mix = found["models"]["model"]["mix"]
    assert mix["accuracy"] > 0.85
    assert np.argmax(mix["weights"]) == 1
    assert sum(mix["weights"]) == pytest.approx(1)
    assert (found["train"], found["test"], found["classes"]) == (300, 100, 2)


def test_what_is_learnt_by_heart_has_no_selectivity():
    """Each type has states of its own: labels at random are predicted as well as those that mean something."""
    types = np.random.default_rng(0).integers(10, size=600)
    states = np.eye(10, dtype=np.float32)[types][None] * 3
    task = made_task(types % 2, types.astype(str))
    (layer,) = probe_task(task, {"model": states}, states[0])["models"]["model"]["layers"]
    assert layer["accuracy"] > 0.95
    assert layer["control"] > 0.95
    assert abs(layer["selectivity"]) < 0.05


def test_controls_hang_on_the_type_alone():
    task = made_task(np.arange(100) % 3, np.array([str(number % 7) for number in range(100)]))
    classes = np.arange(100) % 3
    labels = control_labels(task, classes)
    assert all(len(set(labels[task.types == name])) == 1 for name in set(task.types))
    assert (labels == control_labels(task, classes)).all()


def test_labels_that_are_all_the_same_are_told_without_fail():
    task = made_task(np.arange(100) % 2)
    one_class = np.zeros(100, dtype=int)
    assert probe(np.random.default_rng(0).normal(size=(100, 3)), one_class, *split(task))["accuracy"] == 1


def test_no_text_is_in_both_parts():
    texts = np.repeat(np.arange(40), 5)
    labels = np.array([str(number % 2) for number in range(200)])
    train, test = split(ProbeTask("made", texts, np.arange(200), labels, labels), most=150)
    assert len(train) + len(test) == 150
    assert not set(texts[train]) & set(texts[test])
    with pytest.raises(ValueError, match="made has too few labelled texts"):
        split(made_task(np.zeros(10)))


def test_properties_of_a_treebank(treebank):
    sentences = read_conllu(treebank)
    assert [sentence.text for sentence in sentences] == ["The old dogs didn't chase a cat.", "She sleeps"]
    words = sentences[0].words
    assert [sentences[0].text[word.start : word.end] for word in words] == [word.form for word in words]
    tasks = {
        task.name: dict(zip(task.texts.tolist(), task.labels.tolist(), strict=True))
        for task in sentence_tasks(sentences)
    }
    assert tasks["length"] == {0: "2", 1: "0"}
    assert tasks["depth"] == {0: "3", 1: "2"}
    assert tasks["tense"] == {0: "Past", 1: "Pres"}
    assert tasks["subject number"] == {0: "Plur", 1: "Sing"}
    assert tasks["object number"] == {0: "Sing"}
    assert tasks["content"] == {1: "sleeps"}
    rows = {(0, words[2].start, words[2].end): 5, (0, words[3].start, words[3].end): 6}
    by_word = {task.name: task for task in word_tasks(sentences, rows)}
    assert by_word["pos"].labels.tolist() == ["NOUN", "AUX"]
    assert by_word["pos"].units.tolist() == [5, 6]
    assert by_word["pos"].types.tolist() == ["dogs", "did"]
    assert by_word["dependency"].labels.tolist() == ["nsubj", "aux"]
    assert by_word["position"].labels.tolist() == ["2", "3"]
    assert by_word["previous"].labels.tolist() == ["old", "dogs"]


def test_treebanks_as_they_are_published(treebank, tmp_path):
    folder = tmp_path / "UD_English"
    folder.mkdir()
    (folder / "en-ud-dev.conllu.xz").write_bytes(lzma.compress(TREE.encode()))
    treebank.rename(folder / "en-ud-train.conllu")
    assert len(read_conllu(folder)) == 4
    (folder / "en-ud-train.conllu").write_text("1\tThe\n")
    with pytest.raises(ValueError, match=r"en-ud-train\.conllu, line 1: a word has 2 columns, not 10"):
        read_conllu(folder)
    (folder / "en-ud-train.conllu").write_text(TREE.replace("\t6\tnsubj", "\t16\tnsubj"))
    with pytest.raises(ValueError, match="there is no head '16' in the sentence"):
        read_conllu(folder)
    # Of a word that is not written alone.
    (folder / "en-ud-train.conllu").write_text("\t".join(["1.1", *"_" * 9]))
    with pytest.raises(ValueError, match=r"en-ud-train\.conllu, line 1: the sentence has no words"):
        read_conllu(folder)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="there is no sentence"):
        read_conllu(tmp_path / "none")


def test_states_are_the_models(tiny_checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    model = GPTModel.from_pretrained(tiny_checkpoint).eval()
    texts = ["The old dogs didn't chase a cat.", "She sleeps"]
    states, _ = states_of(model, tokenizer, texts, by_word=False)
    by_word, rows = states_of(model, tokenizer, texts, by_word=True)
    for number, text in enumerate(texts):
        with torch.no_grad():
            hidden = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        expected = torch.stack(hidden)[:, 0]
        np.testing.assert_allclose(states[:, number], expected.mean(1), atol=1e-5)
        last = rows[number, text.rindex(text.split()[-1][:3]), len(text.removesuffix("."))]
        place = -2 if text.endswith(".") else -1
        np.testing.assert_allclose(by_word[:, last], expected[:, place], atol=1e-5)
    static, _ = states_of(static_model(model), tokenizer, ["She sleeps", "sleeps She"], by_word=False)
    np.testing.assert_allclose(static[0, 0], static[0, 1], atol=1e-6)
    assert len(model.h) == model.config.n_layer == 2


def test_positions_are_in_the_states_and_not_in_static_embeddings(tiny_checkpoint):
    """What a model is known to hold from its first layer on, whatever its weights are."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    model = GPTModel.from_pretrained(tiny_checkpoint).eval()
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(["she", "ran", "home", "door", "cat"], 4)) for _ in range(60)]
    states, rows = states_of(model, tokenizer, texts, by_word=True)
    static, _ = states_of(static_model(model), tokenizer, texts, by_word=True)
    keys = list(rows)
    places = [texts[number][:start].count(" ") for number, start, _ in keys]
    task = ProbeTask(
        "position",
        *(
            np.array(column)
            for column in (
                [key[0] for key in keys],
                range(len(keys)),
                [str(place) for place in places],
                ["x"] * len(keys),
            )
        ),
    )
    parts, classes = split(task), np.array(places)
    assert probe(states[0], classes, *parts)["accuracy"] > 0.9
    assert probe(static[0], classes, *parts)["accuracy"] < 0.5
    assert probe_mix(states, classes, *parts)["accuracy"] > 0.9


def test_labels_of_texts():
    task = label_task(["A b", "C d", "E f"], ["x", None, "y"])
    assert (task.units.tolist(), task.labels.tolist(), task.types.tolist()) == ([0, 2], ["x", "y"], ["a", "e"])


def test_probes_by_command(hf_gpt, tiny_checkpoint, tmp_path):
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "a.conllu").write_text(f"{TREE}\n" * 30)
    flags = ("analyze", "probe", "--model_name_or_path", tiny_checkpoint, "--output_dir")
    bank = ("--file", tmp_path / "bank", "--tasks", "tense", "pos")
    status, printed, errors = hf_gpt(*flags, tmp_path / "out", *bank)
    assert status == 0, errors
    found = json.loads((tmp_path / "out" / "probes.json").read_text())
    assert list(found) == ["tense", "pos"]
    assert found["tense"]["models"][tiny_checkpoint.name]["layers"][2]["accuracy"] == 1
    assert len(found["pos"]["models"]["random weights"]["layers"]) == 3
    assert "pos: " in printed
    assert len(json.loads((tmp_path / "out" / "mix.json").read_text())["pos"]) == 3
    for name in ("probes.png", "mix.png"):
        assert (tmp_path / "out" / name).stat().st_size > 1000
    bundled = ("--max_texts", 60, "--control", "false")
    assert hf_gpt(*flags, tmp_path / "bundled", *bundled)[0] == 0
    assert list(json.loads((tmp_path / "bundled" / "probes.json").read_text())) == ["label"]
