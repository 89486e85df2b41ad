"""Writing a checkpoint as hf_gpt, stock `openai-gpt`, stock `gpt2` or OpenAI's release; see `sources`."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedConfig

from ..hub.checks import TOKENIZER_FILES
from ..tasks.catalogue import BUNDLED_DATA
from .fast_tokenizer import disagreement, fast_tokenizer
from .release import release_arrays, write_release
from .sources import TASK_HEADS, Checkpoint
from .stock import ACTIVATIONS, SHARED_FIELDS, STOCK_CLASSES, STOCK_CONFIGS, own_parameters, to_stock
from .tokenizers import write_stock_tokenizer, write_vocabulary

FORMATS = ("hf_gpt", "openai-gpt", "tf-release", "gpt2")
# What a format does not write down, for it is always so.
_OPENAI_GPT = {"norm_first": False, "final_norm": False, "is_causal": True}
_SETTINGS: dict[str, dict[str, Any]] = {
    "openai-gpt": _OPENAI_GPT,
    "tf-release": {**_OPENAI_GPT, "afn": "gelu", "layer_norm_epsilon": 1e-5},
    "gpt2": {"norm_first": True, "final_norm": True, "is_causal": True},
}


def write_checkpoint(checkpoint: Checkpoint, folder: Path, to: str, export_tokenizer: bool = False) -> None:
    """
    Write a checkpoint from `read_checkpoint`, with notes of what is left out, into an empty folder. Of the rows of
    `_start_`, `_delimiter_`, `_classify_` and `<pad>`, which the other formats do not have, untrained ones are left
    out, and come back with the next conversion.

    Args:
        to (`str`): one of `FORMATS`.
        export_tokenizer (`bool`, *optional*, defaults to `False`): write the tokenizer as `fast_tokenizer` makes it,
            with all rows, and note how often it disagrees.

    Raises:
        ValueError: if the format cannot hold the model; the message says what is in the way.
    """
    _check_fit(checkpoint, to)
    if export_tokenizer and (checkpoint.tokenizer is None or to not in ("hf_gpt", "openai-gpt")):
        raise ValueError("--fast_tokenizer needs a tokenizer of hf_gpt, and --to hf_gpt or openai-gpt.")
    if to == "hf_gpt":
        checkpoint.model.save_pretrained(folder)
        if checkpoint.tokenizer is not None:
            checkpoint.tokenizer.save_pretrained(folder)
    else:
        parameters, rows = _rows_to_write(checkpoint, to, keep_all=export_tokenizer)
        if to == "tf-release":
            _write_release(checkpoint, folder, parameters)
        else:
            _write_stock(checkpoint, folder, to, parameters, rows)
    if export_tokenizer:
        _export_tokenizer(checkpoint, folder)


def _check_fit(checkpoint: Checkpoint, to: str) -> None:
    """A `ValueError` if the format has no place for something of the model."""
    model, head, tokenizer = checkpoint.model, checkpoint.head, checkpoint.tokenizer
    config = model.config
    if to == "hf_gpt":
        return
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
    if tokenizer is not None and (tokenizer.byte_level != (to == "gpt2") or tokenizer.language != "en"):
        kind = f"of bytes: {tokenizer.byte_level}, language: {tokenizer.language!r}"
        problems.append(f"its tokenizer cannot be made of this one ({kind}): --no_tokenizer does without")
    if problems:
        raise ValueError(f"The format {to} cannot hold this model: {'; '.join(problems)}.")


def _export_tokenizer(checkpoint: Checkpoint, folder: Path) -> None:
    """Replace the tokenizer that was written by its export, and note how often the ids of that differ."""
    for name in TOKENIZER_FILES:
        (folder / name).unlink(missing_ok=True)
    exported = fast_tokenizer(checkpoint.tokenizer)
    exported.save_pretrained(folder)
    rows = (json.loads(line) for path in BUNDLED_DATA.glob("*.jsonl") for line in path.open(encoding="utf-8"))
    texts = [value for row in rows for value in row.values() if isinstance(value, str) and " " in value]
    checkpoint.notes.append(
        f"The tokenizer is a PreTrainedTokenizerFast: of {len(texts):,} texts bundled with hf_gpt, "
        f"{disagreement(checkpoint.tokenizer, exported, texts):,} get other ids from it."
    )


def _rows_to_write(checkpoint: Checkpoint, to: str, keep_all: bool) -> tuple[dict[str, torch.Tensor], int | None]:
    """The parameters that are written, and the number of rows before the special tokens' if these are left out."""
    config = checkpoint.model.config
    parameters, first = own_parameters(checkpoint.model.state_dict(), config), config.vocab_size - 4
    if config.start_token_id is None or keep_all:
        return parameters, None
    are_last = [*config.task_token_ids, config.pad_token_id] == list(range(first, first + 4))
    if are_last and {*range(first, first + 3)} <= {*(config.untrained_token_ids or ())}:
        checkpoint.notes.append("Left out: the rows of the special tokens, which are untrained.")
        matrices = {"embed_tokens.weight", "lm_head.weight"} & parameters.keys()
        return parameters | {name: parameters[name][:first].clone() for name in matrices}, first
    if to == "tf-release":
        raise ValueError(
            "OpenAI's release holds no rows of special tokens: --head language-model leaves out what training made of "
            "those of the model, which must be its last four."
        )
    return parameters, None


