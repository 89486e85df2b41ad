"""
Tensors and settings in files: safetensors, and `.bin` through torch's `weights_only`, in one file or several; JSON and
YAML of bounded size and depth.
"""

import itertools
import json
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from huggingface_hub.dataclasses import type_validator
from safetensors import SafetensorError, safe_open
from tqdm import tqdm

from .boundary import first_line

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
# Far above every file that this project and transformers write, and below what would fill memory or a stack.
_MOST_JSON_BYTES, _MOST_YAML_BYTES = 100_000_000, 1_000_000
_MOST_LEVELS, _MOST_CONTAINERS = 50, 2_000_000
# numpy has the header read by Python's own tokenizer and parser, with their exceptions.
_DAMAGED_NPY = (OSError, ValueError, EOFError, TypeError, SyntaxError, tokenize.TokenError, ArithmeticError)


def read_json(path: Path, kind: type = dict) -> Any:
    """A file that holds one JSON object, or any value where `kind` is `object`; else a `ValueError` names it."""
    text = _read_text(path, _MOST_JSON_BYTES, "JSON")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}): copy it again.") from error
    if not isinstance(content, kind):
        raise ValueError(f"{path} must hold one JSON object.")
    _check_extent(path, content)
    return content


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file of `name: value` lines; a `ValueError` names it otherwise."""
    text = _read_text(path, _MOST_YAML_BYTES, "YAML")
    try:
        # The parser's time grows with the square of the depth, so it must not see what lies too deep.
        level = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if level > _MOST_LEVELS:
                raise ValueError(f"nested more than {_MOST_LEVELS} levels deep")
            if getattr(event, "tag", None) is not None:
                raise ValueError(f"the tag {event.tag}: only plain values are read")
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ValueError(f"{path} must hold `name: value` lines.")
    _check_extent(path, content)
    return content


def _read_text(path: Path, most_bytes: int, kind: str) -> str:
    size = path.stat().st_size
    if size > most_bytes:
        raise ValueError(f"{path} has {size:,} bytes, too many for settings in {kind} (at most {most_bytes:,}).")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not valid {kind}: not UTF-8 at byte {error.start}.") from error


def _check_extent(path: Path, content: Any) -> None:
    """Refuse what is nested too deep, or, through YAML's aliases, grows without end when it is written out."""
    level = [content]
    for _ in range(_MOST_LEVELS):
        items = (item for part in level for item in (part.values() if isinstance(part, dict) else part))
        parts = (item for item in items if isinstance(item, (dict, list)))
        level = list(itertools.islice(parts, _MOST_CONTAINERS))
        if not level:
            return
        if len(level) == _MOST_CONTAINERS:
            break
    raise ValueError(f"{path} is nested more than {_MOST_LEVELS} levels deep, or refers to itself.")


def check_types(
    path: Path | str,
    values: Mapping[str, Any],
    types: Mapping[str, Any],
    required: Iterable[str] = (),
    within: str = "",
) -> None:
    """
    Compare values of a file, by field, with the annotations of the fields that are looked at. `required` fields must
    be there; `within` is the field that the values stand in. A `ValueError` names file and field.
    """
    where = f"{path}: {within and f'{within}, '}"
    missing = [name for name in required if name not in values]
    if missing:
        raise ValueError(f"{where}{', '.join(missing)} must be there.")
    for name in sorted(values.keys() & types.keys()):
        try:
            try:
                type_validator(name, values[name], types[name])
            except TypeError:
                type_validator(name, _as_floats(values[name]), types[name])
        except TypeError as error:
            shown = repr(values[name])
            shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
            wanted = types[name].__name__ if isinstance(types[name], type) else types[name]
            raise ValueError(f"{where}{name} must be a {wanted}, not {shown}.") from error


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
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except _DAMAGED_NPY as error:
        raise ValueError(f"{path} is not a readable array of numbers ({error}): copy it again.") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
        raise ValueError(f"{path} does not hold one array of numbers: copy it again.")
    return array


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
            return read_tensor_file(folder / name)
        if index.is_file():
            places = read_json(index).get("weight_map")
            if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
                raise ValueError(f"{index} has no weight_map, which says what file each tensor is in.")
            tensors: dict[str, torch.Tensor] = {}
            for file in sorted(set(places.values())):
                tensors |= read_tensor_file(folder / Path(file).name)
            missing = sorted(places.keys() - tensors.keys())
            if missing:
                file = folder / places[missing[0]]
                raise ValueError(f"{file} does not hold {missing[0]}, which {index.name} says it does.")
            return tensors
    raise FileNotFoundError(f"{folder} has neither of {' and '.join(WEIGHT_FILES)}, in one file or several.")


def read_tensor_file(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of one file; see `read_tensors`."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: copy all files of the checkpoint.")
    with readable(path):
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                names = progress(list(file.keys()), f"reading {path.name}")
                return {name: file.get_tensor(name) for name in names}
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(tensors, Mapping) or not all(_is_named_tensor(*item) for item in tensors.items()):
        raise ValueError(f"{path} holds something else than tensors by name.")
    return dict(tensors)


def _is_named_tensor(name: Any, tensor: Any) -> bool:
    is_dense = isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.device.type == "cpu"
    return isinstance(name, str) and is_dense


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file of tensors that is read in the block is a `ValueError` that names it."""
    try:
        yield
    except (SafetensorError, OSError, EOFError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read ({first_line(error)}): it is truncated or damaged; copy it again."
        ) from error
    except Exception as error:  # pickle.UnpicklingError and whatever else a pickle that is no list of tensors leads to
        raise ValueError(f"{path} is refused: it holds something else than tensors ({first_line(error)}).") from error


def progress(names: Iterable[str], description: str) -> Iterable[str]:
    """The names behind a progress bar, where somebody is looking."""
    return tqdm(names, desc=description, unit="tensor", leave=False, disable=None)
