"""Anybody's own files as a task: formats, column mappings, labels, cuts, bad rows, arguments that do not fit."""

import dataclasses
import math
import random
import re
from pathlib import Path

import datasets
import pyarrow
import pytest
from pyarrow import parquet

from hf_gpt.commands import parse_arguments
from hf_gpt.tasks import CustomTask, custom_task, load_task
from hf_gpt.tasks.readers import read_parquet
from hf_gpt.training.arguments import DataArguments, FineTuningArguments

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


def test_custom_numeric_labels_sort_as_numbers(tmp_path):
    train = write_own(tmp_path, "own.parquet", [{"text": "x", "label": n} for n in (10, 9, 1)])
    assert load_task(custom_task("classification", train, train, text_column="text")).spec.label_names == (
        "1",
        "9",
        "10",
    )


def test_custom_label_names_can_rename(tmp_path):
    train = write_own(tmp_path, "own.csv", [{"text": "x", "label": n} for n in (1, 0)])
    names = {"0": "negative", "1": "positive"}
    data = load_task(custom_task("classification", train, train, text_column="text", class_names=names))
    assert (data.spec.label_names, data.splits["train"]["label"][:]) == (("negative", "positive"), [1, 0])


def test_custom_validation_label_unseen_in_training(tmp_path):
    train = write_own(tmp_path, "own.csv", OWN_ROWS)
    other = write_own(tmp_path, "dev.csv", [{"review": "so so", "stars": "fair"}])
    task = custom_task("classification", train, other, text_column="review", label_column="stars")
    with pytest.raises(ValueError, match=r"dev\.csv, line 2: the label 'fair' is not one of bad, good.*--class_names"):
        load_task(task)


def test_custom_with_one_label_only(tmp_path):
    train = write_own(tmp_path, "own.csv", OWN_ROWS[:1])
    with pytest.raises(ValueError, match=r"own\.csv: only the label 'bad'.*Check --label_column, or.*--class_names"):
        load_task(custom_task("classification", train, train, text_column="review", label_column="stars"))
    with pytest.raises(ValueError, match=r"line 2: there is no column 'label'.*review, stars"):
        load_task(custom_task("classification", train, train, text_column="review"))


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
    with pytest.raises(ValueError, match=r"row 1: 'c' holds a str, a list of choices.*choice_columns"):
        load_task(custom_task("multiple-choice", train, train, choices_column="c", first_choice="A", **columns))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task_family": "chat"}, "Unknown task family 'chat'"),
        ({"task_family": "entailment", "premise_column": "a"}, "entailment task needs --hypothesis_column"),
        (
            {"task_family": "classification", "text_column": "a", "context_column": "b"},
            "does not take --context_column",
        ),
        ({"task_family": "multiple-choice", "context_column": "a"}, "needs --choice_columns or --choices_column"),
        (
            {
                "task_family": "multiple-choice",
                "context_column": "a",
                "choices_column": "b",
                "choice_columns": ["c", "d"],
            },
            "not both",
        ),
        (
            {"task_family": "classification", "text_column": "a", "problem_type": "ranking"},
            "needs a problem_type out of",
        ),
        ({"task_family": "classification", "text_column": "a", "problem_type": "ordinal"}, "needs --score_range"),
    ],
    ids=["family", "column-missing", "column-of-another-family", "no-choices", "both-choices", "problem", "ordinal"],
)
def test_custom_arguments_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        custom_task(train_file="train.csv", **arguments)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("own.xlsx", "x", r"own\.xlsx: the name does not tell the format.*\.csv, \.tsv, \.jsonl"),
        ("own.parquet", "x", r"own\.parquet: this is not a readable Parquet file"),
    ],
    ids=["unknown-suffix", "not-parquet"],
)
def test_custom_file_of_no_known_format(name, content, message, tmp_path):
    write(tmp_path, {name: content})
    with pytest.raises(ValueError, match=message):
        load_task(custom_task("classification", name, name, text_column="text"), tmp_path)


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


