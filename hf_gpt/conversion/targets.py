"""Writing a checkpoint as hf_gpt, stock `openai-gpt`, stock `gpt2` or OpenAI's release; see `sources`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedConfig

from ..files import progress
from ..hub.checks import TOKENIZER_FILES
from ..model.configuration_gpt import default_generation_config
from ..model.modeling_gpt import HEADS
from ..tasks.catalogue import BUNDLED_DATA
from .fast_tokenizer import disagreement, fast_tokenizer
from .release import release_arrays, write_release
from .sources import NEW_ROWS, TASK_HEADS, Checkpoint
from .stock import (
    ACTIVATIONS,
    OWN_FIELDS,
    SHARED_FIELDS,
    STOCK_CLASSES,
    STOCK_CONFIGS,
    STOCK_HEAD,
    STOCK_MATRICES,
    STOCK_NAMES,
    drawn_special_tokens,
    is_base,
)
from .tokenizers import write_stock_tokenizer, write_vocabulary

FORMATS = ("hf_gpt", "openai-gpt", "tf-release", "gpt2")
SPECIAL_TOKENS_CHOICES = ("auto", "keep", "drop")
# What a format does not write down, for it is always so.
_OPENAI_GPT = {"norm_first": False, "final_norm": False, "is_causal": True}
_SETTINGS: dict[str, dict[str, Any]] = {
    "openai-gpt": _OPENAI_GPT,
    "tf-release": {**_OPENAI_GPT, "afn": "gelu", "layer_norm_epsilon": 1e-5},
    "gpt2": {"norm_first": True, "final_norm": True, "is_causal": True},
}


def write_checkpoint(
    checkpoint: Checkpoint,
    folder: Path,
    to: str,
    special_tokens: str = "auto",
    seed: int = 0,
    export_tokenizer: bool = False,
) -> None:
    """
    Write a checkpoint from `read_checkpoint`, with notes of what is left out, into an empty folder.

    Args:
        to (`str`): one of `FORMATS`.
        special_tokens (`str`, *optional*, defaults to `"auto"`): what becomes of the rows of `_start_`, `_delimiter_`,
            `_classify_` and `<pad>`, which neither OpenAI's release nor its stock version has: `"keep"`, `"drop"`, or
            `"auto"`, which drops them where they are still as they were initialized with `seed` when the model was
            converted, so that they come back with the next conversion.
        export_tokenizer (`bool`, *optional*, defaults to `False`): write the tokenizer as `fast_tokenizer` makes it,
            and note how often it disagrees.

    Raises:
        ValueError: if the format cannot hold the model; the message says what is in the way.
    """
    _check_fit(checkpoint, to)
    if export_tokenizer:
        _check_export(checkpoint, to, special_tokens)
    if to == "hf_gpt":
        _write_own(checkpoint, folder)
    elif to == "tf-release":
        _write_release(checkpoint, folder, special_tokens, seed)
    else:
        _write_stock(checkpoint, folder, to, special_tokens, seed)
    if export_tokenizer:
        _export_tokenizer(checkpoint, folder)


def write_folder(output: Path, write: Callable[[Path], None]) -> None:
    """Call `write` with an empty folder next to `output`, and give that its name when all is written."""
    temporary = output.with_name(f".{output.name}.partial")
    replaced = output.with_name(f".{output.name}.replaced")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        write(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if output.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        output.rename(replaced)
    temporary.rename(output)
    shutil.rmtree(replaced, ignore_errors=True)


def _check_fit(checkpoint: Checkpoint, to: str) -> None:
    """A `ValueError` if the format has no place for something of the model."""
    config, head, tokenizer = checkpoint.config, checkpoint.head, checkpoint.tokenizer
    if to not in FORMATS:
        raise ValueError(f"--to {to}: choose one of {', '.join(FORMATS)}.")
    if to == "hf_gpt":
        return
    without_head = "--head causal-lm leaves the head out"
    if to != "tf-release" and head not in STOCK_CLASSES:
        raise ValueError(f"--to {to}: it has no head {head}; {without_head}.")
    settings = _SETTINGS[to] | ({"head_layers": None} if head in TASK_HEADS else {})
    if to != "gpt2" and config.n_inner is not None:
        settings["n_inner"] = 4 * config.n_embd
    problems = [
        f"it has {name}={value}, and the model {name}={getattr(config, name)}"
        for name, value in settings.items()
        if getattr(config, name) != value
    ]
    if to == "tf-release":
        if head in (*TASK_HEADS, "token-classification"):
            problems.append(f"it has no task head: {without_head}")
        if "lm_head.weight" in checkpoint.parameters:
            problems.append("its output matrix is the token embedding (the model has tie_word_embeddings=False)")
    elif head == "sequence-classification" and checkpoint.parameters["score.bias"].any():
        problems.append(f"its classification head has no bias: {without_head}")
    if tokenizer is not None and tokenizer.byte_level != (to == "gpt2"):
        problems.append("its tokenizer cannot be made of this one, of bytes or of words: --no_tokenizer does without")
    elif tokenizer is not None and tokenizer.language != "en":
        language = tokenizer.language
        problems.append(f"its words are English, and the tokenizer's of {language!r}: --no_tokenizer does without")
    if problems:
        raise ValueError(f"The format {to} cannot hold this model: {'; '.join(problems)}.")


def _check_export(checkpoint: Checkpoint, to: str, special_tokens: str) -> None:
    if checkpoint.tokenizer is None:
        raise ValueError("--fast_tokenizer: there is no tokenizer of hf_gpt here that could be exported.")
    if to not in ("hf_gpt", "openai-gpt"):
        raise ValueError(f"--fast_tokenizer: the format {to} holds no tokenizer.json; --to hf_gpt or openai-gpt does.")
    if to == "openai-gpt" and special_tokens != "keep" and checkpoint.config.start_token_id is not None:
        raise ValueError("--fast_tokenizer: its special tokens need their rows; add --special_tokens keep.")


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


def _write_own(checkpoint: Checkpoint, folder: Path) -> None:
    config = checkpoint.config
    with torch.device("meta"):
        model = HEADS[checkpoint.head](config)
    prefix = "" if checkpoint.head == "none" else "transformer."
    state = {(prefix if is_base(name) else "") + name: value for name, value in checkpoint.parameters.items()}
    if "lm_head.weight" in model.state_dict():
        state.setdefault("lm_head.weight", state["transformer.embed_tokens.weight"])
    model.load_state_dict(state, strict=True, assign=True)
    if checkpoint.new_rows:
        checkpoint.notes.append(f"Added: {NEW_ROWS}, which nothing has trained; they get no probability yet.")
    model.tie_weights()
    model.generation_config = checkpoint.generation_config or default_generation_config(config)
    model.save_pretrained(folder)
    if checkpoint.tokenizer is not None:
        checkpoint.tokenizer.save_pretrained(folder)


def _rows_to_write(
    checkpoint: Checkpoint, to: str, special_tokens: str, seed: int
) -> tuple[dict[str, torch.Tensor], int | None]:
    """The parameters that are written, and the number of rows before the special tokens' if these are left out."""
    config, parameters = checkpoint.config, dict(checkpoint.parameters)
    if special_tokens == "keep" and to == "tf-release":
        raise ValueError("--special_tokens keep: OpenAI's release holds no rows of special tokens.")
    if special_tokens == "keep" or config.start_token_id is None:
        return parameters, None
    first, matrices = config.vocab_size - 4, {"embed_tokens.weight", "lm_head.weight"} & parameters.keys()
    are_last = [*config.task_token_ids, config.pad_token_id] == list(range(first, first + 4))
    initial = drawn_special_tokens(config.n_embd, config.initializer_range, seed)
    are_initial = are_last and all(
        torch.equal(parameters[name][first:], initial.to(parameters[name])) for name in matrices
    )
    if special_tokens == "auto" and not are_initial and to != "tf-release":
        return parameters, None
    if not are_last:
        raise ValueError("The special tokens are not the last four rows, so they cannot be left out.")
    if special_tokens == "auto" and not are_initial:
        raise ValueError(
            "OpenAI's release holds no rows of _start_, _delimiter_, _classify_ and <pad>, and the model's are not "
            f"those of a conversion with seed {seed}: --special_tokens drop leaves them out for good."
        )
    if special_tokens == "drop" and checkpoint.head in TASK_HEADS:
        checkpoint.notes.append("Its task head reads _classify_, which is left out.")
    how = "the next conversion makes the same again" if are_initial else "what was in them is lost"
    checkpoint.notes.append(f"Left out: the rows of the special tokens; {how}.")
    return parameters | {name: parameters[name][:first].clone() for name in matrices}, first


