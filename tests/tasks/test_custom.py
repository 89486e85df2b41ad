"""Anybody's own files as a task: formats, column mappings, labels, held-out rows, bad rows, wrong arguments."""

import math
import os
from dataclasses import replace

import datasets
import pytest
import yaml

from hf_gpt.tasks import custom_task, load_task

from ..support.runs import REPOSITORY
from ..support.task_files import jsonl, rows_of, write, write_rows

pytestmark = pytest.mark.usefixtures("own_datasets_cache")

FILES = yaml.safe_load((REPOSITORY / "tests/data/own_files.yaml").read_text(encoding="utf-8"))
TEXT = {"text_column": "text"}
PAIR = {"premise_column": "a", "hypothesis_column": "b"}
CHOICES = {"context_column": "text", "choice_columns": ["text", "b", "c"]}
WORDS = {"words_column": "tokens", "label_column": "tags"}


@pytest.mark.parametrize("name", ["own.csv", "own.tsv.gz", "own.jsonl", "own.jsonl.xz", "own.ndjson", "own.parquet"])
def test_formats(name, tmp_path):
    rows = [{"review": "dull , slow", "stars": "bad"}, {"review": "lovely", "stars": "good"}]
    if name.endswith(".parquet"):
        datasets.Dataset.from_list(rows).to_parquet(tmp_path / name)
    elif "json" in name:
        write(tmp_path, {name: "\ufeff" + jsonl(*rows)})
    else:
        lines = [rows[0].keys(), *(row.values() for row in rows)]
        delimiter = "," if ".csv" in name else "\t"
        write(tmp_path, {name: "".join(delimiter.join(f'"{cell}"' for cell in line) + "\r\n" for line in lines)})
    columns = {"text_column": "review", "label_column": "stars"}
    data = load_task(custom_task("classification", name, name, **columns), tmp_path)  # relative to the folder
    assert data.spec.label_names == ("bad", "good")
    assert [(row["text"], row["label"]) for row in rows_of(data)] == [("dull , slow", 0), ("lovely", 1)]
    assert data.spec.metrics == ("accuracy", "f1_macro")
    assert data.notes["test"] == "left out: none was named"


def test_unquoted_encoded_and_oddly_separated(tmp_path):
    write(tmp_path, {"own.csv": 'text;label\n"caf\xe9" he said;1\nno;0\n'.encode("latin-1")})
    options = {"delimiter": ";", "quoted": False, "encoding": "latin-1"}
    data = load_task(custom_task("classification", "own.csv", "own.csv", **TEXT, **options), tmp_path)
    assert rows_of(data)[0] == {"id": "0", "text": '"café" he said', "label": 1}


@pytest.mark.parametrize("case", FILES["read"].values(), ids=FILES["read"])
def test_what_is_read(case, tmp_path):
    name = "own.jsonl" if case["text"].startswith("{") else "own.csv"
    family = "similarity" if "premise_column" in case["columns"] else None
    task = custom_task(family, name, name, name, **case["columns"])
    data = load_task(task, write(tmp_path, {name: case["text"]}))
    other = {"multiple-choice": "choices", "tagging": "words"}.get(data.spec.family)
    found = [[row[other], row["label"]] if other else row["label"] for row in rows_of(data)]
    assert (found, data.spec.label_names and [*data.spec.label_names]) == (case["gives"], case.get("names"))


def test_metrics_of_words_go_with_their_labels():
    entities = ("entity_f1", "entity_precision", "entity_recall", "accuracy")
    assert custom_task(class_names=["B-X", "O"], **WORDS).metrics == entities
    assert custom_task(class_names=["V", "I"], **WORDS).metrics == ("accuracy",)


