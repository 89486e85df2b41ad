"""Blockwise attention and cheap dropout noise against torch's own."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import hf_gpt.model.attention
from hf_gpt import GPTConfig, GPTForSequenceClassification, GPTModel
from hf_gpt.model.attention import Dropout, blockwise_attention_forward, drop, keep_mask

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(hf_gpt.model.attention, "_QUERIES_PER_BLOCK", 4)


class CausalLayer(torch.nn.Module):
    is_causal = True


def tensors(length=11, dtype=torch.float64, batch=2):
    generator = torch.Generator().manual_seed(length)
    return [torch.randn(batch, 3, length, 5, generator=generator, dtype=dtype).requires_grad_() for _ in range(3)]


def masks(length=11):
    """Name -> mask of two rows, each query seeing itself at least."""
    own = torch.eye(length, dtype=torch.bool)
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    packed = torch.block_diag(*[torch.ones(part, part) for part in (3, 6, length - 9)]).bool() & causal
    random = causal & (torch.rand(length, length, generator=torch.Generator().manual_seed(1)) < 0.5) | own
    both_ways = random | random.T
    return {
        "causal": causal.expand(2, 1, -1, -1),
        "packed": packed.expand(2, 1, -1, -1),
        "different rows": torch.stack([packed, random]).unsqueeze(1),
        "both ways": torch.stack([both_ways, packed]).unsqueeze(1),
    }


def attend(query, key, value, mask, **kwargs):
    return blockwise_attention_forward(CausalLayer(), query, key, value, mask, **kwargs)[0].transpose(1, 2)


@pytest.mark.parametrize("name", masks())
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_equals_sdpa(name, scaling):
    leaves, mask = tensors(), masks()[name]
    found = attend(*leaves, mask, scaling=scaling)
    expected = scaled_dot_product_attention(*leaves, mask, scale=scaling)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    weights = torch.randn_like(expected)
    gradients = [torch.autograd.grad((mixed * weights).sum(), leaves) for mixed in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [1, 3, 4, 9])
def test_no_mask_is_causal(length):
    leaves = tensors(length)
    found, expected = attend(*leaves, None), scaled_dot_product_attention(*leaves, is_causal=True)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_gradcheck_with_dropout():
    leaves = tensors(6, batch=1)

    def function(*leaves):
        torch.manual_seed(0)  # the same noise in every call
        return attend(*leaves, None, dropout=0.4)

    assert torch.autograd.gradcheck(function, leaves)


def test_dropout_keeps_the_mean():
    leaves = tensors(9, torch.float32)
    mean = torch.stack([attend(*leaves, None, dropout=0.3).detach() for _ in range(3000)]).mean(0)
    torch.testing.assert_close(mean, attend(*leaves, None).detach(), rtol=0, atol=0.15)
    assert not torch.equal(attend(*leaves, None, dropout=0.3), attend(*leaves, None, dropout=0.3))


def test_only_keys_that_are_seen_are_met(monkeypatch):
    shapes = []
    matmul = torch.matmul
    monkeypatch.setattr(torch, "matmul", lambda *sides: shapes.append(sides[1].shape[-1]) or matmul(*sides))
    attend(*tensors(), masks()["packed"])
    assert shapes[::2] == [
        4,
        5,
        8,
    ]  # sequences 0-2, 3-8 and 9-10: queries 0-3 meet keys 0-3, 4-7 keys 3-7, 8-10 keys 3-10


def test_a_query_that_sees_nothing_is_finite():
    leaves = tensors(4)
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool).tril()
    mask[0, 0, 0] = False
    mixed = attend(*leaves, mask)
    assert mixed.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(mixed.sum(), leaves))


def test_model_uses_it_by_default_in_training_only(tiny_config, monkeypatch):
    used = []
    apply = hf_gpt.model.attention._BlockwiseAttention.apply
    monkeypatch.setattr(
        hf_gpt.model.attention._BlockwiseAttention,
        "apply",
        lambda *args: used.append(True) or apply(*args),
        raising=False,
    )
    model = GPTModel(tiny_config())
    assert model.config._attn_implementation == "sdpa"
    model(torch.tensor([[1, 2, 3]]))
    assert len(used) == model.config.n_layer
    with torch.no_grad():
        model(torch.tensor([[1, 2, 3]]))
    assert len(used) == model.config.n_layer


@pytest.mark.parametrize("checkpointing", [False, True])
def test_autocast_and_checkpointing(tiny_config, checkpointing):
    config = tiny_config(attn_pdrop=0.2, resid_pdrop=0.1, embd_pdrop=0.1)
    model = GPTForSequenceClassification(config).train()
    if checkpointing:
        model.activation_checkpointing_enable()
    ids = torch.tensor([[1, 2, 3, 4, 9], [1, 2, 5, 6, 8]])
    inputs = {"input_ids": ids, "classify_index": torch.tensor([[4], [2]]), "labels": torch.tensor([0, 1])}
    gradients = []
    for precision in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            loss = model(**inputs).loss
        gradients.append(torch.autograd.grad(loss, model.transformer.h[0].attn.c_attn.weight)[0])
    # The same noise in both, forward and recomputed: another one would change the gradient altogether.
    difference = (gradients[0] - gradients[1]).norm() / gradients[0].norm()
    assert difference < 0.05


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_keep_mask(p):
    torch.manual_seed(1)
    kept, factor = keep_mask(torch.Size([500, 401]), p, CPU)
    assert kept.dtype == torch.bool
    assert kept.shape == (500, 401)
    deviation = (p * (1 - p) / kept.numel()) ** 0.5
    assert abs(kept.float().mean() - (1 - p)) < 5 * deviation
    assert abs(factor * (1 - p) - 1) < 1e-4
    assert all(abs(kept[:, column::4].float().mean() - (1 - p)) < 10 * deviation for column in range(4))
    neighbours = kept[:, 1:].float() * kept[:, :-1].float()
    assert abs(neighbours.mean() - (1 - p) ** 2) < 10 * deviation
    torch.manual_seed(1)
    assert torch.equal(keep_mask(torch.Size([500, 401]), p, CPU)[0], kept)


def test_drop():
    values = torch.ones(1000, requires_grad=True)
    torch.manual_seed(0)
    dropped = drop(values, 0.25, True)
    torch.testing.assert_close(torch.unique(dropped.detach()), torch.tensor([0, 4 / 3]))
    dropped.sum().backward()
    assert torch.equal(values.grad, dropped)
    assert drop(values, 0.25, False) is values
    assert not drop(values, 1.0, True).any()
    assert torch.equal(drop(values, 0.0, True), values)
    layer = Dropout(0.25)
    torch.manual_seed(0)
    assert torch.equal(layer(values), dropped)
    assert layer.eval()(values) is values


def test_default_dropout_of_the_config_is_cheap(tiny_config):
    config = GPTConfig()
    assert (round(config.attn_pdrop * 2**16)) == 6554  # 0.1 to 6 parts in 100,000
