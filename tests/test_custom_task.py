"""Anybody's own files as a task: formats, column mappings, labels, and arguments that do not fit."""

import math
from pathlib import Path

import datasets
import pytest

from hf_gpt.tasks import custom_task, load_task

from .task_files import jsonl, rows_of, write

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
    write_own(tmp_path, "own.csv", OWN_ROWS * 10)
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
    data = load_task(custom_task("classification", train, train, text_column="text", label_names=names))
    assert (data.spec.label_names, data.splits["train"]["label"][:]) == (("negative", "positive"), [1, 0])


def test_custom_validation_label_unseen_in_training(tmp_path):
    train = write_own(tmp_path, "own.csv", OWN_ROWS)
    other = write_own(tmp_path, "dev.csv", [{"review": "so so", "stars": "fair"}])
    task = custom_task("classification", train, other, text_column="review", label_column="stars")
    with pytest.raises(ValueError, match=r"dev\.csv, line 2: the label 'fair' is not one of bad, good.*label_names"):
        load_task(task)


def test_custom_with_one_label_only(tmp_path):
    train = write_own(tmp_path, "own.csv", OWN_ROWS[:1])
    with pytest.raises(ValueError, match=r"own\.csv: only the label 'bad'"):
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
        ({"family": "chat"}, "Unknown task family 'chat'"),
        ({"family": "entailment", "premise_column": "a"}, "entailment task needs hypothesis_column"),
        ({"family": "classification", "text_column": "a", "context_column": "b"}, "does not take context_column"),
        ({"family": "multiple-choice", "context_column": "a"}, "needs choices_column or choice_columns"),
        (
            {"family": "multiple-choice", "context_column": "a", "choices_column": "b", "choice_columns": ["c", "d"]},
            "not both",
        ),
        ({"family": "classification", "text_column": "a", "problem_type": "ranking"}, "needs a problem_type out of"),
        ({"family": "classification", "text_column": "a", "problem_type": "ordinal"}, "needs score_range"),
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
