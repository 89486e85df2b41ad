"""Every task in its publisher's format and in the Hub's columns; what is wrong with a file, by file and place."""

import gzip
import lzma
import math
from pathlib import Path

import datasets
import numpy as np
import pytest
import yaml
from datasets import ClassLabel, Features, List, Value

from hf_gpt.tasks import TASKS, get_task, load, load_task, task_table

from ..support.formats import FORMATS
from ..support.formats.classification import COLA_LINES
from ..support.formats.multiple_choice import HELLASWAG, passage
from ..support.formats.others import (
    COPA_TEST,
    OWN_QUESTIONS,
    OWN_STORIES,
    SNLI,
    STORY_HEADER,
    copa_xml,
    question,
    story_lines,
)
from ..support.formats.pairs import MRPC, MRPC_HEADER, QQP, RTE, sts_lines
from ..support.formats.question_answering import BALL, answer_in, squad
from ..support.formats.tagging import NEWS, TREEBANK, treebank_line
from ..support.task_files import jsonl, label_counts, rows_of, tsv, write

pytestmark = pytest.mark.usefixtures("own_datasets_cache")

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", TASKS)
def test_publishers_format(name, tmp_path):
    files, first, counts = FORMATS[name]
    data = load_task(name, write(tmp_path, files))
    assert dict(data.splits.num_rows) == counts
    assert set(data.notes) == {"train", "validation", "test"}
    assert all(part.features == data.spec.features for part in data.splits.values())
    assert first is None or rows_of(data)[0] == first
    # The same from the cache, of the folder above, and of compressed files.
    assert load_task(name, tmp_path).splits["train"].cache_files == data.splits["train"].cache_files


@pytest.mark.parametrize("name", ["imdb", "race_middle", "sst5"])
def test_the_folder_that_holds_the_splits_may_be_named_itself(name, tmp_path):
    files, first, counts = FORMATS[name]
    (folder,) = {path.split("/")[0] for path in files}
    data = load_task(name, write(tmp_path, files) / folder)
    assert (rows_of(data)[0], dict(data.splits.num_rows)) == (first, counts)


PAIR_FIELDS = {"gold_label": "neutral", "sentence1": "A.", "sentence2": "B.", "pairID": "7n", "genre": "fiction"}
STS_HEADER = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
STS_ROW = "0\tmain\tnews\t2014\t1\tnone\tnone\tA.\tB."
# Other names of the same files: task, files, a row of a split, rows of each split.
OTHER_NAMES = {
    "cola": (
        {"in_domain_train.tsv.gz": COLA_LINES, "in_domain_dev.tsv": COLA_LINES},
        ("validation", {"id": "0", "text": 'He "reads 0 books.', "label": 0}),
        {"train": 18, "validation": 20, "test": 2},
    ),
    "mnli": (
        {
            "multinli_1.0_train.jsonl": jsonl(PAIR_FIELDS),
            "multinli_1.0_dev_matched.jsonl": jsonl(PAIR_FIELDS, PAIR_FIELDS | {"gold_label": "-"}),
            "multinli_0.9_test_matched_unlabeled.jsonl": jsonl(PAIR_FIELDS | {"gold_label": ""}),
        },
        ("test", {"id": "7n", "premise": "A.", "hypothesis": "B.", "label": -100}),
        {"train": 1, "validation": 1, "test": 1},
    ),
    "mrpc": (
        {"train.tsv": MRPC, "dev.tsv": MRPC, "test.tsv": tsv(("index", *MRPC_HEADER), (0, 1, 2, "A.", "B."))},
        ("test", {"id": "0", "premise": "A.", "hypothesis": "B.", "label": -100}),
        {"train": 20, "validation": 20, "test": 1},
    ),
    "stsb": (
        dict.fromkeys(("train.tsv", "dev.tsv"), f"{STS_HEADER}\tscore\n{STS_ROW}\t3.25\n")
        | {"test.tsv": f"{STS_HEADER}\n{STS_ROW}\n"},
        ("train", {"id": "0", "premise": "A.", "hypothesis": "B.", "label": 3.25}),
        {"train": 1, "validation": 1, "test": 1},
    ),
    "rocstories": (
        {
            "cloze_test_val__winter2018-cloze_test_ALL_val - 1 - 1.csv": STORY_HEADER + story_lines(400),
            "cloze_test_test__winter2018-x.csv.xz": STORY_HEADER.replace(",AnswerRightEnding", "")
            + "t1,One.,Two.,Three.,Four.,X.,Y.\n",
        },
        (
            "test",
            {
                "id": "t1",
                "context": "One. Two. Three. Four.",
                "question": "",
                "choices": ["X.", "Y."],
                "label": -100,
            },
        ),
        {"train": 26, "validation": 374, "test": 1},
    ),
    "conll2003": (
        {
            # As in copies that have B- before every entity.
            f"{name}.txt": NEWS.replace("U.N. NNP I-NP I-ORG", "U.N. NNP B-NP B-ORG").replace("I-PER", "B-PER", 1)
            for name in ("train", "valid", "test")
        },
        ("train", FORMATS["conll2003"][1]),
        {"train": 2, "validation": 2, "test": 2},
    ),
}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_of_the_same_files(name, tmp_path):
    files, (split, row), counts = OTHER_NAMES[name]
    data = load_task(name, write(tmp_path, files))
    assert (rows_of(data, split)[0], dict(data.splits.num_rows)) == (row, counts)


