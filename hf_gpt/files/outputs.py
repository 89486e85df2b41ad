"""Output files and folders: names, atomic writes, and a folder that can be written to and belongs to one run."""

import errno
import functools
import json
import math
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

try:
    import fcntl
except ImportError:  # Windows, where nothing keeps two runs apart
    fcntl = None

METRICS, PREDICTIONS, PRETRAINING = "metrics.json", "predictions.tsv", "pretraining.json"
CARD, FACTS = "README.md", "card.yaml"
# Folder of an output folder for what is being written or deleted, never anything whole.
UNFINISHED = "unfinished"
_LOCK, _TEMPORARY = ".lock", ".tmp"
OVERWRITE = "Name another --output_dir, or replace what is there with --overwrite_output_dir."
# With less than this a disk counts as full: libraries that fail to write do not always say why.
_FULL = 2**20


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """
    A temporary path to write to, which replaces `path` when the block ends: whole, on the disk, or not at all. Missing
    folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_TEMPORARY}")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, with its newlines as they are."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; NaN and infinity, which JSON does not have, become null."""
    write_text(path, json.dumps(finite(value), indent=2, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """A value for JSON, which has no NaN and no infinity: they become null."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def contents(folder: Path) -> set[str]:
    """Names of what is in a folder, if there is one, without its lock and what a kill left of an atomic write."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return {name for name in names if name != _LOCK and not (name.startswith(".") and name.endswith(_TEMPORARY))}


def check_empty(folder: Path, overwrite: bool = False, remedy: str = OVERWRITE) -> None:
    """A `ValueError` with `remedy` if a folder is a file, or is not empty and not to be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} already exists and is a file; name a folder.")
    if contents(folder) and not overwrite:
        raise ValueError(f"{folder} already exists and is not empty. {remedy}")


def check_settings(
    folder: Path, earlier: Mapping[str, Any], settings: Mapping[str, Any], remedy: str = "Name another --output_dir."
) -> None:
    """A `ValueError` with `remedy` if what a folder holds was made with other settings than those of now."""
    names = sorted(name for name in {*earlier, *settings} if earlier.get(name) != settings.get(name))
    if names:
        raise ValueError(f"{folder} holds results of other settings ({', '.join(names)}). {remedy}")


def check_space(folder: Path, needed: int, what: str) -> None:
    """A `ValueError` if fewer than `needed` bytes are free for `what`."""
    free = _free_bytes(folder)
    if free < needed:
        raise ValueError(
            f"{what} takes {math.ceil(needed / 1e6):,} MB, and {free // 10**6:,} MB are free in {folder}: make room, "
            "or name another --output_dir."
        )


@contextmanager
def output_folder(
    folder: Path, process_index: int = 0, world_size: int = 1, shared: bool = False, beside: bool = False
) -> Iterator[None]:
    """
    Make a folder and keep it for the run in the block: others are refused until the block ends or its process dies. A
    full disk, for which every library has an error of its own, ends the block with one that says so. The folder is
    removed at the end if it was made here and is empty.

    Args:
        process_index, world_size (`int`, *optional*): the first of several processes keeps the folder for all.
        shared (`bool`, *optional*, defaults to `False`): let in other runs that share it.
        beside (`bool`, *optional*, defaults to `False`): the block makes and replaces the folder as a whole, so it is
            kept by a file beside it.

    Raises:
        ValueError: in all processes, if another run has the folder, or it cannot be written to.
        OSError: if the disk is full.
    """
    lock, problem = None, [None]
    home, name = (folder.parent, f".{folder.name}{_LOCK}") if beside else (folder, _LOCK)
    made = [path for path in (home, *home.parents) if not path.exists()]
    if process_index == 0:
        try:
            home.mkdir(parents=True, exist_ok=True)
            lock = _acquire(home / name, folder, shared)
        except FileExistsError:
            problem = [f"{folder} already exists and is a file; name a folder."]
        except OSError as error:
            remedy = "make room" if error.errno == errno.ENOSPC else "make it writable"
            problem = [f"{folder} cannot be written to ({error.strerror}): {remedy}, or name another folder."]
        except ValueError as error:
            problem = [str(error)]
    if world_size > 1:
        broadcast_object_list(problem)
    if problem[0] is not None:
        raise ValueError(problem[0])
    try:
        yield
    except Exception as error:
        if _is_full(folder, error):
            raise OSError(_full_disk(folder)) from error
        raise
    finally:
        if lock is not None:
            _release(lock, home / name)
            for path in made:
                if not path.is_dir() or any(path.iterdir()):
                    break
                path.rmdir()


def in_output_folder(run: Callable[..., Any]) -> Callable[..., Any]:
    """Has a function whose last argument is `TrainingArguments` run in `output_folder`."""

    @functools.wraps(run)
    def run_in_folder(*arguments: Any) -> Any:
        args = arguments[-1]
        with output_folder(Path(args.output_dir), args.process_index, args.world_size):
            return run(*arguments)

    return run_in_folder


def _acquire(file: Path, folder: Path, shared: bool) -> int:
    """The descriptor of a locked file; that it can be made and written to shows that the folder is usable."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not _lock(descriptor, shared):
                holder = os.read(descriptor, 200).decode(errors="replace").strip()
                raise ValueError(
                    f"Another run ({holder or 'of an unknown process'}) is writing to {folder}: wait until it has "
                    "ended, or name another folder."
                )
            if not os.fstat(descriptor).st_nlink:
                os.close(descriptor)  # the run that had it has removed it meanwhile
                continue
            if _free_bytes(file.parent) < _FULL:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
            os.fsync(descriptor)
        except (OSError, ValueError):
            os.close(descriptor)
            raise
        return descriptor


def _lock(descriptor: int, shared: bool) -> bool:
    """
    Whether the lock could be had. A lock of `lockf` is the process's own: it ends with it, however it ends, and
    children that outlive it do not hold it.
    """
    if fcntl is None:
        return True
    try:
        fcntl.lockf(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        # Other errors are those of file systems without locks.
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def _release(descriptor: int, file: Path) -> None:
    if _lock(descriptor, shared=False):  # nobody shares it
        file.unlink(missing_ok=True)
    os.close(descriptor)


def _free_bytes(folder: Path) -> int:
    usage = shutil.disk_usage(next(path for path in (folder, *folder.absolute().parents) if path.exists()))
    return usage.free if usage.total else sys.maxsize  # some file systems do not say


def _is_full(folder: Path, error: BaseException) -> bool:
    """Whether an error, or one that it came from, is that of a full disk."""
    chain = [error]
    # An error that was raised again may be among its own causes.
    while (error := error.__cause__ or error.__context__) and error not in chain:
        chain.append(error)
    return any(
        _says_full(error) or (isinstance(error, RuntimeError) and _free_bytes(folder) < _FULL) for error in chain
    )


def _says_full(error: BaseException) -> bool:
    # safetensors and tokenizers pass on the text alone; torch says nothing of the disk.
    is_code = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return is_code or os.strerror(errno.ENOSPC) in str(error)


def _full_disk(folder: Path) -> str:
    return (
        f"The disk is full ({_free_bytes(folder) / 1e6:,.1f} MB are free in {folder}; the caches of data sets are in "
        "HF_HOME). What was saved before is whole: make room and give the same command again, for training with "
        "--resume_from_checkpoint last."
    )
