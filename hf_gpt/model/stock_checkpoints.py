"""
Checkpoints of transformers' own `openai-gpt` and `gpt2`, read as they are: configuration and weights under our names.

`GPTFor*.from_pretrained` takes such a folder or Hub id directly; `scripts/convert.py` writes them, too.
"""

import dataclasses
import math
import re
from collections.abc import Iterable
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import safe_open
from transformers import GPT2Config, OpenAIGPTConfig, PreTrainedConfig, PreTrainedModel
from transformers.core_model_loading import ConversionOps, Transpose, WeightConverter, WeightRenaming, WeightTransform

# What transformers' own readers of settings raise for a file that is damaged or has values of a wrong type.
UNREADABLE = (StrictDataclassError, ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)
STOCK_CONFIGS: dict[str, type[PreTrainedConfig]] = {"openai-gpt": OpenAIGPTConfig, "gpt2": GPT2Config}
# Their name -> ours, for what has another name; blocks, norms and the output matrix have the same.
STOCK_NAMES: dict[str, dict[str, str]] = {
    "openai-gpt": {"tokens_embed.weight": "embed_tokens.weight", "positions_embed.weight": "embed_positions.weight"},
    "gpt2": {"wte.weight": "embed_tokens.weight", "wpe.weight": "embed_positions.weight"},
}
# Stored input by output, the other way round than in `nn.Linear`.
STOCK_MATRICES = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
# The multiple-choice head of `*DoubleHeadsModel`.
STOCK_HEAD = "multiple_choice_head.summary"
# Masks and position numbers that old versions stored.
STOCK_BUFFERS = r"(^|\.)(attn\.(masked_)?bias|position_ids)$"
# Head -> class of ours, of openai-gpt, of gpt2; the first is no head.
HEAD_CLASSES: dict[str, tuple[str, str, str]] = {
    "none": ("GPTModel", "OpenAIGPTModel", "GPT2Model"),
    "causal-lm": ("GPTForCausalLM", "OpenAIGPTLMHeadModel", "GPT2LMHeadModel"),
    "multiple-choice": ("GPTForMultipleChoice", "OpenAIGPTDoubleHeadsModel", "GPT2DoubleHeadsModel"),
    "sequence-classification": (
        "GPTForSequenceClassification",
        "OpenAIGPTForSequenceClassification",
        "GPT2ForSequenceClassification",
    ),
}
# Fields of the same name and meaning.
SHARED_FIELDS = (
    *("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "embd_pdrop", "attn_pdrop", "resid_pdrop"),
    *("layer_norm_epsilon", "initializer_range", "tie_word_embeddings", "pad_token_id", "bos_token_id"),
    *("eos_token_id", "id2label", "label2id", "problem_type", "dtype"),
)
# Fields that stock classes do not know, but keep.
OWN_FIELDS = (
    *("start_token_id", "delimiter_token_id", "classify_token_id", "untrained_token_ids"),
    *("lm_coef", "release_quirks"),
)
# The release's gelu is the tanh approximation, which gpt2 calls gelu_new; its "gelu" is another function.
ACTIVATIONS: dict[str, dict[str, str]] = {
    "openai-gpt": {"gelu": "gelu", "relu": "relu", "swish": "swish", "silu": "swish"},
    "gpt2": {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu", "silu": "swish", "swish": "swish"},
}


def stock_type(config: dict[str, Any]) -> str | None:
    """`"openai-gpt"` or `"gpt2"` if a `config.json` is of such a model, by its type or, in old files, its class."""
    model_type = config.get("model_type")
    if model_type is None:
        name = str((_names_of_classes(config) or [""])[0])
        model_type = next((kind for kind, stem in _CLASS_STEMS.items() if name.startswith(stem)), None)
    if not isinstance(model_type, str | None):
        raise ValueError(f"config.json: model_type must be a string, not {model_type!r}.")
    return model_type if model_type in STOCK_CONFIGS else None


def _names_of_classes(config: dict[str, Any]) -> list[str]:
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"config.json: architectures must be a list of class names, not {names!r}.")
    return names


def stock_type_at(name: str, revision: str | None = None) -> str | None:
    """`stock_type` of the `config.json` in a folder or on the Hub; `None` where there is none."""
    try:
        config, _ = PreTrainedConfig.get_config_dict(name, revision=revision)
    except OSError:
        return None
    except UNREADABLE as error:
        raise ValueError(f"config.json of {name} cannot be read: {error}.") from error
    if not isinstance(config, dict):
        raise ValueError(f"config.json of {name} must hold one JSON object.")
    return stock_type(config)


_CLASS_STEMS = {"openai-gpt": "OpenAIGPT", "gpt2": "GPT2"}


def own_config(config: dict[str, Any]) -> dict[str, Any]:
    """
    The fields of `GPTConfig` for a stock `config.json`; any other configuration is returned as it is.

    A stock `openai-gpt` has no special tokens: the model gets four more rows, for `_start_`, `_delimiter_`,
    `_classify_` and `<pad>`, unless the configuration says which rows these are (as those do that
    `scripts/convert.py` writes). A `gpt2` gets none.

    Args:
        config (`dict[str, Any]`): content of `config.json`.

    Returns:
        `dict[str, Any]`

    Raises:
        ValueError: if the model computes something that ours cannot.
    """
    model_type = stock_type(config)
    if model_type is None:
        return config
    # With the defaults of what the file leaves out.
    try:
        theirs = STOCK_CONFIGS[model_type].from_dict(dict(config)).to_dict()
    except UNREADABLE as error:
        raise ValueError(f"config.json: {' '.join(str(error).split())}") from error
    is_gpt2 = model_type == "gpt2"
    activation = theirs["activation_function" if is_gpt2 else "afn"]
    if activation not in ACTIVATIONS[model_type]:
        known = ", ".join(ACTIVATIONS[model_type])
        raise ValueError(f"The {model_type} model has the activation {activation!r}; hf_gpt has {known}.")
    for name, value in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        if theirs.get(name, value) != value:
            raise ValueError(f"The {model_type} model has {name}={theirs[name]}, which hf_gpt does not compute.")
    if theirs.get("add_cross_attention"):
        raise ValueError(f"The {model_type} model attends to an encoder (add_cross_attention), as hf_gpt does not.")
    ours = {name: theirs[name] for name in (*SHARED_FIELDS, *OWN_FIELDS) if name in theirs}
    for name in {"id2label", "label2id"} - config.keys():
        ours.pop(name, None)  # Of two labels by default, which would contradict a number of labels that is asked for.
    ours |= {
        "model_type": "hf_gpt",
        "afn": ACTIVATIONS[model_type][activation],
        "clf_pdrop": theirs["summary_first_dropout"],
        "norm_first": is_gpt2,
        "final_norm": is_gpt2,
        "n_inner": theirs.get("n_inner"),
        "architectures": [own_class(name) for name in _names_of_classes(theirs)] or None,
    }
    if "start_token_id" not in config:
        first = theirs["vocab_size"]
        if is_gpt2:
            ours |= dict.fromkeys(("start_token_id", "delimiter_token_id", "classify_token_id"))
        else:
            ours |= {"vocab_size": first + 4, "bos_token_id": first, "start_token_id": first}
            ours |= {"delimiter_token_id": first + 1, "classify_token_id": first + 2, "pad_token_id": first + 3}
            ours["untrained_token_ids"] = [first, first + 1, first + 2]
    return ours


def own_class(name: str) -> str:
    """The class of ours for a stock class; other names as they are."""
    return next((classes[0] for classes in HEAD_CLASSES.values() if name in classes), name)


def drawn_special_tokens(n_embd: int, initializer_range: float, seed: int = 0) -> torch.Tensor:
    """
    New embedding rows of `_start_`, `_delimiter_`, `_classify_` and `<pad>`: the first three are drawn as the release
    does, the row of `<pad>`, which no loss ever touches, is 0.

    The same seed gives the same rows, so an adapter finds its base model as it was.

    Returns:
        `torch.Tensor` of shape `(4, n_embd)`, float32
    """
    drawn = torch.randn(3, n_embd, generator=torch.Generator().manual_seed(seed)) * initializer_range
    return torch.cat([drawn, torch.zeros(1, n_embd)])


def with_special_tokens(rows: torch.Tensor, config: PreTrainedConfig, seed: int = 0) -> torch.Tensor:
    """An embedding of shape `(rows, n_embd)` with the four special rows behind it, where the model has these there."""
    if rows.ndim != 2 or rows.shape[1] != config.n_embd:
        return rows  # whoever compares shapes refuses it
    if config.start_token_id != rows.shape[0] or config.vocab_size != rows.shape[0] + 4:
        return rows
    return torch.cat([rows, drawn_special_tokens(config.n_embd, config.initializer_range, seed).to(rows)])


class _Operation(ConversionOps):
    """An operation on one tensor of a checkpoint, given the model's configuration."""

    def convert(self, input_dict, source_patterns, target_patterns, config=None, **kwargs):
        (tensors,) = input_dict.values()
        return self.apply(tensors[0] if isinstance(tensors, list) else tensors, target_patterns, config)

    def apply(self, tensor: torch.Tensor, targets: list[str], config: PreTrainedConfig) -> dict[str, torch.Tensor]:
        """The parameters, by target, that a tensor gives."""
        raise NotImplementedError


class _AddSpecialTokens(_Operation):
    def apply(self, tensor, targets, config):
        return {targets[0]: with_special_tokens(tensor, config)}


class _OutputMatrix(_Operation):
    def apply(self, tensor, targets, config):
        # Tied, it is the token embedding once more.
        return {} if config.tie_word_embeddings else {targets[0]: with_special_tokens(tensor, config)}


class _AddBias(_Operation):
    def apply(self, tensor, targets, config):
        # The stock classification head has no bias.
        return {targets[0]: tensor, targets[1]: tensor.new_zeros(tensor.shape[0])}


def stock_conversions(model: PreTrainedModel, names: Iterable[str]) -> list[WeightTransform]:
    """
    What makes the weights of a stock checkpoint those of a model of ours.

    Args:
        model (`PreTrainedModel`): to load into.
        names (`Iterable[str]`): of the checkpoint's tensors.

    Returns:
        `list[WeightTransform]`: of transformers' checkpoint conversion; empty where the checkpoint is not stock.
    """
    names = list(names)
    theirs = next((theirs for theirs in STOCK_NAMES.values() if any(n.endswith(tuple(theirs)) for n in names)), None)
    if theirs is None:
        return []
    tokens, positions = theirs
    conversions = [
        WeightRenaming(positions, theirs[positions]),
        WeightConverter(tokens, theirs[tokens], [_AddSpecialTokens()]),
        _output_matrix(model, theirs[tokens], any(name.endswith(tokens) for name in names)),
        *(WeightConverter(name, name, [Transpose()]) for name in STOCK_MATRICES),
    ]
    if getattr(model, "score_width", None) == 1:
        conversions.append(WeightRenaming(STOCK_HEAD, "score"))
    elif hasattr(model, "score"):
        conversions.append(WeightConverter("score.weight", ["score.weight", "score.bias"], [_AddBias()]))
    return conversions


def _output_matrix(model: PreTrainedModel, tokens: str, has_tokens: bool) -> WeightConverter:
    """Some stock classes store the token embedding as the output matrix alone."""
    if model.config.tie_word_embeddings and not has_tokens:
        prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
        return WeightConverter("lm_head.weight", prefix + tokens, [_AddSpecialTokens()])
    return WeightConverter("lm_head.weight", "lm_head.weight", [_OutputMatrix()])


def load_pretrained_model(model, state_dict, checkpoint_files, load_config, expected_keys=None):
    """
    `PreTrainedModel._load_pretrained_model`, which `from_pretrained` calls, for checkpoints of ours and stock ones.

    A checkpoint is told by its tensors' names. Our own names alone are saved again.
    """
    if state_dict is None:
        names = _sizes(checkpoint_files or [])
        if names:
            _check_size(model, sum(names.values()), checkpoint_files[0])
    else:
        names = state_dict
    conversions = stock_conversions(model, names)
    if not conversions:
        return PreTrainedModel._load_pretrained_model(model, state_dict, checkpoint_files, load_config, expected_keys)
    ignored = {STOCK_BUFFERS} | ({r"^lm_head\.weight$"} if model.config.tie_word_embeddings else set())
    model._keys_to_ignore_on_load_unexpected = set(model._keys_to_ignore_on_load_unexpected or ()) | ignored
    load_config = dataclasses.replace(load_config, weight_mapping=[*conversions, *(load_config.weight_mapping or [])])
    loaded = PreTrainedModel._load_pretrained_model(model, state_dict, checkpoint_files, load_config, expected_keys)
    model._weight_conversions = [used for used in model._weight_conversions if used not in conversions]
    return loaded


def _sizes(files: Iterable[str]) -> dict[str, int]:
    """The number of parameters that each tensor of a checkpoint can hold; two in a byte where they are quantised."""
    sizes = {}
    for file in files:
        if str(file).endswith(".safetensors"):
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118  it is no mapping
                    rows = tensors.get_slice(name)
                    packed = 1 if "F" in rows.get_dtype() else 16
                    sizes[name] = packed * math.prod(rows.get_shape())
        else:
            for name, tensor in torch.load(file, map_location="meta", weights_only=True).items():
                sizes[name] = tensor.numel() * (1 if tensor.is_floating_point() else 16)
    return sizes


# A gigabyte in float32.
_MOST_MISSING = 1 << 28


def _check_size(model: PreTrainedModel, held: int, file: str) -> None:
    """
    Raise a `ValueError` before much memory is taken for what the checkpoint does not hold. Smaller gaps are
    transformers' business: it draws what is missing, and tells.
    """
    config = model.config
    needed = sum(parameter.numel() for parameter in model.base_model.parameters())
    if needed > held + _MOST_MISSING:
        sizes = ", ".join(f"{name} {getattr(config, name):,}" for name in ("n_layer", "n_embd", "vocab_size"))
        raise ValueError(
            f"{file} holds {held:,} numbers, but its config.json asks for a transformer of {needed:,} ({sizes}): they "
            "do not belong together."
        )


def is_stock_buffer(name: str) -> bool:
    """Whether a tensor of a stock checkpoint is one of those that no model needs."""
    return re.search(STOCK_BUFFERS, name) is not None
