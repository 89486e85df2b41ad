"""Texts from files and folders, one at a time."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..files import COMPRESSIONS, read_text, reading
from ..tasks.formats import field_of, read_by_suffix

# Every row of such a file is a text.
ROWS = (".parquet", *(f"{kind}{how}" for kind in (".jsonl", ".ndjson") for how in COMPRESSIONS))
_FOUND_IN_FOLDERS = (".txt", *ROWS, *filter(None, COMPRESSIONS))
# Of WikiText: an unknown word; marks of a word that was split, as 1 @,@ 000; and the heading that begins an article.
WIKITEXT_UNKNOWN = "<unk>"
WIKITEXT_SPLIT = re.compile(r" @([-,.])@ ")
_WIKITEXT_TITLE = re.compile(r"\n(?=\s*\n = (?!= ).* = ?\n\s*\n)")


def iter_texts(paths: str | Path | Iterable[str | Path], text_column: str = "text") -> Iterator[tuple[str, str]]:
    """
    Texts of files and folders, each with its name (of a row, file and line); a `ValueError` names what is wrong.

    A folder gives its `.txt`, JSONL and Parquet files and compressed text files, sorted by path, without hidden files
    and those of macOS (`._name`, `__MACOSX`); a JSONL or Parquet file the `text_column` of its rows; any other file
    that is named is one text in UTF-8.
    """
    paths = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if missing := [path for path in paths if not path.exists()]:
        raise ValueError(f"{missing[0]}: no such file or directory")
    for path in paths:
        name = None
        for name, text in _texts_of(path, text_column):
            yield name, text
        if name is None:
            raise ValueError(f"{path}: holds no .txt file, nor rows of JSONL or Parquet")


def _texts_of(path: Path, text_column: str) -> Iterator[tuple[str, str]]:
    name = path.name.lower()
    if path.is_dir():
        for child in sorted(path.rglob("*")):
            hidden = [part for part in child.relative_to(path).parts if part.startswith(".") or part == "__MACOSX"]
            if child.name.lower().endswith(_FOUND_IN_FOLDERS) and child.is_file() and not hidden:
                yield from _texts_of(child, text_column)
    elif name.endswith(ROWS):
        yield from ((where, text_of(where, fields, text_column)) for where, fields in read_by_suffix(path))
    elif ".tar" in name or name.endswith((".tgz", ".txz")):
        raise ValueError(f"{path} is an archive: unpack it, and name the folder")
    else:
        yield str(path), read_text(path)


def text_of(where: str, fields: dict[str, Any], column: str, kind: type = str) -> Any:
    """The text in a column of a record, or what `kind` says; a `ValueError` names file, line and column for others."""
    with reading(where):
        text = field_of(fields, column)
        if not isinstance(text, kind):
            raise ValueError(f"column {column!r} holds {text!r}, a text was expected")
        return text


def unwrap_paragraphs(text: str) -> str:
    """
    One paragraph a line, and no blank lines: hard-wrapped lines, which blank lines part, are joined. A text is taken
    for hard-wrapped if nine in ten of its lines have at most 120 characters.
    """
    lines = [line.strip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    lengths = sorted(len(line) for line in lines if line)
    if lengths and lengths[int(0.9 * (len(lengths) - 1))] > 120:
        return "\n".join(line for line in lines if line)
    paragraphs = re.split(r"\n{2,}", "\n".join(lines).strip("\n"))
    return "\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def wikitext_articles(text: str) -> list[str]:
    """The articles of a WikiText file (Merity et al., 2016): ` = Title = ` between empty lines begins one."""
    return [article for article in _WIKITEXT_TITLE.split(f"\n{text}\n") if article.strip()]