def _write_release(checkpoint: Checkpoint, folder: Path, parameters: dict[str, torch.Tensor]) -> None:
    config = checkpoint.model.config
    kinds = {tensor.dtype for tensor in parameters.values()}
    if torch.float64 in kinds:
        raise ValueError("OpenAI's release is float32, and the model float64.")
    if kinds != {torch.float32}:
        checkpoint.notes.append("The numbers are stored as float32, as OpenAI's release is; none changes.")
    if config.n_embd != 64 * config.n_head:
        checkpoint.notes.append(
            f"The release does not say that there are {config.n_head} heads: read it with --n_head."
        )
    write_release(folder, release_arrays({name: t.float() for name, t in parameters.items()}, config.n_layer))
    if checkpoint.tokenizer is not None:
        write_vocabulary(checkpoint.tokenizer, folder / "encoder_bpe_40000.json", folder / "vocab_40000.bpe")


def _write_stock(
    checkpoint: Checkpoint, folder: Path, to: str, parameters: dict[str, torch.Tensor], rows: int | None
) -> None:
    stock_config(checkpoint, to, rows).save_pretrained(folder)
    tensors = to_stock(parameters, to, checkpoint.head, checkpoint.model.config.tie_word_embeddings)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if to == "gpt2":
        generation = checkpoint.model.generation_config
        if rows is not None:
            generation.update(suppress_tokens=None, pad_token_id=None)
        generation.save_pretrained(folder)
    if checkpoint.tokenizer is not None:
        write_stock_tokenizer(checkpoint.tokenizer, folder, rows is None)
        if to == "openai-gpt":
            checkpoint.notes.append(
                "Stock openai-gpt splits words in its own way, so that its ids are not always those of hf_gpt's "
                "tokenizer (nearly always with --fast_tokenizer)."
            )


def stock_config(checkpoint: Checkpoint, to: str, vocabulary: int | None) -> PreTrainedConfig:
    """
    The stock configuration of a model, with what only hf_gpt knows added; `vocabulary` is the number of rows that
    are left where those of the special tokens were dropped.
    """
    config = checkpoint.model.config
    fields = {name: getattr(config, name) for name in SHARED_FIELDS}
    fields |= {"dtype": checkpoint.model.dtype, "summary_first_dropout": config.clf_pdrop}
    if config.problem_type == "ordinal":
        fields["problem_type"] = None
        checkpoint.notes.append("Left out: problem_type ordinal, which stock models do not know.")
    if vocabulary is not None:
        bos = next(iter(config.eos_token_ids), None) if to == "gpt2" else None
        fields |= {"vocab_size": vocabulary, "bos_token_id": bos, "pad_token_id": None}
        for name in ("start_token_id", "delimiter_token_id", "classify_token_id", "untrained_token_ids"):
            del fields[name]
    activation = next(name for name, ours in ACTIVATIONS[to].items() if ours == config.afn)
    fields["activation_function" if to == "gpt2" else "afn"] = activation
    if to == "gpt2":
        fields["n_inner"] = config.n_inner
    name = STOCK_CLASSES[checkpoint.head][list(STOCK_CONFIGS).index(to)]
    return STOCK_CONFIGS[to](architectures=[name], **fields)
