"""Cross-entropy of a linear layer that never holds all of its logits."""

import torch

# Logits held at a time. On a CPU a chunk should stay near the caches; a GPU wants large matrix products.
_CHUNK_ELEMENTS = {"cpu": 2**22, "cuda": 2**27}


class _LinearCrossEntropy(torch.autograd.Function):
    """Sum of weighted cross-entropies; gradients are computed along with the loss, while a chunk's logits exist."""

    @staticmethod
    def forward(ctx, hidden, rows, targets, weights, excluded_row, chunk_size, with_grad):
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        grad_hidden = torch.empty_like(hidden) if with_grad and ctx.needs_input_grad[0] else None
        grad_rows = torch.zeros_like(rows) if with_grad and ctx.needs_input_grad[1] else None
        accumulate = torch.promote_types(hidden.dtype, torch.float32)
        total = hidden.new_zeros((), dtype=accumulate)
        output = rows.to(dtype)
        for start in range(0, hidden.shape[0], chunk_size):
            part = slice(start, start + chunk_size)
            states, target = hidden[part].to(dtype), targets[part, None]
            weight = weights[part, None].to(accumulate)
            logits = torch.mm(states, output.t()).to(accumulate)  # (chunk, rows)
            if excluded_row is not None:
                logits[:, excluded_row] = float("-inf")
            log_norm = logits.logsumexp(-1, keepdim=True)
            total += (weight * (log_norm - logits.gather(1, target))).sum()
            if grad_hidden is None and grad_rows is None:
                continue
            # The gradient of the logits: weight * (softmax - one_hot(target)).
            delta = logits.sub_(log_norm).exp_().mul_(weight).scatter_add_(1, target, -weight).to(dtype)
            if grad_hidden is not None:
                grad_hidden[part] = torch.mm(delta, output)
            if grad_rows is not None:
                if dtype == grad_rows.dtype:
                    grad_rows.addmm_(delta.t(), states)
                else:
                    grad_rows += torch.mm(delta.t(), states)
        ctx.save_for_backward(grad_hidden, grad_rows)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        grad_hidden, grad_rows = ctx.saved_tensors
        return (
            None if grad_hidden is None else grad_hidden * grad_output.to(grad_hidden.dtype),
            None if grad_rows is None else grad_rows * grad_output.to(grad_rows.dtype),
            None,
            None,
            None,
            None,
            None,
        )


@torch.compiler.disable
def linear_cross_entropy(
    hidden: torch.Tensor,
    rows: torch.Tensor,
    targets: torch.Tensor,
    weights: torch.Tensor,
    excluded_row: int | None = None,
    chunk_size: int | None = None,
) -> torch.Tensor:
    """
    Weighted sum of the cross-entropies of `hidden @ rows.T`, computed chunk by chunk.

    Logits of one chunk are held at a time; both gradients are taken while they exist, so that the backward pass is
    one multiplication. Matrix products follow autocast, the softmax is at least fp32. Under `torch.compile` this
    call is a graph break. It has no second derivative.

    Args:
        hidden (`torch.Tensor` of shape `(targets, width)`): states that predict.
        rows (`torch.Tensor` of shape `(vocabulary, width)`): output matrix.
        targets (`torch.Tensor` of shape `(targets,)`): row that each state should have predicted.
        weights (`torch.Tensor` of shape `(targets,)`): factor of each cross-entropy; no gradient flows into it.
        excluded_row (`int`, *optional*): row left out of the softmax (padding).
        chunk_size (`int`, *optional*): states per chunk; by default a few million logits.

    Returns:
        `torch.Tensor`: the sum, a scalar of at least fp32; divide it by what the weights add up to for a mean.
    """
    if chunk_size is None:
        chunk_size = max(64, _CHUNK_ELEMENTS.get(hidden.device.type, 2**24) // rows.shape[0])
    return _LinearCrossEntropy.apply(hidden, rows, targets, weights, excluded_row, chunk_size, torch.is_grad_enabled())
