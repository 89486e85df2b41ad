"""Texts from files, directories and archives, one at a time."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..files import ARCHIVES, COMPRESSIONS, decoded, open_bytes, read_archive, read_bytes
from ..tasks.formats import read_by_suffix

# Every row of such a file is a text.
ROWS = (".parquet", *(f"{kind}{how}" for kind in (".jsonl", ".ndjson") for how in COMPRESSIONS))

# Of WikiText: an unknown word; marks of a cut, which stood without spaces; and the heading that begins an article.
WIKITEXT_UNKNOWN = "<unk>"
_WIKITEXT_CUT = re.compile(r" @([-,.])@ ")
_WIKITEXT_TITLE = re.compile(r"\n(?=\s*\n = (?!= ).* = ?\n\s*\n)")


def iter_texts(paths: Iterable[str | Path], text_column: str = "text") -> Iterator[tuple[str, str]]:
    """
    Texts of files, directories and archives, each with its name (`archive/member`, or file and line of a row).

    A directory gives its `.txt`, JSONL and Parquet files, compressed text files and archives, sorted by path, without
    hidden files and those of macOS (`._name`, `__MACOSX`); an archive its `.txt` members in their order; a JSONL or
    Parquet file the `text_column` of its rows; any other file that is named is one text in UTF-8. A path that does not
    exist, holds no text, is damaged, not UTF-8, or lacks the column is a `ValueError` that names file and row.
    """
    paths = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not paths:
        raise ValueError("no text files given: name at least one file, directory or archive")
    for path in paths:
        if not path.exists():
            raise ValueError(f"{path}: no such file or directory")
    for path in paths:
        found = False
        for name, text in _texts_of_path(path, text_column):
            found = True
            yield name, text
        if not found:
            raise ValueError(f"{path}: holds no .txt file, nor rows of JSONL or Parquet")


def unwrap_paragraphs(text: str) -> str:
    """
    Joins the hard-wrapped lines of each paragraph, which blank lines part: one paragraph a line, and no blank lines. A
    text is taken for hard-wrapped if nine in ten of its lines have at most 120 characters; of others (one paragraph a
    line) only the white space at the ends of lines goes.
    """
    lines = [line.strip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    lengths = sorted(len(line) for line in lines if line)
    if not lengths:
        return ""
    if lengths[int(0.9 * (len(lengths) - 1))] > 120:
        return "\n".join(line for line in lines if line)
    paragraphs = re.split(r"\n{2,}", "\n".join(lines).strip("\n"))
    return "\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def wikitext_articles(text: str) -> list[str]:
    """
    The articles of a WikiText file (Merity et al., 2016), each with its headings: ` = Title = ` between empty lines
    begins one, ` = = Section = = ` a part of it.
    """
    return [article for article in _WIKITEXT_TITLE.split(f"\n{text}\n") if article.strip()]


def join_wikitext_cuts(text: str) -> str:
    """A text of WikiText without its marks: `1 @,@ 000` is `1,000`."""
    return _WIKITEXT_CUT.sub(r"\1", text)


def _texts_of_path(path: Path, text_column: str) -> Iterator[tuple[str, str]]:
    if path.is_dir():
        wanted = (".txt", *ROWS, *filter(None, COMPRESSIONS), *ARCHIVES)
        for child in sorted(path.rglob("*")):
            relative = child.relative_to(path).as_posix()
            if child.is_file() and child.name.lower().endswith(wanted) and not _is_junk(relative):
                yield from _texts_of_path(child, text_column)
    elif path.name.lower().endswith(ROWS):
        yield from _texts_of_rows(path, text_column)
    elif path.name.lower().endswith(ARCHIVES):
        for name, content in read_archive(path, lambda name: name.lower().endswith(".txt") and not _is_junk(name)):
            yield f"{path}/{name}", decoded(content, f"{path}/{name}", "utf-8-sig")
    else:
        with open_bytes(path) as file:
            yield str(path), decoded(read_bytes(file, path), path, "utf-8-sig")


def _texts_of_rows(path: Path, text_column: str) -> Iterator[tuple[str, str]]:
    for record in read_by_suffix(path):
        text = record.fields.get(text_column)
        if not isinstance(text, str):
            kind = "null" if text is None else type(text).__name__
            found = f"there is no column {text_column!r} (there are {', '.join(record.fields) or 'none'})"
            if text_column in record.fields:
                found = f"the column {text_column!r} holds {kind}, not a text"
            raise ValueError(f"{record.where}: {found}. Name the column of the texts with --text_column.")
        yield record.where, text


def _is_junk(name: str) -> bool:
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return any(part.startswith(".") or part == "__MACOSX" for part in parts)
