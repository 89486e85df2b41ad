"""What is refused in a repository, whoever sent it: pickles, foreign code, files that are cut short or lie outside."""

import json
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from .hub_code import TOKENIZER_AUTO_MAP, code_files

# Loading a file of these runs what it says.
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill")
# Pickles that a Trainer leaves, and that nobody who loads a model reads.
TRAINING_STATE = re.compile(r"training_args\.bin|(last-checkpoint|checkpoint-\d+)/[\w.-]+\.(pt|pth|bin)")
_CHECKPOINT = re.compile(r"(last-checkpoint|checkpoint-\d+)/")
# peft imports the package that an adapter names.
_PARENT_LIBRARIES = re.compile(r"(hf_gpt|transformers|transformers_modules)(\.[\w.]+)?")
_OWN_CLASS = re.compile(r"(?P<module>\w+)\.GPT\w*")


class RepositoryError(ValueError):
    """A repository or folder that is not taken as it is."""


def check_names(names: Iterable[str], where: str) -> None:
    """
    Look at the names of a repository's files, before any of them is fetched.

    Args:
        names (`Iterable[str]`): paths in the repository.
        where (`str`): what to call it in the message.

    Raises:
        RepositoryError: for names that lead outside, pickles, and code that is not hf_gpt's.
    """
    own = {file.name for file in code_files()}
    problems = []
    for name in names:
        path = PurePosixPath(name)
        inside = path.parts[1:] if _CHECKPOINT.match(name) else path.parts
        if path.is_absolute() or ".." in path.parts or re.search(r"[\\:\x00-\x1f]", name):
            problems.append(f"{name!r} lies outside the folder")
        elif path.suffix in PICKLES and not TRAINING_STATE.fullmatch(name):
            problems.append(f"{name} is a pickle, which runs code when it is loaded; safetensors is wanted")
        elif path.suffix == ".py" and (len(inside) > 1 or path.name not in own):
            problems.append(f"{name} is code that is not hf_gpt's")
    _refuse(where, problems)


def check_repository(folder: str | Path, where: str | None = None, home: Path | None = None) -> None:
    """
    Look at the files of a repository on the disk. Nothing is executed, and no weights are read.

    Args:
        folder (`str` or `Path`): as it was downloaded, or is to be uploaded.
        where (`str`, *optional*): what to call it in the message, by default the folder.
        home (`Path`, *optional*): another folder that links may lead to.

    Raises:
        RepositoryError: for what `check_names` refuses, links that lead outside, JSON and safetensors that cannot be
            read or are cut short, arrays of objects, and configurations that name other code.
    """
    folder = Path(folder)
    where = where or str(folder)
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    check_names(files, where)
    problems = []
    # In the cache of the Hub, files are links into the folder `blobs`.
    bases = [base.resolve() for base in (folder, home) if base is not None]
    homes = [*bases, *(base.parent.parent / "blobs" for base in bases)]
    for name, path in files.items():
        if not any(path.resolve().is_relative_to(home) for home in homes):
            problems.append(f"{name} is a link that leads outside the folder")
        elif path.suffix == ".safetensors":
            problems += _safetensors_problems(name, path)
        elif path.suffix == ".npy":
            problems += _array_problems(name, path)
        elif path.suffix == ".json":
            problems += _json_problems(name, path)
    _refuse(where, problems)


def _refuse(where: str, problems: list[str]) -> None:
    if problems:
        raise RepositoryError(f"{where} is refused: {'; '.join(problems)}.")


def _safetensors_problems(name: str, path: Path) -> list[str]:
    try:
        # Reads the header, and compares the length of the file with what the header says.
        with safe_open(path, framework="np"):
            return []
    except (OSError, SafetensorError) as error:
        return [f"{name} is cut short or no safetensors file ({error})"]


def _array_problems(name: str, path: Path) -> list[str]:
    try:
        np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        return [f"{name} is no array of numbers ({error})"]
    return []


def _json_problems(name: str, path: Path) -> list[str]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        return [f"{name} is not JSON ({error})"]
    if not isinstance(settings, dict):
        return [f"{name} holds no settings"]
    problems = [
        f"{name}: {auto_class} names {problem}"
        for auto_class, value in _entries(settings.get("auto_map"))
        if (problem := _foreign_code(value)) is not None
    ]
    parent = (settings.get("auto_mapping") or {}).get("parent_library")
    if parent is not None and not _PARENT_LIBRARIES.fullmatch(str(parent)):
        problems.append(f"{name}: auto_mapping names the package {parent}")
    shards = settings.get("weight_map")
    if isinstance(shards, dict):
        outside = sorted({str(shard) for shard in shards.values() if PurePosixPath(str(shard)).name != shard})
        problems += [f"{name}: {shard!r} lies outside the folder" for shard in outside]
    return problems


def _entries(auto_map: Any) -> list[tuple[str, str]]:
    """Auto class and class, for one of the forms that `auto_map` has: names, or pairs of names."""
    pairs = auto_map.items() if isinstance(auto_map, dict) else [(next(iter(TOKENIZER_AUTO_MAP)), auto_map)]
    flat = [
        (name, entry) for name, value in pairs for entry in (value if isinstance(value, (list, tuple)) else [value])
    ]
    return [(str(name), str(entry)) for name, entry in flat if entry is not None]


def _foreign_code(reference: str) -> str | None:
    if "--" in reference:
        return f"code of another repository, {reference.split('--')[0]}"
    match = _OWN_CLASS.fullmatch(reference)
    if match is None or f"{match['module']}.py" not in {file.name for file in code_files()}:
        return f"code that is not hf_gpt's, {reference}"
    return None
