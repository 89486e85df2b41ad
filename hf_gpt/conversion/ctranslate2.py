"""A language model as CTranslate2 serves it (https://opennmt.net/CTranslate2), on CPUs and GPUs, in fewer bits too."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")
# Logit of tokens that the model gives no probability: none of the others is near, and sums with it stay finite.
_NO_PROBABILITY = -1e4


def write_ctranslate2(
    model: GPTForCausalLM, tokenizer: GPTTokenizer | None, folder: Path, quantization: str | None = None
) -> None:
    """
    Write an existing folder for `ctranslate2.Generator`, with the tokenizer, whose tokens are the vocabulary (without
    it `<0>`, `<1>` and so on), next to the model. Its logits are those of CTranslate2 within rounding; the tokens that
    it gives no probability get the logit -10,000. `quantization` is one of `QUANTIZATIONS`, by default float32. A
    `ValueError` where ctranslate2 is not installed, or a token stands twice in the vocabulary.
    """
    try:
        from ctranslate2.specs import TransformerDecoderModelSpec, common_spec
    except ImportError as error:
        raise ValueError('CTranslate2 is not installed: pip install -e ".[ctranslate2]".') from error
    config = model.config
    names = {"gelu": "GELUTanh", "relu": "RELU", "swish": "SWISH"}
    spec = TransformerDecoderModelSpec.from_config(
        config.n_layer,
        config.n_head,
        pre_norm=config.norm_first,
        activation=getattr(common_spec.Activation, names[config.afn]),
        no_final_norm=not config.final_norm,
    )
    decoder, transformer = spec.decoder, model.transformer
    decoder.scale_embeddings = False
    decoder.embeddings.weight = _array(transformer.embed_tokens.weight)
    decoder.position_encodings.encodings = _array(transformer.embed_positions.weight)
    decoder.projection.weight = _array(model.lm_head.weight)
    decoder.projection.bias = np.zeros(config.vocab_size, dtype=np.float32)
    decoder.projection.bias[model.excluded_token_ids] = _NO_PROBABILITY
    if config.final_norm:
        _set_norm(decoder.layer_norm, transformer.ln_f)
    for layer, block in zip(decoder.layer, transformer.h, strict=True):
        _set_linear(layer.self_attention.linear[0], block.attn.c_attn)
        _set_linear(layer.self_attention.linear[1], block.attn.c_proj)
        _set_linear(layer.ffn.linear_0, block.mlp.c_fc)
        _set_linear(layer.ffn.linear_1, block.mlp.c_proj)
        # In front of attention and feed-forward with `norm_first`, else behind them: CTranslate2 does the same.
        _set_norm(layer.self_attention.layer_norm, block.ln_1)
        _set_norm(layer.ffn.layer_norm, block.ln_2)
    tokens = [f"<{index}>" for index in range(config.vocab_size)]
    if tokenizer is not None:
        tokens[: len(tokenizer)] = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        tokenizer.save_pretrained(folder)
    spec.register_vocabulary(tokens)
    # Tokens that end a text; padding, which never comes, where the model has none.
    ends = next(iter(config.eos_token_ids), config.pad_token_id)
    spec.config.eos_token = spec.config.bos_token = tokens[ends or 0]
    spec.config.unk_token = tokenizer.unk_token if tokenizer is not None and tokenizer.unk_token else tokens[0]
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))


def _array(weight: nn.Parameter) -> np.ndarray:
    return weight.detach().float().numpy()


def _set_linear(spec: Any, layer: nn.Linear) -> None:
    spec.weight, spec.bias = _array(layer.weight), _array(layer.bias)


def _set_norm(spec: Any, layer: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(layer.weight), _array(layer.bias)