# Rows are held out: the columns, and the texts of row n of 40; rows n and n + 20 have the same in another guise.
REPEATED = {
    "texts": ({"text_column": "a"}, lambda n: (f"Great  Film {n % 20}" if n < 20 else f"great film {n % 20}", "z")),
    "pairs": (PAIR, lambda n: ("same premise", f"{'Text' if n < 20 else 'text'} {n % 20}")),
    "either order": (
        PAIR | {"task_family": "similarity"},
        lambda n: (f"x {n % 20}", f"y {n % 20}")[:: 1 if n < 20 else -1],
    ),
    "questions": (
        {"context_column": "a", "question_column": "b", "choice_columns": ["c", "d"]},
        lambda n: (f"story {n % 20}", "Why ?" if n < 20 else "why ?"),
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_equal_texts_are_held_out_together(name, tmp_path):
    columns, texts = REPEATED[name]
    rows = [(*texts(n), f"choice {n}", "other", n % 2) for n in range(40)]
    train = write_rows(tmp_path, ("a", "b", "c", "d", "label"), *rows)
    data = load_task(custom_task(train_file=train, **columns))
    sides = [{int(row["id"]) % 20 for row in rows_of(data, part)} for part in ("train", "validation")]
    assert not sides[0] & sides[1]
    assert data.splits["validation"].num_rows == 4
    assert not any("texts that" in warning for warning in data.warnings)


def test_sentences_of_the_same_words_are_held_out_together_and_those_of_another_order_are_not(tmp_path):
    sentences = ["a b c", "A  B c", "c b a"] * 10
    write(tmp_path, {"own.jsonl": jsonl(*[{"tokens": text.split(), "tags": ["O", "B-X", "O"]} for text in sentences])})
    data = load_task(custom_task(None, "own.jsonl", validation_size=10, **WORDS), tmp_path)
    assert len({tuple(row["words"]) for row in rows_of(data, "validation")}) == 1


def test_held_out_rows_are_the_same_each_time_and_cover_the_file(tmp_path):
    texts = [f"Who is {n} ?" for n in range(200)]
    train = write_rows(tmp_path, ("text", "label"), *[(text, n % 2) for n, text in enumerate(texts)])
    first, again = (load_task(custom_task(None, train, **TEXT), cache_dir=tmp_path / str(n)) for n in range(2))
    held_out = [data.splits["validation"]["text"][:] for data in (first, again)]
    assert held_out[0] == held_out[1]
    assert sorted(first.splits["train"]["text"][:] + held_out[0]) == sorted(texts)
    assert first.notes["validation"].startswith("20 rows held out of the training rows (seed 0, rows with the same")
    assert first.notes["train"] == "own.csv: 200 rows; 20 held out for validation, 180 left"
    for size in (-0.1, 0, 200, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"cannot be held out|NaN"):
            load_task(custom_task(None, train, validation_size=size, **TEXT))
    same = write_rows(tmp_path, ("text", "label"), *[("Who ?", n % 2) for n in range(20)], name="same.csv")
    with pytest.raises(ValueError, match=r"2 rows cannot be held out of 20 .* rows with the same text kept together"):
        load_task(custom_task(None, same, **TEXT))


# Rows that are predicted, and warnings about rows that are learnt from.


def test_every_row_of_a_test_file_stays_in_its_place(tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *[(f"Text {n}", n % 2) for n in range(20)])
    test = write(tmp_path, {"new.csv": 'key,text\nk0,first\nk1,"two\nlines"\nk2,\n,\nk4, \nk5,last\n'}) / "new.csv"
    data = load_task(custom_task(None, train, train, test, keep_columns=["key", "text"], **TEXT))
    rows = rows_of(data, "test")
    assert [row["id"] for row in rows] == list("012345")
    assert [row["text"] for row in rows] == ["first", "two\nlines", "", "", "", "last"]
    assert rows[1]["kept"] == ["k1", "two\nlines"]
    assert data.notes["test"].endswith("3 of them predicted as empty")
    named = load_task(custom_task(None, train, train, test, id_column="key", **TEXT))
    assert named.splits["test"]["id"][:] == ["k0", "k1", "k2", "", "k4", "k5"]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (PAIR | {"class_names": "01"}, [("x", "y"), ("x", "")]),
        ({"context_column": "a", "choice_columns": ["a", "b"]}, [("x", "y"), ("x", ""), ("", "")]),
        ({"words_column": "a", "class_names": "01"}, [("two words", ""), ("", "")]),
        ({"text_column": "a", "label_columns": ["x", "z"]}, [("x", ""), ("", "")]),
    ],
    ids=["pair", "choices", "words", "marks"],
)
def test_empty_rows_of_every_family(columns, rows, tmp_path):
    test = write_rows(tmp_path, ("a", "b"), *rows)
    data = load_task(custom_task(None, test_file=test, **columns), splits=["test"])
    found = rows_of(data, "test")
    assert [row["id"] for row in found] == [str(number) for number in range(len(rows))]
    assert found[0]["label"] in (-100, [-100, -100])
    assert not any("".join(map("".join, (found[-1][name] for name in found[-1].keys() - {"id", "label"}))))


def test_bad_rows_can_be_skipped(tmp_path):
    rows = [("a", "x"), ("", "x"), ("b", ""), ("c", "y"), (" ", "y"), ("d", ""), ("e", "y")]
    train = write_rows(tmp_path, ("text", "label"), *rows)
    for _ in range(2):  # read, and from the cache
        data = load_task(custom_task(None, train, train, skip_bad_rows=True, **TEXT))
        assert data.splits["train"]["text"][:] == ["a", "c", "e"]
        assert data.notes["train"] == "own.csv: 3 rows, 4 more left out as they are wrong"
    test = load_task(custom_task(None, train, train, train, skip_bad_rows=True, class_names="zy", **TEXT))
    assert test.splits["test"]["text"][:] == ["", "", "b", "c", "", "d", "e"]


