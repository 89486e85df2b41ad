"""Dropout whose noise is cheap on a CPU."""

import torch
from torch import nn

# A coin of 16 random bits: four come out of each number of the generator, which is what dropout costs on a CPU.
_SIDES = 2**16


def keep_mask(shape: torch.Size, p: float, device: torch.device) -> tuple[torch.Tensor, float]:
    """
    Draw which elements dropout keeps, from torch's own generator.

    Args:
        shape (`torch.Size`): of the mask.
        p (`float`): probability that an element is dropped, rounded to a multiple of 2^-16.
        device (`torch.device`): of the mask.

    Returns:
        `tuple[torch.Tensor, float]`: a `bool` mask, True for kept elements, and the factor for them.
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
