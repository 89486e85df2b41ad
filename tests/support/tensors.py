"""What tests of models compare: tensors, gradients, and rows padded on either side."""

import torch

from .tiny import PAD


def assert_close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def gradients(model, loss):
    """Of every parameter that the loss depends on."""
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def assert_same_gradients(model, found, expected, tolerance=1e-5):
    found, expected = gradients(model, found), gradients(model, expected)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert_close(found[name], gradient, tolerance)


def padded(rows, side="right", filler=PAD, width=None):
    """Rows of different lengths as a tensor, and its mask."""
    width = width or max(map(len, rows))
    gaps = [[filler] * (width - len(row)) for row in rows]
    both = list(zip(rows, gaps, strict=True))
    ids = [[*gap, *row] if side == "left" else [*row, *gap] for row, gap in both]
    mask = [
        [0] * len(gap) + [1] * len(row) if side == "left" else [1] * len(row) + [0] * len(gap) for row, gap in both
    ]
    return torch.tensor(ids), torch.tensor(mask)
