"""Tasks: readers on a few lines in each publisher's format, every error by file and line, cuts, cache, real files."""

import gzip
import os
import re
from pathlib import Path

import datasets
import numpy as np
import pytest
import yaml

from hf_gpt.tasks import TASKS, Cut, Layout, TaskSpec, custom_task, get_task, load_task, task_table
from hf_gpt.tasks.families import text_task

from ..support.formats import FORMATS
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
from ..support.task_files import check_format, jsonl, label_counts, rows_of, write

pytestmark = pytest.mark.usefixtures("own_datasets_cache")


# Each task's own format: the files, what the first training row must be, and the rows of each split.


def test_every_task_has_a_format_test():
    assert set(FORMATS) == set(TASKS)


@pytest.mark.parametrize("name", FORMATS)
def test_publishers_format(name, tmp_path):
    files, first, counts = FORMATS[name]
    check_format(name, write(tmp_path, files), first, counts)


def test_copa_asks_as_its_authors_do(tmp_path):
    data = load_task("copa", write(tmp_path, FORMATS["copa"][0]))
    rows = {row["id"]: row for part in ("train", "validation") for row in rows_of(data, part)}
    assert rows["1"] == {
        "id": "1",
        "context": "It rained 1 times & more.",
        "question": "What was the cause of this?",
        "choices": ["Wet.", "Dry."],
        "label": 0,
    }
    assert (rows["2"]["question"], rows["2"]["label"]) == ("What happened as a result?", 1)


def test_story_cloze_joins_sentences_and_counts_answers_from_one(tmp_path):
    data = load_task("rocstories", write(tmp_path, FORMATS["rocstories"][0]))
    assert rows_of(data, "test")[0] == {
        "id": "s400",
        "context": "One. Two, too. Three. Four 400.",
        "question": "",
        "choices": ["Wrong 400.", "Right 400."],
        "label": 1,
    }


def test_story_cloze_holds_out_the_rows_that_the_release_holds_out(tmp_path):
    from sklearn.model_selection import train_test_split

    data = load_task("rocstories", write(tmp_path, FORMATS["rocstories"][0]))
    _, expected = train_test_split([f"s{i}" for i in range(400)], test_size=374, random_state=3535999445)
    assert set(data.splits["validation"]["id"]) == set(expected)


def test_winter_edition_of_story_cloze_has_a_test_part_without_answers(tmp_path):
    header, line = STORY_HEADER.replace(",AnswerRightEnding", ""), "t1,One.,Two.,Three.,Four.,X.,Y.\n"
    names = ("cloze_test_val__winter2018-cloze_test_ALL_val - 1 - 1.csv", "cloze_test_test__winter2018-x.csv.xz")
    write(tmp_path, dict(zip(names, (STORY_HEADER + story_lines(400), header + line), strict=True)))
    data = load_task("rocstories", tmp_path)
    assert rows_of(data, "test")[0]["label"] == -1
    assert data.notes["test"].endswith("1 rows, 1 of them without a gold label")


def test_rows_without_gold_label(tmp_path):
    sst2 = load_task("sst2", write(tmp_path, FORMATS["sst2"][0]))
    assert rows_of(sst2, "test") == [{"id": "0", "text": "unknown worth", "label": -1}]
    science = load_task(
        "openbookqa", write(tmp_path, FORMATS["openbookqa"][0] | {"dev.jsonl": jsonl(question("8", "A", "x", "y"))})
    )
    assert rows_of(science, "test")[0]["label"] == -1


def test_skipped_rows_are_counted_also_when_the_cache_is_used(tmp_path):
    write(tmp_path, FORMATS["snli"][0])
    expected = "snli_1.0_train.jsonl: 1 rows, 1 more left out for want of a gold label"
    assert load_task("snli", tmp_path).notes["train"] == expected
    assert load_task("snli", tmp_path).notes["train"] == expected


def test_only_the_asked_splits_are_read(tmp_path):
    write(tmp_path, {"snli_1.0_dev.jsonl": jsonl(SNLI)})
    data = load_task("snli", tmp_path, splits=["validation"])
    assert (set(data.splits), set(data.notes)) == ({"validation"}, {"validation"})
    write(tmp_path, {"dev.tsv": "sentence\tlabel\nfine\t1\n"})
    with pytest.raises(FileNotFoundError, match="test file is missing"):
        load_task("sst2", tmp_path, splits=["validation", "test"])
    with pytest.raises(ValueError, match="no split 'dev'"):
        load_task("snli", tmp_path, splits=["dev"])


