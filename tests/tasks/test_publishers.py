"""Every task in its publisher's format and in the Hub's columns; what is wrong with a file, by file and place."""

import gzip
import math
from collections import Counter

import datasets
import pytest
import yaml
from datasets import ClassLabel, List
from transformers import AutoTokenizer

from hf_gpt import token_trees
from hf_gpt.tasks import TASKS, get_task, load_task, task_table

from ..support.formats import FORMATS, OTHER_NAMES, copa_xml, stories
from ..support.formats.question_answering import BALL, squad
from ..support.runs import REPOSITORY
from ..support.task_files import choice_row, rows_of, write

pytestmark = pytest.mark.usefixtures("own_datasets_cache")

DATA = REPOSITORY / "tests" / "data"
each_task = pytest.mark.parametrize("name", TASKS)


@each_task
def test_publishers_format(name, tmp_path):
    files, first, counts = FORMATS[name]
    data = load_task(name, write(tmp_path, files))
    assert dict(data.splits.num_rows) == counts
    assert set(data.notes) == {"train", "validation", "test"}
    assert all(part.features == data.spec.features for part in data.splits.values())
    assert first is None or rows_of(data)[0] == first | {"label": pytest.approx(first["label"])}
    # The same from the cache, and where the folder that holds the splits is named itself.
    assert load_task(name, tmp_path).splits["train"].cache_files == data.splits["train"].cache_files
    if name in ("imdb", "race_middle", "sst5"):
        (folder,) = {path.split("/")[0] for path in files}
        assert rows_of(load_task(name, tmp_path / folder))[0] == first


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(REPOSITORY / "model_cards" / "gpt-mini", task_template=True)


@each_task
def test_rows_become_token_trees(name, tokenizer, tmp_path):
    """
    Whole sequences within length, labels as declared; of answers see `test_question_answering.py`. The family follows
    from the columns, where they are those of one alone.
    """
    data = load_task(name, write(tmp_path, FORMATS[name][0]), splits=["train"])
    rows, family = data.splits["train"], data.spec.family
    told = family if family in ("similarity", "question-answering") else None
    for row, original in zip(token_trees(rows, tokenizer, told, max_length=96), rows, strict=True):
        assert (row["id"], row["input_ids"][0]) == (original["id"], tokenizer.bos_token_id)
        assert max(row["position_ids"]) < 96
        if family == "tagging":
            assert (row["words"], len(row["path_ends"])) == (original["words"], len(row["label"]))
        elif family != "question-answering":
            # Equal sequences share their end.
            assert len(row["path_ends"]) == {"similarity": 2}.get(family, len(original.get("choices", "x")))
            ends = {index for index, token in enumerate(row["input_ids"]) if token == tokenizer.cls_token_id}
            assert set(row["path_ends"]) == ends
        assert family == "question-answering" or row["label"] == original["label"]


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_of_the_same_files(name, tmp_path):
    files, split, row, count = OTHER_NAMES[name]
    data = load_task(name, write(tmp_path, files))
    assert (rows_of(data, split)[0], data.splits[split].num_rows) == (row, count)


def test_copa_asks_as_its_authors_do(tmp_path):
    data = load_task("copa", write(tmp_path, FORMATS["copa"][0]))
    rows = {row["id"]: row for part in ("train", "validation") for row in rows_of(data, part)}
    asked = [("What was the cause of this?", 0), ("What happened as a result?", 1)]
    for number, (text, label) in enumerate(asked, 1):
        context = f"It rained {number} times & more."
        assert rows[str(number)] == choice_row(str(number), context, ["Wet.", "Dry."], label, question=text)


def test_story_cloze_holds_out_the_rows_that_the_release_holds_out(tmp_path):
    from sklearn.model_selection import train_test_split

    data = load_task("rocstories", write(tmp_path, FORMATS["rocstories"][0]))
    _, expected = train_test_split([f"s{i}" for i in range(400)], test_size=374, random_state=3535999445)
    assert set(data.splits["validation"]["id"]) == set(expected)


def test_a_sample_smaller_than_what_is_held_out_gives_a_fifth(tmp_path):
    published = FORMATS["rocstories"][0].items()
    files = {name: text if "ALL_test" in name else stories(*range(60)) for name, text in published}
    counts = load_task("rocstories", write(tmp_path, files)).splits.num_rows
    assert counts == {"train": 48, "validation": 12, "test": 3}


FLAWED = {
    "snli": ({}, "snli_1.0_train.jsonl: 1 rows, 1 more left out for want of a gold label"),
    "qqp": (  # the first lacks its second question as well
        {"train.tsv": FORMATS["qqp"][0]["train.tsv"] + "4\t3\t4\tWhy?\n5\t5\t6\tHow?\t\t0\n6\t5\t6\tHow?\tWho?\n"},
        "train.tsv: 1 rows, 2 more left out for an empty text, 1 more left out for want of a gold label",
    ),
    "race_high": (
        {"RACE/train/high/9.txt": FORMATS["race"][0]["RACE/train/middle/1.txt"].replace('"d1"', '""')},
        "2 files from 7.txt to 9.txt: 2 rows, 1 more left out for an empty text",
    ),
}


