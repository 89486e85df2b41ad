"""Anybody's own files as a task: formats, column mappings, labels, cuts, bad rows, arguments that do not fit."""

import math
import os
import random
from dataclasses import replace
from pathlib import Path

import datasets
import pyarrow
import pytest
from pyarrow import parquet

from hf_gpt.commands import parse_arguments
from hf_gpt.tasks import CustomTask, custom_task, load_task
from hf_gpt.tasks.formats import read_parquet

from ..support.task_files import jsonl, rows_of, write

pytestmark = pytest.mark.usefixtures("own_datasets_cache")

OWN_ROWS = [{"review": "dull , slow", "stars": "bad"}, {"review": "lovely", "stars": "good"}]


def write_own(folder, name, rows):
    suffix = Path(name.removesuffix(".gz").removesuffix(".xz")).suffix
    if suffix == ".parquet":
        datasets.Dataset.from_list(rows).to_parquet(folder / name)
    elif suffix in (".csv", ".tsv"):
        delimiter = {".csv": ",", ".tsv": "\t"}[suffix]
        lines = [rows[0].keys(), *(row.values() for row in rows)]
        write(folder, {name: "".join(delimiter.join(f'"{field}"' for field in line) + "\r\n" for line in lines)})
    else:
        write(folder, {name: "\ufeff" + jsonl(*rows)})
    return folder / name


@pytest.mark.parametrize("name", ["own.csv", "own.tsv.gz", "own.jsonl", "own.jsonl.xz", "own.ndjson", "own.parquet"])
def test_custom_formats(name, tmp_path):
    train = write_own(tmp_path, name, OWN_ROWS)
    task = custom_task("classification", train, train, train, text_column="review", label_column="stars")
    data = load_task(task)
    assert data.spec.label_names == ("bad", "good")
    assert [(row["text"], row["label"]) for row in rows_of(data)] == [("dull , slow", 0), ("lovely", 1)]
    assert data.spec.metrics == ("accuracy", "f1_macro")


def test_custom_files_are_relative_to_the_data_folder(tmp_path):
    write_own(tmp_path, "own.csv", [row | {"review": f"{row['review']} {n}"} for n in range(10) for row in OWN_ROWS])
    data = load_task(custom_task("classification", "own.csv", text_column="review", label_column="stars"), tmp_path)
    assert dict(data.splits.num_rows) == {"train": 18, "validation": 2}
    assert data.notes["test"] == "left out: none was named"


def test_custom_label_names_can_rename(tmp_path):
    train = write_own(tmp_path, "own.csv", [{"text": "x", "label": n} for n in (1, 0)])
    names = {"0": "negative", "1": "positive"}
    data = load_task(custom_task("classification", train, train, text_column="text", class_names=names))
    assert (data.spec.label_names, data.splits["train"]["label"][:]) == (("negative", "positive"), [1, 0])


def test_custom_regression_keeps_scores_and_marks_missing_ones(tmp_path):
    rows = [{"a": "x", "b": "y", "score": 2.5}, {"a": "x", "b": "z", "score": -1}]
    train = write_own(tmp_path, "own.jsonl", rows)
    test = write_own(tmp_path, "test.jsonl", [{"a": "x", "b": "y"}])
    columns = {"premise_column": "a", "hypothesis_column": "b", "label_column": "score"}
    data = load_task(custom_task("similarity", train, train, test, problem_type="regression", **columns))
    assert data.splits["train"]["label"][:] == [2.5, -1]
    assert math.isnan(rows_of(data, "test")[0]["label"])
    ranged = custom_task("similarity", train, train, problem_type="ordinal", score_range=(0, 5), **columns)
    with pytest.raises(ValueError, match="line 2: the score -1 is not a number from 0 to 5"):
        load_task(ranged)


def test_custom_multi_label(tmp_path):
    train = write_own(tmp_path, "own.csv", [{"text": "x", "label": "b|a"}, {"text": "y", "label": "c"}])
    listed = write_own(tmp_path, "own.jsonl", [{"text": "x", "label": []}, {"text": "x", "label": ["c", "a"]}])
    task = custom_task("classification", train, listed, text_column="text", problem_type="multi_label_classification")
    data = load_task(task)
    assert data.spec.label_names == ("a", "b", "c")
    assert data.splits["train"]["label"][:] == [[1, 1, 0], [0, 0, 1]]
    assert data.splits["validation"]["label"][:] == [[0, 0, 0], [1, 0, 1]]


