"""Tasks of words: treebanks, entities and own files; what is wrong with them; metrics; the real treebank."""

import numpy as np
import pytest
from transformers import AutoTokenizer, EvalPrediction

from hf_gpt.tasks import custom_task, get_task, load_task
from hf_gpt.tasks.metrics import compute_metrics_for

from ..support.formats.tagging import FORMATS, NEWS, TREEBANK, treebank_line
from ..support.runs import REPOSITORY
from ..support.task_files import jsonl, rows_of, write

pytestmark = pytest.mark.usefixtures("own_datasets_cache")

OWN = [{"tokens": ["Ada", "met", "Bob"], "tags": ["B-PER", "O", "B-PER"]}, {"tokens": ["No"], "tags": ["O"]}]


def own_task(**options):
    files = {"train_file": "own.jsonl", "validation_file": "own.jsonl"}
    return custom_task(**files | {"words_column": "tokens", "label_column": "tags"} | options)


def test_every_entity_begins_with_b(tmp_path):
    data = load_task("conll2003", write(tmp_path, FORMATS["conll2003"][0]))
    names = data.spec.label_names
    tags = [[names[label] for label in row["label"]] for row in rows_of(data, "test")]
    assert tags == [["B-ORG", "O", "B-PER", "I-PER"], ["B-LOC", "I-LOC", "B-LOC", "O"]]
    # As in copies that have it everywhere.
    copied = NEWS.replace("U.N. NNP I-NP I-ORG", "U.N. NNP B-NP B-ORG").replace("I-PER", "B-PER", 1)
    files = {f"{name}.txt": copied for name in ("train", "valid", "test")}
    (tmp_path / "copy").mkdir()
    again = load_task("conll2003", write(tmp_path / "copy", files))
    assert [row["label"] for row in rows_of(again, "test")] == [row["label"] for row in rows_of(data, "test")]


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("ud_pos", "en_ewt-ud-dev.conllu", TREEBANK + "1\tNo\n", r"dev\.conllu, line 19: 2 columns where 10 were exp"),
        (
            "ud_pos",
            "en_ewt-ud-dev.conllu",
            "# sent_id = 1\n" + treebank_line("1", "No", "UH"),
            r"dev\.conllu, line 2: the label 'UH' is not one of ADJ, ",
        ),
        ("ud_pos", "en_ewt-ud-dev.conllu", treebank_line("1", "No", "X"), r"line 1: there is no column 'sent_id'"),
        ("ud_pos", "en_gum-ud-dev.conllu", TREEBANK, "stands for several files .*en_gum"),
        ("conll2003", "eng.testa", "No DT O\n", r"eng\.testa, line 1: 3 columns where 4 were expected .*entity"),
        ("conll2003", "eng.testa", "-DOCSTART- -X- O O\n", r"eng\.testa: no rows were found for the validation"),
    ],
    ids=["short-line", "unknown-tag", "no-id", "two-treebanks", "three-columns", "no-sentence"],
)
def test_wrong_files(name, file, content, message, tmp_path):
    write(tmp_path, FORMATS[name][0] | {file: content})
    with pytest.raises(ValueError, match=message):
        load_task(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [("own.jsonl", jsonl(*OWN)), ("own.csv", "tokens,tags\nAda met Bob,B-PER O B-PER\nNo,O\n")],
    ids=["lists", "text"],
)
def test_own_files(name, content, tmp_path):
    write(tmp_path, {name: content, "test.jsonl": jsonl({"tokens": ["Who", "?"]})})
    data = load_task(own_task(train_file=name, validation_file=name, test_file="test.jsonl"), tmp_path)
    assert (data.spec.family, data.spec.label_names) == ("tagging", ("B-PER", "O"))
    assert rows_of(data) == [
        {"id": rows_of(data)[0]["id"], "words": ["Ada", "met", "Bob"], "label": [0, 1, 0]},
        {"id": rows_of(data)[1]["id"], "words": ["No"], "label": [1]},
    ]
    assert rows_of(data, "test")[0]["label"] == [-1, -1]
    assert data.spec.metrics == ("entity_f1", "entity_precision", "entity_recall", "accuracy")


