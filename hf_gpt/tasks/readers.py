"""Readers of data files: one file in, a stream of records out, each knowing where it stands.

A reader is a function ``read(path, ...) -> Iterator[Record]`` that holds one record at a time. It knows formats
(delimited text, JSON lines, XML, Parquet, ...), not tasks. Plain, ``.gz`` and ``.xz`` files read the same.
Whatever is wrong with a file is a `ValueError` that names the file and the line, what was expected, and what to do.
"""

import csv
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from xml.parsers import expat

from ..files import COMPRESSIONS, decoded, input_error, open_bytes, place, read_archive, read_text_lines

# csv's own limit of 131,072 characters is shorter than some documents.
LONGEST_FIELD = 2**27
# What may separate columns, and how a message and a command line write it.
DELIMITERS = {",": "','", ";": "';'", "\t": r"'\t'", "|": "'|'"}


class Record(NamedTuple):
    """One item of a file: its fields by name, and the place to name when something is wrong with it."""

    path: str
    number: int
    fields: dict[str, Any]
    unit: str = "line"

    @property
    def where(self) -> str:
        return place(self.path, self.number, self.unit)


class BadRowError(ValueError):
    """One row is wrong, in a file that can be read on behind it; problem and remedy are as for `input_error`."""

    def __init__(self, record: Record, problem: str, remedy: str) -> None:
        super().__init__(str(input_error(record.where, problem, remedy)))
        self.summary = f"{record.unit} {record.number}: {problem.rstrip('.')}"


class EmptyTextError(BadRowError):
    """A row lacks a text."""


def read_delimited(
    path: Path,
    delimiter: str = ",",
    names: Sequence[str] | None = None,
    quoted: bool = True,
    extra_fields: bool = False,
    short_rows: bool = False,
    encoding: str = "utf-8",
) -> Iterator[Record]:
    """
    Rows of a CSV or TSV file.

    Args:
        names (sequence of `str`, *optional*): the columns of a file that has no header row.
        quoted (`bool`, defaults to `True`): whether double quotes enclose fields; `False` for files such as GLUE's,
            where a quote is a character like any other.
        extra_fields (`bool`, defaults to `False`): whether rows may go on after the last named column.
        short_rows (`bool`, defaults to `False`): whether rows may break off early; what they lack is None.
    """
    path_name = str(path)
    lines = read_text_lines(path, encoding)
    if names is None:
        lines = _with_checked_header(path, lines, delimiter)
    for number, row in _delimited_rows(path, lines, delimiter, quoted):
        if names is None:
            names = [name.strip() for name in row]
            repeated = {name for name in names if names.count(name) > 1}
            if repeated:
                problem = f"the header names a column twice: {', '.join(sorted(repeated))}."
                raise input_error(place(path, number), problem, "Rename one of the two.")
            continue
        if short_rows:
            row += [None] * (len(names) - len(row))
        if len(row) < len(names) or (len(row) > len(names) and not extra_fields):
            advice = "A field cannot contain the delimiter or a line end."
            if quoted:
                advice = "Enclose fields that contain the delimiter, a quote or a line end in double quotes."
            raise _wrong_count(path, number, len(row), "field", names, advice)
        yield Record(path_name, number, dict(zip(names, row, strict=False)))


def _wrong_count(path: Path, number: int, found: int, what: str, names: Sequence[str], remedy: str) -> ValueError:
    problem = f"{found} {what}{'s' * (found != 1)} where {len(names)} were expected ({', '.join(names)})."
    return input_error(place(path, number), problem, remedy)


def _with_checked_header(path: Path, lines: Iterator[tuple[int, str]], delimiter: str) -> Iterator[tuple[int, str]]:
    """The lines, unless the first that is not blank is separated by something else than the delimiter."""
    is_header = True
    for number, line in lines:
        if is_header and line.strip():
            is_header = False
            found = max(DELIMITERS, key=line.count)
            if delimiter not in line and found in line:
                expected = DELIMITERS.get(delimiter, repr(delimiter))
                raise input_error(
                    place(path, number),
                    f"the columns seem to be separated by {DELIMITERS[found]}, {expected} was expected.",
                    f"With --task custom add --delimiter {DELIMITERS[found]}, or write the file with {expected}.",
                )
        yield number, line


