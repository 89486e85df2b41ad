"""Our models against numbers recorded from the original TensorFlow code."""

import numpy as np
import pytest
import torch

from hf_gpt.conversion.release import load_release
from hf_gpt.model.modeling_gpt import GPTForMultipleChoice

from ..support.golden import (
    arrays,
    as_release,
    golden_config,
    golden_directory,
    load_variables,
    models,
    roc_inputs,
    with_recorded_weights,
)

HEADED = [(model, "roc") for model in models()] + [("tiny_seed0", "clf6")]


def assert_close(ours, recorded, tolerance):
    torch.testing.assert_close(torch.as_tensor(ours), torch.as_tensor(recorded), rtol=0, atol=tolerance)


@pytest.mark.parametrize("quirks", [False, True], ids=["default", "quirks"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("model", "head"), HEADED)
@torch.no_grad()
def test_hidden_states_and_logits(model, head, attention, quirks):
    batch = arrays(model, f"{head}_eval")
    ours = load_variables(model, head, quirks=quirks, attention=attention)
    outputs = ours(**roc_inputs(batch), output_hidden_states=True)
    layers = ["h_embed", *(f"h_block_{layer}" for layer in range(ours.config.n_layer))]
    for states, layer in zip(outputs.hidden_states, layers, strict=True):
        assert_close(states, batch[layer], 1e-5)
    assert_close(outputs.logits, batch["clf_logits"], 1e-5)
    assert_close(outputs.task_loss, batch["clf_losses"].mean(), 1e-5)
    ids = roc_inputs(batch)["input_ids"].flatten(0, -2)
    logits = load_variables(model, "lm", quirks=quirks, attention=attention)(ids).logits
    assert_close(logits[:, :-1], batch["lm_logits"][..., : ours.config.vocab_size], 1e-5)


@pytest.mark.parametrize(
    ("model", "head", "name"), [(*each, "eval") for each in HEADED] + [(model, "roc", "edge") for model in models()]
)
@torch.no_grad()
def test_losses_with_position_rows(model, head, name):
    batch = arrays(model, f"{head}_{name}")
    outputs = load_variables(model, head)(**with_recorded_weights(batch), return_lm_loss=True)
    assert_close(outputs.logits, batch["clf_logits"], 1e-5)
    assert_close(outputs.task_loss, batch["clf_losses"].mean(), 1e-5)
    assert_close(outputs.lm_loss, batch["lm_losses"].mean(), 1e-5)


@pytest.mark.parametrize("recorded_weights", [True, False], ids=["recorded-mask", "own-weights"])
@pytest.mark.parametrize(("model", "head"), HEADED)
def test_gradients(model, head, recorded_weights):
    """Every gradient within 2e-6, from conventional inputs whose weights we derive as well as from explicit ones."""
    batch, recorded = arrays(model, f"{head}_eval"), arrays(model, f"{head}_train")
    ours = load_variables(model, head).train()
    mask = torch.tensor(batch["M"]).long()
    inputs = with_recorded_weights(batch) if recorded_weights else {**roc_inputs(batch), "attention_mask": mask}
    outputs = ours(**inputs)
    assert_close(outputs.loss, recorded["train_loss"], 1e-5)
    assert_close(outputs.lm_loss, recorded["lm_losses"].mean(), 1e-5)
    outputs.loss.backward()
    gradients = as_release(ours, lambda parameter: parameter.grad)
    names = [name.removeprefix("grads/") for name in recorded if name.startswith("grads/")]
    assert set(names) == set(gradients)
    for name in names:
        assert_close(gradients[name].reshape(recorded[f"grads/{name}"].shape), recorded[f"grads/{name}"], 2e-6)
    squares = sum(float((gradient.astype(np.float64) ** 2).sum()) for gradient in gradients.values())
    assert_close(np.float32(squares**0.5), recorded["global_norm"], 1e-5)


def test_recorded_dropout_masks(monkeypatch):
    recorded, batch = arrays("tiny_seed0", "roc_dropout"), arrays("tiny_seed0", "roc_eval")
    rate = float(recorded["pdrop"])
    rates = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop"), rate)
    ours = load_variables("tiny_seed0", "roc", **rates).train()
    order = ["we"]
    for layer in range(ours.config.n_layer):
        order += [f"h{layer}_attn", f"h{layer}_attn_resid", f"h{layer}_mlp_resid"]
    masks = iter([*order, "clf"])

    def replay(values, p, training, inplace=False):
        assert training
        assert p == rate
        keep = torch.tensor(recorded[f"keep/{next(masks)}"])
        assert keep.shape == values.shape
        return values * keep / (1 - p)

    monkeypatch.setattr("torch.nn.functional.dropout", replay)
    outputs = ours(**with_recorded_weights(batch), output_hidden_states=True)
    assert next(masks, None) is None
    for layer in range(ours.config.n_layer):
        # Padding takes part in nothing; dropout makes its states large, and rounding with them.
        assert_close(outputs.hidden_states[layer + 1], recorded[f"h_block_{layer}"], 1e-5)
    assert_close(outputs.logits, recorded["clf_logits"], 1e-5)
    assert_close(outputs.loss, recorded["train_loss"], 1e-5)
    outputs.loss.backward()
    gradients = as_release(ours, lambda parameter: parameter.grad)
    for name, gradient in gradients.items():
        expected = recorded[f"grads/{name}"]
        assert_close(gradient.reshape(expected.shape), expected, 3e-6)


@pytest.mark.parametrize("model", models())
def test_released_checkpoint_gives_recorded_states(model):
    """The released format, read by our converter and shortened to the recorded context, is the recorded model."""
    batch, recorded = arrays(model, "roc_eval"), golden_config(model)["config"]
    shape = {"n_positions": recorded["n_ctx"], "n_head": recorded["n_head"]}
    ours = load_release(golden_directory() / model / "checkpoint", GPTForMultipleChoice, **shape)
    with torch.no_grad():
        specials = torch.tensor(arrays(model, "params")["special_rows"])
        ours.transformer.embed_tokens.weight[recorded["n_vocab"] : recorded["n_vocab"] + 3] = specials
        outputs = ours(**roc_inputs(batch), output_hidden_states=True)
    for states, layer in zip(outputs.hidden_states[1:], range(recorded["n_layer"]), strict=True):
        assert_close(states, batch[f"h_block_{layer}"], 1e-5)
