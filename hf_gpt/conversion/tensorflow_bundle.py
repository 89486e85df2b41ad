"""
OpenAI's TensorFlow files of GPT-2: `model.ckpt.index`, `model.ckpt.data-00000-of-00001`, `hparams.json`. TensorFlow
reads them: `pip install 'hf-gpt[tensorflow]'`.
"""

import math
from pathlib import Path

import numpy as np
import torch

from ..files import check_types, progress, read_json, reading

PREFIX, INDEX, SIZES = "model.ckpt", "model.ckpt.index", "hparams.json"
# Theirs -> the field of transformers' `gpt2`.
_FIELDS = {"n_vocab": "vocab_size", "n_ctx": "n_positions"} | {name: name for name in ("n_embd", "n_head", "n_layer")}


def stock_fields(path: Path) -> dict[str, int | str]:
    """The `config.json` of the `gpt2` that `hparams.json` describes; a `ValueError` if it describes none."""
    sizes = read_json(path / SIZES)
    check_types(path / SIZES, sizes, dict.fromkeys(_FIELDS, int))
    with reading(path / SIZES):
        fields = {ours: sizes[name] for name, ours in _FIELDS.items()}
    # <|endoftext|> is the last of the vocabulary.
    return {"model_type": "gpt2", **fields, **dict.fromkeys(("bos_token_id", "eos_token_id"), sizes["n_vocab"] - 1)}


def read_bundle(path: Path) -> dict[str, torch.Tensor]:
    """
    The variables of a folder under the names of transformers' `gpt2`, as float32.

    Raises:
        ValueError: if TensorFlow is missing, or a file is missing, damaged, or holds what GPT-2's does not.
    """
    try:
        import tensorflow
    except ImportError as error:
        raise ValueError(f"{path / INDEX} is read by TensorFlow: pip install 'hf-gpt[tensorflow]'") from error
    tensors = {}
    with reading(path / INDEX):
        reader = tensorflow.train.load_checkpoint(str(path / PREFIX))
        shapes = reader.get_variable_to_shape_map()
        found = sum(file.stat().st_size for file in path.glob(f"{PREFIX}.data-*"))
        # Many names of the same bytes would fill the memory.
        if 4 * sum(map(math.prod, shapes.values())) > found:
            raise ValueError(f"its variables do not fit into the {found:,} bytes of the data next to it")
        for name in progress(sorted(shapes), "reading"):
            values = reader.get_tensor(name)
            if values.dtype != np.float32:
                raise ValueError(f"{name} is of {values.dtype}, not of float32, as GPT-2's variables are")
            # Matrices stand behind an axis of 1.
            tensors[_stock_name(name)] = torch.tensor(values[0] if values.ndim == 3 and len(values) == 1 else values)
    return tensors


def _stock_name(name: str) -> str:
    """`model/h0/attn/c_attn/w` is `h.0.attn.c_attn.weight`."""
    parts = name.removeprefix("model/").split("/")
    if parts[0][:1] == "h" and parts[0][1:].isdecimal():
        parts[:1] = ["h", parts[0][1:]]
    endings = {"w": "weight", "g": "weight", "b": "bias", "wte": "wte.weight", "wpe": "wpe.weight"}
    return ".".join([*parts[:-1], endings.get(parts[-1], parts[-1])])
