"""Errors of what reads files from outside: each names its file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def first_line(error: BaseException) -> str:
    """The first line of what an error says, which may be long; its type where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")


@contextmanager
def reading(path: str | os.PathLike, place: str = "") -> Iterator[None]:
    """
    The boundary around whatever reads a file from outside: any error of the block becomes one `ValueError` that says
    which file and what was wrong, `PATH, PLACE: what was wrong`. Errors that name the file already stay as they are.

    Args:
        path (`str` or `PathLike`): the file, or the folder of several.
        place (`str`, *optional*): where in the file the block reads, such as `"line 3"`.

    Raises:
        ValueError: with the error of the block as its cause; `MemoryError` and a missing library included.
        OSError: of the file system, if it names the file itself.
    """
    path = os.fspath(path)
    try:
        yield
    except Exception as error:
        if isinstance(error, ValueError | OSError) and path in str(error):
            raise
        problem = f"there is no {error}" if isinstance(error, KeyError) else first_line(error)
        raise ValueError(f"{path}{place and f', {place}'}: {problem}.") from error