def _write_release(checkpoint: Checkpoint, folder: Path, special_tokens: str, seed: int) -> None:
    config = checkpoint.config
    parameters, _ = _rows_to_write(checkpoint, "tf-release", special_tokens, seed)
    kinds = {tensor.dtype for tensor in parameters.values()}
    if kinds != {torch.float32}:
        if torch.float64 in kinds:
            raise ValueError("OpenAI's release is float32, and the model float64.")
        checkpoint.notes.append("The numbers are stored as float32, as OpenAI's release is; none changes.")
    if config.n_embd != 64 * config.n_head:
        checkpoint.notes.append(
            f"The release does not say that there are {config.n_head} heads: read it with --n_head."
        )
    write_release(folder, release_arrays({name: t.float() for name, t in parameters.items()}, config.n_layer))
    if checkpoint.tokenizer is not None:
        write_vocabulary(checkpoint.tokenizer, folder / "encoder_bpe_40000.json", folder / "vocab_40000.bpe")


def _write_stock(checkpoint: Checkpoint, folder: Path, to: str, special_tokens: str, seed: int) -> None:
    config = checkpoint.config
    parameters, rows = _rows_to_write(checkpoint, to, special_tokens, seed)
    theirs = {ours: name for name, ours in STOCK_NAMES[to].items()}
    stores_output = to == "openai-gpt" and checkpoint.head == "multiple-choice" and config.tie_word_embeddings
    prefix = "" if checkpoint.head == "none" else "transformer."
    tensors = {}
    for name in progress(sorted(parameters), "converting"):
        tensor = parameters[name]
        if name.startswith("score."):
            stock_name = name.replace("score", STOCK_HEAD) if checkpoint.head == "multiple-choice" else name
        elif name == "lm_head.weight" or (name == "embed_tokens.weight" and stores_output):
            # The stock class stores the tied pair under the output's name.
            stock_name = "lm_head.weight"
        else:
            stock_name = prefix + theirs.get(name, name)
        is_matrix = name.startswith("h.") and name.endswith(STOCK_MATRICES)
        tensors[stock_name] = tensor.t().contiguous() if is_matrix else tensor.contiguous()
    if checkpoint.head == "sequence-classification":
        del tensors["score.bias"]
    stock_config(checkpoint, to, rows).save_pretrained(folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if checkpoint.generation_config is not None and to == "gpt2":
        if rows is not None:
            checkpoint.generation_config.update(suppress_tokens=None, pad_token_id=None)
        checkpoint.generation_config.save_pretrained(folder)
    if checkpoint.tokenizer is not None:
        write_stock_tokenizer(checkpoint.tokenizer, folder, rows is None)
    if checkpoint.tokenizer is not None and to == "openai-gpt":
        checkpoint.notes.append(
            "Stock openai-gpt splits words in its own way, so that its ids are not always those of hf_gpt's tokenizer "
            "(nearly always with --fast_tokenizer)."
        )


def stock_config(checkpoint: Checkpoint, to: str, vocabulary: int | None) -> PreTrainedConfig:
    """
    The stock configuration of a model, with what only hf_gpt knows added; `vocabulary` is the number of rows that
    are left where those of the special tokens were dropped.
    """
    config = checkpoint.config
    fields = {name: getattr(config, name) for name in (*SHARED_FIELDS, *OWN_FIELDS)}
    fields["dtype"] = checkpoint.parameters["embed_tokens.weight"].dtype
    fields["summary_first_dropout"] = config.clf_pdrop
    if config.problem_type == "ordinal":
        fields["problem_type"] = None
        checkpoint.notes.append("Left out: problem_type ordinal, which stock models do not know.")
    if vocabulary is not None:
        bos = next(iter(config.eos_token_ids), None) if to == "gpt2" else None
        fields |= {"vocab_size": vocabulary, "bos_token_id": bos, "pad_token_id": None}
        for name in ("start_token_id", "delimiter_token_id", "classify_token_id", "untrained_token_ids"):
            del fields[name]
    activation = next(name for name, ours in ACTIVATIONS[to].items() if ours == config.afn)
    if to == "gpt2":
        fields |= {"activation_function": activation, "n_inner": config.n_inner}
    else:
        fields["afn"] = activation
    name = STOCK_CLASSES[checkpoint.head][list(STOCK_CONFIGS).index(to)]
    return STOCK_CONFIGS[to](architectures=[name], **fields)
