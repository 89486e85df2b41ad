"""The linear cross-entropy against the plain computation: values, gradients, precision, memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from hf_gpt.model.modeling_gpt import classification_loss, linear_cross_entropy, single_label_loss

WIDTH, ROWS = 5, 7


def example(targets=9, dtype=torch.float32, excluded_row=None, seed=0):
    """Hidden states, rows, targets (repeated, never the excluded one) and weights (one is 0)."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(targets, WIDTH, generator=generator, dtype=dtype).requires_grad_()
    rows = torch.randn(ROWS, WIDTH, generator=generator, dtype=dtype).requires_grad_()
    allowed = torch.tensor([row for row in range(ROWS) if row != excluded_row])
    target = allowed[torch.randint(len(allowed), (targets,), generator=generator)]
    weights = torch.rand(targets, generator=generator)
    weights[:1] = 0
    return hidden, rows, target, weights


def as_list(row):
    return [] if row is None else [row]


def plain(hidden, rows, targets, weights, excluded_row=None):
    logits = hidden @ rows.T
    if excluded_row is not None:
        kept = [row for row in range(len(rows)) if row != excluded_row]
        logits, targets = logits[:, kept], targets - (targets > excluded_row).long()
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return (cross_entropy(logits, targets, reduction="none") * weights).sum()


def assert_same(found, expected, leaves, **tolerance):
    """Equal values, and equal gradients of three times the value with respect to `leaves`."""
    tolerance = tolerance or {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(found, expected, **tolerance)
    gradients = torch.autograd.grad(3 * found, leaves), torch.autograd.grad(3 * expected, leaves)
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)


@settings(max_examples=40)
@given(
    st.integers(0, 40),
    st.integers(1, 50),
    st.none() | st.integers(0, ROWS - 1),
    st.integers(0, 1000),
)
def test_any_number_of_targets_and_chunks(targets, chunk_size, excluded_row, seed):
    inputs = example(targets, torch.float64, excluded_row, seed)
    assert_same(
        linear_cross_entropy(*inputs, as_list(excluded_row), chunk_size=chunk_size),
        plain(*inputs, excluded_row),
        inputs[:2],
        rtol=1e-10,
        atol=1e-10,
    )


@settings(max_examples=40)
@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 9), st.none() | st.integers(0, ROWS - 1))
def test_several_targets_of_a_state(targets_per_state, chunk_size, excluded_row):
    """The same as repeating a state for each of its targets; states without targets change nothing."""
    states = torch.arange(len(targets_per_state))
    index = states.repeat_interleave(torch.tensor(targets_per_state, dtype=torch.long))
    hidden, rows, targets, weights = example(len(index), torch.float64, excluded_row)
    hidden = torch.randn(len(states), WIDTH, dtype=torch.float64).requires_grad_()
    found = linear_cross_entropy(hidden, rows, targets, weights, as_list(excluded_row), index, chunk_size)
    expected = plain(hidden[index], rows, targets, weights, excluded_row)
    assert_same(found, expected, (hidden, rows), rtol=1e-10, atol=1e-10)


def test_one_state_predicts_the_same_target_twice():
    hidden, rows, _, weights = example(3, torch.float64)
    inputs = (hidden[:1].detach().requires_grad_(), rows, torch.tensor([2, 2, 5]), weights.double())
    index = torch.zeros(3, dtype=torch.long)
    expected = plain(inputs[0][index], *inputs[1:])
    assert_same(linear_cross_entropy(*inputs, state_index=index), expected, inputs[:2])
    assert torch.autograd.gradcheck(
        lambda *leaves: linear_cross_entropy(*leaves, *inputs[2:], (), index, 2), inputs[:2]
    )


@pytest.mark.parametrize("excluded_row", [None, 4])
def test_gradcheck(excluded_row):
    hidden, rows, targets, weights = example(6, torch.float64, excluded_row)
    weights, excluded = weights.double(), as_list(excluded_row)
    assert torch.autograd.gradcheck(
        lambda hidden, rows: linear_cross_entropy(hidden, rows, targets, weights, excluded, chunk_size=4),
        (hidden, rows),
    )


def test_excluded_row_gets_no_gradient():
    hidden, rows, targets, weights = example(excluded_row=3)
    linear_cross_entropy(hidden, rows, targets, weights, excluded=[3]).backward()
    assert not rows.grad[3].any()
    assert rows.grad[2].any()
    with torch.no_grad():
        before = linear_cross_entropy(hidden, rows, targets, weights, excluded=[3])
        rows[3] = 1e4
        assert torch.equal(linear_cross_entropy(hidden, rows, targets, weights, excluded=[3]), before)


@pytest.mark.parametrize("frozen", ["hidden", "rows"])
def test_frozen_input(frozen):
    hidden, rows, targets, weights = example()
    (hidden if frozen == "hidden" else rows).requires_grad_(False)
    leaf = rows if frozen == "hidden" else hidden
    inputs = (hidden, rows, targets, weights)
    assert_same(linear_cross_entropy(*inputs, chunk_size=4), plain(*inputs), [leaf])


def test_nothing_to_differentiate():
    hidden, rows, targets, weights = example()
    expected = plain(hidden, rows, targets, weights)
    with torch.no_grad():
        without_graph = linear_cross_entropy(hidden, rows, targets, weights)
    assert not without_graph.requires_grad
    torch.testing.assert_close(without_graph, expected.detach())
    frozen = linear_cross_entropy(hidden.detach(), rows.detach(), targets, weights)
    assert not frozen.requires_grad
    torch.testing.assert_close(frozen, expected.detach())