CHOICE_ROWS = [
    {"story": "S.", "c1": "a", "c2": "b", "c3": "c", "answer": "3"},
    {"story": "T.", "c1": "d", "c2": "e", "c3": "", "answer": "1"},
]


def test_custom_choices_in_columns_counted_from_one(tmp_path):
    train = write_own(tmp_path, "own.csv", CHOICE_ROWS)
    columns = {"context_column": "story", "choice_columns": ["c1", "c2", "c3"], "label_column": "answer"}
    data = load_task(custom_task("multiple-choice", train, train, first_choice=1, **columns))
    assert [(row["choices"], row["label"]) for row in rows_of(data)] == [(["a", "b", "c"], 2), (["d", "e"], 0)]
    with pytest.raises(ValueError, match=r"line 2: the answer '3'.*counted 0 to 2.*first_choice"):
        load_task(custom_task("multiple-choice", train, train, **columns))


def test_custom_choices_in_a_list_with_questions(tmp_path):
    rows = [{"c": "C", "q": "Q ?", "o": ["x", "y"], "l": "B"}, {"c": "C", "q": None, "o": ["x", "y", "z"], "l": "C"}]
    train = write_own(tmp_path, "own.parquet", rows)
    columns = {"context_column": "c", "question_column": "q", "label_column": "l"}
    data = load_task(custom_task("multiple-choice", train, train, choices_column="o", first_choice="A", **columns))
    assert [(row["question"], len(row["choices"]), row["label"]) for row in rows_of(data)] == [
        ("Q ?", 2, 1),
        ("", 3, 2),
    ]
    with pytest.raises(ValueError, match="row 1: 'c' holds a str, a list of choices was expected"):
        load_task(custom_task("multiple-choice", train, train, choices_column="c", first_choice="A", **columns))


def test_custom_unquoted_encoded_and_oddly_separated(tmp_path):
    write(tmp_path, {"own.csv": 'text;label\n"caf\xe9" he said;x\nno;y\n'.encode("latin-1")})
    options = {"delimiter": ";", "quoted": False, "encoding": "latin-1"}
    data = load_task(custom_task("classification", "own.csv", "own.csv", text_column="text", **options), tmp_path)
    assert rows_of(data)[0]["text"] == '"café" he said'


# Equal texts on one side of the cut, and warnings where they are not.


def write_rows(folder, header, *rows, name="own.csv"):
    return write(folder, {name: "".join(",".join(map(str, row)) + "\n" for row in (header, *rows))}) / name


