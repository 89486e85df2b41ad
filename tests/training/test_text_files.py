"""Texts from files and archives, and hard-wrapped paragraphs made whole."""

import gzip
import io
import lzma
import tarfile
import zipfile

import pytest
from datasets import Dataset

from hf_gpt.training.text_files import iter_texts, unwrap_paragraphs


def add_member(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_tar(tmp_path, mode):
    path = tmp_path / ("books.tar" + mode[1:].replace(":", "."))
    with tarfile.open(path, mode) as archive:
        add_member(archive, "b/two.txt", "zwei é".encode())
        add_member(archive, "b/._two.txt", b"\x00\xff")
        add_member(archive, "__MACOSX/b/two.txt", b"\xff")
        add_member(archive, "b/notes.md", b"no")
        add_member(archive, "./one.txt", b"one")
    assert list(iter_texts([path])) == [(f"{path}/b/two.txt", "zwei é"), (f"{path}/./one.txt", "one")]


def test_zip(tmp_path):
    path = tmp_path / "books.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("one.TXT", "one")
        archive.writestr("._one.txt", b"\xff")
    assert list(iter_texts(path)) == [(f"{path}/one.TXT", "one")]


def test_files_and_directories(tmp_path):
    folder = tmp_path / "books"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "b.txt").write_bytes(b"\xef\xbb\xbfbom")
    (folder / "a.txt").write_text("first")
    (folder / "._a.txt").write_bytes(b"\xff")
    (folder / "table.csv").write_text("no")
    (folder / "c.txt.gz").write_bytes(gzip.compress(b"gz", mtime=0))
    (folder / "d.txt.xz").write_bytes(lzma.compress(b"xz"))
    plain = tmp_path / "README.md"
    plain.write_text("named directly")
    texts = [text for _, text in iter_texts([plain, folder])]
    assert texts == ["named directly", "first", "gz", "xz", "bom"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("broken.tar.xz", b"nothing", r"broken\.tar\.xz: the compressed file is damaged"),
        ("broken.zip", b"nothing", r"broken\.zip: this is not a readable archive"),
        ("broken.tar.bz2", b"nothing", r"broken\.tar\.bz2: the compressed file is damaged"),
        ("broken.xz", b"nothing", r"broken\.xz: the compressed file is damaged"),
        ("broken.gz", gzip.compress(b"text" * 100, mtime=0)[:-20], r"broken\.gz: the compressed file is damaged"),
        ("latin.txt", "né".encode("latin-1"), r"latin\.txt: byte 0xe9 at offset 1 is not valid utf-8"),
    ],
)
def test_damaged_files(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(iter_texts([tmp_path / name]))


def test_rows_of_jsonl_and_parquet(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "one", "n": 1}\n\n{"body": "two"}\n')
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"body": "three"}\n', mtime=0))
    Dataset.from_dict({"body": ["four", "five"]}).to_parquet(tmp_path / "c.parquet")
    (tmp_path / "d.txt").write_text("six")
    expected = [("a.jsonl, line 1", "one"), ("a.jsonl, line 3", "two"), ("b.jsonl.gz, line 1", "three")]
    expected += [("c.parquet, row 1", "four"), ("c.parquet, row 2", "five"), ("d.txt", "six")]
    assert list(iter_texts(tmp_path, "body")) == [(f"{tmp_path}/{name}", text) for name, text in expected]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"body": "x"}', r"a\.jsonl, line 2: there is no column 'text' \(there are body\)\. Name .* --text_column"),
        ('{"text": 3}', "a.jsonl, line 2: the column 'text' holds int, not a text"),
        ('{"text": null}', "a.jsonl, line 2: the column 'text' holds null, not a text"),
        ("text", "a.jsonl, line 2: Expecting value"),
    ],
)
def test_rows_without_a_text(tmp_path, row, message):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n' + row + "\n")
    with pytest.raises(ValueError, match=message):
        list(iter_texts([tmp_path / "a.jsonl"]))


def test_truncated_archive(tmp_path):
    path = tmp_path / "books.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        add_member(archive, "one.txt", bytes(range(97, 123)) * 5000)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(ValueError, match=r"books\.tar\.xz: the compressed file is damaged"):
        list(iter_texts([path]))


def test_nothing_to_read(tmp_path):
    with pytest.raises(ValueError, match="no text files given"):
        list(iter_texts([]))
    with pytest.raises(ValueError, match=r"holds no \.txt file"):
        list(iter_texts([tmp_path]))
    # Before anything is read.
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ValueError, match="nowhere: no such file or directory"):
        next(iter_texts([tmp_path / "a.txt", tmp_path / "nowhere"]))


LONG = "a line much longer than any that was wrapped by hand, which therefore is taken for a whole paragraph, " * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\n\nthree\n", "one two\nthree"),
        ("one\r\ntwo\r\n\r\n  three  \r\n", "one two\nthree"),
        ("one\n \t \n\n\ntwo", "one\ntwo"),
        (f"{LONG}\n{LONG}\nshort", f"{LONG.strip()}\n{LONG.strip()}\nshort"),
        ("", ""),
        ("\n \n", ""),
    ],
    ids=["wrapped", "carriage returns", "blank lines", "a paragraph a line", "empty", "blank"],
)
def test_unwrap_paragraphs(text, expected):
    assert unwrap_paragraphs(text) == expected
