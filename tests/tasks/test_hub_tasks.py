"""The Hub's columns, as its data cards describe them, map to the rows that the publishers' files give."""

import math

import datasets
import pytest
from datasets import ClassLabel, Features, List, Value

from hf_gpt.tasks import TASKS, load_task
from hf_gpt.tasks import loading as task_loading

from ..support.task_files import rows_of

pytestmark = pytest.mark.usefixtures("own_datasets_cache")

TEXT, INT, FLOAT = Value("string"), Value("int32"), Value("float32")
CHOICES = {"text": List(TEXT), "label": List(TEXT)}
THREE = ClassLabel(names=["entailment", "neutral", "contradiction"])
TWO = ClassLabel(names=["entailment", "not_entailment"])
ENDINGS = {f"ending{index}": TEXT for index in range(4)}


def choice(context, *choices, label, question=""):
    return {"context": context, "question": question, "choices": list(choices), "label": label}


# Task: its columns on the Hub, one row of them, the row that comes of it, and a label that is not told (if any is).
LETTERED = {"id": TEXT, "question": TEXT, "choices": CHOICES, "answerKey": TEXT}
LETTERED_ROW = {"id": "q1", "question": "Ice is", "choices": {"text": ["hot", "cold"], "label": ["A", "B"]}}
RACE = {"example_id": TEXT, "article": TEXT, "answer": TEXT, "question": TEXT, "options": List(TEXT)}
RACE_ROW = {
    "example_id": "high1.txt",
    "article": "It rained.",
    "answer": "B",
    "question": "What?",
    "options": ["a", "b"],
}
RACE_RESULT = choice("It rained.", "a", "b", label=1, question="What?")
SENTENCES = {"sentence1": TEXT, "sentence2": TEXT, "idx": INT}
SENTENCE_ROW = {"sentence1": "A.", "sentence2": "B.", "idx": 7}
PAIR = {"id": "7", "premise": "A.", "hypothesis": "B."}
HUB = {
    "sst2": (
        {"idx": INT, "sentence": TEXT, "label": ClassLabel(names=["negative", "positive"])},
        {"idx": 7, "sentence": "A.", "label": 1},
        {"id": "7", "text": "A.", "label": 1},
        {"label": -1},
    ),
    "cola": (
        {"sentence": TEXT, "label": ClassLabel(names=["unacceptable", "acceptable"]), "idx": INT},
        {"sentence": "A.", "label": 1, "idx": 7},
        {"id": "7", "text": "A.", "label": 1},
        {"label": -1},
    ),
    "imdb": (
        {"text": TEXT, "label": ClassLabel(names=["neg", "pos"])},
        {"text": "Good.<br />Film.", "label": 1},
        {"text": "Good.\nFilm.", "label": 1},
        None,
    ),
    "ag_news": (
        {"text": TEXT, "label": ClassLabel(names=["World", "Sports", "Business", "Sci/Tech"])},
        {"text": "Moon\\landing", "label": 3},
        {"text": "Moon landing", "label": 3},
        None,
    ),
    "mnli": (
        {"premise": TEXT, "hypothesis": TEXT, "label": THREE, "idx": INT},
        {"premise": "A.", "hypothesis": "B.", "label": 2, "idx": 7},
        {**PAIR, "label": 2},
        {"label": -1},
    ),
    "qnli": (
        {"question": TEXT, "sentence": TEXT, "label": TWO, "idx": INT},
        {"question": "A.", "sentence": "B.", "label": 1, "idx": 7},
        {**PAIR, "label": 1},
        {"label": -1},
    ),
    "scitail": (
        {"premise": TEXT, "hypothesis": TEXT, "label": TEXT},
        {"premise": "A.", "hypothesis": "B.", "label": "neutral"},
        {"premise": "A.", "hypothesis": "B.", "label": 1},
        None,
    ),
    "rte": ({**SENTENCES, "label": TWO}, {**SENTENCE_ROW, "label": 1}, {**PAIR, "label": 1}, {"label": -1}),
    "mrpc": (
        {**SENTENCES, "label": ClassLabel(names=["not_equivalent", "equivalent"])},
        {**SENTENCE_ROW, "label": 1},
        {**PAIR, "label": 1},
        None,
    ),
    "qqp": (
        {
            "question1": TEXT,
            "question2": TEXT,
            "label": ClassLabel(names=["not_duplicate", "duplicate"]),
            "idx": INT,
        },
        {"question1": "A.", "question2": "B.", "label": 1, "idx": 7},
        {**PAIR, "label": 1},
        {"label": -1},
    ),
    "stsb": (
        {**SENTENCES, "label": FLOAT},
        {**SENTENCE_ROW, "label": 2.5},
        {**PAIR, "label": 2.5},
        {"label": -1.0},
    ),
    "race": (RACE, RACE_ROW, RACE_RESULT, None),
    "arc_easy": (LETTERED, {**LETTERED_ROW, "answerKey": "2"}, choice("Ice is", "hot", "cold", label=1), None),
    "commonsenseqa": (
        LETTERED,
        {**LETTERED_ROW, "answerKey": "B"},
        choice("Ice is", "hot", "cold", label=1),
        {"answerKey": ""},
    ),
    "swag": (
        {"startphrase": TEXT, **ENDINGS, "label": ClassLabel(names=["0", "1", "2", "3"])},
        {"startphrase": "He", **{name: name for name in ENDINGS}, "label": 2},
        choice("He", *ENDINGS, label=2),
        {"label": -1},
    ),
    "hellaswag": (
        {"activity_label": TEXT, "ctx": TEXT, "endings": List(TEXT), "label": TEXT},
        {"activity_label": "Baking", "ctx": "Mix. then", "endings": ["a", "b"], "label": "1"},
        choice("Baking: Mix. then", "a", "b", label=1),
        {"label": ""},
    ),
    "codah": (
        {"question_propmt": TEXT, "candidate_answers": List(TEXT), "correct_answer_idx": INT},
        {"question_propmt": "He", "candidate_answers": ["a", "b"], "correct_answer_idx": 1},
        choice("He", "a", "b", label=1),
        None,
    ),
    "sst5": (
        {"text": TEXT, "label": INT, "label_text": TEXT},
        {"text": "Bad", "label": 0, "label_text": "very negative"},
        {"text": "Bad", "label": 0},
        None,
    ),
    "ud_pos": (
        {"idx": TEXT, "tokens": List(TEXT), "upos": List(ClassLabel(names=["_", "AUX", "PART"]))},
        {"idx": "weblog-1", "tokens": ["don't", "do", "n't"], "upos": [0, 1, 2]},
        {"id": "weblog-1", "words": ["do", "n't"], "label": [3, 9]},
        None,
    ),
    "conll2003": (
        {"id": TEXT, "tokens": List(TEXT), "ner_tags": List(ClassLabel(names=["O", "B-LOC"]))},
        {"id": "7", "tokens": ["In", "Oslo"], "ner_tags": [0, 1]},
        {"id": "7", "words": ["In", "Oslo"], "label": [0, 5]},
        None,
    ),
    "squad": (
        {"id": TEXT, "context": TEXT, "question": TEXT, "answers": {"text": List(TEXT), "answer_start": List(INT)}},
        {
            "id": "5a",
            "context": "It rained.",
            "question": "What fell?",
            "answers": {"text": ["rain"], "answer_start": [3]},
        },
        {"id": "5a", "question": "What fell?", "passage": "It rained.", "answers": ["rain"], "label": [3, 7]},
        None,
    ),
}


