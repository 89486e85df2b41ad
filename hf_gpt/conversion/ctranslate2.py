"""A language model as CTranslate2 serves it (https://opennmt.net/CTranslate2), on CPUs and GPUs, in fewer bits too."""

from copy import deepcopy
from pathlib import Path

import torch

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
        from ctranslate2.converters.transformers import GPT2Loader
        from ctranslate2.specs import TransformerDecoderModelSpec, common_spec
    except ImportError as error:
        raise ValueError('CTranslate2 is not installed: pip install -e ".[ctranslate2]".') from error
    model, loader = deepcopy(model).float(), GPT2Loader()  # quantization changes the weights in place
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
    loader.set_embeddings(decoder.embeddings, transformer.embed_tokens)
    loader.set_position_encodings(decoder.position_encodings, transformer.embed_positions)
    loader.set_linear(decoder.projection, model.lm_head)
    decoder.projection.bias = torch.zeros(config.vocab_size)
    decoder.projection.bias[model.excluded_token_ids] = _NO_PROBABILITY
    if config.final_norm:
        loader.set_layer_norm(decoder.layer_norm, transformer.ln_f)
    for layer, block in zip(decoder.layer, transformer.h, strict=True):
        loader.set_linear(layer.self_attention.linear[0], block.attn.c_attn)
        loader.set_linear(layer.self_attention.linear[1], block.attn.c_proj)
        loader.set_linear(layer.ffn.linear_0, block.mlp.c_fc)
        loader.set_linear(layer.ffn.linear_1, block.mlp.c_proj)
        # In front of attention and feed-forward with `norm_first`, else behind them: CTranslate2 does the same.
        loader.set_layer_norm(layer.self_attention.layer_norm, block.ln_1)
        loader.set_layer_norm(layer.ffn.layer_norm, block.ln_2)
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
