"""Attention beside transformers' own, written out (`eager`) and for training on a CPU (`blockwise`), and dropout."""

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

_QUERIES_PER_BLOCK = 128
# A coin of 16 random bits: four come out of each number of the generator, which is what dropout costs on a CPU.
_SIDES = 2**16


def keep_mask(shape: torch.Size, p: float, device: torch.device) -> tuple[torch.Tensor, float]:
    """
    Which elements dropout keeps (`bool`), by torch's own generator, and the factor for them; `p`, the probability that
    one is dropped, is rounded to a multiple of 2^-16.
    """
    dropped = round(p * _SIDES)
    numbers = torch.empty((shape.numel() + 3) // 4, dtype=torch.int64, device=device)
    coins = numbers.random_(-(2**63), None).view(torch.int16)[: shape.numel()]
    return (coins >= dropped - _SIDES // 2).view(shape), _SIDES / (_SIDES - dropped)


def has_cheap_noise(tensor: torch.Tensor, p: float) -> bool:
    """Whether `keep_mask` is right and faster than torch's own noise: on a CPU, outside of compiled code."""
    return tensor.device.type == "cpu" and 1e-3 <= p <= 0.999 and not torch.compiler.is_compiling()


def drop(hidden_states: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """
    `torch.nn.functional.dropout`, with `keep_mask` for noise on a CPU (torch draws one number per element there,
    which takes several times as long).
    """
    if not training or not has_cheap_noise(hidden_states, p):
        return nn.functional.dropout(hidden_states, p, training)
    kept, factor = keep_mask(hidden_states.shape, p, hidden_states.device)
    return hidden_states * kept.to(hidden_states.dtype).mul_(factor)


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` through `drop`."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return drop(hidden_states, self.p, self.training)


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention written out, with its probabilities: the reference for the other implementations."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling  # (batch, head, query, key)
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    dropped = drop(probabilities, dropout, module.training)
    return torch.matmul(dropped, value).transpose(1, 2), probabilities  # (batch, query, head, dim)


def _blocks(mask: torch.Tensor | None, length: int, keys: int) -> list[tuple[slice, slice]]:
    """Queries of each block and the range of keys that any of them sees."""
    blocks = []
    for start in range(0, length, _QUERIES_PER_BLOCK):
        queries = slice(start, min(start + _QUERIES_PER_BLOCK, length))
        if mask is None:
            blocks.append((queries, slice(0, queries.stop)))
            continue
        seen = mask[:, :, queries].any(2).flatten(0, 1).any(0).nonzero()  # (seen keys, 1)
        first, last = (int(seen[0]), int(seen[-1]) + 1) if len(seen) else (0, keys)
        blocks.append((queries, slice(first, last)))
    return blocks


class _BlockwiseAttention(torch.autograd.Function):
    """
    Softmax attention with dropout. Kept for the backward pass: the probabilities of every block, those that dropout
    took with a minus sign.
    """

    @staticmethod
    def forward(ctx, query, key, value, mask, scaling, dropout):
        blocks = _blocks(mask, query.shape[2], key.shape[2])
        mixed = torch.empty_like(query)
        saved, factor = [], 1.0
        for queries, keys in blocks:
            scores = torch.matmul(query[:, :, queries] * scaling, key[:, :, keys].transpose(2, 3))
            _hide(scores, mask, queries, keys)
            at_least_fp32 = torch.promote_types(scores.dtype, torch.float32)
            probabilities = torch.softmax(scores, -1, dtype=at_least_fp32).to(query.dtype)
            kept = probabilities
            if dropout > 0:
                coins, factor = keep_mask(probabilities.shape, dropout, probabilities.device)
                probabilities = torch.where(coins, probabilities, -probabilities)
                kept = probabilities.clamp(min=0)
            mixed[:, :, queries] = torch.matmul(kept, value[:, :, keys])
            saved.append(probabilities)
        mixed *= factor
        ctx.save_for_backward(query, key, value, mixed, *saved)
        ctx.blocks, ctx.scaling, ctx.factor = blocks, scaling, factor
        return mixed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_mixed):
        query, key, value, mixed, *saved = ctx.saved_tensors
        grad_query, grad_key, grad_value = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        # Of the softmax's gradient: the sum over keys of probability times its gradient, dropout included.
        mean = (grad_mixed * mixed).sum(-1, keepdim=True)
        grad_mixed = grad_mixed * ctx.factor
        for (queries, keys), probabilities in zip(ctx.blocks, saved, strict=True):
            grad, kept = grad_mixed[:, :, queries], probabilities.clamp(min=0)
            grad_value[:, :, keys] += torch.matmul(kept.transpose(2, 3), grad)
            grad_scores = torch.matmul(grad, value[:, :, keys].transpose(2, 3)).mul_(kept)
            grad_scores.addcmul_(probabilities.abs(), mean[:, :, queries], value=-1)
            grad_query[:, :, queries] = torch.matmul(grad_scores, key[:, :, keys])
            grad_key[:, :, keys] += torch.matmul(grad_scores.transpose(2, 3), query[:, :, queries])
        return grad_query.mul_(ctx.scaling), grad_key.mul_(ctx.scaling), grad_value, None, None, None


def _hide(scores, mask, queries, keys):
    """Push down the scores of keys that a query of a block does not see, in place."""
    if mask is not None:
        hidden = ~mask[:, :, queries, keys]
    else:
        scores = scores[..., queries]  # of causal attention only the block on the diagonal
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    scores.masked_fill_(hidden, torch.finfo(scores.dtype).min)


def blockwise_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """
    Attention block by block, in the form of transformers' attention interface: what both `"sdpa"`, the default, and
    `"blockwise"` do in our models.

    torch's SDPA has no kernel on a CPU for attention dropout: it holds all scores several times, computes what the
    mask hides, and draws its noise one number per element. Here a block of queries meets only the keys from the first
    to the last that the mask lets it see, what the backward pass needs is kept once, and noise is `keep_mask`. SDPA
    does the work where this would not win: without gradients, with a cache, off the CPU, in compiled code.

    Args:
        module (`nn.Module`): the attention layer; its `is_causal` counts where no mask is given.
        query, key, value (`torch.Tensor` of shape `(batch, heads, length, head_dim)`).
        attention_mask (`torch.Tensor` of shape `(batch, 1, length, length)`, *optional*): True where a query sees a
            key.

    Returns:
        `tuple[torch.Tensor, None]`: mixed values `(batch, length, heads, head_dim)`; no probabilities.
    """
    causal = module.is_causal if is_causal is None else is_causal
    wins = (
        torch.is_grad_enabled()
        and query.requires_grad
        and query.shape == key.shape
        and query.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and (dropout == 0 or has_cheap_noise(query, dropout))
        and (causal if attention_mask is None else attention_mask.dtype == torch.bool)
    )
    if not wins:
        return ALL_ATTENTION_FUNCTIONS["sdpa"](
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            **kwargs,
        )
    if scaling is None:
        scaling = query.shape[-1] ** -0.5
    mixed = _BlockwiseAttention.apply(query, key, value, attention_mask, scaling, dropout)
    return mixed.transpose(1, 2).contiguous(), None  # (batch, length, heads, head_dim)


AttentionInterface.register("blockwise", blockwise_attention_forward)
AttentionMaskInterface.register("blockwise", sdpa_mask)