# Family's columns, and the texts of row number n of 40; rows n and n + 20 have the same, in another guise.
REPEATED = {
    "texts": ({"text_column": "a"}, lambda n: ("Great  Film" if n < 20 else "great film", n % 20)),
    "pairs": (
        {"premise_column": "a", "hypothesis_column": "b", "task_family": "entailment"},
        lambda n: ("same premise", f"{'Text' if n < 20 else 'text'} {n % 20}"),
    ),
    "pairs-in-either-order": (
        {"premise_column": "a", "hypothesis_column": "b", "task_family": "similarity"},
        lambda n: (f"x {n}", f"y {n}") if n < 20 else (f"y {n - 20}", f"x {n - 20}"),
    ),
    "questions": (
        {"context_column": "a", "question_column": "b", "choice_columns": ["c", "d"]},
        lambda n: (f"story {n % 20}", "Why ?" if n < 20 else "why ?"),
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_cut_keeps_equal_texts_on_one_side(name, tmp_path):
    columns, texts = REPEATED[name]
    rows = []
    for n in range(40):
        first, second = texts(n)
        first, second = (f"{first} {second}", "z") if name == "texts" else (first, second)
        rows.append((first, second, f"choice {n}", "other", n % 2))
    train = write_rows(tmp_path, ("a", "b", "c", "d", "label"), *rows)
    family = columns.get("task_family")
    mapping = {key: value for key, value in columns.items() if key != "task_family"}
    data = load_task(custom_task(family, train, **mapping))
    sides = [{int(row["id"]) % 20 for row in rows_of(data, part)} for part in ("train", "validation")]
    assert not sides[0] & sides[1]
    assert data.splits["validation"].num_rows == 4
    assert "kept together, whatever their case and white space" in data.notes["validation"]
    assert not any("texts that" in warning for warning in data.warnings)


# Several labels a row.

SEVERAL = [("a", "billing;angry"), ("b", "shipping"), ("c", "billing; shipping"), ("d", "angry")]


def test_label_separator(tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *SEVERAL)
    data = load_task(custom_task("classification", train, train, text_column="text", label_separator=";"))
    assert data.spec.problem_type == "multi_label_classification"
    assert data.spec.label_names == ("angry", "billing", "shipping")
    assert data.splits["train"]["label"][:] == [[1, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0]]


def test_one_column_for_each_label(tmp_path):
    header = ("text", "billing", "angry")
    train = write_rows(tmp_path, header, ("a", 1, 0), ("b", "", "true"), ("c", "0.0", "False"))
    test = write_rows(tmp_path, ("text",), ("new",), name="test.csv")
    data = load_task(custom_task(None, train, train, test, text_column="text", label_columns=["billing", "angry"]))
    assert data.spec.label_names == ("billing", "angry")
    assert data.splits["train"]["label"][:] == [[1, 0], [0, 1], [0, 0]]
    assert data.splits["test"]["label"][:] == [[-100, -100]]
    wrong = write_rows(tmp_path, header, ("a", 1, 2), name="wrong.csv")
    with pytest.raises(ValueError, match=r"wrong\.csv, line 2: 'angry' holds '2', 0 or 1 was expected"):
        load_task(custom_task(None, wrong, wrong, text_column="text", label_columns=["billing", "angry"]))


SCORES = [(f"text {n}", f"{n}.5") for n in range(20)]


def test_decimal_classes_can_be_named(tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *SCORES)
    names = [label for _, label in SCORES]
    assert load_task(custom_task(None, train, train, text_column="text", class_names=names)).spec.num_labels == 20


# What is wrong.


def test_a_missing_file_is_guessed_with_its_folder(tmp_path):
    write(tmp_path, {"rows/tickets.csv": "text,label\na,x\nb,y\n"})
    with pytest.raises(FileNotFoundError, match=r"no rows/tikets\.csv in .*Did you mean tickets\.csv\?"):
        load_task(custom_task(None, "rows/tikets.csv", text_column="text"), tmp_path)
    task = custom_task(None, "rows/tickets.csv", "rows/tickets.csv", "rows/new.csv", text_column="text")
    with pytest.raises(FileNotFoundError, match=r"no rows/new\.csv.*Correct --test_file"):
        load_task(task, tmp_path)


def test_splits_without_a_named_file_say_which_flag(tmp_path):
    write(tmp_path, {"own.csv": "text,label\na,x\nb,y\n"})
    for split, flag in {"test": "--test_file", "validation": "--validation_file"}.items():
        with pytest.raises(FileNotFoundError, match=rf"no {split} file was named\. Give {flag}\."):
            load_task(custom_task(None, text_column="text", class_names=["x", "y"]), tmp_path, splits=[split])
    task = custom_task(None, test_file="own.csv", text_column="text")
    with pytest.raises(FileNotFoundError, match=r"Give --train_file, which the classes.*--class_names"):
        load_task(task, tmp_path, splits=["test"])


BAD_ROWS = [("a", "x"), ("", "x"), ("b", ""), ("c", "y"), (" ", "y"), ("d", ""), ("e", "y")]


def test_bad_rows_can_be_skipped(tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *BAD_ROWS)
    for _ in range(2):  # read, and from the cache
        data = load_task(custom_task(None, train, train, text_column="text", skip_bad_rows=True))
        assert data.splits["train"]["text"][:] == ["a", "c", "e"]
        assert data.notes["train"] == "own.csv: 3 rows, 4 more left out as they are wrong"
    test = load_task(custom_task(None, train, train, train, text_column="text", skip_bad_rows=True, class_names="zy"))
    assert test.splits["test"]["text"][:] == ["", "", "b", "c", "", "d", "e"]


TEXT = {"text_column": "text"}
CHOICES = {"context_column": "text", "choice_columns": ["text", "b", "c"]}
WORDS = {"words_column": "tokens", "label_column": "tags"}
WORD_ROWS = [{"tokens": ["Ada", "met", "Bob"], "tags": ["B-PER", "O", "B-PER"]}, {"tokens": ["No"], "tags": ["O"]}]
# The file, its content, the columns, and what the error says behind the file's name.
WRONG_FILES = {
    "suffix": ("own.xlsx", "x", TEXT, r"the name must end in one of \.csv, \.tsv, \.jsonl"),
    "parquet": ("own.parquet", "x", TEXT, "Parquet"),
    "empty": ("own.csv", "", TEXT, "no labels were found in 'label', at least 2 labels were expected"),
    "one-label": ("own.csv", "text,label\na,x\nb,x\n", TEXT, "x were found in 'label'.*--label_column.*--class_names"),
    "no-column": ("own.tsv", "text,label\nx,1\n", TEXT, "line 2: there is no column 'label'; .* are text,label"),
    "other-label": ("own.csv", "text,label\na,z\n", TEXT | {"class_names": ["x", "y"]}, "'z' is not one of x, y"),
    "skip": ("own.csv", "text,label\n,x\na,y\n", TEXT, "line 2: the text of 'text' is empty.*--skip_bad_rows"),
    "list-of-labels": (
        "own.jsonl",
        jsonl({"text": "x", "label": ["a"]}),
        TEXT,
        "line 1: a label was expected, a list.*multi_label",
    ),
    "decimals": ("own.csv", "text,label\na,0.5\nb,1\n", TEXT, "'0.5'. Did you mean --problem_type regression?"),
    "scores": (
        "own.csv",
        "text,label\n" + "".join(f"t,{n}\n" for n in range(20)),
        TEXT,
        "20 different labels in 20 rows",
    ),
    "texts": (
        "own.csv",
        "text,label\n" + "".join(f"t,s {n}\n" for n in range(20)),
        TEXT,
        "Is --label_column the right",
    ),
    "first-choice": ("own.csv", "text,b,c,label\ns,t,u,3\n", CHOICES, "the answer '3'.*counted 0 to 2 .first_choice"),
    "twice-the-text": (
        "own.csv",
        "text,b,c,label\ns,t,s,s\n",
        CHOICES | {"first_choice": "text"},
        "the answer 's' is not one of the row's 3 choices, by its text",
    ),
    "encoding": ("own.csv", "text,label\na,x\n", TEXT | {"encoding": "klingon"}, "unknown encoding: klingon"),
    "delimiter": ("own.csv", "text,label\na,x\n", TEXT | {"delimiter": ";;"}, '"delimiter" must be'),
    "few-tags": (
        "own.jsonl",
        jsonl(*WORD_ROWS, {"tokens": ["Yes", "no"], "tags": "O"}),
        WORDS,
        "line 3: 2 words and 1",
    ),
    "no-words": (
        "own.jsonl",
        jsonl(*WORD_ROWS, {"tokens": [], "tags": []}),
        WORDS,
        "line 3: 0 words where at least 1",
    ),
    "number": (
        "own.jsonl",
        jsonl(*WORD_ROWS, {"tokens": 7, "tags": "O"}),
        WORDS,
        "'tokens' holds a int, a list of words",
    ),
    "no-word": ("own.jsonl", jsonl(*WORD_ROWS, {"tokens": [None], "tags": "O"}), WORDS, r"'tokens\[0\]' is empty"),
    "surrogate": (
        "own.jsonl",
        jsonl({"text": "t", "label": "x"}, {"text": "t", "label": "\ud800"}),
        TEXT,
        "line 2: 'utf",
    ),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_what_is_wrong_with_an_own_file_is_named(case, tmp_path):
    name, content, columns, message = WRONG_FILES[case]
    write(tmp_path, {name: content})
    with pytest.raises(ValueError, match=rf"{name}.*{message}"):
        load_task(custom_task(None, name, name, **columns), tmp_path)


@pytest.mark.parametrize(
    ("family", "arguments", "message"),
    [
        ("chat", {}, "Unknown task family 'chat'"),
        ("question-answering", {}, "--task squad, with a folder of them"),
        ("entailment", {"premise_column": "a"}, "entailment task needs --hypothesis_column"),
        ("classification", TEXT | {"context_column": "b"}, "does not take --context_column"),
        ("multiple-choice", {"context_column": "a"}, "needs --choice_columns or --choices_column"),
        ("multiple-choice", CHOICES | {"choices_column": "b"}, "not both"),
        ("multiple-choice", CHOICES | {"problem_type": "regression"}, "has no problem_type and no label_names"),
        ("classification", TEXT | {"problem_type": "ranking"}, "needs a problem_type out of"),
        ("classification", TEXT | {"problem_type": "ordinal"}, "needs --score_range"),
        ("classification", TEXT | {"problem_type": "ordinal", "score_range": (1, 5)}, "a bin for each whole score"),
        ("classification", TEXT | {"first_choice": "AB"}, "--first_choice is 0, 1, a letter or text"),
        ("classification", TEXT | {"class_names": ["one"]}, "--class_names .* at least 2 different classes"),
        ("classification", TEXT | {"label_columns": ["a", "b"], "class_names": "ab"}, "leave out --class_names"),
        ("classification", TEXT | {"label_separator": ";", "problem_type": "regression"}, "are for --problem_type"),
        ("classification", TEXT | {"keep_columns": ["label"]}, "predictions.tsv has a column of that name"),
        (None, WORDS | TEXT, "A custom tagging task does not take --text_column"),
        ("tagging", {}, "A custom tagging task needs --words_column"),
        (None, WORDS | {"label_separator": ";"}, "A word has one tag"),
    ],
)
def test_arguments_that_do_not_fit(family, arguments, message):
    with pytest.raises(ValueError, match=message):
        custom_task(family, "train.csv", **arguments)


@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_a_damaged_parquet_file_is_named(compression, tmp_path):
    file = tmp_path / "own.parquet"
    rows = {"text": [f"text number {n} é" for n in range(200)], "label": ["x", "y"] * 100}
    parquet.write_table(pyarrow.table(rows), file, compression=compression)
    whole, generator, messages = file.read_bytes(), random.Random(0), []
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(4):
            content[generator.randrange(len(content))] = generator.randrange(256)
        file.write_bytes(content)
        try:
            list(read_parquet(file))
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) > 10
    assert all(message.startswith(str(file)) for message in messages)


# The same for the same seed, and from the cache until something changes.


def test_held_out_rows_follow_from_the_seed_and_cover_the_file(tmp_path):
    texts = [f"Who is {n} ?" for n in range(200)]
    train = write_rows(tmp_path, ("text", "label"), *[(text, n % 2) for n, text in enumerate(texts)])
    task = custom_task(None, train, **TEXT)
    first, again, other = (load_task(task, seed=seed) for seed in (3, 3, 4))
    held_out = [data.splits["validation"]["text"][:] for data in (first, again, other)]
    assert held_out[0] == held_out[1] != held_out[2]
    assert sorted(first.splits["train"]["text"][:] + held_out[0]) == sorted(texts)
    assert first.notes["validation"].startswith(
        "20 rows held out of the training rows (seed 3, rows with the same text"
    )
    assert first.notes["train"] == "own.csv: 200 rows; 20 held out for validation, 180 left"
    same = write_rows(tmp_path, ("text", "label"), *[("Who ?", n % 2) for n in range(20)], name="same.csv")
    with pytest.raises(ValueError, match="no group of rows with the same text"):
        load_task(custom_task(None, same, **TEXT))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_texts_that_a_given_file_shares_with_training_are_counted(split, tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *[(f"Text {n}", n % 2) for n in range(20)])
    other = write_rows(tmp_path, ("text", "label"), ("text  3", 1), ("new", 0), ("TEXT 4", 0), name="other.csv")
    data = load_task(custom_task(None, train, **TEXT, validation_size=2, **{f"{split}_file": other}))
    assert [warning[:48] for warning in data.warnings] == [
        f"2 of the 3 {split} rows have texts that training row"[:48]
    ]


def test_the_cache_is_used_until_file_task_or_columns_change(tmp_path):
    path = write_rows(tmp_path, ("a", "b", "label"), ("x", "y", 0), ("z", "w", 1))

    def cached(column="a", version=1):
        task = replace(custom_task(None, path, path, text_column=column), version=version)
        rows = load_task(task).splits["train"]
        return rows.cache_files[0]["filename"], rows["text"][0]

    first = cached()
    assert cached() == first
    assert len({first[0], cached(version=2)[0], cached("b")[0]}) == 3
    write_rows(tmp_path, ("a", "b", "label"), ("v", "y", 0), ("z", "w", 1))  # of the same size
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))
    assert cached()[1] == "v"