@pytest.mark.parametrize("split", ["validation", "test"])
def test_texts_that_a_given_file_shares_with_training_are_counted(split, tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *[(f"Text {n}", n % 2) for n in range(20)])
    other = write_rows(tmp_path, ("text", "label"), ("text  3", 1), ("new", 0), ("TEXT 4", 0), name="other.csv")
    given = {f"{split}_file": other}
    data = load_task(custom_task("classification", train, text_column="text", validation_size=2, **given))
    assert len(data.warnings) == 1
    assert data.warnings[0].startswith(f"2 of the 3 {split} rows have texts that training rows have too")
    same = load_task(custom_task("classification", train, train, train, text_column="text"))
    assert [warning[:12] for warning in same.warnings] == ["20 of the 20"] * 2


# Several labels a row.

SEVERAL = [("a", "billing;angry"), ("b", "shipping"), ("c", "billing; shipping"), ("d", "angry")]
MULTIPLE = {"text_column": "text", "problem_type": "multi_label_classification"}


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
    assert data.splits["test"]["label"][:] == [[-1, -1]]
    wrong = write_rows(tmp_path, header, ("a", 1, 2), name="wrong.csv")
    with pytest.raises(ValueError, match=r"wrong\.csv, line 2: 'angry' holds '2', 0 or 1 was expected"):
        load_task(custom_task(None, wrong, wrong, text_column="text", label_columns=["billing", "angry"]))


SCORES = [(f"text {n}", f"{n}.5") for n in range(20)]
SUSPICIOUS_LABELS = {
    "joined": (MULTIPLE, SEVERAL, r"'billing;angry' looks like several.*--label_separator ';'"),
    "joined-once-each": (MULTIPLE, [("a", "x;y"), ("b", "z"), ("c", "v;u")], r"'x;y' looks like several"),
    "joined-by-a-slash": (MULTIPLE, [("a", "x/y"), ("b", "z|x")], r"'x/y' looks.*--label_separator '/'"),
    "joined-with-named-classes": (
        MULTIPLE | {"class_names": ["angry", "billing", "shipping"]},
        SEVERAL,
        r"line 2: the label 'billing;angry' is not one of.*did you mean --label_separator ';'\?",
    ),
    "joined-in-single-label": (
        {"text_column": "text", "class_names": ["angry", "billing", "shipping"]},
        SEVERAL,
        r"did you mean --problem_type multi_label_classification --label_separator ';'\?",
    ),
    "decimals": ({"text_column": "text"}, SCORES, r"own\.csv: the labels are numbers with decimals, such as 0\.5"),
    "whole-scores": (
        {"text_column": "text"},
        [(f"t{n}", n * n) for n in range(20)],
        r"20 different labels in 20 rows\. Did you mean --problem_type regression\?.*--class_names",
    ),
    "texts-as-labels": (
        {"text_column": "text"},
        [(f"t{n}", f"other text {n}") for n in range(20)],
        r"20 different labels in 20 rows\. Is --label_column the right one\?",
    ),
}


@pytest.mark.parametrize("name", SUSPICIOUS_LABELS)
def test_labels_that_are_something_else_are_refused(name, tmp_path):
    columns, rows, message = SUSPICIOUS_LABELS[name]
    train = write_rows(tmp_path, ("text", "label"), *rows)
    with pytest.raises(ValueError, match=message):
        load_task(custom_task("classification", train, train, **columns))


def test_decimal_classes_can_be_named(tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *SCORES)
    names = [label for _, label in SCORES]
    assert load_task(custom_task(None, train, train, text_column="text", class_names=names)).spec.num_labels == 20


@pytest.mark.parametrize(
    ("options", "rows", "warning"),
    [
        (MULTIPLE, [("a", "x"), ("b", "y")], "Every row of own.csv has exactly one label"),
        ({"text_column": "text"}, SEVERAL, "'billing;angry' is a class of its own"),
    ],
    ids=["one-label-each", "joined-classes"],
)
def test_labels_that_may_be_something_else_are_told(options, rows, warning, tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *rows)
    data = load_task(custom_task("classification", train, train, **options))
    assert data.warnings[0].startswith(warning)


