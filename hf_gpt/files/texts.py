"""Text files: plain, compressed, or in archives. What is wrong with one is a `ValueError` that names file and line."""

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

COMPRESSIONS = ("", ".gz", ".xz")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".zip")
_OPENERS = {".gz": gzip.open, ".tgz": gzip.open, ".xz": lzma.open, ".txz": lzma.open, ".bz2": bz2.open}
# Bytes of a text, or a line, once it is unpacked: compressed, they may be a thousandth of that.
LARGEST_TEXT = 1 << 28
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_UTF8_MARK = b"\xef\xbb\xbf"


def place(path: Path | str, number: int, unit: str = "line") -> str:
    """The words by which an error names a place in a file."""
    return f"{path}, {unit} {number}"


def listing(folder: Path, most: int = 8) -> str:
    """The words by which an error names what a folder holds instead."""
    if not folder.is_dir():
        return "no such folder"
    names = sorted(path.name for path in folder.iterdir())
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "nothing"


def input_error(where: Path | str, problem: str, hint: str) -> ValueError:
    """The error for wrong input: where it is, what is wrong (and was expected), what to do."""
    return ValueError(f"{where}: {problem} {hint}")


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Opens a plain, gzip, xz or bz2 file for reading bytes; damage found while reading becomes a named error."""
    try:
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            yield file
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        if isinstance(error, OSError) and error.filename is not None:  # the file system's, which names the file itself
            raise
        raise input_error(
            path, f"the compressed file is damaged or truncated ({error}).", "Download or copy it again."
        ) from error


def read_bytes(file: BinaryIO, where: Path | str) -> bytes:
    """All of a file that may be compressed; a `ValueError` if it is too large for one text."""
    content = file.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise input_error(where, f"a text of more than {LARGEST_TEXT >> 20} MB.", "Divide it into several files.")
    return content


def read_archive(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """
    Names and contents of the `wanted` files in a tar (plain, gzip, xz or bz2) or zip archive, in its order; nothing is
    unpacked on disk.
    """
    try:
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    if not info.is_dir() and wanted(info.filename):
                        with archive.open(info) as member:
                            yield info.filename, read_bytes(member, f"{path}/{info.filename}")
            return
        # A stream, read once from front to end: going back in a compressed file would unpack it from the start.
        with open_bytes(path) as file, tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                if member.isfile() and wanted(member.name):
                    yield member.name, read_bytes(archive.extractfile(member), f"{path}/{member.name}")
    except Exception as error:  # of the libraries, which have no common base
        if str(path) in str(error):
            raise
        raise input_error(path, f"this is not a readable archive ({error}).", "Download or pack it again.") from error


def decoded(content: bytes, where: Path | str, encoding: str = "utf-8", hint: str = "Save the file as UTF-8.") -> str:
    """Bytes as text; `where` and `hint` are for the error."""
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise input_error(
            where, f"byte {content[error.start]:#04x} at offset {error.start} is not valid {encoding}.", hint
        ) from error


def read_text_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Numbered lines of a text file without their line ends; a byte order mark is dropped."""
    hint = "Save the file as UTF-8; where a command has --encoding, it may name another."
    with open_bytes(path) as file:
        # Decoded line by line, so that an error can name the line: a text stream decodes in blocks.
        for number, line in enumerate(iter(lambda: file.readline(LARGEST_TEXT + 1), b""), 1):
            if len(line) > LARGEST_TEXT:
                raise input_error(place(path, number), f"a line of more than {LARGEST_TEXT >> 20} MB.", "Divide it.")
            if number == 1:
                if line.startswith(_UTF16_MARKS):
                    raise input_error(path, f"the file is UTF-16, {encoding} was expected.", "Save it as UTF-8.")
                line = line.removeprefix(_UTF8_MARK)
            yield number, decoded(line, place(path, number), encoding, hint).rstrip("\r\n")