def test_copa_asks_as_its_authors_do(tmp_path):
    data = load_task("copa", write(tmp_path, FORMATS["copa"][0]))
    rows = {row["id"]: row for part in ("train", "validation") for row in rows_of(data, part)}
    first = {"context": "It rained 1 times & more.", "question": "What was the cause of this?"}
    assert rows["1"] == {"id": "1", **first, "choices": ["Wet.", "Dry."], "label": 0}
    assert (rows["2"]["question"], rows["2"]["label"]) == ("What happened as a result?", 1)


def test_story_cloze_holds_out_the_rows_that_the_release_holds_out_and_fewer_of_a_sample(tmp_path):
    from sklearn.model_selection import train_test_split

    data = load_task("rocstories", write(tmp_path, FORMATS["rocstories"][0]))
    _, expected = train_test_split([f"s{i}" for i in range(400)], test_size=374, random_state=3535999445)
    assert set(data.splits["validation"]["id"]) == set(expected)
    (sample := tmp_path / "sample").mkdir()
    data = load_task("rocstories", write(sample, {"cloze_test_val__spring2016.csv": STORY_HEADER + story_lines(60)}))
    assert dict(data.splits.num_rows) == {"train": 48, "validation": 12}
    assert data.notes["validation"].startswith("12 rows instead of 374, as there are only 60 held out")


def test_rows_that_publishers_got_wrong_are_left_out_and_counted_but_no_test_row(tmp_path):
    notes = {
        "snli": ({}, "snli_1.0_train.jsonl: 1 rows, 1 more left out for want of a gold label"),
        "qqp": (
            # The first lacks its second question as well.
            {"train.tsv": QQP + "4\t3\t4\tWhy?\n5\t5\t6\tHow?\t\t0\n6\t5\t6\tHow?\tWho?\n"},
            "train.tsv: 1 rows, 2 more left out for an empty text, 1 more left out for want of a gold label",
        ),
        "race_high": (
            {"RACE/train/high/9.txt": passage("high9.txt", "A", "B").replace('"d1"', '""')},
            "2 files of **/train/high/*.txt: 2 rows, 1 more left out for an empty text",
        ),
    }
    for name, (files, note) in notes.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name, FORMATS[name][0] | files)
        for _ in range(2):  # read, and from the cache
            assert load_task(name, tmp_path / name).notes["train"] == note
    (test,) = rows_of(load_task("qqp", tmp_path / "qqp"), "test")
    assert test == {"id": "0", "premise": "Who?", "hypothesis": "", "label": -100}


@pytest.mark.parametrize("name", ["sst2", "openbookqa", "commonsenseqa", "swag", "hellaswag", "stsb", "squad"])
def test_labels_that_are_kept_secret(name, tmp_path):
    files = dict(FORMATS[name][0])
    if name == "stsb":
        files["sts-test.csv"] = sts_lines("")
    if name == "squad":
        files["test-v1.1.json"] = squad({BALL: {}}, new=[])
    label = rows_of(load_task(name, write(tmp_path, files), splits=["test"]), "test")[0]["label"]
    assert math.isnan(label) if name == "stsb" else label == ([-100, -100] if name == "squad" else -100)