def test_weights_may_be_booleans():
    hidden, rows, targets, _ = example()
    weights = torch.tensor([True, False] * 4 + [True])
    found = linear_cross_entropy(hidden, rows, targets, weights)
    assert_same(found, plain(hidden, rows, targets, weights.float()), (hidden, rows))


def test_gradients_scale_with_the_loss_and_accumulate():
    hidden, rows, targets, weights = example()
    loss = linear_cross_entropy(hidden, rows, targets, weights)
    loss.backward(retain_graph=True)
    once = rows.grad.clone()
    (2 * loss).backward()
    torch.testing.assert_close(rows.grad, 3 * once)


def test_there_is_no_second_derivative():
    hidden, rows, targets, weights = example()
    loss = linear_cross_entropy(hidden, rows, targets, weights)
    (gradient,) = torch.autograd.grad(loss**2, hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_holds_the_logits_of_one_chunk(monkeypatch):
    products = []
    mm = torch.mm

    def recorded(*arguments, **out):
        products.append(mm(*arguments).shape)
        return mm(*arguments, **out)

    monkeypatch.setattr(torch, "mm", recorded)
    hidden, rows, targets, weights = example(10)
    linear_cross_entropy(hidden, rows, targets, weights, chunk_size=4)
    logits = [tuple(shape) for shape in products if shape[1] == ROWS]
    assert logits == [(4, ROWS), (4, ROWS), (2, ROWS)]


def test_autocast():
    hidden, rows, targets, weights = example(50)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear_cross_entropy(hidden, rows, targets, weights, chunk_size=16)
        expected = plain(hidden, rows, targets, weights)
    assert found.dtype == torch.float32
    assert_same(found, expected, (hidden, rows), rtol=2e-2, atol=5e-2)
    exact = plain(hidden, rows, targets, weights)
    torch.testing.assert_close(found, exact, rtol=2e-2, atol=0)
    assert found != exact


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_half_precision(dtype):
    exact = example(50)
    hidden, rows = (value.detach().to(dtype).requires_grad_() for value in exact[:2])
    loss = linear_cross_entropy(hidden, rows, *exact[2:], chunk_size=16)
    assert loss.dtype == torch.float32
    expected = plain(*exact)
    torch.testing.assert_close(loss, expected, rtol=2e-2, atol=0)
    for ours, theirs in zip(
        torch.autograd.grad(loss, (hidden, rows)), torch.autograd.grad(expected, exact[:2]), strict=True
    ):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.float(), theirs, rtol=5e-2, atol=1e-1)


def test_states_narrower_than_rows():
    """Half-precision states against rows of full precision, without autocast."""
    hidden, rows, targets, weights = example(50)
    narrow = hidden.detach().bfloat16().requires_grad_()
    loss = linear_cross_entropy(narrow, rows, targets, weights, chunk_size=16)
    gradients = torch.autograd.grad(loss, (narrow, rows))
    assert [gradient.dtype for gradient in gradients] == [torch.bfloat16, torch.float32]
    expected = torch.autograd.grad(plain(hidden, rows, targets, weights), (hidden, rows))
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours.float(), theirs, rtol=5e-2, atol=1e-1)


@pytest.mark.whole
def test_under_torch_compile():
    """A graph break, with the same values and gradients."""

    def loss(hidden, rows, targets, weights):
        return 2 * linear_cross_entropy(torch.tanh(hidden), rows, targets, weights)

    inputs = example()
    torch.compiler.reset()
    found = torch.compile(loss, backend="aot_eager")(*inputs)
    assert_same(found, loss(*inputs), inputs[:2])


@pytest.mark.parametrize("excluded", [[3], [0, 3, 6], []], ids=str)
def test_several_excluded_rows(excluded):
    hidden, rows, _, weights = example()
    kept = [row for row in range(ROWS) if row not in excluded]
    places = torch.randint(len(kept), (len(hidden),), generator=torch.Generator().manual_seed(0))
    found = linear_cross_entropy(hidden, rows, torch.tensor(kept)[places], weights, excluded, chunk_size=4)
    assert_same(found, plain(hidden, rows[kept], places, weights), (hidden, rows))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_smoothed_classes(smoothing):
    logits = torch.randn(4, 3, requires_grad=True)
    labels = torch.tensor([2, -100, 0, 1])
    found = single_label_loss(logits, labels, smoothing)
    assert_same(found, cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing), (logits,))


def test_smoothed_choices_of_which_some_are_absent():
    logits = torch.randn(3, 4, requires_grad=True)
    absent = torch.tensor([[0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()  # the last one fills up a batch
    labels = torch.tensor([1, 3, -100])
    found = single_label_loss(logits.masked_fill(absent, float("-inf")), labels, 0.2)
    terms = ((logits[:1, :3], labels[:1]), (logits[1:2], labels[1:2]))
    expected = sum(cross_entropy(*term, reduction="sum", label_smoothing=0.2) for term in terms)
    assert_same(found, expected, (logits,))


@pytest.mark.parametrize("problem", ["regression", "ordinal", "multi_label_classification"])
def test_what_cannot_be_smoothed(problem):
    with pytest.raises(ValueError, match=f"one class or choice is right, not in {problem}"):
        classification_loss(torch.randn(2, 3), torch.zeros(2, 3), problem, 0.1)


def test_large_logits_stay_finite():
    hidden, rows, targets, weights = example()
    with torch.no_grad():
        hidden.mul_(1e4)
    inputs = (hidden, rows, targets, weights)
    assert_same(linear_cross_entropy(*inputs), plain(*inputs), inputs[:2], rtol=1e-4, atol=1e-3)