@pytest.mark.parametrize("name", HUB)
def test_columns(name, monkeypatch):
    columns, row, expected, hidden = HUB[name]
    asked = []

    def load_dataset(*args, split, **options):
        asked.append(split)
        rows = [row | (hidden or {} if split.startswith("test") else {})] * 20
        return datasets.Dataset.from_list(rows, features=Features(columns))

    monkeypatch.setattr(task_loading.datasets, "load_dataset", load_dataset)
    if TASKS[name].hub.layout.validation is None:
        # All rows of this test are one group, which the cut would have to divide.
        monkeypatch.setattr(task_loading, "hold_out", lambda *_: None)
    data = load_task(name)
    first = rows_of(data)[0]
    assert {column: first[column] for column in expected} == expected
    if TASKS[name].hub.layout.test is None:
        return
    assert asked[-1].startswith("test")
    last = rows_of(data, "test")[0]["label"]
    if not hidden:
        assert last == expected["label"]
    elif data.spec.has_scores:
        assert math.isnan(last)
    else:
        assert last == -1


@pytest.mark.parametrize("name", [name for name, spec in TASKS.items() if spec.hub])
def test_no_loading_script_is_needed(name):
    # Those whose own repository holds a script (the others hold Parquet files, by their file lists).
    scripted = {"aps/super_glue", "CogComp/trec", "Rowan/hellaswag", "eriktks/conll2003"}
    scripted.add("universal-dependencies/universal_dependencies")
    hub = TASKS[name].hub
    assert (hub.revision == "refs/convert/parquet") == (hub.id in scripted)
