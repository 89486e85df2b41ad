"""
Token trees for causal models of transformers, by their public inputs alone: a four-dimensional mask and position ids.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_causal_mask
from transformers.utils import ModelOutput

from .collators import collate_trees, padded
from .token_tree import TokenTree

# Largest difference of logits between a path in its tree and alone, as a share of the largest logit.
_BOUNDS = {torch.float32: 1e-4, torch.float64: 1e-8, torch.bfloat16: 0.06, torch.float16: 0.01}
# Of each model that was compared, whether its logits can be computed apart from it.
_CHECKED: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()
# Vocabulary logits of so many tokens are held at a time.
_CHUNK = 512


def longest_path(model: PreTrainedModel) -> int:
    """The most tokens of a path that a model has positions for, and sees in all layers."""
    config = model.config.get_text_config()
    return min(getattr(config, "max_position_embeddings", None) or sys.maxsize, _window(config))


def _window(config: PreTrainedConfig) -> int:
    """How many tokens are seen in the layers that see the fewest."""
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    return window or sys.maxsize


def check_model(model: PreTrainedModel, length: int) -> None:
    """A `ValueError` that names the model and the reason if it cannot hold trees with paths of `length` tokens."""
    config = model.config.get_text_config()
    window = _window(config)
    kinds = {*(getattr(config, "layer_types", None) or ()), *(getattr(config, "attention_layers", None) or ())}
    wrong = {
        "it is an encoder-decoder": model.config.is_encoder_decoder,
        "its attention is chunked": not kinds.isdisjoint({"chunked_attention", "local"}),
        "its states are recurrent, so that a token sees all before it": getattr(model, "_is_stateful", False)
        or bool(kinds - {"full_attention", "sliding_attention", "global"}),
        f"its attention sees {window} tokens, fewer than the {length} of a path": window < length,
        "its positions are distances in the row (ALiBi)": bool(getattr(config, "alibi", False)),
        "it takes no position_ids": "position_ids" not in inspect.signature(model.forward).parameters,
        "it attends by a kernel without masks": config._attn_implementation not in ("eager", "sdpa", "flex_attention"),
    }
    for reason, holds in wrong.items():
        if holds:
            raise ValueError(f"{type(model).__name__} cannot hold token trees: {reason}.")


def collate_choices(rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """
    Items as a batch of trees, a row each, padded on the right: a `data_collator` for `transformers.Trainer`. A
    `ValueError` for an empty context or choice, or where the columns are missing.

    Args:
        rows: of each item the `context`, token ids, at least one; the `choices`, token ids of each, at least one; and
            optionally its `label`, the index of the right choice (by default 0, the first; -100: none), and
            `reference`, log-probabilities of the choices that `tree_model` subtracts. Other columns are left alone.

    Returns:
        `dict`: the tensors of `collate_trees`, with `context_length` `(batch,)`, `labels` `(batch,)` and, where rows
            have it, `reference` `(batch, choices)`.
    """
    if not all({"context", "choices"} <= row.keys() for row in rows):
        raise ValueError("Rows have context and choices; the Trainer needs remove_unused_columns=False to keep them.")
    if not all(row["choices"] and all(map(len, [row["context"], *row["choices"]])) for row in rows):
        raise ValueError("Give a context and choices for every item, of at least one token each.")
    trees = [TokenTree.from_paths([[*row["context"], *choice] for choice in row["choices"]]) for row in rows]
    batch = collate_trees(trees, pad_token_id=0, is_causal=False)
    batch["context_length"] = torch.tensor([len(row["context"]) for row in rows])
    batch["labels"] = torch.tensor([row.get("label", 0) for row in rows])
    if "reference" in rows[0]:
        own = [row["reference"][: len(row["choices"])] for row in rows]
        batch["reference"] = padded(own, batch["classify_index"].shape[1], 0.0)
    return batch


def tree_inputs(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    Arguments of a causal model for a batch of trees: `input_ids` and `position_ids`, `(batch, length)`, and
    `attention_mask`, `(batch, 1, length, length)`, as its attention takes it. A `ValueError` if it cannot hold them.
    """
    check_model(model, int(batch["position_ids"].max()) + 1)
    end = batch["subtree_end"]

    def within_subtree(row: Any, head: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return query < end[row, key]

    states = end.new_empty(*end.shape, 0, dtype=model.dtype)  # only their shape and type count
    mask = create_causal_mask(model.config.get_text_config(), states, None, None, and_mask_function=within_subtree)
    return {name: batch[name] for name in ("input_ids", "position_ids")} | {"attention_mask": mask, "use_cache": False}


def on_paths(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Which tokens are on the path of each choice, `(batch, choices, length)`."""
    end = batch["classify_index"].unsqueeze(-1)  # (batch, choices, 1)
    place = torch.arange(batch["input_ids"].shape[1], device=end.device)
    return (place <= end) & (end < batch["subtree_end"].unsqueeze(1))


def of_choices(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Which tokens belong to choices, not to the context, `(batch, length)`."""
    return batch["lm_weights"].gt(0) & batch["position_ids"].ge(batch["context_length"].unsqueeze(1))


def read_trees(
    model: PreTrainedModel, batch: Mapping[str, torch.Tensor], counted: torch.Tensor, **settings: Any
) -> tuple[torch.Tensor, ModelOutput]:
    """
    Log-probabilities of tokens after their parents, `(batch, length)`, float32, 0 where they are not `counted`; and
    the model's output, or that of its base model. Logits are computed where a counted token is predicted, and in
    chunks, again in the backward pass, where they are the output embeddings of the last hidden states and no more.
    Before a model's first batch, the paths of its first tree are compared with the same read alone.
    """
    if model not in _CHECKED:
        check_paths(model, batch)
    row, column = counted.nonzero().T  # (tokens,)
    place, targets = batch["parent_index"][row, column], batch["input_ids"][row, column]
    if _CHECKED[model]:
        output = model.base_model(**tree_inputs(model, batch), **settings)
        parts = [*zip(output.last_hidden_state[row, place].split(_CHUNK), targets.split(_CHUNK), strict=True)]
        compute = _losses if len(parts) == 1 else partial(checkpoint, _losses, use_reentrant=False)
        losses = torch.cat([compute(model, *part) for part in parts])
    else:
        if "logits_to_keep" in inspect.signature(model.forward).parameters:
            settings["logits_to_keep"], place = place.unique(return_inverse=True)
        output = model.forward(**tree_inputs(model, batch), **settings)
        losses = cross_entropy(output.logits[row, place].float(), targets, reduction="none")
    return losses.new_zeros(counted.shape).index_put((row, column), -losses), output


def _losses(model: PreTrainedModel, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropies of tokens, `(tokens,)`, after last hidden states, `(tokens, width)`."""
    return cross_entropy(_plain_logits(model, states).float(), targets, reduction="none")


def _plain_logits(model: PreTrainedModel, states: torch.Tensor) -> torch.Tensor:
    """Logits of last hidden states, of our own models without the special tokens."""
    return getattr(model, "token_logits", model.get_output_embeddings())(states)


@torch.no_grad()
def _has_plain_logits(model: PreTrainedModel, inputs: Mapping[str, torch.Tensor]) -> bool:
    """
    Whether a model's logits are `_plain_logits` of its base model's states: compared bit by bit, with states so large
    that a cap would show, or a scale.
    """
    head, is_spread = model.get_output_embeddings(), hasattr(model, "hf_device_map")  # over devices
    if head is None or model.base_model is model or is_spread:
        return False
    hook = head.register_forward_pre_hook(lambda module, states: (100 * states[0],))
    try:
        logits = model.forward(**inputs).logits
    finally:
        hook.remove()
    return torch.equal(logits, _plain_logits(model, 100 * model.base_model(**inputs).last_hidden_state))


def choice_log_probs(
    batch: Mapping[str, torch.Tensor], log_probs: torch.Tensor, counted: torch.Tensor, mean: bool = False
) -> torch.Tensor:
    """
    Of tokens' log-probabilities, `(batch, length)`, the sums or means over those of each choice's path that are
    `counted`: `(batch, choices)`, -inf for none.
    """
    own = on_paths(batch) & counted.unsqueeze(1)  # (batch, choices, length)
    sums = (own * log_probs.unsqueeze(1)).sum(-1)
    if mean:
        sums = sums / own.sum(-1).clamp(min=1)
    return sums.masked_fill(batch["classify_index"] < 0, float("-inf"))


@torch.no_grad()
def check_paths(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> float:
    """
    The largest difference between the logits of the first tree's paths and of the same sequences alone, as a share of
    the largest logit. A `ValueError` if it is more than rounding of the dtype.
    """
    was_training, device = model.training, model.device.type
    refusal = f"{type(model).__name__} cannot hold token trees"
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else model.dtype
    first = {name: batch[name][:1] for name in ("input_ids", "position_ids", "subtree_end", "classify_index")}
    model.eval()
    largest, scale = 0.0, 1e-9
    try:
        inputs = tree_inputs(model, first)
        found = model.forward(**inputs).logits[0]
        for on_path in on_paths(first)[0][first["classify_index"][0] >= 0]:
            path = on_path.nonzero()[:, 0]
            alone = model.forward(first["input_ids"][:, path], use_cache=False).logits[0]
            known = alone.isfinite() & (alone.abs() < 1e4)  # some models rule tokens out
            largest = max(largest, float((found[path] - alone)[known].abs().max()))
            scale = max(scale, float(alone[known].abs().max()))
        has_plain_logits = _has_plain_logits(model, inputs)
    except RuntimeError as error:
        raise ValueError(f"{refusal}: it fails on their mask ({error}).") from error
    finally:
        model.train(was_training)
    if not largest <= _BOUNDS.get(dtype, 0.06) * scale:
        raise ValueError(f"{refusal}: a path's logits differ by {largest:.1e} from those of the same tokens alone.")
    _CHECKED[model] = has_plain_logits
    return largest / scale


def path_log_probs(
    model: PreTrainedModel,
    contexts: Sequence[Sequence[int]],
    choices: Sequence[Sequence[Sequence[int]]],
    mean: bool = False,
    batch_size: int = 8,
) -> torch.Tensor:
    """
    Log-probabilities of the choices of items, each after its context, which the model reads once for all choices. A
    `ValueError` for an empty context or choice, and for a model that cannot hold trees.

    Args:
        model (`PreTrainedModel`): a causal language model; gradients flow unless they are switched off.
        contexts: token ids of each item's context, at least one.
        choices: token ids of each item's choices, at least one token each.
        mean (`bool`, *optional*, defaults to `False`): per token instead of the sum.
        batch_size (`int`, *optional*, defaults to 8): items that are read at once.

    Returns:
        `torch.Tensor` of shape `(items, choices)` in nats, float32, -inf where an item has fewer choices.
    """
    rows = [{"context": context, "choices": each} for context, each in zip(contexts, choices, strict=True)]
    found, widest = [], max(map(len, choices))
    for begin in range(0, len(rows), batch_size):
        batch = collate_choices(rows[begin : begin + batch_size])
        batch = {name: value.to(model.device) for name, value in batch.items()}
        counted = of_choices(batch)
        sums = choice_log_probs(batch, read_trees(model, batch, counted)[0], counted, mean)
        found.append(torch.nn.functional.pad(sums, (0, widest - sums.shape[1]), value=float("-inf")))
    return torch.cat(found)
