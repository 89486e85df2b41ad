"""Writing a checkpoint as hf_gpt, stock `openai-gpt`, stock `gpt2`, OpenAI's release or CTranslate2; see `sources`."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ..model.modeling_gpt import GPTForCausalLM
from .ctranslate2 import write_ctranslate2
from .release import release_arrays, write_release
from .sources import TASK_HEADS, Checkpoint
from .stock import ACTIVATIONS, SHARED_FIELDS, STOCK_CLASSES, STOCK_CONFIGS, own_parameters, to_stock
from .tokenizers import write_stock_tokenizer, write_vocabulary

FORMATS = ("hf_gpt", "openai-gpt", "tf-release", "gpt2", "ctranslate2")
# What a format does not write down, for it is always so.
_OPENAI_GPT = {"norm_first": False, "final_norm": False, "is_causal": True}
_SETTINGS: dict[str, dict[str, Any]] = {
    "openai-gpt": _OPENAI_GPT,
    "tf-release": {**_OPENAI_GPT, "afn": "gelu", "layer_norm_epsilon": 1e-5},
    "gpt2": {"norm_first": True, "final_norm": True, "is_causal": True},
}


def write_checkpoint(checkpoint: Checkpoint, folder: Path, to: str, quantization: str | None = None) -> None:
    """
    Write a checkpoint from `read_checkpoint`, with notes of what is left out, into an empty folder. Of the rows of
    `_start_`, `_delimiter_`, `_classify_` and `<pad>`, which the other formats do not have, untrained ones are left
    out, and come back with the next conversion. `to` is one of `FORMATS`, `quantization` of the weights of
    CTranslate2's. A `ValueError` says why the format cannot hold the model.
    """
    if to == "hf_gpt":
        checkpoint.model.save_pretrained(folder)
        if checkpoint.tokenizer is not None:
            checkpoint.tokenizer.save_pretrained(folder)
        return
    if to == "ctranslate2":
        if not isinstance(checkpoint.model, GPTForCausalLM):
            raise ValueError("CTranslate2 generates and scores text: --head causal-lm leaves the head out.")
        write_ctranslate2(checkpoint.model, checkpoint.tokenizer, folder, quantization)
        return
    _check_fit(checkpoint, to)
    config = checkpoint.model.config
    parameters, first = own_parameters(checkpoint.model.state_dict(), config), config.vocab_size - 4
    specials = [*config.task_token_ids, config.pad_token_id]
    is_untrained = specials == [*range(first, first + 4)] and {*specials[:3]} <= {*(config.untrained_token_ids or ())}
    if is_untrained:
        checkpoint.notes.append("Left out: the rows of the special tokens, which are untrained.")
        for name in {"embed_tokens.weight", "lm_head.weight"} & parameters.keys():
            parameters[name] = parameters[name][:first].clone()
    if to == "tf-release":
        if config.start_token_id is not None and not is_untrained:
            raise ValueError("OpenAI's release has no special tokens: --head language-model leaves the last four out.")
        if config.n_embd != 64 * config.n_head:
            heads = f"there are {config.n_head} heads: read it with --n_head"
            checkpoint.notes.append(f"The release does not say that {heads}.")
        write_release(folder, release_arrays({name: t.float() for name, t in parameters.items()}, config.n_layer))
        if checkpoint.tokenizer is not None:
            write_vocabulary(checkpoint.tokenizer, folder / "encoder_bpe_40000.json", folder / "vocab_40000.bpe")
    else:
        _write_stock(checkpoint, folder, to, parameters, first if is_untrained else None)


def _check_fit(checkpoint: Checkpoint, to: str) -> None:
    """A `ValueError` if the format has no place for something of the model."""
    model, head, tokenizer = checkpoint.model, checkpoint.head, checkpoint.tokenizer
    config = model.config
    settings = _SETTINGS[to] | ({"head_layers": None} if head in TASK_HEADS else {})
    if to != "gpt2" and config.n_inner is not None:
        settings["n_inner"] = 4 * config.n_embd
    problems = [
        f"it has {name}={value}, and the model {name}={getattr(config, name)}"
        for name, value in settings.items()
        if getattr(config, name) != value
    ]
    if head in TASK_HEADS if to == "tf-release" else head not in STOCK_CLASSES:
        problems.append(f"it has no head {head}: --head causal-lm leaves the head out")
    elif head == "sequence-classification" and model.score.bias.any():
        problems.append("its classification head has no bias: --head causal-lm leaves the head out")
    if to == "tf-release" and not config.tie_word_embeddings:
        problems.append("its output matrix is the token embedding (the model has tie_word_embeddings=False)")
    if to == "tf-release" and model.dtype == torch.float64:
        problems.append("it is float32, and the model float64")
    if tokenizer is not None and (tokenizer.byte_level != (to == "gpt2") or tokenizer.language != "en"):
        kind = f"of bytes: {tokenizer.byte_level}, language: {tokenizer.language!r}"
        problems.append(f"its tokenizer cannot be made of this one ({kind}): --no_tokenizer does without")
    if problems:
        raise ValueError(f"The format {to} cannot hold this model: {'; '.join(problems)}.")


def _write_stock(
    checkpoint: Checkpoint, folder: Path, to: str, parameters: dict[str, torch.Tensor], rows: int | None
) -> None:
    """As stock transformers do, and what only hf_gpt knows; `rows` are left where those of special tokens are not."""
    model, config = checkpoint.model, checkpoint.model.config
    fields = {name: getattr(config, name) for name in SHARED_FIELDS}
    fields |= {"dtype": model.dtype, "summary_first_dropout": config.clf_pdrop}
    if config.problem_type == "ordinal":
        fields["problem_type"] = None
        checkpoint.notes.append("Left out: problem_type ordinal, which stock models do not know.")
    if rows is not None:
        bos = next(iter(config.eos_token_ids), None) if to == "gpt2" else None
        fields |= {"vocab_size": rows, "bos_token_id": bos, "pad_token_id": None}
        for name in ("start_token_id", "delimiter_token_id", "classify_token_id", "untrained_token_ids"):
            del fields[name]
    activation = next(name for name, ours in ACTIVATIONS[to].items() if ours == config.afn)
    fields["activation_function" if to == "gpt2" else "afn"] = activation
    if to == "gpt2":
        fields["n_inner"] = config.n_inner
    name = STOCK_CLASSES[checkpoint.head][list(STOCK_CONFIGS).index(to)]
    STOCK_CONFIGS[to](architectures=[name], **fields).save_pretrained(folder)
    tensors = to_stock(parameters, to, checkpoint.head, config.tie_word_embeddings)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if to == "gpt2":
        if rows is not None:
            model.generation_config.update(suppress_tokens=None, pad_token_id=None)
        model.generation_config.save_pretrained(folder)
    if checkpoint.tokenizer is not None:
        write_stock_tokenizer(checkpoint.tokenizer, folder, rows is None)
        if to == "openai-gpt":
            checkpoint.notes.append(
                "Stock openai-gpt splits words in its own way, so that its ids are not always those of hf_gpt's."
            )
