"""
Files: settings (JSON, YAML), texts (plain, compressed, in archives) and tensors read, where whatever is wrong names
the file; outputs written atomically; output folders of one run at a time; and flags of commands as dataclass fields.
"""

import bz2
import dataclasses
import functools
import gzip
import json
import lzma
import math
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
import yaml
from filelock import FileLock, Timeout
from huggingface_hub.dataclasses import type_validator
from safetensors import safe_open
from tqdm import tqdm

METRICS, PREDICTIONS, PRETRAINING = "metrics.json", "predictions.tsv", "pretraining.json"
CARD, FACTS = "README.md", "card.yaml"
# Folder of an output folder for what is being written or deleted, never anything whole.
UNFINISHED = "unfinished"
_LOCK, _TEMPORARY = ".lock", ".tmp"
OVERWRITE = "Name another --output_dir, or replace what is there with --overwrite_output_dir."
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
# Far above what this project and transformers write, and below what would fill memory or a stack.
_MOST_BYTES, _MOST_LEVELS = 100_000_000, 50
COMPRESSIONS = ("", ".gz", ".xz")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".zip")
_OPENERS = {".gz": gzip.open, ".tgz": gzip.open, ".xz": lzma.open, ".txz": lzma.open, ".bz2": bz2.open}
# Bytes of a text, or a line, once it is unpacked: compressed, they may be a thousandth of that.
LARGEST_TEXT = 1 << 28


def flag(default: Any = dataclasses.MISSING, help: str = "", choices: Iterable[Any] = ()) -> Any:
    """
    A field with its text in `--help`, and the values that it may have, if these can be listed; without a default it is
    required. A list as default is a new one for each instance.
    """
    metadata = {"help": help} | ({"choices": [*choices]} if choices else {})
    if isinstance(default, list):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, which may be long; its type where that is empty."""
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


def read_json(path: Path, kind: type = dict) -> Any:
    """A file that holds one JSON object, or any value where `kind` is `object`; else a `ValueError` names it."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"of {path.stat().st_size:,} bytes, at most {_MOST_BYTES:,} are read")
        content = json.loads(path.read_text(encoding="utf-8"))
        if _levels(content) > _MOST_LEVELS:
            raise ValueError(f"nested more than {_MOST_LEVELS} levels deep")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}).") from error
    if not isinstance(content, kind):
        raise ValueError(f"{path} must hold one JSON object.")
    return content


def _levels(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_levels, items), default=0)


class _PlainLoader(yaml.SafeLoader):
    """Without aliases, of which a short file may hold a number without end."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"the alias *{self.peek_event().anchor}")
        return super().compose_node(parent, index)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file of `name: value` lines; a `ValueError` names it otherwise."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _PlainLoader)
    except (yaml.YAMLError, ValueError, IndexError, RecursionError) as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ValueError(f"{path} must hold `name: value` lines.")
    return content


def check_types(path: Path | str, values: Mapping[str, Any], types: Mapping[str, Any]) -> None:
    """Compare values of a file with the annotations of those that are looked at; a `ValueError` names file and one."""
    for name in sorted(values.keys() & types.keys()):
        value = _as_floats(values[name]) if "float" in str(types[name]) else values[name]
        try:
            type_validator(name, value, types[name])
        except TypeError as error:
            wanted = types[name].__name__ if isinstance(types[name], type) else types[name]
            raise ValueError(f"{path}: {name} must be a {wanted}, not {repr(values[name])[:80]}.") from error


def _as_floats(value: Any) -> Any:
    """A value with its whole numbers as floats, which files write without a point."""
    if isinstance(value, dict):
        return {name: _as_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(_as_floats, value))
    return float(value) if type(value) is int and abs(value) < 1 << 53 else value


def read_npy(path: Path) -> np.ndarray:
    """
    The array in a `.npy` file, mapped rather than read: a size that the file does not have is refused, not allocated.
    A `ValueError` names a file that is damaged, or holds anything but an array of numbers.
    """
    with reading(path, "read as an array of numbers"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
            raise TypeError("its values are no numbers")
    return array


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """
    All tensors of a model's folder, by name: safetensors, or `.bin` through `weights_only`, in one file or several.

    Raises:
        FileNotFoundError: if there are no weights.
        ValueError: if a file is missing or damaged, or holds anything but tensors.
    """
    for name in WEIGHT_FILES:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return read_tensor_file(folder / name)
        if index.is_file():
            with reading(index):
                places, tensors = read_json(index)["weight_map"], {}
                for file in sorted(set(places.values())):
                    tensors |= read_tensor_file(folder / Path(file).name)
                for missing in places.keys() - tensors.keys():
                    raise ValueError(f"{missing} is not in {places[missing]}")
                return tensors
    raise FileNotFoundError(f"{folder} has neither of {' and '.join(WEIGHT_FILES)}, in one file or several.")


def read_tensor_file(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of one file; see `read_tensors`."""
    with reading(path):
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                names = progress(list(file.keys()), f"reading {path.name}")
                return {name: file.get_tensor(name) for name in names}
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        items = tensors.items() if isinstance(tensors, Mapping) else [(None, tensors)]
        if not all(isinstance(name, str) and _is_dense(tensor) for name, tensor in items):
            raise ValueError("it holds something else than tensors by name")
        return dict(items)


