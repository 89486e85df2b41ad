"""The losses against plain computations: values, gradients, precision, memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from hf_gpt.model.modeling_gpt import classification_loss, linear_cross_entropy, single_label_loss

WIDTH, ROWS = 5, 7
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def example(targets=9, dtype=torch.float32, excluded=(), rows=ROWS, seed=0):
    """Hidden states, rows, targets (repeated, never an excluded one) and weights (one is 0)."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(targets, WIDTH, generator=generator, dtype=dtype).requires_grad_()
    matrix = torch.randn(rows, WIDTH, generator=generator, dtype=dtype).requires_grad_()
    allowed = torch.tensor([row for row in range(rows) if row not in excluded])
    target = allowed[torch.randint(len(allowed), (targets,), generator=generator)]
    weights = torch.rand(targets, generator=generator, dtype=torch.promote_types(dtype, torch.float32))
    weights[:1] = 0
    return hidden, matrix, target, weights


def plain(hidden, rows, targets, weights, excluded=()):
    logits = hidden @ rows.T
    absent = torch.isin(torch.arange(len(rows)), torch.tensor(excluded, dtype=torch.long))
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).masked_fill(absent, float("-inf"))
    return (cross_entropy(logits, targets, reduction="none") * weights).sum()


def assert_same(found, expected, leaves, **tolerance):
    """Equal values, and equal gradients of three times the value with respect to `leaves`."""
    tolerance = tolerance or {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(found, expected, **tolerance)
    gradients = torch.autograd.grad(3 * found, leaves), torch.autograd.grad(3 * expected, leaves)
    torch.testing.assert_close(*gradients, **tolerance)


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 3), max_size=20),
    st.sets(st.integers(0, ROWS - 1), max_size=ROWS - 1).map(sorted),
    st.integers(0, 1000),
)
def test_values_and_gradients(targets_per_state, excluded, seed):
    """As if a state were repeated for each of its targets; states without targets change nothing."""
    states = torch.arange(len(targets_per_state))
    index = states.repeat_interleave(torch.tensor(targets_per_state, dtype=torch.long))
    _, rows, targets, weights = example(len(index), torch.float64, excluded, seed=seed)
    hidden = example(len(states), torch.float64, seed=seed + 1)[0]
    found = linear_cross_entropy(hidden, rows, targets, weights, excluded, index)
    assert_same(found, plain(hidden[index], rows, targets, weights, excluded), (hidden, rows), **EXACT)


def test_only_a_chunk_of_logits_is_held(monkeypatch):
    shapes, product = [], torch.mm

    def recorded(*arguments, **out):
        shapes.append(product(*arguments).shape)
        return product(*arguments, **out)

    inputs = example(150, rows=1 << 17)
    monkeypatch.setattr(torch, "mm", recorded)
    found = linear_cross_entropy(*inputs)
    assert [tuple(shape) for shape in shapes if shape[1] == 1 << 17] == [(50, 1 << 17)] * 3
    assert_same(found, plain(*inputs), inputs[:2], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("trained", [0, 1], ids=["hidden", "rows"])
def test_frozen_inputs(trained):
    inputs = example()
    inputs[1 - trained].requires_grad_(False)
    assert_same(linear_cross_entropy(*inputs), plain(*inputs), [inputs[trained]])
    inputs[trained].requires_grad_(False)
    assert not linear_cross_entropy(*inputs).requires_grad


def test_autocast():
    inputs = example(50)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = linear_cross_entropy(*inputs), plain(*inputs)
    assert found.dtype == torch.float32
    assert_same(found, expected, inputs[:2], rtol=2e-2, atol=5e-2)


@pytest.mark.parametrize(
    "dtypes",
    [(torch.bfloat16, torch.bfloat16), (torch.float16, torch.float16), (torch.bfloat16, torch.float32)],
    ids=["bfloat16", "float16", "states narrower than rows"],
)
def test_half_precision(dtypes):
    exact = example(50)
    leaves = [value.detach().to(dtype).requires_grad_() for value, dtype in zip(exact[:2], dtypes, strict=True)]
    loss, expected = linear_cross_entropy(*leaves, *exact[2:]), plain(*exact)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=2e-2, atol=0)
    gradients = torch.autograd.grad(loss, leaves)
    assert tuple(gradient.dtype for gradient in gradients) == dtypes
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, exact[:2]), strict=True):
        torch.testing.assert_close(ours.float(), theirs, rtol=5e-2, atol=1e-1)


@pytest.mark.whole
def test_under_torch_compile():
    """A graph break, with the same values and gradients."""

    def loss(hidden, rows, targets, weights):
        return 2 * linear_cross_entropy(torch.tanh(hidden), rows, targets, weights)

    inputs = example()
    torch.compiler.reset()
    assert_same(torch.compile(loss, backend="aot_eager")(*inputs), loss(*inputs), inputs[:2])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_smoothed_labels(smoothing):
    """Of classes as torch's; of choices, some of which an item does not have, over those that it has."""
    logits = torch.randn(4, 3, requires_grad=True)
    labels = torch.tensor([2, -100, 0, 1])
    expected = cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    assert_same(single_label_loss(logits, labels, smoothing), expected, (logits,))
    absent = torch.tensor([[0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]]).bool()  # the third one fills up a batch
    labels = torch.tensor([1, 2, -100, -100])
    found = single_label_loss(logits.masked_fill(absent, float("-inf")), labels, smoothing)
    terms = ((logits[:1, :2], labels[:1]), (logits[1:2], labels[1:2]))
    expected = sum(cross_entropy(*term, reduction="sum", label_smoothing=smoothing) for term in terms)
    assert_same(found, expected, (logits,))


@pytest.mark.parametrize("problem", ["regression", "ordinal", "multi_label_classification"])
def test_what_cannot_be_smoothed(problem):
    with pytest.raises(ValueError, match=f"one class or choice is right, not in {problem}"):
        classification_loss(torch.randn(2, 3), torch.zeros(2, 3), problem, 0.1)