# Words.


@pytest.mark.parametrize(
    ("name", "content"),
    [("own.jsonl", jsonl(*WORD_ROWS)), ("own.csv", "tokens,tags\nAda met Bob,B-PER O B-PER\nNo,O\n")],
    ids=["lists", "text"],
)
def test_own_words(name, content, tmp_path):
    write(tmp_path, {name: content, "test.jsonl": jsonl({"tokens": ["Who", "?"]})})
    data = load_task(custom_task(None, name, name, "test.jsonl", **WORDS), tmp_path)
    assert (data.spec.family, data.spec.label_names) == ("tagging", ("B-PER", "O"))
    assert [(row["words"], row["label"]) for row in rows_of(data)] == [
        (["Ada", "met", "Bob"], [0, 1, 0]),
        (["No"], [1]),
    ]
    assert rows_of(data, "test")[0]["label"] == [-100, -100]
    assert data.spec.metrics == ("entity_f1", "entity_precision", "entity_recall", "accuracy")
    assert custom_task(class_names=["V", "I"], **WORDS).metrics == ("accuracy",)


def test_sentences_of_the_same_words_are_held_out_together_and_those_of_another_order_are_not(tmp_path):
    rows = [
        {"tokens": words.split(), "tags": ["O"] * 3 if n else ["O", "B-X", "O"]}
        for n, words in enumerate(["a b c", "A  B c", "c b a"] * 10)
    ]
    write(tmp_path, {"own.jsonl": jsonl(*rows)})
    data = load_task(custom_task(None, "own.jsonl", validation_size=10, **WORDS), tmp_path)
    assert len({tuple(row["words"]) for row in rows_of(data, "validation")}) == 1


