"""Tasks with choices in each publisher's layout, and their real files."""

import pytest

from hf_gpt.tasks import load_task

from ..support.formats.multiple_choice import FORMATS, HELLASWAG, RACE, passage
from ..support.task_files import jsonl, label_counts, rows_of, write

pytestmark = pytest.mark.usefixtures("own_datasets_cache")


@pytest.mark.parametrize("inside", [True, False], ids=["the-folder-itself", "the-folder-above"])
@pytest.mark.parametrize("name", ["race", "race_middle", "race_high"])
def test_race_as_a_folder_gives_the_rows_of_the_archive(name, inside, tmp_path):
    write(tmp_path, RACE)
    data = load_task(name, tmp_path / "RACE" if inside else tmp_path)
    (tmp_path / "archived").mkdir()
    archived = load_task(name, write(tmp_path / "archived", FORMATS[name][0]))
    for split, part in data.splits.items():
        assert sorted(part["id"]) == sorted(archived.splits[split]["id"])
        assert sorted(part["context"]) == sorted(archived.splits[split]["context"])


def test_race_leaves_out_questions_with_an_empty_choice_but_not_in_the_test_part(tmp_path):
    broken = passage("high9.txt", "A", "B").replace('"d1"', '""')
    write(tmp_path, RACE | {f"RACE/{split}/high/9.txt": broken for split in ("train", "test")})
    data = load_task("race_high", tmp_path)
    assert dict(data.splits.num_rows) == {"train": 2, "validation": 1, "test": 3}
    assert data.notes["train"].endswith("2 rows, 1 more left out for an empty text")


def test_hidden_answers(tmp_path):
    for name in ("commonsenseqa", "swag", "hellaswag"):
        (tmp_path / name).mkdir()
        data = load_task(name, write(tmp_path / name, FORMATS[name][0]))
        assert rows_of(data, "test")[0]["label"] == -1


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("race", {"RACE/train/high/1.txt": "[" * 100_000}, r"1\.txt, item 1: the record .* as race .*RecursionError"),
        ("race", {"RACE/train/high/1.txt": "{"}, r"1\.txt, item 1: the record is not laid out as race .*JSONDecode"),
        ("race", {"RACE/train/high/1.txt": passage("x", "E")}, "item 1: the answer 'E'.*counted A to D"),
        (
            "race",
            {"RACE/train/high/1.txt": "{}"},
            "item 1: the record is not laid out as race .*KeyError: 'questions'",
        ),
        (
            "hellaswag",
            {"hellaswag_val.jsonl": jsonl(HELLASWAG | {"label": 4})},
            r"val\.jsonl, line 1: the answer '4'.*counted 0 to 3",
        ),
        (
            "hellaswag",
            {"hellaswag_val.jsonl": jsonl(HELLASWAG | {"endings": ["a", " ", "c", "d"], "label": 0})},
            r"line 1: the text of 'endings\[1\]' is empty",
        ),
        ("codah", {"train.tsv": "i\tHe\ta\tb\tc\t1\n"}, r"train\.tsv, line 1: 6 fields where 7 were expected"),
        ("swag", {"train.csv": "startphrase,label\nHe,1\n"}, r"train\.csv, line 2: there is no column 'ending0'"),
    ],
    ids=[
        "race-deep-json",
        "race-json",
        "race-answer",
        "race-keys",
        "answer",
        "empty-ending",
        "codah-fields",
        "swag-columns",
    ],
)
def test_wrong_file(name, files, message, tmp_path):
    others = FORMATS[name][0]
    if name == "race":
        others = {path: text for path, text in RACE.items() if "train" not in path}
    with pytest.raises(ValueError, match=message):
        load_task(name, write(tmp_path, others | files))


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "folder", "labels"),
    [
        ("arc_easy", "arc", {0: 548, 1: 588, 2: 578, 3: 535, 4: 2}),
        ("arc_challenge", "arc", {0: 239, 1: 296, 2: 291, 3: 293}),
        ("commonsenseqa", "commonsenseqa", {0: 1909, 1: 1973, 2: 1946, 3: 1985, 4: 1928}),
        ("swag", "swag", {0: 99, 1: 87, 2: 112, 3: 102}),
        ("hellaswag", "hellaswag", {0: 1982, 1: 1965, 2: 2060, 3: 1993}),
        ("codah", "codah", {0: 689, 1: 684, 2: 697, 3: 706}),
    ],
    ids=["arc_easy", "arc_challenge", "commonsenseqa", "swag", "hellaswag", "codah"],
)
def test_real_files(name, folder, labels, real_folder):
    data = load_task(name, real_folder(folder))
    assert label_counts(data, "train", "validation", "test") == labels