def _delimited_rows(
    path: Path, lines: Iterator[tuple[int, str]], delimiter: str, quoted: bool
) -> Iterator[tuple[int, list[str]]]:
    if not quoted:
        yield from ((number, line.split(delimiter)) for number, line in lines if line.strip(" "))
        return
    number = 1
    csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))
    try:
        # Quotes in the wrong place raise instead of swallowing the rest of the file (strict).
        rows = csv.reader((line + "\n" for _, line in lines), delimiter=delimiter, strict=True)
        for row in rows:
            if len(row) > 1 or any(field.strip() for field in row):
                yield number, row
            number = rows.line_num + 1
    except csv.Error as error:
        raise input_error(
            place(path, number),
            f"the quotes of this row do not match ({error}).",
            'Double a quote inside a quoted field (""), or with --task custom take quotes as text (--quoted false).',
        ) from error


def read_jsonl(path: Path, encoding: str = "utf-8") -> Iterator[Record]:
    """Objects of a JSON lines file, one per line; blank lines are passed over."""
    path_name = str(path)
    for number, line in read_text_lines(path, encoding):
        if not line.strip():
            continue
        remedy = "Write one whole JSON object on each line."
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:  # a ValueError of its own for integers of thousands of digits
            raise input_error(place(path, number), f"this is not valid JSON ({error}).", remedy) from error
        if not isinstance(fields, dict):
            problem = f"a JSON object was expected, a {type(fields).__name__} was found."
            raise input_error(place(path, number), problem, remedy)
        yield Record(path_name, number, fields)


def read_text_file(path: Path, encoding: str = "utf-8") -> Iterator[Record]:
    """A whole text file as one item with the fields `path` and `text`."""
    text = "\n".join(line for _, line in read_text_lines(path, encoding))
    yield Record(str(path), 1, {"path": path.as_posix(), "text": text}, "item")


def read_tar(path: Path, pattern: str, encoding: str = "utf-8") -> Iterator[Record]:
    """Text files of an archive, each as one item like those of `read_text_file`; `pattern` as in `PurePath.match`."""
    for name, content in read_archive(path, lambda name: PurePosixPath(name).match(pattern)):
        where = f"{path}, {name}"
        yield Record(where, 1, {"path": name, "text": decoded(content, where, encoding)}, "item")


def read_label_then_text(path: Path, encoding: str = "utf-8") -> Iterator[Record]:
    """Lines of a label, white space and the text, as `label` and `text`."""
    path_name = str(path)
    for number, line in read_text_lines(path, encoding):
        parts = line.split(maxsplit=1)
        if not parts:
            continue
        if len(parts) < 2:
            problem = f"a label and a text were expected, {line!r} was found."
            raise input_error(place(path, number), problem, "Complete the line.")
        yield Record(path_name, number, {"label": parts[0], "text": parts[1]})


def read_sentences(path: Path, names: Sequence[str], delimiter: str | None = None) -> Iterator[Record]:
    """
    Sentences of a file with a word on each line and a blank line between sentences (CoNLL); the fields of a sentence,
    which `names` calls, are lists. Columns are parted by white space, or by a tab (CoNLL-U): then lines that begin
    with `#` are comments, of which `# name = value` is a field of the sentence.
    """
    fields: dict[str, Any] = {}
    first = 0
    for number, line in itertools.chain(read_text_lines(path), [(0, "")]):
        if not line.strip():
            if first:
                yield Record(str(path), first, fields)
            fields, first = {}, 0
        elif delimiter == "\t" and line.startswith("#"):
            name, equals, value = line[1:].partition("=")
            fields |= {name.strip(): value.strip()} if equals else {}
        else:
            first = first or number
            cells = line.split(delimiter)
            if len(cells) != len(names):
                remedy = "Complete the line, or leave it empty between sentences."
                raise _wrong_count(path, number, len(cells), "column", names, remedy)
            for name, cell in zip(names, cells, strict=True):
                fields.setdefault(name, []).append(cell)


