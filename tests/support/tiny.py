"""Models small enough to be built in each test."""

import torch

from hf_gpt import GPTConfig

# Of the tiny vocabulary: ordinary tokens are 0 to 19.
START, DELIMITER, CLASSIFY, PAD, VOCABULARY = 20, 21, 22, 23, 24
# Whether this CPU has instructions for products of packed weights.
MULTIPLIES = {"int8": torch.cpu._is_vnni_supported(), "bfloat16": torch.ops.mkldnn._is_mkldnn_bf16_supported()}


def build_config(**overrides) -> GPTConfig:
    values = {
        "vocab_size": VOCABULARY,
        "n_positions": 32,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 2,
        "bos_token_id": START,
        "start_token_id": START,
        "delimiter_token_id": DELIMITER,
        "classify_token_id": CLASSIFY,
        "pad_token_id": PAD,
        **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop"), 0.0),
    }
    return GPTConfig(**{**values, **overrides})


@torch.no_grad()
def with_large_weights(model, seed):
    """A model in evaluation mode whose weights, biases among them, are large enough for a wrong place to show."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        is_gain = ".ln_" in name and name.endswith("weight")
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + (1.0 if is_gain else 0.0))
    return model.eval()


def build_model(model_class, attention="sdpa", seed=0, **overrides):
    config = build_config(**overrides)
    config._attn_implementation = attention
    return with_large_weights(model_class(config), seed)
