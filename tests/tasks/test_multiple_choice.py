"""Tasks with choices in each publisher's layout, and their real files."""

import json

import pytest

from hf_gpt.tasks import load_task

from ..support.task_files import check_format, jsonl, label_counts, rows_of, tar, tsv, write

pytestmark = pytest.mark.usefixtures("own_datasets_cache")


def passage(key, *answers):
    return json.dumps(
        {
            "id": key,
            "article": f"The story of {key}.\n\nIt ends.",
            "questions": [f"What is _ {i} ?" for i in range(len(answers))],
            "options": [["a", "b", "c", f"d{i}"] for i in range(len(answers))],
            "answers": list(answers),
        }
    )


RACE = {
    f"RACE/{split}/{level}/{number}.txt": passage(f"{level}{number}.txt", *answers)
    for split in ("train", "dev", "test")
    for level, number, answers in (("middle", 1, "DA"), ("middle", 2, "B"), ("high", 7, "C"))
}
RACE_ROW = {
    "id": "middle1.txt-0",
    "context": "The story of middle1.txt.\n\nIt ends.",
    "question": "What is _ 0 ?",
    "choices": ["a", "b", "c", "d0"],
    "label": 3,
}


def lettered(answer, *choices, labels="ABCDE"):
    texts = [{"label": label, "text": text} for label, text in zip(labels, choices, strict=False)]
    item = {"id": "q1", "question": {"stem": "Ice is", "choices": texts, "question_concept": "ice"}}
    return item | ({"answerKey": answer} if answer else {})


def arc(part):
    train = jsonl(lettered("2", "hot", "cold", "dry", labels="1234"), lettered("C", "hot", "cold", "dry"))
    names = ("Train", "Dev", "Test")
    return {f"{part}-{name}.jsonl": train for name in names}


ARC_ROW = {"id": "q1", "context": "Ice is", "question": "", "choices": ["hot", "cold", "dry"], "label": 1}
SWAG_HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
SWAG_LINE = '0,v1,34,"He sits, then she",He sits.,"then she",gold,stands.,"sits, too.",flies.,eats.'
SWAG_ROW = {
    "id": "train-2",
    "context": "He sits, then she",
    "question": "",
    "choices": ["stands.", "sits, too.", "flies.", "eats."],
    "label": 1,
}
HELLASWAG = {
    "ind": 4,
    "activity_label": "Baking",
    "ctx_a": "[header] How to bake [title] Take flour.",
    "ctx_b": "then",
    "ctx": "[header] How to bake [title] Take flour. [step] Mix it. then",
    "split": "train",
    "split_type": "indomain",
    "endings": ["bake it. [substeps] Wait.", "eat.", "run.", "sing."],
    "source_id": "wikihow~1",
}
HELLASWAG_ROW = {
    "id": "train-1",
    "context": "Baking: How to bake. Take flour. Mix it. then",
    "question": "",
    "choices": ["bake it. Wait.", "eat.", "run.", "sing."],
    "label": 0,
}
CODAH = tsv(("i", "He", 'says "no".', "flies.", "eats.", "sits.", 2), ("o", "She", "a.", "b.", "c.", "d.", 0))

FORMATS = {
    "race": ({"RACE.tar.gz": tar(RACE)}, RACE_ROW, {"train": 4, "validation": 4, "test": 4}),
    "race_middle": ({"RACE.tar.gz": tar(RACE)}, RACE_ROW, {"train": 3, "validation": 3, "test": 3}),
    "race_high": ({"RACE.tar.gz": tar(RACE)}, None, {"train": 1, "validation": 1, "test": 1}),
    "arc_easy": (arc("ARC-Easy"), ARC_ROW, {"train": 2, "validation": 2, "test": 2}),
    "arc_challenge": (arc("ARC-Challenge"), ARC_ROW, {"train": 2, "validation": 2, "test": 2}),
    "commonsenseqa": (
        {
            "train_rand_split.jsonl": jsonl(lettered("B", *"vwxyz")),
            "dev_rand_split.jsonl": jsonl(lettered("E", *"vwxyz")),
            "test_rand_split_no_answers.jsonl": jsonl(lettered(None, *"vwxyz")),
        },
        {"id": "q1", "context": "Ice is", "question": "", "choices": list("vwxyz"), "label": 1},
        {"train": 1, "validation": 1, "test": 1},
    ),
    "swag": (
        {
            "train.csv": f"{SWAG_HEADER},label\n{SWAG_LINE},1\n",
            "val.csv": f"{SWAG_HEADER},label\n{SWAG_LINE},3\n",
            "test.csv": f"{SWAG_HEADER}\n{SWAG_LINE}\n",
        },
        SWAG_ROW,
        {"train": 1, "validation": 1, "test": 1},
    ),
    "hellaswag": (
        {
            "hellaswag_train.jsonl": jsonl(HELLASWAG | {"label": 0}),
            "hellaswag_val.jsonl": jsonl(HELLASWAG | {"label": 3}),
            "hellaswag_test.jsonl": jsonl(HELLASWAG),
        },
        HELLASWAG_ROW,
        {"train": 1, "validation": 1, "test": 1},
    ),
    "codah": (
        dict.fromkeys(("train.tsv", "dev.tsv", "test.tsv"), CODAH),
        {
            "id": "train-1",
            "context": "He",
            "question": "",
            "choices": ['says "no".', "flies.", "eats.", "sits."],
            "label": 2,
        },
        {"train": 2, "validation": 2, "test": 2},
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_publishers_format(name, tmp_path):
    files, first, counts = FORMATS[name]
    check_format(name, write(tmp_path, files), first, counts)


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
