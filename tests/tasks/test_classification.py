"""Tasks of one text: SST-5, CoLA, IMDb and AG News in each layout, and their real files."""

import gzip

import pytest

from hf_gpt.tasks import load_task

from ..support.formats.classification import COLA_LINES, NO_REVIEWS, REVIEWS
from ..support.task_files import label_counts, rows_of, tar, write

pytestmark = pytest.mark.usefixtures("own_datasets_cache")


def test_cola_as_its_authors_name_the_files_has_a_test_part_cut_off(tmp_path):
    write(tmp_path, {"in_domain_train.tsv.gz": COLA_LINES, "in_domain_dev.tsv": COLA_LINES})
    data = load_task("cola", tmp_path)
    assert dict(data.splits.num_rows) == {"train": 18, "validation": 20, "test": 2}
    assert data.notes["test"].startswith("2 rows cut from the training part (seed 0")
    assert not set(data.splits["train"]["text"]) & set(data.splits["test"]["text"])
    # The training part is the same whichever splits are asked for.
    alone = load_task("cola", tmp_path, splits=["train"])
    assert (set(alone.splits), alone.splits["train"]["id"][:]) == ({"train"}, data.splits["train"]["id"][:])


@pytest.mark.parametrize(
    ("line", "problem"),
    [("(3 (2 It) (2 works)", "no tree"), ("(7 It)", "no tree"), ("It works", "no tree"), ("(3 )", "text.*is empty")],
    ids=["open", "score", "plain", "no-words"],
)
def test_broken_trees_are_named(line, problem, tmp_path):
    write(tmp_path, {f"{name}.txt": "(2 Well)\n" for name in ("train", "test")} | {"dev.txt": f"(2 Well)\n{line}\n"})
    with pytest.raises(ValueError, match=rf"dev\.txt, line 2: .*{problem}"):
        load_task("sst5", tmp_path)


@pytest.mark.parametrize("inside", [True, False], ids=["the-folder-itself", "the-folder-above"])
def test_imdb_as_a_folder(inside, tmp_path):
    write(tmp_path, {**NO_REVIEWS, **REVIEWS})
    data = load_task("imdb", tmp_path / "aclImdb" if inside else tmp_path)
    assert dict(data.splits.num_rows) == {"train": 18, "validation": 2, "test": 20}
    assert rows_of(data, "test")[0] == {
        "id": "test/neg/0_2",
        "text": "A neg film, seen 0 times.\nReally.",
        "label": 0,
    }


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (tar({"aclImdb/train/neg/0_1.txt": " "}), "aclImdb/train/neg/0_1.txt, item 1: the text of 'text' is empty"),
        (tar(REVIEWS)[:-20], "aclImdb_v1.tar.gz: .*(damaged|not a readable archive)"),
        (b"no archive", "aclImdb_v1.tar.gz: .*(damaged|not a readable archive)"),
        (tar({"README": "x"}), "aclImdb_v1.tar.gz: no rows were found"),
    ],
    ids=["empty-review", "cut-short", "not-an-archive", "no-reviews"],
)
def test_wrong_archive(archive, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_task("imdb", write(tmp_path, {"aclImdb_v1.tar.gz": archive}))


def test_text_of_an_archive_that_is_not_utf8(tmp_path):
    archive = tar({"a/train/neg/0_1.txt": "x" * 9}, mode="w").replace(b"x" * 9, b"caf\xe9 xxxx")
    with pytest.raises(ValueError, match=r"0_1\.txt: byte 0xe9 at offset 3 is not valid utf-8"):
        load_task("imdb", write(tmp_path, {"aclImdb_v1.tar.gz": gzip.compress(archive)}))


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "folder", "labels"),
    [
        ("cola", "cola", {("train", "test"): {0: 2528, 1: 6023}, ("validation",): {0: 162, 1: 365}}),
        ("imdb", "imdb", {("train", "validation", "test"): {0: 2500, 1: 2500}}),
        ("ag_news", "ag_news", {("train", "validation", "test"): {0: 1386, 1: 1375, 2: 1349, 3: 1390}}),
    ],
    ids=["cola", "imdb", "ag_news"],
)
def test_real_files(name, folder, labels, real_folder):
    data = load_task(name, real_folder(folder))
    assert set(data.splits) == {"train", "validation", "test"}
    for parts, counts in labels.items():
        assert label_counts(data, *parts) == counts
