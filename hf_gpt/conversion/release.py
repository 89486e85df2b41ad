"""
OpenAI's TensorFlow release (openai/finetune-transformer-lm), read into hf_gpt models and written: a folder with
`params_shapes.json` and ten flat float32 pieces `params_0.npy` to `params_9.npy` of positions, token embedding, then
twelve arrays per block.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from ..files import read_json, reading
from ..model.configuration_gpt import GPTConfig, default_generation_config
from ..model.modeling_gpt import GPTForCausalLM, GPTPreTrainedModel
from .stock import with_special_rows, with_special_tokens

RELEASE_PIECES = 10

# Arrays of a block in the release's order -> parameter of hf_gpt, and sizes in widths of the hidden states.
# The release stores a matrix input by output behind an axis of 1; `nn.Linear` stores it output by input.
BLOCK_ARRAYS: dict[str, tuple[str, tuple[int, ...]]] = {
    "attn/c_attn/w": ("attn.c_attn.weight", (1, 3)),
    "attn/c_attn/b": ("attn.c_attn.bias", (3,)),
    "attn/c_proj/w": ("attn.c_proj.weight", (1, 1)),
    "attn/c_proj/b": ("attn.c_proj.bias", (1,)),
    "ln_1/g": ("ln_1.weight", (1,)),
    "ln_1/b": ("ln_1.bias", (1,)),
    "mlp/c_fc/w": ("mlp.c_fc.weight", (1, 4)),
    "mlp/c_fc/b": ("mlp.c_fc.bias", (4,)),
    "mlp/c_proj/w": ("mlp.c_proj.weight", (4, 1)),
    "mlp/c_proj/b": ("mlp.c_proj.bias", (1,)),
    "ln_2/g": ("ln_2.weight", (1,)),
    "ln_2/b": ("ln_2.bias", (1,)),
}


def block_names(path: Path, shapes: Sequence[Sequence[int]], width: int, first: int) -> list[str]:
    """
    The names `model/h<i>/<name>` of the arrays of blocks, which stand in the release's order behind `first` other
    arrays of a file; a `ValueError` for a shape that is not that of its place for hidden states of `width`.
    """
    names = []
    for index, shape in enumerate(map(list, shapes)):
        block, place = divmod(index, len(BLOCK_ARRAYS))
        name, (_, sizes) = list(BLOCK_ARRAYS.items())[place]
        wanted = [1] * (len(sizes) == 2) + [size * width for size in sizes]
        if shape != wanted:
            where = f"array {index + first} (block {block}, {name})"
            raise ValueError(f"{path}: {where} has the shape {shape}; expected {wanted} for the width {width}.")
        names.append(f"model/h{block}/{name}")
    return names


def read_release(directory: str | os.PathLike) -> dict[str, np.ndarray]:
    """
    The checked arrays of a folder of the OpenAI release, float32: `positions` (positions, width), `tokens`
    (vocabulary, width) and per block `model/h<i>/<name>` with the names of `BLOCK_ARRAYS`. A `FileNotFoundError` or
    `ValueError` names the file that is missing, not what the shapes say, or holds a number that is not finite.
    """
    path = Path(directory) / "params_shapes.json"
    shapes = read_json(path, object)
    is_list = isinstance(shapes, list) and all(isinstance(shape, list) for shape in shapes)
    if not is_list or not all(type(size) is int and size > 0 for shape in shapes for size in shape):
        raise ValueError(f"{path} must be a list of array shapes.")
    has_embeddings = [len(shape) for shape in shapes[:2]] == [2, 2] and shapes[0][1] == shapes[1][1]
    if len(shapes) < 14 or len(shapes) % 12 != 2 or not has_embeddings:
        expected = "[positions, width], [vocabulary, width] and those of 12 arrays per block"
        raise ValueError(f"{path} must be a list of array shapes: {expected}; it begins with {shapes[:2]}.")
    names = ["positions", "tokens", *block_names(path, shapes[2:], shapes[0][1], 2)]
    sizes = [math.prod(shape) for shape in shapes]
    # numpy.array_split: the first pieces are one longer.
    base, longer = divmod(sum(sizes), RELEASE_PIECES)
    pieces = []
    for index in range(RELEASE_PIECES):
        path, size = path.with_name(f"params_{index}.npy"), base + (index < longer)
        with reading(path):
            # Mapped, so that a size that the file does not have is refused.
            piece = np.load(path, mmap_mode="r", allow_pickle=False)
            if piece.dtype != np.float32 or piece.shape != (size,):
                found = f"one of {piece.dtype} with the shape {piece.shape}"
                raise ValueError(f"it must be one flat array of {size:,} float32 numbers, and is {found}")
            if not np.isfinite(piece).all():
                raise ValueError("it holds numbers that are NaN or infinite: copy the file again")
        pieces.append(piece)
    arrays = np.split(np.concatenate(pieces), np.cumsum(sizes)[:-1])
    return {name: array.reshape(shape) for name, array, shape in zip(names, arrays, shapes, strict=True)}


def release_config(
    arrays: Mapping[str, np.ndarray], n_positions: int | None = None, n_head: int | None = None, **kwargs
) -> GPTConfig:
    """
    Configuration of a model for the arrays of `read_release`, with rows for the special tokens, which are untrained,
    and `<pad>`: `n_positions` is the context length, by default all of the release's, and at most that; `n_head` by
    default width / 64; `kwargs` are further fields of `GPTConfig`. A `ValueError` if these do not fit.
    """
    available, width = arrays["positions"].shape
    n_positions = available if n_positions is None else n_positions
    if not 1 <= n_positions <= available:
        raise ValueError(f"n_positions is {n_positions}; the release has {available} positions, so give 1 to that.")
    if n_head is None and width % 64:
        raise ValueError(f"The width {width} is not a multiple of 64: give the number of heads (n_head).")
    n_head = width // 64 if n_head is None else n_head
    shape = {"n_positions": n_positions, "n_embd": width, "n_layer": len(arrays) // 12, "n_head": n_head}
    return GPTConfig(**shape, **with_special_rows(arrays["tokens"].shape[0]) | kwargs)


def _places(n_layer: int) -> Iterator[tuple[str, str, bool]]:
    """Of every array of a release: its name, the parameter that it is, and whether it is a matrix of a block."""
    yield from (("positions", "embed_positions.weight", False), ("tokens", "embed_tokens.weight", False))
    for layer in range(n_layer):
        for name, (parameter, sizes) in BLOCK_ARRAYS.items():
            yield f"model/h{layer}/{name}", f"h.{layer}.{parameter}", len(sizes) == 2


def release_parameters(arrays: Mapping[str, np.ndarray], config: GPTConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    """Parameters of `GPTModel` from the arrays of a release; `seed` initializes the special tokens' rows."""
    parameters = {
        parameter: torch.from_numpy(arrays[name][0].T if is_matrix else arrays[name])
        for name, parameter, is_matrix in _places(config.n_layer)
    }
    tokens, positions = parameters["embed_tokens.weight"], parameters["embed_positions.weight"]
    parameters["embed_tokens.weight"] = with_special_tokens(tokens, config, seed)
    parameters["embed_positions.weight"] = positions[: config.n_positions]
    return parameters


