"""Texts from files and folders, and hard-wrapped paragraphs made whole."""

import gzip
import lzma

import pytest
from datasets import Dataset

from hf_gpt.training.text_files import iter_texts, unwrap_paragraphs


def test_files_and_folders(tmp_path):
    folder = tmp_path / "books"
    for name in ("deep", "__MACOSX"):
        (folder / name).mkdir(parents=True)
    files = {"deep/b.txt": b"\xef\xbb\xbfbom", "a.txt": b"first", "table.csv": b"no"}
    files |= {"._a.txt": b"\xff", "__MACOSX/a.txt": b"\xff"}
    files |= {"c.txt.gz": gzip.compress(b"gz", mtime=0), "d.txt.xz": lzma.compress(b"xz")}
    files |= {"e.jsonl": b'{"text": "one", "n": 1}\n\n{"text": "two"}\n'}
    files |= {"f.jsonl.gz": gzip.compress(b'{"text": "three"}\n', mtime=0), "../README.md": b"named directly"}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    Dataset.from_dict({"text": ["four", "five"]}).to_parquet(folder / "g.parquet")
    expected = {"a.txt": "first", "c.txt.gz": "gz", "d.txt.xz": "xz", "deep/b.txt": "bom"}
    expected |= {"e.jsonl, line 1": "one", "e.jsonl, line 3": "two", "f.jsonl.gz, line 1": "three"}
    expected |= {"g.parquet, row 1": "four", "g.parquet, row 2": "five"}
    named = [(f"{folder}/{name}", text) for name, text in expected.items()]
    plain = tmp_path / "README.md"
    assert [*iter_texts([plain, folder])] == [(str(plain), "named directly"), *named]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        *((f"a.{kind}", b"\xff", rf"a\.{kind}: ") for kind in ("xz", "bz2", "zip")),
        *((f"a.{kind}", b"nothing", r"is an archive: unpack it") for kind in ("tar", "tar.xz", "tgz")),
        ("a.gz", gzip.compress(b"text" * 100, mtime=0)[:-20], r"a\.gz: "),
        ("latin.txt", "né".encode("latin-1"), r"latin\.txt: .* byte 0xe9 in position 1"),
        ("a.jsonl", b'{"text": "x"}\n{"body": "x"}', r"a\.jsonl, line 2: there is no column 'text'; .* are body"),
        ("a.jsonl", b'{"text": 3}', r"a\.jsonl, line 1: column 'text' holds 3, a text was expected"),
        ("a.jsonl", b"text", r"a\.jsonl, line 1: Expecting value"),
    ],
)
def test_damaged_files(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(iter_texts([tmp_path / name]))


def test_nothing_to_read(tmp_path):
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
        ("\n \n", ""),
    ],
    ids=["wrapped", "carriage returns", "blank lines", "a paragraph a line", "blank"],
)
def test_unwrap_paragraphs(text, expected):
    assert unwrap_paragraphs(text) == expected
