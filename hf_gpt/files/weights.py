"""The weights of a folder in a model: what is missing is an error, and what is meant to be new is no news."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from . import read_tensors

# Of stock checkpoints: masks and positions, which are no weights.
_BUFFERS = re.compile(r"(^|\.)(attn\.(masked_)?bias|position_ids)$")


def check_tensors(tensors: Mapping[str, torch.Tensor], where: str | os.PathLike) -> None:
    """
    Look at weights before they are used. One pass over the numbers: 0.08 s for the 117M parameters of GPT-1, 0.01 s
    for gpt-mini, on one core.

    Args:
        tensors (`Mapping[str, torch.Tensor]`): by name, as they are stored.
        where (`str` or `PathLike`): the file or folder, for the error.

    Raises:
        ValueError: names the first tensor of integers, and the first that holds NaN or infinity.
    """
    for name, tensor in tensors.items():
        if _BUFFERS.search(name):
            continue
        if not tensor.is_floating_point():
            raise ValueError(f"{where}: {name} holds {tensor.dtype}, not floating-point numbers.")
        # NaN and infinity stay in a sum, which is the quicker look; the sum of large numbers may overflow as well.
        if not tensor.sum().isfinite() and not (finite := tensor.isfinite()).all():
            count = int((~finite).sum())
            raise ValueError(f"{where}: {name} holds {count:,} numbers that are NaN or infinite; copy the file again.")


def load_weights(
    model_class: type[PreTrainedModel],
    folder: str | os.PathLike | None,
    config: PreTrainedConfig,
    *,
    new_head: bool = False,
    **kwargs: Any,
) -> PreTrainedModel:
    """
    `model_class.from_pretrained` in evaluation mode, without its report but for weights that are missing or do not
    fit.

    Args:
        folder (`str` or `PathLike`, *optional*): the checkpoint; `None` with a `state_dict`.
        config (`PreTrainedConfig`): of the model.
        new_head (`bool`, *optional*, defaults to `False`): the head of the model need not be in the checkpoint, and
            may have another shape there; it is newly initialized then.
        kwargs: further arguments of `from_pretrained`.

    Raises:
        ValueError: if the checkpoint lacks a weight, has it in another shape or in numbers that are none
            (`check_tensors`), or wants what is not installed.
    """
    # A quantized checkpoint holds integers.
    if folder is not None and getattr(config, "quantization_config", None) is None:
        check_tensors(read_tensors(Path(folder)), folder)
    try:
        with ExitStack() as afterwards:
            afterwards.callback(logging.set_verbosity, logging.get_verbosity())
            logging.set_verbosity_error()
            model, found = model_class.from_pretrained(
                folder, config=config, ignore_mismatched_sizes=True, output_loading_info=True, **kwargs
            )
    except ImportError as error:  # of settings such as a quantization or a kernel of attention
        raise ValueError(f"{folder} cannot be loaded as its configuration says: {error}") from error
    lost = {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
    if new_head:
        lost -= head_parameters(model).keys()
    if lost:
        raise ValueError(
            f"{folder} lacks {_listed(lost)}, or has them in other shapes than its configuration says: copy it again, "
            "or name a folder that holds the whole model."
        )
    return model


def misfits(wanted: Mapping[str, Sequence[int]], found: Mapping[str, Sequence[int]]) -> list[str]:
    """How the parameters of a checkpoint are not those that its configuration asks for, given by name and shape."""
    problems = {
        "lacks": wanted.keys() - found.keys(),
        "holds what its configuration does not ask for:": found.keys() - wanted.keys(),
        "holds arrays of a wrong shape:": {
            f"{name} {list(found[name])}, not {list(wanted[name])}"
            for name in wanted.keys() & found.keys()
            if list(wanted[name]) != list(found[name])
        },
    }
    return [f"{what} {_listed(names)}" for what, names in problems.items() if names]


def _listed(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def head_parameters(model: PreTrainedModel) -> dict[str, torch.nn.Parameter]:
    """The parameters of a model that are not of its transformer, by name."""
    prefix = f"{model.base_model_prefix}."
    if model.base_model is model:
        return {}
    return {name: value for name, value in model.named_parameters() if not name.startswith(prefix)}


def draw_head(model: PreTrainedModel) -> None:
    """Initialize the head of a model newly, in place."""
    for parameter in head_parameters(model).values():
        # By which transformers knows loaded weights, which it leaves alone.
        parameter._is_hf_initialized = False
    for child in model.children():
        if child is not model.base_model:
            child.apply(model._init_weights)
