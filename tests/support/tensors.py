"""What tests of models compare: tensors, gradients, and rows padded on either side."""

import torch
from torch.nn.utils.rnn import pad_sequence

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


def padded(rows, side="right", filler=PAD):
    """Rows of different lengths as a tensor, and its mask."""
    ids = [torch.tensor(row, dtype=torch.long) for row in rows]
    masks = [torch.ones_like(row) for row in ids]
    return pad_sequence(ids, True, filler, side), pad_sequence(masks, True, 0, side)