# The Hub's columns, as its data cards describe them: one row of them, the row that comes of it, and a label that is
# kept secret (if any is).
TEXT, INT, FLOAT = Value("string"), Value("int32"), Value("float32")
CHOICES = {"text": List(TEXT), "label": List(TEXT)}
THREE = ClassLabel(names=["entailment", "neutral", "contradiction"])
TWO = ClassLabel(names=["entailment", "not_entailment"])
ENDINGS = {f"ending{index}": TEXT for index in range(4)}


def choice(context, *choices, label, question=""):
    return {"context": context, "question": question, "choices": list(choices), "label": label}


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
def test_hub_columns(name, monkeypatch):
    columns, row, expected, hidden = HUB[name]
    asked = []

    def load_dataset(*args, split, **options):
        asked.append(split)
        rows = [row | (hidden or {} if split.startswith("test") else {})] * 2
        return datasets.Dataset.from_list(rows, features=Features(columns))

    monkeypatch.setattr(load.datasets, "load_dataset", load_dataset)
    data = load_task(name, splits=["test"] if TASKS[name].hub.layout.test else ["train"])
    assert asked == [*(TASKS[name].hub.layout.test or ("train",))]
    first = rows_of(data, *data.splits)[0]
    label = first["label"]
    if hidden:
        assert math.isnan(label) if data.spec.has_scores else label == -100
        data = load_task(name, splits=["train"])
    assert {column: rows_of(data, *data.splits)[0][column] for column in expected} == expected


@pytest.mark.parametrize("name", [name for name, spec in TASKS.items() if spec.hub])
def test_no_loading_script_is_needed(name):
    # Those whose own repository holds a script (the others hold Parquet files, by their file lists).
    scripted = {"aps/super_glue", "CogComp/trec", "Rowan/hellaswag", "eriktks/conll2003"}
    scripted.add("universal-dependencies/universal_dependencies")
    hub = TASKS[name].hub
    assert (hub.revision == "refs/convert/parquet") == (hub.id in scripted)


def test_the_hub_out_of_reach_says_where_to_get_the_files():
    with pytest.raises(ConnectionError, match=r"stanfordnlp/sst2.*gluebenchmark.*train\.tsv.*--data_dir"):
        load_task("sst2")
    with pytest.raises(FileNotFoundError, match=r"rocstories.*no copy.*rochester.*--data_dir"):
        load_task("rocstories")