def read_parquet(path: Path) -> Iterator[Record]:
    """Rows of a Parquet file, read in batches."""
    import pyarrow
    from pyarrow import parquet

    path_name = str(path)
    number = 0
    try:
        # `ParquetFile` closes only what it opened itself.
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for fields in batch.to_pylist():
                    number += 1
                    yield Record(path_name, number, fields, "row")
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the file system's, which names the file itself
            raise
        where, problem = place(path, number + 1, "row") if number else path, "this is not a readable Parquet file"
        raise input_error(where, f"{problem} ({error}).", "Download or write it again.") from error


def read_xml(path: Path, item: str) -> Iterator[Record]:
    """
    Elements named `item` of an XML file: their attributes and the text of their children, as fields.

    The document type may be named, as COPA's files do, but nothing is fetched, and a file that declares or uses
    entities of its own is refused: they can blow up in memory or pull in other files.
    """
    items: list[Record] = []
    inside: list[str] = []  # names of open elements, from the item down
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(name: str, attributes: dict[str, str]) -> None:
        if name == item:
            items.append(Record(str(path), parser.CurrentLineNumber, dict(attributes)))
        elif inside:
            items[-1].fields.setdefault(name, "")
        if name == item or inside:
            inside.append(name)

    def text(characters: str) -> None:
        if len(inside) > 1:
            items[-1].fields[inside[-1]] += characters

    def end(name: str) -> None:
        del inside[-1:]

    def refuse(*_: object) -> None:
        problem = "the file declares or uses XML entities, which are not read."
        raise input_error(place(path, parser.CurrentLineNumber), problem, "Write the characters themselves.")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.EntityDeclHandler = parser.UnparsedEntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = parser.SkippedEntityHandler = refuse

    try:
        with open_bytes(path) as file:
            parser.ParseFile(file)
    except expat.ExpatError as error:
        # An empty file is one that the caller reports, with the words it has for all formats.
        if error.code != expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS] or parser.CurrentByteIndex > 0:
            problem = f"this is not well-formed XML ({expat.ErrorString(error.code)})."
            raise input_error(place(path, error.lineno), problem, "Correct the file or download it again.") from error
    yield from items


read_tsv = partial(read_delimited, delimiter="\t")
"""Tab-separated with quotes, as pandas writes it."""
read_plain_tsv = partial(read_delimited, delimiter="\t", quoted=False)
"""Tab-separated where a quote is a character like any other, as in GLUE."""

READERS_BY_SUFFIX: dict[str, Callable[..., Iterator[Record]]] = {
    ".csv": read_delimited,
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_jsonl,
    ".parquet": read_parquet,
}


def read_by_suffix(
    path: Path, delimiter: str | None = None, quoted: bool = True, encoding: str = "utf-8"
) -> Iterator[Record]:
    """
    The records of a file in the format that its name tells, whatever it is compressed with; `delimiter` and `quoted`
    are for delimited files.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    reader = READERS_BY_SUFFIX.get(suffixes[-1]) if suffixes else None
    if reader is None:
        remedy = f"Use a name that ends in one of {', '.join(READERS_BY_SUFFIX)} (.gz or .xz after it is fine)."
        raise input_error(path, "the name does not tell the format.", remedy)
    if reader is read_parquet:
        return reader(path)
    if reader is read_jsonl:
        return reader(path, encoding=encoding)
    return reader(path, quoted=quoted, encoding=encoding, **({"delimiter": delimiter} if delimiter else {}))
