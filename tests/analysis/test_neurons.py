"""Units that were built to respond to a token are found; activations are those of the model."""

import numpy as np
import pytest
import torch

from hf_gpt.analysis.neurons import activations, association, chance

from ..support.browser import opened


def test_activations_are_the_models(model):
    ids = [3, 1, 4, 1, 5]
    block, inputs = model.transformer.h[0], []
    with block.mlp.register_forward_pre_hook(lambda _, args: inputs.append(args[0])):
        model(torch.tensor([ids]))
    expected = block.mlp.act(block.mlp.c_fc(inputs[0]))[0].T.detach().numpy()
    assert np.allclose(activations(model, ids)[0], expected, atol=1e-6)
    assert not any(module._forward_pre_hooks for module in model.modules())


@torch.no_grad()
def test_the_neuron_that_knows_the_word_is_found(model):
    """Neuron 11 of the first layer alone reads a dimension that is high for token 7, of one label, and low for 6."""
    model.transformer.embed_tokens.weight[:, 9] = 0
    model.transformer.embed_tokens.weight[[6, 7], 9] = torch.tensor([-3.0, 3.0])
    block = model.transformer.h[0]
    block.mlp.c_fc.weight[:, 9] = 0
    block.mlp.c_fc.weight[11] = 5 * torch.eye(32)[9]
    block.mlp.c_fc.bias[11] = 0
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 2
    texts = [[*generator.integers(8, 20, 6), 7 if label else 6, *generator.integers(8, 20, 2)] for label in labels]
    values = np.stack([activations(model, ids).max(-1) for ids in texts])
    found = association(values, labels)
    assert np.abs(found).argmax() == 11  # of the first layer
    assert found[0, 11] > chance(values, labels)


def test_correlations_are_numpys_and_chance_is_that_of_shuffles():
    generator = np.random.default_rng(0)
    pooled, labels = generator.normal(size=(40, 2, 5)), generator.normal(size=40)
    pooled[:, 1, 4] = 3.0
    found = association(pooled, labels)
    assert found[0, 2] == pytest.approx(np.corrcoef(pooled[:, 0, 2], labels)[0, 1])
    assert found[1, 4] == 0
    # The largest of 9 correlations of 40 texts: each is about normal with deviation 1 / sqrt(40).
    assert 2.3 / 40**0.5 < chance(pooled, labels) < 3.3 / 40**0.5


def test_neurons_by_command_and_their_page(analyzed, tmp_path):
    found, printed = analyzed("neurons")
    assert "By chance the best of 256 units reaches " in printed
    texts = found["neurons"]["texts"]
    shown = [text["view"].replace(",", "") for text in texts[::12]]
    assert shown == [row["name"] for row in found["ranking"]["best"][:5]]
    assert {text["label"] for text in texts[:12]} == {"positive", "negative"}
    with opened(tmp_path / "out" / "neurons.html") as page:
        page.select_option("#view", texts[12]["view"])
        page.locator(".text button").first.focus()
        value = float(page.locator("#read").inner_text().split(": ")[1])
        assert value == pytest.approx(texts[12]["values"][0], rel=1e-3)
    _, printed = analyzed("neurons", "--unit", 1, 5, "--text", "She ran.")
    assert printed.startswith("layer 1, unit 5:\n")