def test_a_list_of_labels_without_multi_label(tmp_path):
    train = write_own(tmp_path, "own.jsonl", [{"text": "x", "label": ["a", "b"]}, {"text": "y", "label": ["a"]}])
    with pytest.raises(ValueError, match=r"line 1: a label was expected, a list.*--problem_type multi_label"):
        load_task(custom_task("classification", train, train, text_column="text"))


# Choices.


@pytest.mark.parametrize(
    ("answers", "first", "flag"),
    [(["c", "d"], "text", "text"), (["C", "A"], "A", "A"), (["c ", "a"], "a", "a"), (["3", "1"], 1, "1")],
    ids=["text", "letters", "small-letters", "from-one"],
)
def test_how_a_file_counts_choices_is_guessed(answers, first, flag, tmp_path):
    choices = [("a", "b", "c"), ("d", "e", "f")] if first == "text" else [("k", "l", "m"), ("n", "o", "p")]
    rows = [(f"s{n}", *texts, answer) for n, (texts, answer) in enumerate(zip(choices, answers, strict=True))]
    train = write_rows(tmp_path, ("story", "c1", "c2", "c3", "label"), *rows)
    columns = {"context_column": "story", "choice_columns": ["c1", "c2", "c3"]}
    with pytest.raises(ValueError, match=rf"line 2: the answer.*Did you mean --first_choice {flag}\?"):
        load_task(custom_task(None, train, train, **columns))
    data = load_task(custom_task(None, train, train, first_choice=first, **columns))
    assert data.splits["train"]["label"][:] == [2, 0]


def test_a_choice_that_is_there_twice_is_no_answer_by_text(tmp_path):
    train = write_rows(tmp_path, ("c", "x", "y", "z", "label"), ("s", "a", "b", "a", "a"))
    columns = {"context_column": "c", "choice_columns": ["x", "y", "z"], "first_choice": "text"}
    with pytest.raises(ValueError, match=r"the answer 'a' is not one of the row's 3 choices, by its text"):
        load_task(custom_task(None, train, train, **columns))


# What is wrong with files and rows.


@pytest.mark.parametrize(
    ("header", "name", "flag"),
    [("text;label", "own.csv", "';'"), ("text\tlabel", "own.csv", r"'\t'"), ("text,label", "own.tsv", "','")],
    ids=["semicolon", "tab", "comma"],
)
@pytest.mark.parametrize("line", ["{}{}", '"{}"{}'], ids=["plain", "quoted"])
def test_another_delimiter_is_named(header, name, flag, line, tmp_path):
    delimiter = header[4]
    own = write(
        tmp_path,
        {name: "".join(line.format(t, f"{delimiter}{n}\n") for t, n in [("text", "label"), ("a, b", 0), ("c", 1)])},
    )
    with pytest.raises(ValueError, match=rf"{name}, line 1: the columns seem.*--delimiter {re.escape(flag)}"):
        load_task(custom_task(None, name, name, text_column="text"), own)
    arguments = CustomTask(train_file=name, validation_file=name, text_column="text", delimiter=flag.strip("'"))
    if name == "own.csv" or line.startswith('"'):
        assert load_task(arguments.spec(), own).splits["train"]["text"][:] == ["a, b", "c"]


@pytest.mark.parametrize("content", ["", "text,label\n"], ids=["nothing", "header-only"])
def test_an_empty_file_is_said_to_be_empty(content, tmp_path):
    write(tmp_path, {"own.csv": content})
    with pytest.raises(ValueError, match=r"own\.csv: no rows were found for the train split: it is empty"):
        load_task(custom_task(None, "own.csv", text_column="text"), tmp_path)


def test_a_missing_file_is_guessed_with_its_folder(tmp_path):
    write(tmp_path, {"rows/tickets.csv": "text,label\na,x\nb,y\n"})
    with pytest.raises(FileNotFoundError, match=rf"no tikets\.csv in {tmp_path}/rows .*Did you mean tickets\.csv\?"):
        load_task(custom_task(None, "rows/tikets.csv", text_column="text"), tmp_path)
    task = custom_task(None, "rows/tickets.csv", "rows/tickets.csv", "rows/new.csv", text_column="text")
    with pytest.raises(FileNotFoundError, match=r"no new\.csv.*Correct --test_file"):
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