SIX = [(f"t{n}", "xy"[n % 2]) for n in range(12)]


@pytest.mark.parametrize(
    ("rows", "other", "warning"),
    [
        ([("a", "Y"), *SIX], SIX[:0], "The labels 'Y' and 'y' differ in case alone"),
        ([("a", "x"), ("A ", "y"), *SIX], SIX[:0], "1 of the 14 training rows have the texts of an earlier row"),
        ([("a", "z"), *SIX], SIX[:0], "Too few training examples to learn a class from: 'z' has 1."),
        (SIX, [("T3", "x"), ("new", "x"), (" t4", "y")], "2 of the 3 validation rows have texts that training rows"),
    ],
    ids=["case", "contradiction", "rare", "shared"],
)
def test_doubtful_rows_are_called_out(rows, other, warning, tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *rows)
    validation = write_rows(tmp_path, ("text", "label"), *(other or [("new", "x")]), name="other.csv")
    assert any(found.startswith(warning) for found in load_task(custom_task(None, train, validation, **TEXT)).warnings)


def test_the_cache_is_used_until_file_task_or_columns_change(tmp_path):
    path = write_rows(tmp_path, ("a", "b", "label"), ("x", "y", 0), ("z", "w", 1))

    def cached(column="a", version=1):
        rows = load_task(replace(custom_task(None, path, path, text_column=column), version=version)).splits["train"]
        return rows.cache_files[0]["filename"], rows["text"][0]

    first = cached()
    assert cached() == first
    assert len({first[0], cached(version=2)[0], cached("b")[0]}) == 3
    write_rows(tmp_path, ("a", "b", "label"), ("v", "y", 0), ("z", "w", 1))  # of the same size
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))
    assert cached()[1] == "v"


@pytest.mark.parametrize("case", FILES["wrong"], ids=lambda case: case["says"])
def test_what_is_wrong_with_an_own_file_is_named(case, tmp_path):
    name = case["file"]
    write(tmp_path, {name: case["text"]})
    with pytest.raises(ValueError, match=f"{name}.*{case['says']}"):
        load_task(custom_task(None, name, name, **case["columns"]), tmp_path)


def test_missing_files_say_which_flag(tmp_path):
    write(tmp_path, {"own.csv": "text,label\na,x\nb,y\n"})
    named = custom_task(None, "own.csv", "own.csv", "new.csv", **TEXT)
    classes = custom_task(None, class_names="xy", **TEXT)
    unnamed = custom_task(None, test_file="own.csv", **TEXT)
    for task, splits, message in (
        (named, None, r"no new\.csv in .*, only own\.csv\. Name it with --test_file"),
        (classes, ["test"], "the test file is missing.* --test_file"),
        (classes, ["validation"], "the validation file is missing.* --validation_file"),
        (unnamed, ["test"], "the train file is missing.* --train_file, or all classes with --class_names"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            load_task(task, tmp_path, splits=splits)


ORDINAL = TEXT | {"problem_type": "ordinal"}


@pytest.mark.parametrize(
    ("family", "arguments", "message"),
    [
        ("chat", {}, "Unknown task family 'chat'"),
        ("question-answering", {}, "--task squad, with a folder of them"),
        ("entailment", {"premise_column": "a"}, "takes --premise_column and --hypothesis_column, not premise"),
        ("classification", TEXT | {"context_column": "b"}, "takes --text_column, not text, context"),
        ("multiple-choice", {"context_column": "a"}, "takes .*--choice_columns, not"),
        ("multiple-choice", CHOICES | {"problem_type": "regression"}, "has the problem_type None"),
        ("classification", TEXT | {"problem_type": "ranking"}, "has the problem_type single_label.* or"),
        ("classification", ORDINAL, "score_range is 0 and .*, not None"),
        ("classification", ORDINAL | {"score_range": (1, 5)}, "score_range is 0 and"),
        ("classification", ORDINAL | {"score_range": (0, 4.5)}, "score_range is 0 and"),
        ("classification", TEXT | {"class_names": ["one"]}, "one are not 2 or more different"),
        (None, WORDS | TEXT, "A custom tagging task takes --words_column, not text, words"),
        ("tagging", {}, "A custom tagging task takes --words_column, not no column"),
        (None, WORDS | {"label_separator": ";"}, "A tagging task has the problem_type single_label"),
    ],
)
def test_arguments_that_do_not_fit(family, arguments, message):
    with pytest.raises(ValueError, match=message):
        custom_task(family, "train.csv", **arguments)
