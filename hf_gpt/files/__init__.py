"""Files: read so that errors name them, written atomically; folders of one run at a time; flags of commands."""

import bz2
import dataclasses
import functools
import gzip
import io
import json
import lzma
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, AnyStr, BinaryIO

import torch
import yaml
from filelock import FileLock, Timeout
from huggingface_hub.dataclasses import type_validator
from safetensors.torch import load_file

METRICS, PREDICTIONS, PRETRAINING = "metrics.json", "predictions.tsv", "pretraining.json"
CARD, FACTS = "README.md", "card.yaml"
# What comes with the package: the recipes by their name, and a small model for `from_pretrained`.
RECIPES = Path(__file__).parents[1] / "bundled" / "configs"
GPT_MINI = str(RECIPES.with_name("gpt-mini"))
# Folder of an output folder for what is being written or deleted, never anything whole.
UNFINISHED = "unfinished"
_LOCK, _TEMPORARY = ".lock", ".tmp"
OVERWRITE = "Name another --output_dir, or replace what is there with --overwrite_output_dir."
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
COMPRESSIONS = ("", ".gz", ".xz")
# Bytes of a text, or characters of a line, once it is unpacked: compressed, they may be a thousandth of that.
LARGEST_TEXT = 1 << 28
_OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


def flag(default: Any = dataclasses.MISSING, help: str = "", choices: Iterable[Any] = ()) -> Any:
    """A field with its text in `--help` and the values that it may have; without a default it is required."""
    metadata = {"help": help.replace("%", "%%")} | ({"choices": [*choices]} if choices else {})
    if isinstance(default, list):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where that is empty."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")


@contextmanager
def reading(path: str | os.PathLike, place: str = "") -> Iterator[None]:
    """
    The boundary around whatever reads a file (or folder) from outside: an error of the block becomes a `ValueError`,
    `PATH, PLACE: what was wrong`, with a place such as "line 3"; a `ValueError` or `OSError` that names it stays.
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
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}).") from error
    if not isinstance(content, kind):
        raise ValueError(f"{path} must hold one JSON object.")
    return content


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file of `name: value` lines; a `ValueError` names it otherwise."""
    try:
        text = path.read_text(encoding="utf-8")
        depth = 0
        for event in yaml.parse(text):  # a short file may hold aliases without end, or take minutes by its depth
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > 20:
                raise ValueError("it has an alias (*name), or more than 20 levels")
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, IndexError, RecursionError) as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ValueError(f"{path} must hold `name: value` lines.")
    return content


def check_types(path: Path | str, values: Mapping[str, Any], types: Mapping[str, Any]) -> None:
    """A `ValueError` names file and value unless the values are as annotated, where they are; 1 is a float, too."""
    for name in sorted(values.keys() & types.keys()):
        value = values[name]
        try:
            if "float" in str(types[name]):
                value = json.loads(json.dumps(value), parse_int=float)
            type_validator(name, value, types[name])
        except (TypeError, ValueError) as error:
            wanted = getattr(types[name], "__name__", types[name])
            raise ValueError(f"{path}: {name} must be a {wanted}, not {repr(value)[:80]}.") from error


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of a model's folder by name, of its safetensors or else `.bin`; a `FileNotFoundError` for none."""
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return read_tensor_file(folder / name)
    raise FileNotFoundError(f"{folder} has neither of {' and '.join(WEIGHT_FILES)}.")