def test_metrics_go_with_the_labels(tmp_path):
    write(tmp_path, {"own.jsonl": jsonl({"tokens": ["Go", "on"], "tags": ["V", "I"]})})
    assert load_task(own_task(), tmp_path).spec.metrics == ("accuracy",)
    assert own_task(class_names=["V", "I"]).metrics == ("accuracy",)
    assert own_task(class_names=["O", "B-X"], metrics=["accuracy"]).metrics == ("accuracy",)


def test_sentences_of_the_same_words_are_cut_together_and_those_of_another_order_are_not(tmp_path):
    rows = [
        {"tokens": words.split(), "tags": ["O"] * 3 if n else ["O", "B-X", "O"]}
        for n, words in enumerate(["a b c", "A  B c", "c b a"] * 10)
    ]
    write(tmp_path, {"own.jsonl": jsonl(*rows)})
    data = load_task(own_task(validation_file=None, validation_size=10), tmp_path)
    assert len({tuple(row["words"]) for row in rows_of(data, "validation")}) == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["Yes", "no"], "tags": ["O"]}, r"2 words in 'tokens' and 1 label in 'tags'\. Give each word one"),
        ({"tokens": ["Yes"], "tags": "O O"}, "1 word in 'tokens' and 2 labels"),
        ({"tokens": [], "tags": []}, "'tokens' holds no words"),
        ({"tokens": 7, "tags": ["O"]}, "'tokens' holds a int; a list of words was expected"),
        ({"tokens": ["Yes", " "], "tags": ["O", "O"]}, r"the text of 'tokens\[1\]' is empty"),
        ({"tokens": ["Yes", None], "tags": ["O", "O"]}, r"the text of 'tokens\[1\]' is empty"),
        ({"tokens": ["Yes"], "tags": [["O"]]}, "a label was expected, a list was found"),
        ({"tokens": ["Yes"], "tags": ["B-LOC"]}, "the label 'B-LOC' is not one of B-PER, O"),
        ({"tokens": ["Yes"], "tags": None}, "the label in 'tags' is empty"),
        ({"words": ["Yes"], "tags": ["O"]}, "there is no column 'tokens'. The columns there are: words, tags"),
    ],
    ids=[
        "short",
        "long",
        "no-words",
        "number",
        "blank-word",
        "no-word",
        "nested",
        "unknown",
        "no-labels",
        "no-column",
    ],
)
def test_wrong_rows(row, message, tmp_path):
    write(tmp_path, {"own.jsonl": jsonl(*OWN), "dev.jsonl": jsonl(OWN[0], row)})
    with pytest.raises(ValueError, match=rf"dev\.jsonl, line 2: {message}"):
        load_task(own_task(validation_file="dev.jsonl"), tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_column": "text"}, "A custom tagging task does not take --text_column"),
        ({"task_family": "tagging", "words_column": None}, "A custom tagging task needs --words_column"),
        ({"label_separator": ";"}, "A word has one tag"),
    ],
    ids=["text", "no-words", "several-labels"],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        own_task(**options)


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


@pytest.mark.whole
def test_real_treebank(tmp_path):
    """Every word has tokens, and they are those of `is_split_into_words`."""
    folder = REPOSITORY.parent / "shared" / "data" / "ud_english_ewt"
    if not folder.is_dir():
        pytest.skip(f"no treebank in {folder}")
    name = "en_ewt-ud-dev.conllu.xz"
    (tmp_path / name).write_bytes((folder / name).read_bytes())
    rows = rows_of(load_task("ud_pos", tmp_path, splits=["validation"]), "validation")
    assert (len(rows), sum(len(row["words"]) for row in rows)) == (2001, 25147)
    tokenizer = AutoTokenizer.from_pretrained(REPOSITORY / "model_cards" / "gpt-mini")
    for row in rows[::10]:
        together = tokenizer(row["words"], is_split_into_words=True, add_special_tokens=False)
        alone = tokenizer(row["words"], add_special_tokens=False)["input_ids"]
        assert together["input_ids"] == [token for word in alone for token in word]
        assert together.word_ids() == [index for index, word in enumerate(alone) for _ in word]
        assert all(alone)