# Input that is wrong: task, files that replace good ones, and what the message must say.
GOOD_CSV = "premise,hypothesis,label\nA.,B.,neutral\n"
PAIRS = custom_task(
    "entailment",
    "train.csv",
    "dev.csv",
    premise_column="premise",
    hypothesis_column="hypothesis",
    class_names=["entailment", "neutral", "contradiction"],
)
WRONG_FILES = {
    "empty-delimited": ("sst2", {"train.tsv": ""}, ["train.tsv: no rows were found for the train split"]),
    "header-only": ("sst2", {"train.tsv": "sentence\tlabel\n"}, ["train.tsv: no rows"]),
    "empty-jsonl": ("openbookqa", {"train.jsonl": "\n\n"}, ["train.jsonl: no rows"]),
    "empty-xml": ("copa", {"copa-test.xml": ""}, ["copa-test.xml: no rows"]),
    "empty-label-lines": ("trec", {"TREC_10.label": ""}, ["TREC_10.label: no rows"]),
    "empty-split": ("questions", {"questions.jsonl": jsonl(*OWN_QUESTIONS[:2])}, ["no rows were found for the val"]),
    "missing-column": (
        "sst2",
        {"train.tsv": "text\tlabel\nx\t1\n"},
        ["train.tsv, line 2: there is no column 'sentence'", "The columns there are: text, label"],
    ),
    "column-twice": ("pairs", {"train.csv": "premise,premise,label\n"}, ["line 1", "names a column twice: premise"]),
    "too-many-fields": (
        "pairs",
        {"train.csv": GOOD_CSV + "A.,B,C.,neutral\n"},
        ["train.csv, line 3: 4 fields where 3 were expected (premise, hypothesis, label)", "double quotes"],
    ),
    "too-few-fields": ("sst2", {"train.tsv": "sentence\tlabel\n\nfine\n"}, ["train.tsv, line 3: 1 field where 2"]),
    "unmatched-quote": (
        "pairs",
        {"train.csv": GOOD_CSV + 'A,"B,neutral\nA,B,neutral\n'},
        ["train.csv, line 3: the quo"],
    ),
    "quote-inside-quotes": (
        "pairs",
        {"train.csv": GOOD_CSV + '"A "b" c",B,neutral\n'},
        ["line 3", "quotes of this row", "--quoted false"],
    ),
    "line-of-a-row-after-a-quoted-line-end": (
        "pairs",
        {"train.csv": GOOD_CSV + '"A\nA.",B.,neutral\nA.,B.,maybe\n'},
        ["train.csv, line 5: the label 'maybe'"],
    ),
    "label-outside-set": (
        "pairs",
        {"train.csv": GOOD_CSV + "A.,B.,maybe\n"},
        ["train.csv, line 3: the label 'maybe' is not one of entailment, neutral, contradiction"],
    ),
    "label-outside-set-of-questions": (
        "trec",
        {"TREC_10.label": "HUM:ind Who ?\nANIMAL:x Which ?\n"},
        ["TREC_10.label, line 2: the label 'ANIMAL' is not one of ABBR, DESC"],
    ),
    "label-missing-in-training": (
        "sst2",
        {"train.tsv": "sentence\tlabel\nfine\t\n"},
        ["line 2: the label in 'label'"],
    ),
    "minus-one-in-training": ("sst2", {"train.tsv": "sentence\tlabel\nfine\t-1\n"}, ["the label '-1' is not one of"]),
    "line-without-text": ("trec", {"TREC_10.label": "HUM:ind\n"}, ["TREC_10.label, line 1: a label and a text"]),
    "empty-text": ("sst2", {"train.tsv": "sentence\tlabel\n \t1\n"}, ["train.tsv, line 2: the text of 'sentence'"]),
    "empty-premise": ("pairs", {"train.csv": GOOD_CSV + ",B.,neutral\n"}, ["line 3: the text of 'premise' is empty"]),
    "text-is-a-number": (
        "questions",
        {"questions.jsonl": jsonl(OWN_QUESTIONS[0] | {"text": 3})},
        ["line 1: 'text' holds a int, a text was expected"],
    ),
    "half-a-surrogate-pair": (
        "questions",
        {"questions.jsonl": jsonl(OWN_QUESTIONS[0] | {"text": "Who \ud83d ?"})},
        ["questions.jsonl, line 1: 'Who \\ud83d ?' holds half of a surrogate pair"],
    ),
    "unknown-split": (
        "questions",
        {"questions.jsonl": jsonl(OWN_QUESTIONS[0] | {"split": "dev"})},
        ["line 1: the split is 'dev'", "train, validation, test"],
    ),
    "bad-json": ("openbookqa", {"train.jsonl": '{"id": "7-1",\n'}, ["train.jsonl, line 1: this is not valid JSON"]),
    "json-of-a-huge-integer": (
        "openbookqa",
        {"train.jsonl": f'{{"id": {"9" * 5000}}}\n'},
        ["train.jsonl, line 1: this is not valid JSON"],
    ),
    "json-too-deep": ("openbookqa", {"train.jsonl": "[" * 100_000 + "\n"}, ["train.jsonl, line 1: this is not valid"]),
    "several-bad-rows": (
        "sst2",
        {"train.tsv": "sentence\tlabel\n\t1\nx\t\ny\t2\nz\t1\n"},
        [
            "train.tsv, line 2: the text",
            "3 of the 4 rows are wrong, the next: line 3: the label",
            "line 4: the label '2'",
        ],
    ),
    "comma-for-a-tab": (
        "sst2",
        {"train.tsv": "sentence,label\nx,1\n"},
        ["train.tsv, line 1: the columns", "',', '\\t'"],
    ),
    "json-list": ("openbookqa", {"train.jsonl": "[1, 2]\n"}, ["line 1: a JSON object was expected, a list"]),
    "json-of-another-shape": (
        "openbookqa",
        {"train.jsonl": jsonl({"id": "1", "text": "x"})},
        ["train.jsonl, line 1: the record is not laid out as openbookqa", "id, text"],
    ),
    "one-choice": (
        "openbookqa",
        {"train.jsonl": jsonl(question("1", "A", "only"))},
        ["train.jsonl, line 1: 1 choice where at least 2"],
    ),
    "empty-choice": (
        "openbookqa",
        {"train.jsonl": jsonl(question("1", "A", "", "b"))},
        ["line 1: the text of 'choices[0]' is empty"],
    ),
    "answer-letter-out-of-range": (
        "openbookqa",
        {"train.jsonl": jsonl(question("1", "E", "a", "b", "c"))},
        ["line 1: the answer 'E' is not one of the row's 3 choices, counted A to C"],
    ),
    "answer-index-out-of-range": (
        "stories",
        {"stories.jsonl": jsonl(OWN_STORIES[0] | {"label": 2})},
        ["stories.jsonl, line 1: the answer '2'", "counted 0 to 1", "first_choice"],
    ),
    "second-ending-missing": (
        "stories",
        {"stories.jsonl": jsonl(OWN_STORIES[0] | {"ending2": ""})},
        ["line 1: 1 choice where at least 2"],
    ),
    "not-utf8": (
        "sst2",
        {"train.tsv": b"sentence\tlabel\nfine\t1\ncaf\xe9\t1\n"},
        ["train.tsv, line 3: byte 0xe9 at offset 3 is not valid utf-8", "Save the file as UTF-8"],
    ),
    "utf-16": ("sst2", {"train.tsv": "sentence\tlabel\n".encode("utf-16")}, ["train.tsv: the file is UTF-16"]),
    "cut-short-gz": (
        "pairs",
        {"train.csv": None, "train.csv.gz": gzip.compress((GOOD_CSV + "A.,B.,neutral\n" * 99).encode())[:-9]},
        ["train.csv.gz: the compressed file is damaged"],
    ),
    "not-a-gz": ("pairs", {"train.csv": None, "train.csv.gz": GOOD_CSV}, ["train.csv.gz: the compressed file is dam"]),
    "not-an-xz": (
        "pairs",
        {"train.csv": None, "train.csv.xz": GOOD_CSV},
        ["train.csv.xz: the compressed file is dam"],
    ),
    "xml-not-well-formed": (
        "copa",
        {"copa-test.xml": COPA_TEST.replace("</p>", "", 1)},
        ["copa-test.xml, line 8: th"],
    ),
    "xml-cut-short": ("copa", {"copa-test.xml": COPA_TEST[:-9]}, ["copa-test.xml, line 9: this is not well-formed"]),
    "xml-own-entity": (
        "copa",
        {"copa-test.xml": copa_xml(("cause", 1), doctype='<!DOCTYPE c [<!ENTITY lol "lolol">]>')},
        ["copa-test.xml, line 2", "XML entities"],
    ),
    "xml-file-entity": (
        "copa",
        {"copa-test.xml": copa_xml(("cause", 1), doctype='<!DOCTYPE c [<!ENTITY f SYSTEM "file:///etc/hosts">]>')},
        ["copa-test.xml, line 2", "XML entities"],
    ),
    "xml-undeclared-entity": ("copa", {"copa-test.xml": COPA_TEST.replace("&amp;", "&lol;")}, ["XML entities"]),
    "xml-answer-out-of-range": (
        "copa",
        {"copa-test.xml": copa_xml(("cause", 1), ("effect", 3))},
        ["copa-test.xml, line 9: the answer '3'", "counted 1 to 2"],
    ),
    "xml-asks-for-something-else": ("copa", {"copa-test.xml": copa_xml(("reason", 1))}, ["line 4: the record is not"]),
    "too-few-rows-to-cut": (
        "copa",
        {"copa-dev.xml": COPA_TEST},
        ["copa-dev.xml: 1 rows: 0 rows cannot be held out of 1", "Provide more rows"],
    ),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_wrong_file_is_named_with_line_and_remedy(case, tmp_path):
    task, wrong, messages = WRONG_FILES[case]
    own_good = {
        "pairs": {"train.csv": GOOD_CSV, "dev.csv": GOOD_CSV},
        "sst2": {"dev.tsv": "sentence\tlabel\nfine\t1\n"},
    }
    good = own_good[task] if task in own_good else FORMATS[task][0]
    write(
        tmp_path,
        {name: content for name, content in (good | wrong).items() if content is not None and name not in wrong},
    )
    for name, content in wrong.items():
        if content is not None:  # as it is: a damaged archive must not be compressed once more
            (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError) as error:  # noqa: PT011 the messages are compared below
        load_task(PAIRS if task == "pairs" else task, tmp_path)
    for message in messages:
        assert message in str(error.value)
    assert len(re.findall(r"\.(?: |$)", str(error.value))) >= 2, "an error says what is wrong, and what to do"


def test_missing_file_lists_what_is_expected_and_what_is_there(tmp_path):
    write(tmp_path, {"README": "x", "trian.tsv": "x"})
    with pytest.raises(FileNotFoundError, match=r"no train\.tsv in .*Did you mean trian\.tsv\? .*--data_dir"):
        load_task("sst2", tmp_path)
    (tmp_path / "trian.tsv").unlink()
    write(tmp_path, {f"{number}.png": "x" for number in range(10)})
    with pytest.raises(
        FileNotFoundError, match=r"no train\.tsv in .*Found: 0\.png, .*, 7\.png and 3 more\. .*--data_dir"
    ):
        load_task("sst2", tmp_path)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load_task("sst2", tmp_path / "nowhere")


def test_two_files_for_one_pattern_are_not_guessed_between(tmp_path):
    write(tmp_path, {f"cloze_test_val__spring2016{i}.csv": STORY_HEADER + story_lines(3) for i in "ab"})
    with pytest.raises(ValueError, match=r"several files \(cloze.*a\.csv, cloze.*b\.csv\)"):
        load_task("rocstories", tmp_path)


def test_a_file_and_its_compressed_copy_are_read_once(tmp_path):
    write(tmp_path, {"snli_1.0_dev.jsonl": jsonl(SNLI), "snli_1.0_dev.jsonl.gz": jsonl(SNLI, SNLI)})
    assert load_task("snli", tmp_path, splits=["validation"]).splits["validation"].num_rows == 1


def test_the_hub_out_of_reach_says_where_to_get_the_files():
    with pytest.raises(ConnectionError, match=r"stanfordnlp/sst2.*gluebenchmark.*train\.tsv.*--data_dir"):
        load_task("sst2")
    with pytest.raises(FileNotFoundError, match=r"rocstories.*no copy.*rochester.*--data_dir"):
        load_task("rocstories")


def test_hub_columns_map_to_the_same_rows(monkeypatch, tmp_path):
    from hf_gpt.tasks import loading as task_loading

    labels = datasets.ClassLabel(names=["DESC", "HUM"])  # another order than ours, on purpose
    rows = datasets.Dataset.from_dict(
        {"text": [f"Who is {i} ?" for i in range(20)], "coarse_label": [0, 1] * 10},
        features=datasets.Features({"text": datasets.Value("string"), "coarse_label": labels}),
    )
    monkeypatch.setattr(task_loading.datasets, "load_dataset", lambda *args, **kwargs: rows)
    data = load_task("trec")
    assert dict(data.splits.num_rows) == {"train": 18, "validation": 2, "test": 20}
    assert rows_of(data, "test")[:2] == [
        {"id": "0", "text": "Who is 0 ?", "label": 1},
        {"id": "1", "text": "Who is 1 ?", "label": 3},
    ]


# The cut of a validation part.


def labelled_lines(folder, texts):
    return write(
        folder,
        {
            "train_5500.label": "".join(f"HUM:ind {text}\n" for text in texts),
            "TREC_10.label": "HUM:ind Who ?\n",
        },
    )


def test_cut_is_the_same_for_the_same_seed_and_covers_the_file(tmp_path):
    texts = [f"Who is {i} ?" for i in range(200)]
    labelled_lines(tmp_path, texts)
    first, again, other = (load_task("trec", tmp_path, seed=seed) for seed in (3, 3, 4))
    assert first.splits["validation"]["text"][:] == again.splits["validation"]["text"][:]
    assert first.splits["validation"]["text"][:] != other.splits["validation"]["text"][:]
    train, validation = first.splits["train"]["text"][:], first.splits["validation"]["text"][:]
    assert (len(validation), sorted(train + validation)) == (20, sorted(texts))
    assert first.notes["validation"] == (
        "20 rows cut from the training part (seed 3, rows with the same text kept together)"
    )
    assert first.notes["train"] == "train_5500.label: 200 rows; 20 cut off for validation, 180 left"


def test_cut_keeps_groups_on_one_side(tmp_path):
    labelled_lines(tmp_path, [f"Who is {i % 40} ?" for i in range(200)])
    data = load_task("trec", tmp_path)
    assert data.splits["validation"].num_rows == 20
    assert not set(data.splits["train"]["text"]) & set(data.splits["validation"]["text"])


def test_cut_that_no_group_fits_is_an_error(tmp_path):
    labelled_lines(tmp_path, ["Who ?"] * 20)
    with pytest.raises(ValueError, match="no group of rows with the same text"):
        load_task("trec", tmp_path)


def test_published_parts_that_share_texts_are_told(tmp_path):
    other, lower, new = ({"sentence1": text} for text in ("A woman eats.", "a MAN eats.", "Nobody eats."))
    write(
        tmp_path,
        {
            "snli_1.0_train.jsonl": jsonl(SNLI, SNLI | other),
            "snli_1.0_dev.jsonl": jsonl(SNLI | lower),
            "snli_1.0_test.jsonl": jsonl(SNLI | new),
        },
    )
    *_, warning = load_task("snli", tmp_path).warnings
    assert warning.startswith("1 of the 1 validation rows have texts that training rows have too")


# The cache.


def test_cache_is_used_until_the_file_changes(tmp_path):
    path = write(tmp_path, {"snli_1.0_dev.jsonl": jsonl(SNLI)}) / "snli_1.0_dev.jsonl"

    def load():
        return load_task("snli", tmp_path, splits=["validation"]).splits["validation"]

    first, again = load(), load()
    assert first.cache_files == again.cache_files
    assert first._fingerprint == again._fingerprint
    path.write_text(jsonl(SNLI | {"sentence1": "A men eats."}), encoding="utf-8")  # of the same size
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert load()[0]["premise"] == "A men eats."
    path.write_text(jsonl(SNLI, SNLI), encoding="utf-8")
    assert load().num_rows == 2


def test_cache_depends_on_the_tasks_version_and_mapping(tmp_path):
    write(tmp_path, {"train.csv": "a,b,label\nx,y,no\nz,w,yes\n", "dev.csv": "a,b,label\nx,y,no\n"})

    def cached_at(version=1, column="a"):
        layout = Layout({"text": column, "label": "label"}, train="train.csv", validation="dev.csv")
        task = text_task("mine", "Whether it is so", ("no", "yes"), layout, version=version)
        return load_task(task, tmp_path).splits["train"].cache_files[0]["filename"]

    assert len({cached_at(), cached_at(version=2), cached_at(column="b")}) == 3
    assert cached_at() == cached_at()


def test_a_wrong_file_leaves_nothing_in_the_cache(tmp_path):
    write(tmp_path, {"snli_1.0_dev.jsonl": jsonl(SNLI, SNLI | {"gold_label": "maybe"})})
    for _ in range(2):
        with pytest.raises(ValueError, match="'maybe'"):
            load_task("snli", tmp_path, splits=["validation"])


# The registry.


def test_unknown_task_lists_the_known_and_guesses():
    with pytest.raises(ValueError, match=r"no task 'SST-2'.*mean 'sst2'.*copa, hellaswag"):
        get_task("SST-2")
    with pytest.raises(ValueError, match=r"custom_task\(\.\.\.\)"):
        get_task("custom")


def test_task_table_has_a_printable_row_for_each_task():
    lines = task_table().splitlines()
    assert [line.split()[0] for line in lines] == ["task", *TASKS, "custom"]
    assert all(TASKS[line.split()[0]].licence in line for line in lines[1:-1])


@pytest.mark.parametrize("name", TASKS)
def test_declarations_are_complete(name):
    spec = TASKS[name]
    assert spec.name == name
    assert spec.licence
    assert spec.source
    assert spec.files["train"]
    assert spec.files["test"]
    assert spec.files["validation"] or spec.cut, "a published validation part, or a rule to cut one"
    wanted = {"label", *spec.text_columns} - {"question"}
    for layout in (*spec.layouts, *([spec.hub.layout] if spec.hub else [])):
        assert wanted <= set(layout.columns)
        assert layout.labels is None or len(layout.labels) == len(spec.label_names)


def test_wrong_declarations_are_refused():
    with pytest.raises(ValueError, match="multiple-choice task has no problem_type"):
        TaskSpec(
            name="x",
            family="multiple-choice",
            description="",
            metrics=("accuracy",),
            layouts=(),
            problem_type="regression",
            cut=Cut(1),
        )


# Real files.


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "folder", "splits", "expected"),
    [
        (
            "trec",
            "trec6",
            None,
            {
                ("train", "validation"): {0: 86, 1: 1162, 2: 1250, 3: 1223, 4: 835, 5: 896},
                ("test",): {0: 9, 1: 138, 2: 94, 3: 65, 4: 81, 5: 113},
            },
        ),
        ("sst2", "sst2", None, {("train",): {0: 29780, 1: 37569}, ("validation",): {0: 428, 1: 444}}),
        ("copa", "copa", None, {("train", "validation"): {0: 250, 1: 250}, ("test",): {0: 250, 1: 250}}),
        (
            "openbookqa",
            "openbookqa",
            ["train", "validation"],
            {("train",): {0: 1378, 1: 1212, 2: 1146, 3: 1221}, ("validation",): {0: 126, 1: 138, 2: 110, 3: 126}},
        ),
    ],
    ids=["trec", "sst2", "copa", "openbookqa"],
)
def test_real_files(name, folder, splits, expected, real_folder):
    data = load_task(name, real_folder(folder), splits=splits)
    for parts, counts in expected.items():
        assert label_counts(data, *parts) == counts


@pytest.mark.whole
def test_real_fine_labels(real_folder):
    data = load_task("trec50", real_folder("trec6"))
    used = set(data.splits["train"]["label"]) | set(data.splits["validation"]["label"])
    assert (len(used), len(set(data.splits["test"]["label"]))) == (50, 42)
    coarse = load_task("trec", real_folder("trec6"))
    assert np.array_equal(coarse.splits["train"]["id"][:], data.splits["train"]["id"][:])


@pytest.mark.parametrize("name", ["questions", "stories"])
def test_carried_data(name):
    data = load_task(name)
    assert set(data.splits) == {"train", "validation", "test"}
    assert all(set(part["label"]) >= {0, 1} for part in data.splits.values())


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_configuration(name):
    path = Path(__file__).resolve().parents[2] / "scripts" / "configs" / f"{name}.yaml"
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert settings["task"] == name
    if "model_name_or_path" not in settings:  # no demonstration with gpt-mini: the paper's settings
        batch = settings["per_device_train_batch_size"] * settings.get("gradient_accumulation_steps", 1)
        assert (float(settings["learning_rate"]), settings["num_train_epochs"], batch) == (6.25e-5, 3, 32)