def test_bad_rows_are_counted_and_can_be_skipped(tmp_path):
    train = write_rows(tmp_path, ("text", "label"), *BAD_ROWS)
    task = custom_task(None, train, train, text_column="text")
    message = (
        r"line 3: the text of 'text' is empty\..* 4 of the 7 rows are wrong, the next: line 4: the label in 'label' "
        r"is empty; line 6: the text of 'text' is empty; and so on\. --skip_bad_rows leaves them out\."
    )
    with pytest.raises(ValueError, match=message):
        load_task(task)
    for _ in range(2):  # read, and from the cache
        data = load_task(custom_task(None, train, train, text_column="text", skip_bad_rows=True))
        assert data.splits["train"]["text"][:] == ["a", "c", "e"]
        assert data.notes["train"].startswith("own.csv: 3 rows, 4 more left out as they are wrong (line 3: the text")


@pytest.mark.parametrize("column", ["text", "label", "id"])
def test_half_a_surrogate_pair_is_named_in_every_column(column, tmp_path):
    rows = [{"text": "t", "label": "x", "id": "1"}, {"text": "u", "label": "y", "id": "2"}]
    train = write_own(tmp_path, "own.jsonl", [*rows, rows[0] | {column: "\ud800"}])
    with pytest.raises(ValueError, match=r"own\.jsonl, line 3: .*half of a surrogate pair"):
        load_task(custom_task(None, train, train, text_column="text", id_column="id"))


def test_whole_numbers_of_thousands_of_digits_are_labels_too(tmp_path):
    train = write_own(tmp_path, "own.csv", [{"text": "t", "label": "9" * 5000}, {"text": "u", "label": "1"}])
    assert load_task(custom_task(None, train, train, text_column="text")).spec.num_labels == 2


@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
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


def test_flags_reach_the_task():
    flags = ["--train_file", "a.csv", "--text_column", "t", "--label_columns", "x", "y", "--delimiter", r"\t"]
    flags += [
        "--skip_bad_rows",
        "--quoted",
        "false",
        "--encoding",
        "latin-1",
        "--id_column",
        "n",
        "--first_choice",
        "1",
    ]
    (arguments,) = parse_arguments((CustomTask,), [*flags, "--validation_size", "5"])
    task = arguments.spec()
    layout = task.layouts[0]
    assert layout.read.keywords == {"delimiter": "\t", "quoted": False, "encoding": "latin-1"}
    assert (layout.skip_bad_rows, layout.columns["id"], task.label_names) == (True, "n", ("x", "y"))
    assert (task.cut.size, task.cut.group_by) == (5, ("text",))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delimiter": ";;"}, "--delimiter is one character"),
        ({"encoding": "klingon"}, "--encoding klingon: there is no such encoding"),
        ({"encoding": "utf-16"}, "Save the file as UTF-8"),
        ({"first_choice": "AB"}, "--first_choice is 0, 1, a letter or text"),
        ({"class_names": ["one"]}, r"--class_names .* at least 2 different classes"),
        ({"label_columns": ["a", "b"], "class_names": ["a", "b"]}, "leave out --class_names"),
        ({"label_separator": ";", "problem_type": "regression"}, "are for --problem_type multi_label"),
        ({"problem_type": "ordinal", "score_range": [5]}, "--score_range is two numbers"),
    ],
    ids=["delimiter", "encoding", "utf-16", "first-choice", "one-class", "both-classes", "separator", "range"],
)
def test_options_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        custom_task("classification", "train.csv", text_column="text", **arguments)


def test_messages_name_flags_that_exist():
    """Whatever the readers of own files print as a flag is one of the command line's."""
    known = {item.name for kind in (DataArguments, FineTuningArguments) for item in dataclasses.fields(kind)}
    files = sorted((Path(__file__).resolve().parents[2] / "hf_gpt" / "tasks").glob("*.py"))
    assert "custom.py" in {file.name for file in files}
    for file in files:
        named = set(re.findall(r"--([a-z]\w+)", file.read_text(encoding="utf-8")))
        assert named - known <= {"list_tasks"}, file


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
    assert "3 of them predicted as empty (line 5: the text of 'text' is empty; " in data.notes["test"]
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
