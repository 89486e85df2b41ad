"""Losses: cross-entropy of a linear layer that never holds all of its logits, and those of the task heads."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import nn

# Logits held at a time. On a CPU a chunk should stay near the caches; a GPU wants large matrix products.
_CHUNK_ELEMENTS = {"cpu": 2**23, "cuda": 2**27}
# On a CPU, what a chunk of 16 bits adds to a gradient of 32 is converted, the whole matrix: larger chunks save that.
_CHUNKS_IN_HALF = 4
# Rows of logits that begin at a multiple of this many elements: products of an odd width take a third longer.
_ALIGNMENT = 64


class _LinearCrossEntropy(torch.autograd.Function):
    """Sum of weighted cross-entropies; gradients are computed along with the loss, while a chunk's logits exist."""

    @staticmethod
    def forward(ctx, hidden, rows, targets, weights, excluded, chunk_size, state_index, with_grad):
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        grad_hidden = torch.empty_like(hidden) if with_grad and ctx.needs_input_grad[0] else None
        grad_rows = None  # the first chunk makes it: filling a large matrix with zeros takes time as well
        wants_rows = with_grad and ctx.needs_input_grad[1]
        accumulate = torch.promote_types(hidden.dtype, torch.float32)
        total = hidden.new_zeros((), dtype=accumulate)
        output, weights = rows.to(dtype), weights.to(accumulate)
        if torch.finfo(dtype).bits < torch.finfo(rows.dtype).bits and device == "cpu":
            chunk_size *= _CHUNKS_IN_HALF
        width = -(-len(rows) // _ALIGNMENT) * _ALIGNMENT
        space = hidden.new_empty((min(chunk_size, len(hidden)), width), dtype=dtype)[:, : len(rows)]
        for part, own in _chunks(hidden, state_index, chunk_size):
            states, target, weight = hidden[part].to(dtype), targets[own], weights[own]
            state = state_index[own] - part.start
            state_weight = weight.new_zeros(len(states)).index_add_(0, state, weight)
            logits = torch.mm(states, output.t(), out=space[: len(states)])  # (states, rows)
            if excluded:
                logits[:, excluded] = float("-inf")
            log_probs = logits.log_softmax(-1, dtype=accumulate)
            total -= (weight * log_probs[state, target]).sum()
            if grad_hidden is None and not wants_rows:
                continue
            # The gradient of the logits: weight * (softmax - one_hot(target)), summed over the targets of a state.
            delta = log_probs.exp_().mul_(state_weight.unsqueeze(-1))
            delta = delta.index_put_((state, target), -weight, accumulate=True).to(dtype)
            if grad_hidden is not None:
                grad_hidden[part] = torch.mm(delta, output)
            if not wants_rows:
                continue
            if grad_rows is None:
                grad_rows = torch.mm(delta.t(), states).to(rows.dtype)
            elif dtype == grad_rows.dtype:
                grad_rows.addmm_(delta.t(), states)
            else:
                grad_rows += torch.mm(delta.t(), states)
        if wants_rows and grad_rows is None:
            grad_rows = torch.zeros_like(rows)
        ctx.save_for_backward(grad_hidden, grad_rows)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        grad_hidden, grad_rows = ctx.saved_tensors
        # A large matrix: where the caller has put all factors into the weights, it is not read again.
        is_one = grad_output.device.type == "cpu" and grad_output.item() == 1
        return (
            None if grad_hidden is None else grad_hidden * grad_output.to(grad_hidden.dtype),
            grad_rows if grad_rows is None or is_one else grad_rows * grad_output.to(grad_rows.dtype),
            *[None] * 6,
        )


def _chunks(hidden: torch.Tensor, state_index: torch.Tensor, size: int) -> Iterator[tuple[slice, slice]]:
    """States of each chunk, all chunks nearly alike, and the targets that belong to them."""
    states = hidden.shape[0]
    number = math.ceil(states / size)
    bounds = [states * chunk // number for chunk in range(number + 1)] if states else []
    first_targets = torch.searchsorted(state_index, torch.tensor(bounds, device=hidden.device)).tolist()
    for chunk in range(number):
        yield slice(*bounds[chunk : chunk + 2]), slice(*first_targets[chunk : chunk + 2])


@torch.compiler.disable
def linear_cross_entropy(
    hidden: torch.Tensor,
    rows: torch.Tensor,
    targets: torch.Tensor,
    weights: torch.Tensor,
    excluded_row: int | Sequence[int] | None = None,
    chunk_size: int | None = None,
    state_index: torch.Tensor | None = None,
) -> torch.Tensor:
    """
    Weighted sum of the cross-entropies of `hidden @ rows.T`, computed chunk by chunk.

    Logits of one chunk are held at a time; both gradients are taken while they exist, so that the backward pass is
    one multiplication. Matrix products follow autocast, the softmax is at least fp32. Under `torch.compile` this
    call is a graph break. It has no second derivative.

    Args:
        hidden (`torch.Tensor` of shape `(states, width)`): states that predict.
        rows (`torch.Tensor` of shape `(vocabulary, width)`): output matrix.
        targets (`torch.Tensor` of shape `(targets,)`): row that a state should have predicted.
        weights (`torch.Tensor` of shape `(targets,)`): factor of each cross-entropy; no gradient flows into it.
        excluded_row (`int` or `Sequence[int]`, *optional*): row or rows left out of the softmax (padding).
        chunk_size (`int`, *optional*): states per chunk at most; by default a few million logits.
        state_index (`torch.Tensor` of shape `(targets,)`, *optional*): which state predicts each target, in
            ascending order; by default the states are as many as the targets and each predicts its own.

    Returns:
        `torch.Tensor`: the sum, a scalar of at least fp32; divide it by what the weights add up to for a mean.
    """
    if chunk_size is None:
        chunk_size = max(64, _CHUNK_ELEMENTS.get(hidden.device.type, 2**24) // rows.shape[0])
    if state_index is None:
        state_index = torch.arange(len(hidden), device=hidden.device)
    with_grad = torch.is_grad_enabled()
    excluded = [] if excluded_row is None else [excluded_row] if isinstance(excluded_row, int) else list(excluded_row)
    return _LinearCrossEntropy.apply(hidden, rows, targets, weights, excluded, chunk_size, state_index, with_grad)


def single_label_loss(logits: torch.Tensor, labels: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
    """
    Sum of cross-entropies, of which label smoothing gives a share to all classes alike (Szegedy et al., 2016).

    Args:
        logits (`torch.Tensor` of shape `(batch, classes)`): -inf where an example has no such class (choice).
        labels (`torch.Tensor` of shape `(batch,)`): the right class; -100: none.
        smoothing (`float`, *optional*, defaults to 0.0): the share.
    """
    loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
    if not smoothing:
        return loss
    absent = logits.eq(float("-inf"))
    log_probs = logits.log_softmax(-1).masked_fill(absent | labels.eq(-100).unsqueeze(-1), 0)
    spread = log_probs.sum(-1) / (~absent).sum(-1).clamp(min=1)
    return (1 - smoothing) * loss - smoothing * spread.sum()


def classification_loss(
    logits: torch.Tensor, labels: torch.Tensor, problem_type: str, smoothing: float = 0.0
) -> torch.Tensor:
    """
    Sum of the losses of `GPTForSequenceClassification`, whose labels of -100 count nothing.

    Args:
        logits (`torch.Tensor` of shape `(batch, num_labels)`): scores.
        labels (`torch.Tensor` of shape `(batch,)` or `(batch, num_labels)`): see `GPTTaskModel.forward`.
        problem_type (`str`): see `GPTConfig`.
        smoothing (`float`, *optional*, defaults to 0.0): see `single_label_loss`.

    Raises:
        ValueError: for smoothing of another problem than one right class.
    """
    if problem_type == "single_label_classification":
        return single_label_loss(logits, labels, smoothing)
    if smoothing:
        raise ValueError(f"Labels are smoothed where one class or choice is right, not in {problem_type}.")
    if problem_type == "ordinal":
        # A score between two whole ones is shared between them (Tai et al., 2015, section 5.2); -100 is near none.
        bins = torch.arange(logits.shape[-1], device=logits.device)
        shares = (1 - (labels.float().unsqueeze(-1) - bins).abs()).clamp(min=0)
        return -(shares * logits.log_softmax(-1)).sum()
    if problem_type == "regression":
        losses = nn.functional.mse_loss(logits.view_as(labels), labels.float(), reduction="none")
    else:
        losses = nn.functional.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none")
    return losses.masked_fill(labels.eq(-100), 0).sum()