# Input that is wrong: task, files that replace good ones, and what the error says behind the file's name.
WRONG_FILES = {
    "empty": ("trec", {"TREC_10.label": ""}, r"TREC_10.label: no rows were found for the test split"),
    "empty-xml": ("copa", {"copa-test.xml": ""}, r"copa-test.xml: no element found"),
    "empty-split": ("questions", {"questions.jsonl": jsonl(*OWN_QUESTIONS[:2])}, "no rows were found for the valid"),
    "unknown-split": ("questions", {"questions.jsonl": jsonl(OWN_QUESTIONS[0] | {"split": "dev"})}, "line 1: 'split'"),
    "no-column": (
        "sst2",
        {"train.tsv.gz": "text\tlabel\nx\t1\n"},
        r"train.tsv.gz, line 2: there is no column 'sentence'; the columns are text, label",
    ),
    "few-fields": ("sst2", {"dev.tsv.xz": "sentence\tlabel\n\nfine\n"}, "dev.tsv.xz, line 3: 1 fields where 2"),
    "many-fields": ("swag", {"val.csv": "a,b\n1,2,3\n"}, r"val.csv, line 2: 3 fields where 2 were expected \(a, b\)"),
    "quotes": ("swag", {"val.csv": 'a,b\n"x "y" z",2\n'}, "val.csv, line 2: ',' expected"),
    "column-twice": ("swag", {"val.csv": "a,a\n1,2\n"}, "val.csv, line 1: the header names a column twice"),
    "not-utf-8": (
        "sst2",
        {"train.tsv.gz": gzip.compress(b"sentence\tlabel\nfine\t1\ncaf\xe9\t1\n")},
        "train.tsv.gz, line 3: byte 0xe9 at offset 3 is not valid utf-8",
    ),
    "utf-16": ("swag", {"val.csv": "a,b\n".encode("utf-16")}, "val.csv, line 1: byte 0xff"),
    "cut-short": (
        "swag",
        {"val.csv": None, "val.csv.gz": gzip.compress(FORMATS["swag"][0]["val.csv"].encode())[:-9]},
        "val.csv.gz: ",
    ),
    "no-gz": ("swag", {"val.csv": None, "val.csv.gz": b"a,b\n"}, "val.csv.gz: "),
    "no-xz": ("swag", {"val.csv": None, "val.csv.xz": b"a,b\n"}, "val.csv.xz: "),
    "label": ("trec", {"TREC_10.label": "HUM:ind Who ?\nANIMAL:x Which ?\n"}, "line 2: the label 'ANIMAL' is not one"),
    "no-label": ("sst2", {"dev.tsv.xz": "sentence\tlabel\nfine\t\n"}, "line 2: the label in 'label' is empty"),
    "secret-label": ("sst2", {"dev.tsv.xz": "sentence\tlabel\nfine\t-1\n"}, "the label '-1' is not one of"),
    "no-text": ("sst2", {"dev.tsv.xz": "sentence\tlabel\n \t1\n"}, "line 2: the text of 'sentence' is empty"),
    "number": ("questions", {"questions.jsonl": jsonl(OWN_QUESTIONS[0] | {"text": 3})}, "'text' holds a int, a text"),
    "surrogate": (
        "questions",
        {"questions.jsonl": jsonl(OWN_QUESTIONS[0] | {"text": "\ud83d"})},
        "line 1: 'utf-8' co",
    ),
    "json": ("openbookqa", {"train.jsonl": '{"id": "7-1",\n'}, "train.jsonl, line 1: Expecting"),
    "deep-json": ("openbookqa", {"train.jsonl": "[" * 100_000 + "\n"}, "train.jsonl, line 1: maximum recursion"),
    "huge-number": ("openbookqa", {"train.jsonl": f'{{"id": {"9" * 5000}}}\n'}, "train.jsonl, line 1: Exceeds"),
    "json-list": ("openbookqa", {"train.jsonl": "[1, 2]\n"}, "line 1: a JSON object was expected, a list"),
    "other-keys": ("openbookqa", {"train.jsonl": jsonl({"id": "1"})}, "line 1: there is no 'question'"),
    "one-choice": ("openbookqa", {"train.jsonl": jsonl(question("1", "A", "only"))}, "1 choices where at least 2"),
    "empty-choice": (
        "openbookqa",
        {"train.jsonl": jsonl(question("1", "A", "", "b"))},
        r"text of 'choices\[0\]' is em",
    ),
    "no-ending": ("stories", {"stories.jsonl": jsonl(OWN_STORIES[0] | {"ending2": ""})}, "1 choices where at least 2"),
    "letter": ("openbookqa", {"train.jsonl": jsonl(question("1", "E", *"abc"))}, "the answer 'E'.*counted A to C"),
    "index": ("stories", {"stories.jsonl": jsonl(OWN_STORIES[0] | {"label": 2})}, "the answer '2'.*counted 0 to 1"),
    "hellaswag": ("hellaswag", {"hellaswag_val.jsonl": jsonl(HELLASWAG | {"label": 4})}, "'4'.*counted 0 to 3"),
    "score": ("stsb", {"sts-train.csv": sts_lines(4, 5.1)}, "line 2: the score '5.1' is not a number from 0 to 5"),
    "tree": ("sst5", {"trees/dev.txt": "(2 Well)\n(3 (2 It) (2 works)\n"}, "dev.txt, line 2: .*no tree"),
    "xml": ("copa", {"copa-test.xml": COPA_TEST.replace("</p>", "", 1)}, r"copa-test.xml: mismatched tag: line 8"),
    "xml-answer": ("copa", {"copa-test.xml": copa_xml(("effect", 3))}, "item 1: the answer '3'.*counted 1 to 2"),
    "xml-asks": ("copa", {"copa-test.xml": copa_xml(("reason", 1))}, "copa-test.xml, item 1: there is no 'reason'"),
    "xml-file-entity": (
        "copa",
        {
            "copa-test.xml": copa_xml(
                ("cause", 1), doctype='<!DOCTYPE c [<!ENTITY f SYSTEM "file:///etc/hosts">]>'
            ).replace("&amp;", "&f;")
        },
        "copa-test.xml: undefined entity",
    ),
    "too-few-rows": ("copa", {"copa-dev.xml": COPA_TEST}, "1 rows: 0 rows cannot be held out of 1"),
    "race": ("race", {"RACE/train/high/7.txt": "{"}, r"7\.txt, item 1: Expecting property name"),
    "race-keys": ("race", {"RACE/train/high/7.txt": "{}"}, r"7\.txt, item 1: there is no 'questions'"),
    "two-files": (
        "rocstories",
        {"cloze_test_val__spring2016 - b.csv": STORY_HEADER + story_lines(3)},
        r"stands for several files \(cloze",
    ),
    "columns": ("ud_pos", {"en_ewt-ud-dev.conllu": TREEBANK + "1\tNo\n"}, "line 19: 2 columns where 10 were expected"),
    "tag": ("ud_pos", {"en_ewt-ud-dev.conllu": "# sent_id = 1\n" + treebank_line("1", "No", "UH")}, "line 2: .*'UH'"),
    "no-sentence": ("conll2003", {"eng.testa": "-DOCSTART- -X- O O\n"}, "eng.testa: no rows were found"),
    "squad-json": ("squad", {"train-v1.1.json": "{"}, "train-v1.1.json: Expecting property name"),
    "squad-keys": ("squad", {"train-v1.1.json": '{"data": [{}]}'}, "train-v1.1.json: there is no 'paragraphs'"),
    "squad-list": ("squad", {"train-v1.1.json": "[]"}, "train-v1.1.json: list indices"),
    "offset": (
        "squad",
        {
            "train-v1.1.json": squad(
                {BALL: {}}, a=[answer_in(BALL, "Mr. Darcy")], b=[{"text": "Mrs. Hurst", "answer_start": 9}]
            )
        },
        "question 2: the answer 'Mrs. Hurst' is not at its answer_start 9: it begins at 32",
    ),
    "elsewhere": (
        "squad",
        {"train-v1.1.json": squad({BALL: {}}, a=[{"text": "Elizabeth", "answer_start": 9}])},
        "is not in the passage",
    ),
    "no-answer": ("squad", {"train-v1.1.json": squad({BALL: {}}, a=[])}, "question 1: the question has no answer"),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_a_wrong_file_is_named_with_the_place(case, tmp_path):
    task, wrong, message = WRONG_FILES[case]
    write(tmp_path, {name: content for name, content in FORMATS[task][0].items() if name not in wrong})
    for name, content in wrong.items():
        if isinstance(content, str):
            write(tmp_path, {name: content})
        elif content is not None:  # as it is: a damaged archive must not be compressed once more
            (tmp_path / name).write_bytes(content)
    for _ in range(2):  # a wrong file leaves nothing in the cache
        with pytest.raises(ValueError, match=message):
            load_task(task, tmp_path)


def test_a_missing_file_lists_what_is_expected_and_what_is_there(tmp_path):
    write(tmp_path, {"README": "x", "trian.tsv": "x"})
    with pytest.raises(FileNotFoundError, match=r"no train\.tsv in .*Did you mean trian\.tsv\? .*--data_dir"):
        load_task("sst2", tmp_path)
    write(tmp_path, {"dev.tsv": RTE})
    with pytest.raises(FileNotFoundError, match=r"rte: the train file is missing.*Did you mean trian"):
        load_task("rte", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"rte: the test file is missing.*test\.tsv"):
        load_task("rte", tmp_path, splits=["test"])
    with pytest.raises(FileNotFoundError, match="Found: nothing"):
        load_task("sst2", tmp_path / "nowhere")


def test_only_the_asked_splits_are_read_and_of_a_file_and_its_compressed_copy_one(tmp_path):
    write(tmp_path, {"snli_1.0_dev.jsonl": jsonl(SNLI), "snli_1.0_dev.jsonl.gz": jsonl(SNLI, SNLI)})
    data = load_task("snli", tmp_path, splits=["validation"])
    assert (dict(data.splits.num_rows), set(data.notes)) == ({"validation": 1}, {"validation"})
    with pytest.raises(ValueError, match="no split 'dev'"):
        load_task("snli", tmp_path, splits=["dev"])


# The catalogue.


def test_unknown_task_lists_the_known_and_guesses():
    with pytest.raises(ValueError, match=r"no task 'SST-2'.*mean 'sst2'.*copa, hellaswag"):
        get_task("SST-2")
    with pytest.raises(ValueError, match=r"custom_task\(\.\.\.\)"):
        get_task("custom")


def test_task_table_has_a_row_for_each_task():
    lines = task_table().splitlines()
    assert [line.split()[0] for line in lines] == ["task", *TASKS, "custom"]
    assert all(TASKS[line.split()[0]].licence in line for line in lines[1:-1])


@pytest.mark.parametrize("name", TASKS)
def test_declarations_are_complete_and_have_a_configuration(name):
    spec = TASKS[name]
    assert spec.name == name
    assert all((spec.licence, spec.source, spec.description, spec.files["train"], spec.files["test"]))
    assert spec.files["validation"] or spec.cut, "a published validation part, or a rule to hold one out"
    for layout in (spec.layout, *([spec.hub.layout] if spec.hub else [])):
        assert {"label", *spec.text_columns} - {"question"} <= set(layout.columns)
        assert layout.labels is None or len(layout.labels) == len(spec.label_names)
    settings = yaml.safe_load((REPOSITORY / "scripts" / "configs" / f"{name}.yaml").read_text(encoding="utf-8"))
    assert settings["task"] == name
    if "model_name_or_path" not in settings:  # no demonstration with gpt-mini: the paper's settings
        batch = settings["per_device_train_batch_size"] * settings.get("gradient_accumulation_steps", 1)
        assert (float(settings["learning_rate"]), settings["num_train_epochs"], batch) == (6.25e-5, 3, 32)


@pytest.mark.parametrize("name", ["questions", "stories"])
def test_bundled_data(name):
    data = load_task(name)
    assert set(data.splits) == {"train", "validation", "test"}
    assert all(set(part["label"]) >= {0, 1} for part in data.splits.values())


# Real files: task, folder, splits, and how often each label stands in all of them.
REAL = {
    "trec": ("trec6", None, [95, 1300, 1344, 1288, 916, 1009]),
    "sst2": ("sst2", None, [30208, 38013]),
    "copa": ("copa", None, [500, 500]),
    "openbookqa": ("openbookqa", ["train", "validation"], [1504, 1350, 1256, 1347]),
    "cola": ("cola", None, [2690, 6388]),
    "imdb": ("imdb", None, [2500, 2500]),
    "ag_news": ("ag_news", None, [1386, 1375, 1349, 1390]),
    "arc_easy": ("arc", None, [548, 588, 578, 535, 2]),
    "arc_challenge": ("arc", None, [239, 296, 291, 293]),
    "commonsenseqa": ("commonsenseqa", None, [1909, 1973, 1946, 1985, 1928]),
    "swag": ("swag", None, [99, 87, 112, 102]),
    "hellaswag": ("hellaswag", None, [1982, 1965, 2060, 1993]),
    "codah": ("codah", None, [689, 684, 697, 706]),
    "mnli": ("mnli", None, [5007, 4408, 4639]),
    "qnli": ("qnli", None, [2100, 2100]),
    "scitail": ("scitail", None, [594, 938]),
    "rte": ("rte", None, [1249, 1241]),
    "snli": ("snli", None, [3325, 3231, 3275]),
}


@pytest.mark.whole
@pytest.mark.parametrize("name", REAL)
def test_real_files(name, real_folder):
    folder, splits, counts = REAL[name]
    data = load_task(name, real_folder(folder), splits=splits)
    assert label_counts(data, *data.splits) == dict(enumerate(counts))
    if data.spec.family == "entailment":
        texts = [set(part["hypothesis" if name == "scitail" else "premise"]) for part in data.splits.values()]
        assert sum(map(len, texts)) == len(set.union(*texts))


@pytest.mark.whole
def test_real_scores_fine_labels_and_words(real_folder, tmp_path):
    data = load_task("stsb", real_folder("stsb"))
    assert dict(data.splits.num_rows) == {"train": 3374, "validation": 1000, "test": 375}
    assert (min(data.splits["train"]["label"]), max(data.splits["train"]["label"])) == (0, 5)
    fine, coarse = (load_task(name, real_folder("trec6")) for name in ("trec50", "trec"))
    assert len(set(fine.splits["train"]["label"]) | set(fine.splits["validation"]["label"])) == 50
    assert np.array_equal(coarse.splits["train"]["id"][:], fine.splits["train"]["id"][:])
    treebank = REPOSITORY.parent / "shared" / "data" / "ud_english_ewt" / "en_ewt-ud-dev.conllu.xz"
    if not treebank.is_file():
        pytest.skip(f"no treebank at {treebank}")
    write(tmp_path, {"en_ewt-ud-dev.conllu": lzma.decompress(treebank.read_bytes())})
    rows = rows_of(load_task("ud_pos", tmp_path, splits=["validation"]), "validation")
    assert (len(rows), sum(len(row["words"]) for row in rows)) == (2001, 25147)