@pytest.mark.parametrize("name", FLAWED)
def test_rows_that_publishers_got_wrong_are_left_out_and_counted_but_no_test_row(name, tmp_path):
    files, note = FLAWED[name]
    write(tmp_path, FORMATS[name][0] | files)
    for _ in range(2):  # read, and from the cache
        data = load_task(name, tmp_path)
        assert data.notes["train"] == note
    assert name != "qqp" or rows_of(data, "test") == [{"id": "0", "premise": "Who?", "hypothesis": "", "label": -100}]


@pytest.mark.parametrize("name", ["sst2", "openbookqa", "commonsenseqa", "swag", "hellaswag", "stsb", "squad"])
def test_labels_that_are_kept_secret(name, tmp_path):
    hidden = {"stsb": {"sts-test.csv": "main\tnews\t2014\t0\t\tA.\tB.\n"}}
    hidden["squad"] = {"test-v1.1.json": squad({BALL: {}}, new=[])}
    write(tmp_path, FORMATS[name][0] | hidden.get(name, {}))
    label = rows_of(load_task(name, tmp_path, splits=["test"]), "test")[0]["label"]
    assert math.isnan(label) if name == "stsb" else label == ([-100, -100] if name == "squad" else -100)


HUB = yaml.safe_load((DATA / "hub_columns.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", HUB)
def test_hub_columns(name, monkeypatch):
    row, expected, secret = (HUB[name].get(part) for part in ("row", "gives", "secret"))
    hub, asked = TASKS[name].hub, []

    def load_dataset(*args, split, **options):
        asked.append(split)
        hidden = {hub.columns["label"]: secret} if secret is not None and split.startswith("test") else {}
        rows = datasets.Dataset.from_list([row | hidden] * 2)
        for column, names in HUB[name].get("names", {}).items():
            feature = ClassLabel(names=names)
            rows = rows.cast_column(column, List(feature) if isinstance(row[column], list) else feature)
        return rows

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    wanted = "test" if hub.test else "train"
    first = rows_of(load_task(name, splits=[wanted]), wanted)[0]
    assert asked == [*getattr(hub, wanted)]
    if secret is not None:
        assert math.isnan(first["label"]) if name == "stsb" else first["label"] == -100
        first = rows_of(load_task(name, splits=["train"]))[0]
    assert {column: first[column] for column in expected} == expected


def test_the_hub_out_of_reach_says_where_to_get_the_files():
    with pytest.raises(ConnectionError, match=r"stanfordnlp/sst2.*train\.tsv.*gluebenchmark.*--data_dir"):
        load_task("sst2")
    with pytest.raises(FileNotFoundError, match=r"rocstories.*rochester.*--data_dir"):
        load_task("rocstories")


FILE_ENTITY = {"doctype": '<!DOCTYPE c [<!ENTITY f SYSTEM "file:///etc/hosts">]>'}
TRAIN = b"sentence\tlabel\n" + b"x\t1\n" * 99
WRONG_FILES = [
    (*place.split("/", 1), case.get("text", case.get("replace")), case["says"])
    for place, cases in yaml.safe_load((DATA / "wrong_files.yaml").read_text(encoding="utf-8")).items()
    for case in cases
]
# Those that are long, or no text.
WRONG_FILES += [
    ("sst2", "train.tsv.gz", gzip.compress(TRAIN)[:-9], ": Compressed file ended"),
    ("sst2", "dev.tsv.xz", b"a,b\n", ": Input format not supp"),
    ("swag", "val.csv", b"a,b\ncaf\xe9,1\n", ": .*byte 0xe9"),
    ("openbookqa", "train.jsonl", "[" * 100_000 + "\n", ", line 1: maximum recursion"),
    ("copa", "copa-test.xml", copa_xml(("cause", 1), **FILE_ENTITY).replace("&amp;", "&f;"), ": undefined entity"),
    ("copa", "copa-dev.xml", copa_xml(("cause", 1)), ": 1 rows: 1 rows cannot be held out of 1"),
    ("squad", "train-v1.1.json", squad({BALL: {}}, a=[]), ", question 1: the question has no answer"),
]


@pytest.mark.parametrize(
    ("task", "name", "content", "message"), WRONG_FILES, ids=[f"{case[0]}-{case[-1]}" for case in WRONG_FILES]
)
def test_a_wrong_file_is_named_with_the_place(task, name, content, message, tmp_path):
    files = FORMATS[task][0]
    write(tmp_path, files)
    if isinstance(content, bytes):  # as it is: a damaged archive must not be compressed once more
        (tmp_path / name).write_bytes(content)
    else:
        write(tmp_path, {name: content if isinstance(content, str) else files[name].replace(*content)})
    for _ in range(2):  # a wrong file leaves nothing in the cache
        with pytest.raises(ValueError, match=f"{name.split('/')[-1]}{message}"):
            load_task(task, tmp_path)


def test_a_missing_file_lists_what_is_expected_and_what_is_there(tmp_path):
    write(tmp_path, {"README": "x", "trian.tsv": "x"})
    with pytest.raises(FileNotFoundError, match=r"no train\.tsv in .*README, trian\.tsv.*--data_dir"):
        load_task("sst2", tmp_path)
    write(tmp_path, {"dev.tsv": FORMATS["rte"][0]["dev.tsv"]})
    for splits, name in ((None, "train"), (["test"], "test")):
        with pytest.raises(FileNotFoundError, match=rf"rte: the {name} file is missing.*{name}\.tsv"):
            load_task("rte", tmp_path, splits=splits)


def test_only_the_asked_splits_are_read_and_of_a_file_and_its_compressed_copy_one(tmp_path):
    content = FORMATS["snli"][0]["snli_1.0_dev.jsonl"]
    write(tmp_path, {"snli_1.0_dev.jsonl": content, "snli_1.0_dev.jsonl.gz": content * 2})
    data = load_task("snli", tmp_path, splits=["validation"])
    assert (dict(data.splits.num_rows), set(data.notes)) == ({"validation": 1}, {"validation"})
    with pytest.raises(ValueError, match="no split 'dev'"):
        load_task("snli", tmp_path, splits=["dev"])


# The catalogue.


def test_the_table_of_tasks_and_unknown_names():
    lines = task_table().splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["task", *TASKS, "custom"]
    assert max(map(len, lines)) <= 110
    words = " ".join(task_table().split())
    assert all(f"{spec.licence}; {spec.how_to_get}" in words for spec in TASKS.values())
    assert all((spec.licence, spec.source, spec.description) for spec in TASKS.values())
    with pytest.raises(ValueError, match=r"no task 'SST-2'.*copa, hellaswag.*custom_task"):
        get_task("SST-2")


# Real files: task, folder, and how often each label stands in all of them.
REAL = {
    "trec": ("trec6", [95, 1300, 1344, 1288, 916, 1009]),
    "sst2": ("sst2", [30208, 38013]),
    "copa": ("copa", [500, 500]),
    "cola": ("cola", [2690, 6388]),
    "imdb": ("imdb", [2500, 2500]),
    "ag_news": ("ag_news", [1386, 1375, 1349, 1390]),
    "arc_easy": ("arc", [548, 588, 578, 535, 2]),
    "arc_challenge": ("arc", [239, 296, 291, 293]),
    "commonsenseqa": ("commonsenseqa", [1909, 1973, 1946, 1985, 1928]),
    "swag": ("swag", [99, 87, 112, 102]),
    "hellaswag": ("hellaswag", [1982, 1965, 2060, 1993]),
    "codah": ("codah", [689, 684, 697, 706]),
    "mnli": ("mnli", [5007, 4408, 4639]),
    "qnli": ("qnli", [2100, 2100]),
    "scitail": ("scitail", [594, 938]),
    "rte": ("rte", [1249, 1241]),
    "snli": ("snli", [3325, 3231, 3275]),
}


@pytest.mark.whole
@pytest.mark.parametrize("name", REAL)
def test_real_files(name, real_folder):
    folder, counts = REAL[name]
    data = load_task(name, real_folder(folder))
    assert Counter(label for part in data.splits.values() for label in part["label"]) == dict(enumerate(counts))
    if data.spec.family == "entailment":
        texts = [set(part["hypothesis" if name == "scitail" else "premise"]) for part in data.splits.values()]
        assert sum(map(len, texts)) == len(set.union(*texts))


@pytest.mark.whole
def test_real_scores_fine_labels_and_words(real_folder):
    data = load_task("stsb", real_folder("stsb"))
    assert dict(data.splits.num_rows) == {"train": 3374, "validation": 1000, "test": 375}
    fine, coarse = (load_task(name, real_folder("trec6")) for name in ("trec50", "trec"))
    assert len(set(fine.splits["train"]["label"]) | set(fine.splits["validation"]["label"])) == 50
    assert coarse.splits["train"]["id"][:] == fine.splits["train"]["id"][:]
    treebank = REPOSITORY.parent / "shared" / "data" / "ud_english_ewt"
    if not treebank.is_dir():
        pytest.skip(f"no treebank at {treebank}")
    rows = rows_of(load_task("ud_pos", treebank, splits=["validation"]), "validation")
    assert (len(rows), sum(len(row["words"]) for row in rows)) == (2001, 25147)
