"""The names of the files that are uploaded and fetched, and what configurations may say."""

import fnmatch
import re
from pathlib import Path
from typing import Any

from transformers.tokenization_utils_base import TOKENIZER_CONFIG_FILE
from transformers.utils import (
    ADAPTER_CONFIG_NAME,
    ADAPTER_SAFE_WEIGHTS_NAME,
    CONFIG_NAME,
    GENERATION_CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
)

from ..files import check_types

# Next to peft's own files in an adapter's folder: the configuration of the base model with the head of the task.
HEAD_CONFIG = "head_config.json"
FEATURES, FEATURE_DATA = "features.json", "data"
TOKENIZER_FILES = (
    *("tokenizer.json", TOKENIZER_CONFIG_FILE, "words.json", "vocab.json", "merges.txt"),
    *("special_tokens_map.json", "added_tokens.json"),
)
# Their strings are pieces of words and names of weights.
NO_SETTINGS = ("tokenizer.json", "words.json", "vocab.json", "added_tokens.json", SAFE_WEIGHTS_INDEX_NAME)
_SHARD = "-of-".join(["[0-9]" * 5] * 2)
WEIGHTS = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, f"model-{_SHARD}.safetensors", ADAPTER_SAFE_WEIGHTS_NAME)
# Weights that conversion reads, through torch's `weights_only`, and of stock models alone.
STOCK_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", f"pytorch_model-{_SHARD}.bin")
# All that is fetched of a repository: neither code nor pickles.
FETCHED = (
    *(CONFIG_NAME, GENERATION_CONFIG_NAME, ADAPTER_CONFIG_NAME, HEAD_CONFIG, FEATURES, "README.md"),
    *TOKENIZER_FILES,
    *WEIGHTS,
    *(f"{FEATURE_DATA}/features-{_SHARD}.{kind}" for kind in ("parquet", "arrow", "npy", "safetensors")),
    f"{FEATURE_DATA}/features-{_SHARD}.rows.parquet",
)
# All that is uploaded, with the code of hf_gpt.
UPLOADED = (
    *FETCHED,
    *(f"{name}{suffix}" for name in ("LICENSE", "NOTICE") for suffix in ("", ".md", ".txt")),
    *("metrics.json", "all_results.json", "train_results.json", "eval_results.json", "pretraining.json"),
)
# What an adapter may say in words of its own, and its settings that are given by names of modules.
_FREE_TEXTS = (
    *("auto_mapping", "base_model_name_or_path", "peft_version", "revision"),
    *("tokenizer_name_or_path", "prompt_tuning_init_text"),
)
_BY_MODULE = ("rank_pattern", "alpha_pattern", "trainable_token_indices")
# Ways to initialize the weights of a new adapter that compute nothing and read nothing.
_INITIALIZATIONS = ("gaussian", "orthogonal", "zero")
_LARGEST = 1 << 20
# transformers' own models that hf_gpt reads -> how the names of their classes begin.
_STOCK_CLASSES = {"openai-gpt": "OpenAIGPT", "gpt2": "GPT2"}


class RepositoryError(ValueError):
    """A repository or folder that is not taken as it is."""


def is_known(name: str) -> bool:
    """Whether a file of a folder is one of those that are uploaded."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in UPLOADED)


def stock_type(config: dict[str, Any]) -> str | None:
    """`"openai-gpt"` or `"gpt2"` if a `config.json` is of such a model, by its type or, in old files, its class."""
    check_types(CONFIG_NAME, config, {"model_type": str | None, "architectures": list[str] | None})
    first = (config.get("architectures") or [""])[0]
    by_class = next((kind for kind, stem in _STOCK_CLASSES.items() if first.startswith(stem)), None)
    model_type = config.get("model_type") or by_class
    return model_type if model_type in _STOCK_CLASSES else None


def check_config(settings: dict[str, Any], where: str | Path) -> None:
    """Raise a `RepositoryError` for a `config.json` that names code or weights elsewhere, which would be fetched."""
    for name, found in settings.items():
        if name.endswith("attn_implementation") and "/" in str(found):
            raise RepositoryError(f"{where}: {name} names a kernel of the Hub, {found}, whose code would be run.")
        if name == "transformers_weights" and found not in (None, *WEIGHTS):
            raise RepositoryError(f"{where}: {name} names other weights, {found}.")


def adapter_problems(settings: dict[str, Any]) -> list[str]:
    """
    A sentence for each thing that an `adapter_config.json` says and no adapter of ours does. peft takes names of
    modules for regular expressions, computes new weights as the settings ask, and imports what they name: only plain
    names and numbers are taken, of a size that adapters have.
    """
    problems = []
    for name, value in settings.items():
        if name in _FREE_TEXTS:
            continue
        if isinstance(value, dict):
            # Of the methods that compute new weights, and of the library that trains in parallel.
            plain = not value or (name in _BY_MODULE and all(map(_is_plain, (*value, *value.values()))))
        elif name.startswith("init_") and isinstance(value, str):
            plain = value in _INITIALIZATIONS
        else:
            plain = _is_plain(value)
        if not plain:
            shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}..."
            problems.append(f"{name} is {shown}; plain names of modules, and numbers up to {_LARGEST:,}, are taken")
    if settings.get("prompt_tuning_init") == "TEXT":
        problems.append("prompt_tuning_init is TEXT, for which peft loads another tokenizer")
    return problems


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(not isinstance(item, list) and _is_plain(item) for item in value)
    if isinstance(value, str):
        return re.fullmatch(r"[\w.-]*", value) is not None
    return value is None or (isinstance(value, (int, float)) and abs(value) <= _LARGEST)
