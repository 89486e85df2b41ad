"""Token trees on models of transformers: as each path alone, or refused with the reason."""

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from hf_gpt import GPTForCausalLM
from hf_gpt.trees import path_log_probs
from hf_gpt.trees.any_model import check_model, check_paths, collate_choices

from ..support.tensors import assert_same_gradients, gradients

VOCABULARY = 50
CONTEXTS = [[5, 6, 7, 8, 9], [3, 4, 11]]
CHOICES = [[[10, 11], [10, 12, 13], [14]], [[20, 21, 22], [23]]]
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0}
GROUPED = SMALL | {"num_key_value_heads": 2, "head_dim": 8}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
NARROW = {"vocab_size": VOCABULARY, "hidden_size": 32}
HOLDS = {
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": GROUPED,
    "gemma2": GROUPED | {"sliding_window": 32},
    "gemma3_text": GROUPED | {"sliding_window": 32},
    "mistral": GROUPED | {"sliding_window": None},
    "phi": SMALL,
    "olmo2": GROUPED,
    "gpt2": GPT2,
    "gpt_neox": SMALL,
    "opt": SMALL | {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "stablelm": GROUPED,
}
REFUSED = {
    "mistral": (GROUPED | {"sliding_window": 4}, "sees 4 tokens"),
    "bloom": (NARROW | {"n_layer": 2, "n_head": 4}, "it takes no position_ids"),
    "gpt_neo": (NARROW | {"num_layers": 2, "attention_types": [[["global", "local"], 1]]}, "chunked"),
    "falcon": (SMALL | {"alibi": True, "new_decoder_architecture": False}, "ALiBi"),
    "mamba": (NARROW | {"num_hidden_layers": 2}, "recurrent"),
    "openai-gpt": (GPT2, "fails on their mask"),
}


def model_of(kind: str, settings: dict, attention: str = "sdpa"):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **settings)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():  # large enough for a wrong mask or position to show
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def alone(model, context, choice):
    """The log-probability of a choice after its context, in a row of its own."""
    row = torch.tensor([[*context, *choice]])
    logits = model(row, use_cache=False).logits[0, len(context) - 1 : -1].float().log_softmax(-1)
    return logits.gather(1, torch.tensor(choice)[:, None]).sum()


def all_alone(model):
    """The log-probabilities of all choices, each in a row of its own."""
    pairs = [(context, choice) for context, each in zip(CONTEXTS, CHOICES, strict=True) for choice in each]
    return torch.stack([alone(model, *pair) for pair in pairs])


def assert_as_alone(model):
    """Log-probabilities and the gradients of all parameters, of trees and of rows of their own."""
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    found = path_log_probs(model, CONTEXTS, CHOICES)
    assert found.shape == (2, 3)
    assert found[1, 2] == float("-inf")
    expected = all_alone(model)
    torch.testing.assert_close(found[found.isfinite()], expected, rtol=1e-5, atol=1e-5)
    assert_same_gradients(model, found[found.isfinite()].mean(), expected.mean())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", HOLDS)
def test_paths_are_as_alone(kind, attention):
    if (kind, attention) == ("gemma2", "sdpa"):
        pytest.skip("transformers has no SDPA for Gemma 2, whose scores are capped")
    assert_as_alone(model_of(kind, HOLDS[kind], attention))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["llama", "gpt_neox"])
def test_every_attention_reads_the_same(attention, kind):
    """FlexAttention, too, whose mask is made of blocks; on a CPU it has no backward pass."""
    found = path_log_probs(model_of(kind, HOLDS[kind], attention), CONTEXTS, CHOICES)
    expected = all_alone(model_of(kind, HOLDS[kind], "eager"))
    torch.testing.assert_close(found[found.isfinite()], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="FlexAttention has no gradients on a CPU")
def test_gradients_with_flex_attention():
    whole = []
    for attention in ("flex_attention", "eager"):
        model = model_of("llama", GROUPED | {"head_dim": 16}, attention).cuda()
        found = path_log_probs(model, CONTEXTS, CHOICES)
        whole.append(gradients(model, found[found.isfinite()].sum()))
    torch.testing.assert_close(*whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("llama", GROUPED),
        ("llama", GROUPED | {"tie_word_embeddings": True}),
        ("phi", SMALL),  # a bias
        ("gemma3_text", HOLDS["gemma3_text"] | {"final_logit_softcapping": 5.0}),
        ("granite", GROUPED | {"logits_scaling": 0.1}),
        ("cohere", GROUPED | {"logit_scale": 4.0}),
    ],
    ids=["plain", "tied", "bias", "cap", "division", "factor"],
)
def test_many_tokens_at_once_are_as_few(kind, settings):
    """Logits that are computed in chunks, and again in the backward pass, or by the model itself."""
    model = model_of(kind, settings, "eager")
    choices = torch.randint(50, (9, 8, 9)).tolist()
    contexts, whole = [[item + 1, 2, 3] for item in range(9)], []
    for batch_size in (9, 1):  # 648 tokens, or 72
        found = path_log_probs(model, contexts, choices, batch_size=batch_size)
        whole.append(gradients(model, found.sum()) | {"found": found})
    torch.testing.assert_close(*whole, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[0, 0], alone(model, contexts[0], choices[0][0]), rtol=1e-5, atol=1e-5)


def test_paths_within_a_window_are_read_in_longer_rows():
    """The mask of a tree says all that is seen: a window matters to what is longer than it."""
    model = model_of("mistral", GROUPED | {"sliding_window": 8}, "sdpa")
    context, choices = [5, 6, 7, 8], [[number, number + 1, number + 2] for number in range(10, 40, 3)]
    found = path_log_probs(model, [context], [choices])[0]
    torch.testing.assert_close(found[-1], alone(model, context, choices[-1]), rtol=1e-5, atol=1e-5)


def test_paths_of_ours_are_as_alone(tiny_model):
    assert_as_alone(tiny_model(GPTForCausalLM, vocab_size=VOCABULARY))


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_hold_a_tree_says_why(kind):
    settings, reason = REFUSED[kind]
    model = model_of(kind, settings, "eager")
    with pytest.raises(ValueError, match=f"{type(model).__name__} cannot hold token trees: .*{reason}"):
        path_log_probs(model, CONTEXTS, CHOICES)


def test_a_wrong_model_is_found_by_the_first_rows(monkeypatch):
    """A model that takes positions, and reads on as if there were none."""
    model, forward = model_of("gpt2", GPT2), transformers.GPT2LMHeadModel.forward

    def without_positions(self, *args, position_ids=None, **kwargs):
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(transformers.GPT2LMHeadModel, "forward", without_positions)
    with pytest.raises(ValueError, match="a path's logits differ"):
        path_log_probs(model, CONTEXTS, CHOICES)


def test_settings():
    model = model_of("llama", GROUPED)
    assert check_paths(model.train(), collate_choices([{"context": CONTEXTS[0], "choices": CHOICES[0]}])) < 1e-5
    assert model.training
    model.eval()
    sums, means = (path_log_probs(model, CONTEXTS, CHOICES, mean=mean, batch_size=1) for mean in (False, True))
    torch.testing.assert_close(means[0], sums[0] / torch.tensor([2.0, 3.0, 1.0]))
    for contexts, choices in (([[]], [[[1]]]), ([[1]], [[[]]])):
        with pytest.raises(ValueError, match="at least one token each"):
            path_log_probs(model, contexts, choices)
    check_model(model, 10**6)
