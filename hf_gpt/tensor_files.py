"""Tensors and settings in files: safetensors, and `.bin` through torch's `weights_only`, in one file or several."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from tqdm import tqdm

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")


def read_json(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object; a `ValueError` names it otherwise."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}): copy it again.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold one JSON object.")
    return content


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """
    All tensors of a model's folder: safetensors, or `.bin` through `weights_only`, in one file or several.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is damaged or holds anything but tensors.
    """
    for name in WEIGHT_FILES:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return _read_file(folder / name)
        if index.is_file():
            places = read_json(index).get("weight_map")
            if not isinstance(places, dict):
                raise ValueError(f"{index} has no weight_map, which says what file each tensor is in.")
            tensors: dict[str, torch.Tensor] = {}
            for file in sorted(set(places.values())):
                tensors |= _read_file(folder / Path(file).name)
            missing = sorted(places.keys() - tensors.keys())
            if missing:
                raise ValueError(f"{places[missing[0]]} does not hold {missing[0]}, which {index.name} says it does.")
            return tensors
    raise FileNotFoundError(f"{folder} has neither of {' and '.join(WEIGHT_FILES)}, in one file or several.")


def _read_file(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: copy all files of the checkpoint.")
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                names = progress(list(file.keys()), f"reading {path.name}")
                return {name: file.get_tensor(name) for name in names}
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, EOFError, RuntimeError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read ({first}): it is truncated or damaged; copy it again.") from error
    except Exception as error:  # pickle.UnpicklingError and whatever else a pickle that is no list of tensors leads to
        first = str(error).splitlines()[0]
        raise ValueError(f"{path} is refused: it holds something else than tensors ({first}).") from error
    if not isinstance(tensors, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise ValueError(f"{path} holds something else than tensors by name.")
    return dict(tensors)


def progress(names: Iterable[str], description: str) -> Iterable[str]:
    """The names behind a progress bar, where somebody is looking."""
    return tqdm(names, desc=description, unit="tensor", leave=False, disable=None)
