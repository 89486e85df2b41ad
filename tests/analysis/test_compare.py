"""CKA against its definition; what two checkpoints have in common and not."""

import copy

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_gpt import GPTForCausalLM
from hf_gpt.analysis.compare import attention_shift, linear_cka, read
from hf_gpt.analysis.lens import lens_statistics

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def test_cka():
    """That of centred Gram matrices; blind to rotation, scale and shift, and not to other states."""
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(50, 6)), generator.normal(size=(50, 4))
    centre = np.eye(50) - 1 / 50
    one, other = (centre @ each @ each.T @ centre for each in (first, second))
    expected = (one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum())
    assert linear_cka(first, second) == pytest.approx(expected)
    rotation = np.linalg.qr(generator.normal(size=(6, 6)))[0]
    assert linear_cka(first, 3 * first @ rotation + 1) == pytest.approx(1)
    assert np.isnan(linear_cka(first, np.ones((50, 2))))


def test_the_head_that_changed_is_found(tiny_model):
    """The last layer's second head looks elsewhere; only what comes after it changes."""
    before = tiny_model(GPTForCausalLM)
    after = copy.deepcopy(before)
    with torch.no_grad():
        after.transformer.h[1].attn.c_attn.weight[16:32] += torch.randn(16, 32)  # its queries
    _, weights, log_probs = zip(read(before, IDS), read(after, IDS), strict=True)
    shift = attention_shift(*weights)
    assert np.argwhere(shift > 1e-6).tolist() == [[1, 1]]
    assert shift[1, 1] == pytest.approx(np.abs(weights[0][1, 1, 1:] - weights[1][1, 1, 1:]).sum(-1).mean() / 2)
    divergence, own = lens_statistics(torch.stack(log_probs[::-1]), IDS)[2]
    assert divergence[0] == pytest.approx(0, abs=1e-9)  # the first token sees itself alone
    assert divergence[1:].max() > 1e-4
    assert (own == 0).all()


def test_compare_by_command(analyzed, tiny_checkpoint, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint)
    with torch.no_grad():
        model.transformer.h[1].mlp.c_fc.weight.normal_()
    config = copy.deepcopy(model.config)
    config.n_head = 4
    for name, each in (("other", model), ("heads", GPTForCausalLM(config))):
        each.save_pretrained(tmp_path / name)
        AutoTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path / name)
    found, printed = analyzed("compare", "--other", tmp_path / "other")
    assert "perplexity after" in printed
    cka, summary = np.array(found["cka"]["cka"]), found["summary"]
    assert np.allclose(np.diag(cka)[:2], 1)
    assert cka[2, 2] < 0.999
    before, after, ratio = (summary[f"perplexity_{name}"]["mean"] for name in ("before", "after", "ratio"))
    assert after / before == pytest.approx(ratio)
    assert summary["divergence_bits"]["mean"] > 0
    assert np.allclose(found["shift"]["mean"], 0, atol=1e-6)
    assert found["compare"]["texts"][0]["values"][0] == 0
    assert "other layers, heads" in analyzed("compare", "--other", tmp_path / "heads", status=2)[1]
