"""Patched activations are those of the clean prompt: what is restored follows from the definition."""

import numpy as np
import pytest
import torch

from hf_gpt import GPTForCausalLM
from hf_gpt.analysis.patch import PARTS, patch_effects, preferences

CLEAN, CORRUPTED, ANSWERS, CHANGED = [3, 1, 4, 1, 5, 9], [3, 1, 2, 1, 5, 9], [7, 8], 2


@torch.no_grad()
def test_patch_effects(model):
    effects = patch_effects(model, CLEAN, CORRUPTED, ANSWERS)
    shapes = {"state": (3, 6), "attention": (2, 6), "mlp": (2, 6)}
    assert {part: values.shape for part, values in effects.items()} == shapes
    # The one token that differs, and the last state, are all that there is; what is read before is the same in both.
    assert effects["state"][0, CHANGED] == pytest.approx(1, abs=1e-4)
    assert effects["state"][-1, -1] == pytest.approx(1, abs=1e-4)
    for part in PARTS:
        np.testing.assert_allclose(effects[part][:, :CHANGED], 0, atol=1e-4)
        np.testing.assert_allclose(effects[part][-1, :-1], 0, atol=1e-4)


@torch.no_grad()
def test_the_last_feed_forward_layer_by_hand(tiny_model):
    model, found = tiny_model(GPTForCausalLM), []
    block, effects = model.transformer.h[-1], patch_effects(model, CLEAN, CORRUPTED, ANSWERS)
    hook = block.mlp.register_forward_hook(lambda module, args, output: found.append((args[0], output)))
    clean, corrupted = (preferences(model, torch.tensor([ids]), ANSWERS)[0] for ids in (CLEAN, CORRUPTED))
    hook.remove()
    (_, added), (inputs, own) = found
    states = model.transformer(torch.tensor([CORRUPTED]), output_hidden_states=True).hidden_states
    assert torch.allclose(block.ln_2(inputs + own), states[-1], atol=1e-5)
    logits = model.token_logits(block.ln_2(inputs + added)[0, -1:])[0]
    by_hand = (float(logits[ANSWERS[0]] - logits[ANSWERS[1]]) - corrupted) / (clean - corrupted)
    assert effects["mlp"][-1, -1] == pytest.approx(by_hand, abs=1e-3)


def test_patch_by_command(analyzed):
    flags = ["--text", "she ran home", "--corrupted", "she sat home", "--answers", "night", "day"]
    found, printed = analyzed("patch", *flags)
    record = found["effects"]
    assert record["first_layer"] == {"state": 0, "attention": 1, "mlp": 1}
    assert len(record["effects"]["state"][0]) == len(record["corrupted"]) == 3
    assert len(printed.splitlines()) >= 3