def release_arrays(parameters: Mapping[str, torch.Tensor], n_layer: int) -> dict[str, np.ndarray]:
    """
    The arrays of a release, as `read_release` gives them, of a transformer's parameters: float32, named as those of
    `GPTModel`, with the rows of the vocabulary alone in `embed_tokens.weight`.
    """
    return {
        name: parameters[parameter].numpy().T[None] if is_matrix else parameters[parameter].numpy()
        for name, parameter, is_matrix in _places(n_layer)
    }


def write_release(directory: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
    """Write `params_shapes.json` and the ten pieces of a release, byte for byte as the publisher did."""
    directory = Path(directory)
    shapes = [list(array.shape) for array in arrays.values()]
    (directory / "params_shapes.json").write_text(json.dumps(shapes), encoding="utf-8")
    flat = np.concatenate([array.ravel() for array in arrays.values()])
    for index, piece in enumerate(np.array_split(flat, RELEASE_PIECES)):
        np.save(directory / f"params_{index}.npy", piece)


def load_release(
    directory: str | os.PathLike, model_class: type[GPTPreTrainedModel] = GPTForCausalLM, seed: int = 0, **settings
) -> GPTPreTrainedModel:
    """
    A model from a folder of the OpenAI release, float32, in evaluation mode. As in the release, `seed` initializes
    the rows of the special tokens, and a task head, from a normal distribution of standard deviation
    `initializer_range`; the row of `<pad>` is 0. `settings`, and errors, are those of `release_config` and
    `read_release`.
    """
    arrays = read_release(directory)
    config = release_config(arrays, **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config)
    # Strict: every array of the release has its parameter and every parameter of the transformer its array.
    model.base_model.load_state_dict(release_parameters(arrays, config, seed), strict=True)
    model.generation_config = default_generation_config(config)
    return model.eval()
