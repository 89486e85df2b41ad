"""Output files and folders: names, atomic writes, and a folder that can be written to and belongs to one run."""

import functools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

METRICS, PREDICTIONS, PRETRAINING = "metrics.json", "predictions.tsv", "pretraining.json"
CARD, FACTS = "README.md", "card.yaml"
# Folder of an output folder for what is being written or deleted, never anything whole.
UNFINISHED = "unfinished"
_LOCK, _TEMPORARY = ".lock", ".tmp"
OVERWRITE = "Name another --output_dir, or replace what is there with --overwrite_output_dir."


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


def check_empty(folder: Path, overwrite: bool = False, hint: str = OVERWRITE) -> None:
    """A `ValueError` with `hint` if a folder is a file, or is not empty and not to be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} already exists and is a file; name a folder.")
    if contents(folder) and not overwrite:
        raise ValueError(f"{folder} already exists and is not empty. {hint}")


def check_settings(
    folder: Path, earlier: Mapping[str, Any], settings: Mapping[str, Any], hint: str = "Name another --output_dir."
) -> None:
    """A `ValueError` with `hint` if what a folder holds was made with other settings than those of now."""
    names = sorted(name for name in {*earlier, *settings} if earlier.get(name) != settings.get(name))
    if names:
        raise ValueError(f"{folder} holds results of other settings ({', '.join(names)}). {hint}")


@contextmanager
def output_folder(
    folder: Path, process_index: int = 0, world_size: int = 1, shared: bool = False, whole: bool = False
) -> Iterator[None]:
    """
    Make a folder and keep it for the run in the block: others are refused until the block ends or its process dies.
    The folder is removed at the end if it is empty.

    Args:
        process_index, world_size (`int`, *optional*): the first of several processes keeps the folder for all.
        shared (`bool`, *optional*, defaults to `False`): let in other runs that share it.
        whole (`bool`, *optional*, defaults to `False`): the block makes and replaces the folder as a whole, so it is
            kept by a file next to it.

    Raises:
        ValueError: in all processes, if another run has the folder, or it cannot be written to.
    """
    home, name = (folder.parent, f".{folder.name}{_LOCK}") if whole else (folder, _LOCK)
    lock, problem = FileLock(home / name, timeout=0), [None]
    if process_index == 0:
        try:
            home.mkdir(parents=True, exist_ok=True)
            (home / f"{name}{_TEMPORARY}").touch()  # a lock that is there shows nothing of the rights of the folder
            (home / f"{name}{_TEMPORARY}").unlink()
            if not shared:
                lock.acquire()
        except Timeout:
            problem = [f"Another run is writing to {folder}: wait until it has ended, or name another folder."]
        except OSError as error:
            problem = [f"{folder} cannot be written to ({error.strerror}): name another folder."]
    if world_size > 1:
        from accelerate.utils import broadcast_object_list

        broadcast_object_list(problem)
    if problem[0] is not None:
        raise ValueError(problem[0])
    try:
        yield
    finally:
        if lock.is_locked:
            (home / name).unlink(missing_ok=True)  # first, or it might be the next run's
            lock.release()
        if process_index == 0 and not whole and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def in_output_folder(run: Callable[..., Any]) -> Callable[..., Any]:
    """Has a function whose last argument is `TrainingArguments` run in `output_folder`."""

    @functools.wraps(run)
    def run_in_folder(*arguments: Any) -> Any:
        args = arguments[-1]
        with output_folder(Path(args.output_dir), args.process_index, args.world_size):
            return run(*arguments)

    return run_in_folder
