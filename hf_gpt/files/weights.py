"""The weights of a folder in a model, and how it generates: what is missing or damaged is an error."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import GENERATION_CONFIG_NAME, logging

from . import check_types, read_json, read_tensors, reading

# What the generation configuration takes without a look at its type.
_GENERATION_TYPES: dict[str, Any] = {
    **dict.fromkeys(("begin_suppress_tokens", "suppress_tokens"), list[int] | None),
    **dict.fromkeys(("max_length", "max_new_tokens", "min_length", "no_repeat_ngram_size"), int | None),
    **dict.fromkeys(("num_beams", "num_return_sequences", "top_k"), int | None),
    **dict.fromkeys(("length_penalty", "repetition_penalty", "temperature", "top_p", "typical_p"), float | None),
}

# Of stock checkpoints: masks and positions, which are no weights.
BUFFERS = re.compile(r"(^|\.)(attn\.(masked_)?bias|position_ids)$")


def generation_settings(folder: Path) -> GenerationConfig | None:
    """What the `generation_config.json` of a folder says, if there is one; a `ValueError` if it is damaged."""
    path = folder / GENERATION_CONFIG_NAME
    if not path.is_file():
        return None
    with reading(path):
        values = read_json(path)
        check_types(path, values, _GENERATION_TYPES)
        GenerationConfig(**values).validate()
        return GenerationConfig.from_pretrained(folder)


def check_tensors(tensors: Mapping[str, torch.Tensor], where: str | os.PathLike) -> None:
    """A `ValueError` that names the file of stored weights and the first tensor of integers, NaN or infinity."""
    for name, tensor in tensors.items():
        if BUFFERS.search(name):
            continue
        if not tensor.is_floating_point():
            raise ValueError(f"{where}: {name} holds {tensor.dtype}, not floating-point numbers.")
        # NaN and infinity stay in a sum, which is the quicker look; the sum of large numbers may overflow as well.
        if not tensor.sum().isfinite() and not tensor.isfinite().all():
            raise ValueError(f"{where}: {name} holds numbers that are NaN or infinite.")


def load_weights(
    model_class: type[PreTrainedModel],
    folder: str | os.PathLike | None,
    config: PreTrainedConfig,
    *,
    new_head: bool = False,
    whole: bool = False,
    check_numbers: bool = True,
    **kwargs: Any,
) -> PreTrainedModel:
    """
    `model_class.from_pretrained(folder, config=config, **kwargs)` without its report; `folder` is None with a
    `state_dict`. A `ValueError` if a weight is missing, or has another shape, or, with `check_numbers`, numbers that
    are none. With `new_head` the head may be missing or have another shape: it is newly initialized then. The `whole`
    checkpoint has nothing that the model lacks.
    """
    if folder is not None and check_numbers:
        check_tensors(read_tensors(Path(folder)), folder)
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        model, found = model_class.from_pretrained(
            folder, config=config, ignore_mismatched_sizes=True, output_loading_info=True, **kwargs
        )
    finally:
        logging.set_verbosity(verbosity)
    lost = {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
    if new_head:
        lost -= head_parameters(model).keys()
    if lost:
        raise ValueError(f"{folder} lacks {_listed(lost)}, or has them in other shapes than its configuration says.")
    if whole and found["unexpected_keys"]:
        raise ValueError(f"{folder}: its configuration does not ask for {_listed(found['unexpected_keys'])}.")
    return model


def mismatches(wanted: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> list[str]:
    """How the names and shapes in a checkpoint are not those that its configuration asks for."""
    both = [(name, list(tensor.shape), list(wanted[name].shape)) for name, tensor in found.items() if name in wanted]
    problems = {
        "lacks": wanted.keys() - found.keys(),
        "holds what its configuration does not ask for:": found.keys() - wanted.keys(),
        "holds arrays of a wrong shape:": [f"{name} {shape}, not {due}" for name, shape, due in both if shape != due],
    }
    return [f"{what} {_listed(names)}" for what, names in problems.items() if names]


def _listed(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def head_parameters(model: PreTrainedModel) -> dict[str, torch.nn.Parameter]:
    """The parameters of a model that are not of its transformer, by name."""
    prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
    return {name: value for name, value in model.named_parameters() if not name.startswith(prefix)}


def draw_head(model: PreTrainedModel) -> None:
    """Initialize the head of a model newly, in place."""
    for parameter in head_parameters(model).values():
        parameter._is_hf_initialized = False  # by which transformers knows loaded weights, which it leaves alone
    model.apply(model._init_weights)