def _is_dense(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.device.type == "cpu"


def progress(names: Iterable[str], description: str) -> Iterable[str]:
    """The names behind a progress bar, where somebody is looking."""
    return tqdm(names, desc=description, unit="tensor", leave=False, disable=None)


def place(path: Path | str, number: int, unit: str = "line") -> str:
    """The words by which an error names a place in a file."""
    return f"{path}, {unit} {number}"


def listing(folder: Path) -> str:
    """The words by which an error names what a folder holds instead."""
    if not folder.is_dir():
        return "no such folder"
    names = sorted(path.name for path in folder.iterdir()) or ["nothing"]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Opens a plain, gzip, xz or bz2 file for reading bytes; whatever is wrong in the block names it (`reading`)."""
    with reading(path), _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
        yield file


def read_bytes(file: BinaryIO, where: Path | str) -> bytes:
    """All of a file that may be compressed; a `ValueError` if it is too large for one text."""
    content = file.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise ValueError(f"{where}: a text of more than {LARGEST_TEXT >> 20} MB: divide it into several files.")
    return content


def read_archive(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """
    Names and contents of the `wanted` files in a tar (plain, gzip, xz or bz2) or zip archive, in its order; nothing is
    unpacked on disk.
    """
    with reading(path, "read as an archive"):
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    if not info.is_dir() and wanted(info.filename):
                        with archive.open(info) as member:
                            yield info.filename, read_bytes(member, f"{path}/{info.filename}")
            return
        # A stream, read once from front to end: going back in a compressed file would unpack it from the start.
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                if member.isfile() and wanted(member.name):
                    yield member.name, read_bytes(archive.extractfile(member), f"{path}/{member.name}")


def decoded(content: bytes, where: Path | str, encoding: str = "utf-8") -> str:
    """Bytes as text; a `ValueError` that begins with `where` for others."""
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        problem = f"byte {content[error.start]:#04x} at offset {error.start} is not valid {encoding}"
        raise ValueError(f"{where}: {problem}. Save the file as UTF-8.") from error


def read_text_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Numbered lines of a text file without their line ends; a byte order mark is dropped."""
    with open_bytes(path) as file:
        # Decoded line by line, so that an error can name the line: a text stream decodes in blocks.
        for number, line in enumerate(iter(lambda: file.readline(LARGEST_TEXT + 1), b""), 1):
            if len(line) > LARGEST_TEXT:
                raise ValueError(f"{place(path, number)}: a line of more than {LARGEST_TEXT >> 20} MB: divide it.")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield number, decoded(line, place(path, number), encoding).rstrip("\r\n")


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
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
    """Names of what is in a folder, if there is one, without its lock and leftovers of an interrupted write."""
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
    Make a folder and keep it for the run in the block: others are refused until the block ends or its process dies. At
    the end it is removed if it is empty.

    Args:
        process_index, world_size (`int`, *optional*): the first of several processes keeps the folder for all.
        shared (`bool`, *optional*, defaults to `False`): let in other runs that share it.
        whole (`bool`, *optional*, defaults to `False`): the block replaces the folder as a whole, so the lock is a
            file next to it.

    Raises:
        ValueError: in all processes, if another run has the folder, or it cannot be made.
    """
    lock = FileLock(folder.parent / f".{folder.name}{_LOCK}" if whole else folder / _LOCK, timeout=0)
    file, problem = Path(lock.lock_file), [None]
    if process_index == 0:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
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
            file.unlink(missing_ok=True)  # first, or it might be the next run's
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
