"""Causal language models that are not ours, and their own tokenizers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME

from ..conversion.sources import KINDS
from ..files import read_json, reading
from ..files.weights import load_weights
from ..hub.checks import check_config, stock_type
from ..training.arguments import ModelArguments
from ..trees.any_model import check_model


def is_other_model(folder: Path) -> bool:
    """Whether a folder holds a model that transformers has a class for, and hf_gpt none."""
    if (folder / ADAPTER_CONFIG_NAME).is_file() or not (folder / CONFIG_NAME).is_file():
        return False
    config = read_json(folder / CONFIG_NAME)
    return config.get("model_type") in CONFIG_MAPPING and (stock_type(config) or config["model_type"]) not in KINDS


def load_other_model(args: ModelArguments) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """
    Tokenizer and causal language model of a name, in float32, of safetensors and without code from their folders. A
    `ValueError` in one line if they are not there, do not fit, or the model cannot hold token trees.
    """
    source, settings = args.source, {"trust_remote_code": False}
    check_config(read_json(source.folder / CONFIG_NAME), source.name)
    with reading(source.name):
        config = AutoConfig.from_pretrained(source.folder, **settings)
        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_source.folder, **settings)
        settings |= {"use_safetensors": True, "attn_implementation": args.attn_implementation, "dtype": "float32"}
        model = load_weights(AutoModelForCausalLM, source.folder, config, check_numbers=False, **settings)
    check_model(model, 1)
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ValueError(f"The tokenizer has {len(tokenizer)} tokens and {source.name} {rows} rows: name its own.")
    return tokenizer, model.eval()


def leave_texts(texts: Sequence[str], **settings: Any) -> dict[str, Sequence[str]]:
    """What stands for the tokenizer of columns that `ZeroShotTransform` tokenizes."""
    return {"input_ids": texts}
