"""
Checkpoints of transformers' own `openai-gpt` and `gpt2`: their configuration and weights under our names, and back.

Once this is imported (`hf_gpt.registration` does it where a class of ours is first used), `GPTConfig.from_pretrained`
and `GPTFor*.from_pretrained` read them as they are. What is uploaded with a model knows nothing of them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, OpenAIGPTConfig, PreTrainedConfig, PreTrainedModel
from transformers.modeling_utils import load_state_dict

from ..files import read_tensor_file, reading
from ..files.weights import BUFFERS
from ..hub.repositories import stock_type
from ..model.configuration_gpt import GPTConfig
from ..model.modeling_gpt import HEADS, GPTPreTrainedModel

STOCK_CONFIGS: dict[str, type[PreTrainedConfig]] = {"openai-gpt": OpenAIGPTConfig, "gpt2": GPT2Config}
# Their name -> ours, for what has another name; blocks, norms and the output matrix have the same.
_NAMES = {
    "openai-gpt": {"tokens_embed.weight": "embed_tokens.weight", "positions_embed.weight": "embed_positions.weight"},
    "gpt2": {"wte.weight": "embed_tokens.weight", "wpe.weight": "embed_positions.weight"},
}
_STOCK_TO_OWN = _NAMES["openai-gpt"] | _NAMES["gpt2"]
# How parameters of the transformer, and of no head, begin in `own_parameters`.
_BASE = ("embed_tokens.", "embed_positions.", "h.", "ln_f.")
# Stored input by output, the other way round than in `nn.Linear`.
_MATRICES = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
# The multiple-choice head of `*DoubleHeadsModel`.
_CHOICE_HEAD = "multiple_choice_head.summary"
# Head -> class of openai-gpt and of gpt2.
STOCK_CLASSES: dict[str, tuple[str, str]] = {
    "none": ("OpenAIGPTModel", "GPT2Model"),
    "causal-lm": ("OpenAIGPTLMHeadModel", "GPT2LMHeadModel"),
    "multiple-choice": ("OpenAIGPTDoubleHeadsModel", "GPT2DoubleHeadsModel"),
    "sequence-classification": ("OpenAIGPTForSequenceClassification", "GPT2ForSequenceClassification"),
}
_OWN_CLASSES = {name: HEADS[head].__name__ for head, names in STOCK_CLASSES.items() for name in names}
# Fields of the same name and meaning, and fields that stock classes do not know, but keep.
SHARED_FIELDS = (
    *("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "embd_pdrop", "attn_pdrop", "resid_pdrop"),
    *("layer_norm_epsilon", "initializer_range", "tie_word_embeddings", "pad_token_id", "bos_token_id"),
    *("eos_token_id", "id2label", "label2id", "problem_type", "dtype"),
    *("start_token_id", "delimiter_token_id", "classify_token_id", "untrained_token_ids", "lm_coef", "release_quirks"),
)
# The release's gelu is the tanh approximation, which gpt2 calls gelu_new; its "gelu" is another function.
ACTIVATIONS: dict[str, dict[str, str]] = {
    "openai-gpt": {"gelu": "gelu", "relu": "relu", "swish": "swish", "silu": "swish"},
    "gpt2": {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu", "silu": "swish", "swish": "swish"},
}

# Settings of stock models of which we compute one value.
_COMPUTED = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}


def own_config(config: dict[str, Any]) -> dict[str, Any]:
    """
    The fields of `GPTConfig` for the content of a stock `config.json`; any other configuration is returned as it is.
    There are four more rows, for `_start_`, `_delimiter_`, `_classify_` and `<pad>`, unless it says which rows these
    are (as what `scripts/convert.py` writes). `bos_token_id` becomes `_start_`; GPT-2's `<|endoftext|>` stays its
    `eos_token_id`. A `ValueError` if the model computes something that ours cannot.
    """
    model_type = stock_type(config)
    if model_type is None:
        return config
    theirs = STOCK_CONFIGS[model_type].from_dict(dict(config)).to_dict()
    activation = theirs["activation_function" if model_type == "gpt2" else "afn"]
    if activation not in ACTIVATIONS[model_type]:
        known = ", ".join(ACTIVATIONS[model_type])
        raise ValueError(f"The {model_type} model has the activation {activation!r}; hf_gpt has {known}.")
    for name, value in _COMPUTED.items():
        if theirs.get(name, value) != value:
            raise ValueError(f"The {model_type} model has {name}={theirs[name]}, which hf_gpt does not compute.")
    ours = {name: theirs[name] for name in SHARED_FIELDS if name in theirs}
    for name in {"id2label", "label2id"} - config.keys():
        ours.pop(name, None)  # Of two labels by default, which would contradict a number of labels that is asked for.
    ours |= {
        "model_type": "hf_gpt",
        "afn": ACTIVATIONS[model_type][activation],
        "clf_pdrop": theirs["summary_first_dropout"],
        "norm_first": model_type == "gpt2",
        "final_norm": model_type == "gpt2",
        "n_inner": theirs.get("n_inner"),
        "architectures": [_OWN_CLASSES.get(name, name) for name in theirs["architectures"] or ()] or None,
    }
    return ours if "start_token_id" in config else ours | with_special_rows(theirs["vocab_size"])


def with_special_rows(first: int) -> dict[str, Any]:
    """Fields of the configuration of a model whose special tokens, which are untrained, stand behind `first` rows."""
    names = ("start_token_id", "delimiter_token_id", "classify_token_id", "pad_token_id")
    ids = dict(zip(names, range(first, first + 4), strict=True))
    return ids | {"vocab_size": first + 4, "bos_token_id": first, "untrained_token_ids": [first, first + 1, first + 2]}


def initial_special_rows(config: PreTrainedConfig, seed: int = 0) -> torch.Tensor:
    """
    Embedding rows of `_start_`, `_delimiter_`, `_classify_` and `<pad>` before training, float32 of shape
    `(4, n_embd)`: the first three as the release initializes them, that of `<pad>` 0. They depend on the seed alone,
    so that an adapter finds its base model as it was.
    """
    rows = torch.randn(3, config.n_embd, generator=torch.Generator().manual_seed(seed)) * config.initializer_range
    return torch.cat([rows, torch.zeros(1, config.n_embd)])


def with_special_tokens(rows: torch.Tensor, config: PreTrainedConfig, seed: int = 0) -> torch.Tensor:
    """An embedding of shape `(rows, n_embd)` with the four special rows behind it, where the model has these there."""
    if rows.shape != (config.start_token_id, config.n_embd) or config.vocab_size != len(rows) + 4:
        return rows  # whoever compares shapes refuses it
    return torch.cat([rows, initial_special_rows(config, seed).to(rows)])


def own_parameters(tensors: Mapping[str, torch.Tensor], config: GPTConfig) -> dict[str, torch.Tensor]:
    """Parameters without `transformer.` and a tied output matrix; a `ValueError` if that is no token embedding."""
    parameters = {name.removeprefix("transformer."): tensor.detach() for name, tensor in tensors.items()}
    if config.tie_word_embeddings and "lm_head.weight" in parameters:
        output = parameters.pop("lm_head.weight")
        # Some stock classes store the pair under the output's name alone.
        if not torch.equal(output, parameters.setdefault("embed_tokens.weight", output)):
            raise ValueError("lm_head.weight is not the token embedding, though tie_word_embeddings is true.")
    return parameters


def from_stock(tensors: Mapping[str, torch.Tensor], config: GPTConfig, head: str) -> dict[str, torch.Tensor]:
    """
    `own_parameters` of a stock checkpoint's tensors, for a configuration from `own_config`; weights of another head
    than `head`, one of `HEADS`, keep their names.
    """
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items() if not BUFFERS.search(name)}
    named = {_STOCK_TO_OWN.get(name, name): tensor for name, tensor in bare.items()}
    parameters = {}
    for name, tensor in own_parameters(named, config).items():
        if name in ("embed_tokens.weight", "lm_head.weight"):
            tensor = with_special_tokens(tensor, config)
        elif name.startswith("h.") and name.endswith(_MATRICES):
            tensor = tensor.t().contiguous()
        elif head == "multiple-choice":
            name = name.replace(_CHOICE_HEAD, "score")
        parameters[name] = tensor
    if head == "sequence-classification" and "score.weight" in parameters:
        # The stock head has no bias.
        parameters["score.bias"] = parameters["score.weight"].new_zeros(len(parameters["score.weight"]))
    return parameters


def to_stock(
    parameters: Mapping[str, torch.Tensor], model_type: str, head: str, tied: bool
) -> dict[str, torch.Tensor]:
    """The way back: `parameters` of a model with a `head`, whose output matrix may be `tied`, as a stock model has."""
    theirs = {ours: name for name, ours in _NAMES[model_type].items()}
    if model_type == "openai-gpt" and head == "multiple-choice" and tied:
        theirs["embed_tokens.weight"] = "lm_head.weight"  # the stock class stores the tied pair under that name
    tensors = {}
    for name, tensor in parameters.items():
        stock_name = theirs.get(name, name)
        if head == "multiple-choice":
            stock_name = stock_name.replace("score", _CHOICE_HEAD)
        if name.startswith(_BASE) and head != "none" and stock_name != "lm_head.weight":
            stock_name = f"transformer.{stock_name}"
        is_matrix = name.startswith("h.") and name.endswith(_MATRICES)
        tensors[stock_name] = (tensor.t() if is_matrix else tensor).contiguous()
    if head == "sequence-classification":
        del tensors["score.bias"]
    return tensors


def _load_pretrained_model(model, state_dict, checkpoint_files, load_config, expected_keys=None):
    """As in transformers; a stock checkpoint, recognised by the names of its tensors, becomes one of ours."""
    stored = state_dict or {}
    if state_dict is None and checkpoint_files:
        with reading(checkpoint_files[0]):
            for file in checkpoint_files:
                stored |= load_state_dict(file, map_location="meta")
            held = 2 * sum(tensor.nbytes for tensor in stored.values())  # with two numbers a byte
        needed = sum(parameter.numel() for parameter in model.base_model.parameters())
        if needed > held + (1 << 28):  # before memory is taken for a gigabyte that the files do not hold
            found = f"{checkpoint_files[0]} holds at most {held:,} numbers"
            raise ValueError(f"{found}, and its config.json asks for {needed:,}.")
    if any(name.removeprefix("transformer.") in _STOCK_TO_OWN for name in stored):
        if state_dict is None:
            files = [read_tensor_file(Path(file)) for file in checkpoint_files]
            state_dict, checkpoint_files = {name: tensor for file in files for name, tensor in file.items()}, None
        head = next((head for head, model_class in HEADS.items() if isinstance(model, model_class)), "none")
        prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
        own = from_stock(state_dict, model.config, head)
        state_dict = {prefix + name if name.startswith(_BASE) else name: tensor for name, tensor in own.items()}
    return PreTrainedModel._load_pretrained_model(model, state_dict, checkpoint_files, load_config, expected_keys)


# transformers has no public place for it: its conversion mappings go by the class of the model, and one and the
# same class of ours reads checkpoints of its own, and stock ones, whose matrices have the same names.
GPTPreTrainedModel._load_pretrained_model = staticmethod(_load_pretrained_model)