def read_tensor_file(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of one file by name, of others than safetensors through torch's `weights_only`."""
    with reading(path):
        if path.suffix == ".safetensors":
            return load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        tensors = dict(tensors) if isinstance(tensors, Mapping) else {None: tensors}
        for name, tensor in tensors.items():
            is_dense = getattr(tensor, "layout", None) == torch.strided and tensor.device.type == "cpu"
            if not isinstance(name, str) or not is_dense:
                raise ValueError("it holds something else than tensors by name")
        return tensors


def listing(folder: Path) -> str:
    """The first names in a folder, for an error that has looked for others."""
    return ", ".join(sorted(os.listdir(folder))[:8]) or "nothing" if folder.is_dir() else "no such folder"


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Opens a plain, gzip, xz or bz2 file for reading bytes; whatever is wrong in the block names it (`reading`)."""
    with reading(path), _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
        yield file


def read_text(path: Path) -> str:
    """All of a text file, which may be compressed; a `ValueError` if it is too large for one text."""
    with open_bytes(path) as file:
        return _within_bound(file.read(LARGEST_TEXT + 1)).decode("utf-8-sig")


def read_text_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Numbered lines of a text file, which may be compressed, without line ends and byte order mark."""
    with open_bytes(path) as file:
        text = io.TextIOWrapper(file, encoding, newline="\n")
        for number, line in enumerate(iter(lambda: text.readline(LARGEST_TEXT + 1), ""), 1):
            line = _within_bound(line)
            yield number, (line.removeprefix("\ufeff") if number == 1 else line).rstrip("\r\n")


def _within_bound(text: AnyStr) -> AnyStr:
    if len(text) > LARGEST_TEXT:
        raise ValueError(f"a text or line of more than {LARGEST_TEXT >> 20} MB: divide it")
    return text


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path, which replaces `path` when the block ends: whole, on the disk, or not at all."""
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


def finite(value: Any) -> Any:
    """A value for JSON, which has no NaN and no infinity: they become null; arrays become lists."""
    return json.loads(json.dumps(value, default=lambda array: array.tolist()), parse_constant=lambda name: None)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically (`finite`)."""
    write_text(path, json.dumps(finite(value), indent=2) + "\n")


def contents(folder: Path) -> set[str]:
    """Names of what is in a folder, if there is one, without its lock and leftovers of an interrupted write."""
    names = os.listdir(folder) if folder.is_dir() else []
    return {name for name in names if name != _LOCK and not (name.startswith(".") and name.endswith(_TEMPORARY))}


def check_empty(folder: Path, overwrite: bool = False, hint: str = OVERWRITE) -> None:
    """A `ValueError` with `hint` if a folder is a file, or is not empty and not to be overwritten."""
    if folder.is_file() or (contents(folder) and not overwrite):
        raise ValueError(f"{folder} already exists and is not empty. {hint}")


def check_settings(folder: Path, earlier: dict[str, Any], settings: dict[str, Any], hint: str = OVERWRITE) -> None:
    """A `ValueError` with `hint` if what a folder holds was made with other settings than those of now."""
    names = sorted(name for name in {*earlier, *settings} if earlier.get(name) != settings.get(name))
    if names:
        raise ValueError(f"{folder} holds results of other settings ({', '.join(names)}). {hint}")


@contextmanager
def output_folder(folder: Path, process_index: int = 0, whole: bool = False) -> Iterator[None]:
    """
    Make a folder and keep it for the run in the block: until the block ends or its process dies, another run gets a
    `ValueError`, as does one that cannot make it. At the end an empty folder is removed. The first of several
    processes keeps it for all; where the block replaces the folder as a `whole`, the lock is next to it.
    """
    if process_index > 0:
        yield
        return
    file = folder.parent / f".{folder.name}{_LOCK}" if whole else folder / _LOCK
    lock = FileLock(file, timeout=0)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        problem = "another run is writing to it" if isinstance(error, Timeout) else error.strerror
        raise ValueError(f"{folder} cannot be written to ({problem}): name another folder.") from error
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # first, or it might be the next run's
        lock.release()
        if not whole:
            with suppress(OSError):  # of a folder that holds something
                folder.rmdir()


def in_output_folder(run: Callable[..., Any]) -> Callable[..., Any]:
    """Has a function whose last argument is `TrainingArguments` run in `output_folder`."""

    @functools.wraps(run)
    def run_in_folder(*arguments: Any) -> Any:
        args = arguments[-1]
        with output_folder(Path(args.output_dir), args.process_index):
            return run(*arguments)

    return run_in_folder