# The flags.


@pytest.mark.parametrize(
    ("flags", "family"),
    [
        (["--text_column", "t"], "classification"),
        (["--premise_column", "p", "--hypothesis_column", "h"], "entailment"),
        (["--context_column", "c", "--choice_columns", "x", "y"], "multiple-choice"),
        (["--context_column", "c", "--choices_column", "x"], "multiple-choice"),
        (["--premise_column", "p", "--hypothesis_column", "h", "--task_family", "similarity"], "similarity"),
    ],
    ids=["text", "pair", "choices", "list", "given"],
)
def test_columns_tell_the_family(flags, family):
    (arguments,) = parse_arguments((CustomTask,), ["--train_file", "own.csv", *flags])
    assert arguments.spec().family == family


# Rows that are predicted, and warnings about rows that are learnt from.


def test_every_row_of_a_test_file_stays_in_its_place(tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *[(f"Text {n}", n % 2) for n in range(20)])
    content = 'key,text\nk0,first\nk1,"two\nlines"\nk2,\n,\nk4, \nk5,last\n'
    test = write(tmp_path, {"new.csv": content}) / "new.csv"
    columns = {"text_column": "text", "keep_columns": ["key", "text"]}
    data = load_task(custom_task(None, train, train, test, **columns))
    rows = rows_of(data, "test")
    assert [row["id"] for row in rows] == list("012345")
    assert [row["text"] for row in rows] == ["first", "two\nlines", "", "", "", "last"]
    assert rows[1]["kept"] == ["k1", "two\nlines"]
    assert data.notes["test"].endswith("3 of them predicted as empty")
    named = load_task(custom_task(None, train, train, test, id_column="key", text_column="text"))
    assert named.splits["test"]["id"][:] == ["k0", "k1", "k2", "", "k4", "k5"]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        ({"premise_column": "a", "hypothesis_column": "b"}, [("x", "y"), ("x", "")]),
        ({"context_column": "a", "choice_columns": ["a", "b"]}, [("x", "y"), ("x", ""), ("", "")]),
        ({"words_column": "a"}, [("two words", ""), ("", "")]),
    ],
    ids=["pair", "choices", "words"],
)
def test_empty_rows_of_every_family(columns, rows, tmp_path):
    names = {"class_names": ["0", "1"]} if "context_column" not in columns else {}
    test = write_rows(tmp_path, ("a", "b"), *rows)
    data = load_task(custom_task(None, test_file=test, **columns, **names), splits=["test"])
    found = rows_of(data, "test")
    assert [row["id"] for row in found] == [str(number) for number in range(len(rows))]
    assert not any("".join(map("".join, (found[-1][name] for name in data.spec.text_columns))))


@pytest.mark.parametrize(
    ("rows", "warning"),
    [
        (
            [("a", "Billing"), *[(f"t{n}", "billing") for n in range(6)]],
            "'Billing' and 'billing' differ in case alone",
        ),
        (
            [("a", "x"), ("A ", "y"), *[(f"t{n}", "xy"[n % 2]) for n in range(20)]],
            "1 of the 22 training rows have the",
        ),
        ([("a", "x"), *[(f"t{n}", "y") for n in range(6)]], "Too few training rows to learn a class from: 'x' has 1."),
    ],
    ids=["case", "contradiction", "rare"],
)
def test_doubtful_training_rows_are_called_out(rows, warning, tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *rows)
    assert any(warning in found for found in load_task(custom_task(None, train, train, text_column="text")).warnings)
