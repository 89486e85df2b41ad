"""OpenAI's TensorFlow files of GPT-2."""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import GPT2LMHeadModel, GPT2Tokenizer

from hf_gpt.conversion.tensorflow_bundle import PREFIX, SIZES


def their_arrays(model: GPT2LMHeadModel) -> dict[str, np.ndarray]:
    """The variables of OpenAI's code with the values of a stock model."""
    arrays = {}
    for name, value in model.transformer.state_dict().items():
        parts = name.replace("h.", "h", 1).split(".") if name.startswith("h.") else name.split(".")
        ending = {"weight": "g" if parts[-2].startswith("ln") else "w", "bias": "b"}[parts[-1]]
        parts = parts[:-1] if parts[0] in ("wte", "wpe") else [*parts[:-1], ending]
        is_matrix = value.ndim == 2 and ending == "w" and parts[0] not in ("wte", "wpe")
        arrays["/".join(["model", *parts])] = (value[None] if is_matrix else value).numpy()
    return arrays


def save_sizes(model: GPT2LMHeadModel, tokenizer: GPT2Tokenizer, folder: Path) -> None:
    """`hparams.json`, `encoder.json` and `vocab.bpe`."""
    config = model.config
    sizes = {"n_vocab": config.vocab_size, "n_ctx": config.n_positions, "n_embd": config.n_embd}
    (folder / SIZES).write_text(json.dumps(sizes | {"n_head": config.n_head, "n_layer": config.n_layer}))
    learnt = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    (folder / "encoder.json").write_text(json.dumps(learnt["vocab"]))
    lines = ["#version: 0.2", *map(" ".join, learnt["merges"]), ""]
    (folder / "vocab.bpe").write_text("\n".join(lines), encoding="utf-8")


def save_bundle(model: GPT2LMHeadModel, tokenizer: GPT2Tokenizer, folder: Path) -> None:
    """The files of OpenAI's GPT-2, written by TensorFlow."""
    tensorflow = pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'hf-gpt[tensorflow]'")
    folder.mkdir()
    save_sizes(model, tokenizer, folder)
    names, values = zip(*sorted(their_arrays(model).items()), strict=True)
    tensorflow.raw_ops.SaveV2(
        prefix=str(folder / PREFIX), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
    )
