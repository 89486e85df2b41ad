"""
Token trees for causal models of transformers, by their public inputs alone: a four-dimensional mask and position ids.

    sums = path_log_probs(model, contexts, choices)  # (items, choices), each context read once

Which model can hold a tree is decided by its configuration and signature (`check_model`), and shown for the first rows
(`check_paths`): a tree's paths must have the logits that they have alone.
"""

import inspect
from collections.abc import Sequence
from weakref import WeakSet

import torch
from transformers import PreTrainedModel

from .collators import collate_trees
from .token_tree import TokenTree

# Largest difference of logits between a path in its tree and alone, as a share of the largest logit.
_BOUNDS = {torch.float32: 1e-4, torch.float64: 1e-8, torch.bfloat16: 0.06, torch.float16: 0.01}
_CHECKED: WeakSet[PreTrainedModel] = WeakSet()


def check_model(model: PreTrainedModel, length: int) -> None:
    """
    A `ValueError` that names the model and the reason if it cannot hold rows of `length` tokens that are trees:
    encoder-decoders, recurrent and linear attention, windows shorter than the row, and positions that the model counts
    itself (ALiBi, or no `position_ids`).
    """
    config = model.config.get_text_config()
    kinds = {str(kind) for kind in getattr(config, "layer_types", None) or ()}
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    wrong = {
        "it is an encoder-decoder": model.config.is_encoder_decoder,
        "its states are recurrent, so that a token sees all before it": getattr(model, "_is_stateful", False)
        or bool(kinds - {"full_attention", "sliding_attention", "chunked_attention"}),
        f"its attention sees {window} tokens, fewer than the row's {length}": window is not None and window < length,
        "its attention is chunked": "chunked_attention" in kinds,
        "its positions are distances in the row (ALiBi)": bool(getattr(config, "alibi", False)),
        "it takes no position_ids": "position_ids" not in inspect.signature(model.forward).parameters,
        "it attends by a kernel without masks": config._attn_implementation not in ("eager", "sdpa"),
    }
    for reason, holds in wrong.items():
        if holds:
            raise ValueError(f"{type(model).__name__} cannot hold token trees: {reason}.")


def tree_inputs(trees: Sequence[TokenTree], model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """
    Arguments of a causal model for a batch of trees, a row each, padded on the right: `input_ids` and `position_ids`,
    `(batch, length)`, and `attention_mask`, `(batch, 1, length, length)`: true where a token sees another, for eager
    attention 0 there and elsewhere the lowest number. A `ValueError` for a model that cannot hold them.
    """
    batch = collate_trees(trees, pad_token_id=0)
    length = batch["input_ids"].shape[1]
    check_model(model, length)
    place = torch.arange(length)
    ends = batch.get("subtree_end", torch.full_like(batch["input_ids"], length))
    sees = (place[:, None] >= place) & (place[:, None] < ends[:, None, :])  # (batch, length, length)
    mask = sees[:, None]
    if model.config.get_text_config()._attn_implementation == "eager":  # which adds it
        mask = torch.zeros(mask.shape, dtype=model.dtype).masked_fill(~mask, torch.finfo(model.dtype).min)
    inputs = {"input_ids": batch["input_ids"], "position_ids": batch["position_ids"], "attention_mask": mask}
    return {name: value.to(model.device) for name, value in inputs.items()}


def tree_logits(model: PreTrainedModel, trees: Sequence[TokenTree]) -> torch.Tensor:
    """
    Logits of a batch of trees, `(batch, length, vocab_size)`; before a model's first batch, the paths of its first
    tree are compared with the same read alone.
    """
    if model not in _CHECKED:
        check_paths(model, trees[0])
        _CHECKED.add(model)
    return model(**tree_inputs(trees, model), use_cache=False).logits


@torch.no_grad()
def check_paths(model: PreTrainedModel, tree: TokenTree) -> float:
    """
    The largest difference between the logits of a tree's paths and of the same sequences alone, as a share of the
    largest logit. A `ValueError` if it is more than rounding of the model's dtype.
    """
    was_training = model.training
    model.eval()
    largest, scale = 0.0, 1e-9
    try:
        found = model(**tree_inputs([tree], model), use_cache=False).logits[0]
        for number, end in enumerate(tree.path_ends):
            if end < 0:
                continue
            path = torch.tensor(tree.path(number), device=model.device)
            alone = model(torch.tensor(tree.input_ids, device=model.device)[path][None], use_cache=False).logits[0]
            known = alone.isfinite() & (alone.abs() < 1e4)  # some models rule tokens out
            largest = max(largest, float((found[path] - alone)[known].abs().max()))
            scale = max(scale, float(alone[known].abs().max()))
    except RuntimeError as error:
        raise ValueError(
            f"{type(model).__name__} cannot hold token trees: it fails on their mask ({error})."
        ) from error
    finally:
        model.train(was_training)
    if not largest <= _BOUNDS.get(model.dtype, 0.06) * scale:
        raise ValueError(
            f"{type(model).__name__} cannot hold token trees: a path's logits differ by {largest:.1e} from those of "
            "the same tokens alone."
        )
    return largest / scale


def path_log_probs(
    model: PreTrainedModel,
    contexts: Sequence[Sequence[int]],
    choices: Sequence[Sequence[Sequence[int]]],
    mean: bool = False,
    batch_size: int = 8,
) -> torch.Tensor:
    """
    Log-probabilities of the choices of items, each after its context, which the model reads once for all choices.

    Args:
        model (`PreTrainedModel`): a causal language model; gradients flow unless they are switched off.
        contexts: token ids of each item's context, at least one.
        choices: token ids of each item's choices, at least one token each.
        mean (`bool`, *optional*, defaults to `False`): per token instead of the sum.
        batch_size (`int`, *optional*, defaults to 8): items that are read at once.

    Returns:
        `torch.Tensor` of shape `(items, choices)` in nats, float32, -inf where an item has fewer choices.

    Raises:
        ValueError: for an empty context or choice, and for a model that cannot hold trees.
    """
    lengths = [len(ids) for each in (contexts, *choices) for ids in each]
    if len(contexts) != len(choices) or not all(lengths):
        raise ValueError("Give a context and choices for every item, of at least one token each.")
    widest, rows = max(map(len, choices)), []
    for begin in range(0, len(contexts), batch_size):
        batch = slice(begin, begin + batch_size)
        items = [*zip(contexts[batch], choices[batch], strict=True)]
        trees = [TokenTree.from_paths([[*context, *choice] for choice in each]) for context, each in items]
        for tree, logits, (context, each) in zip(trees, tree_logits(model, trees), items, strict=True):
            sums = []
            for number in range(len(each)):
                path = torch.tensor(tree.path(number), device=logits.device)
                before, own = path[len(context) - 1 : -1], path[len(context) :]
                ids = torch.tensor(tree.input_ids, device=logits.device)[own]
                found = logits[before].float().log_softmax(-1).gather(1, ids[:, None])[:, 0]  # (tokens,)
                sums.append(found.mean() if mean else found.sum())
            missing = [sums[0].new_tensor(float("-inf"))] * (widest - len(sums))
            rows.append(torch.stack([*sums, *missing]))
    return torch.stack(rows)
