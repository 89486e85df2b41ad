"""The names of the files that are uploaded and fetched, and what configurations may say."""

import fnmatch
import re
from pathlib import Path
from typing import Any

from transformers import GenerationConfig
from transformers.utils import GENERATION_CONFIG_NAME

from ..files import check_types, read_json, reading

# Next to peft's own files in an adapter's folder: the configuration of the base model with the head of the task.
HEAD_CONFIG = "head_config.json"
FEATURES, FEATURE_DATA = "features.json", "data"
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "words.json", "vocab.json", "merges.txt"),
    *("special_tokens_map.json", "added_tokens.json"),
)
# Their strings are pieces of words and names of weights.
NO_SETTINGS = ("tokenizer.json", "words.json", "vocab.json", "added_tokens.json", "model.safetensors.index.json")
_SHARD = "-of-".join(["[0-9]" * 5] * 2)
WEIGHTS = (
    *("model.safetensors", "model.safetensors.index.json", f"model-{_SHARD}.safetensors"),
    "adapter_model.safetensors",
)
# Weights that conversion reads, through torch's `weights_only`, and of stock models alone.
STOCK_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", f"pytorch_model-{_SHARD}.bin")
_FORMATS = ("parquet", "arrow", "npy", "safetensors", "rows.parquet")
# All that is fetched of a repository: neither code nor pickles.
FETCHED = (
    *("config.json", "generation_config.json", "adapter_config.json", HEAD_CONFIG, FEATURES, "README.md"),
    *TOKENIZER_FILES,
    *WEIGHTS,
    *(f"{FEATURE_DATA}/features-{_SHARD}.{name}" for name in _FORMATS),
)
# All that is uploaded, with the code of hf_gpt.
UPLOADED = (
    *FETCHED,
    *(f"{name}{suffix}" for name in ("LICENSE", "NOTICE") for suffix in ("", ".md", ".txt")),
    *("metrics.json", "all_results.json", "train_results.json", "eval_results.json", "pretraining.json"),
)
# What an adapter may say in words of its own.
_FREE_TEXTS = (
    *("auto_mapping", "base_model_name_or_path", "peft_version", "revision"),
    *("tokenizer_name_or_path", "prompt_tuning_init_text"),
)
# Ways to initialize the weights of a new adapter that compute nothing and read nothing.
_INITIALIZATIONS = ("gaussian", "orthogonal", "zero", "RANDOM", "SAMPLE_VOCAB")
_LARGEST = 1 << 20
# What the generation configuration takes without a look at its type.
_GENERATION_TYPES: dict[str, Any] = {
    **dict.fromkeys(("begin_suppress_tokens", "suppress_tokens"), list[int] | None),
    **dict.fromkeys(("max_length", "max_new_tokens", "min_length", "no_repeat_ngram_size"), int | None),
    **dict.fromkeys(("num_beams", "num_return_sequences", "top_k"), int | None),
    **dict.fromkeys(("length_penalty", "repetition_penalty", "temperature", "top_p", "typical_p"), float | None),
}
# transformers' own models that hf_gpt reads -> how the names of their classes begin.
_STOCK_CLASSES = {"openai-gpt": "OpenAIGPT", "gpt2": "GPT2"}


class RepositoryError(ValueError):
    """A repository or folder that is not taken as it is."""


def is_known(name: str) -> bool:
    """Whether a file of a folder is one of those that are uploaded."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in UPLOADED)


def stock_type(config: dict[str, Any]) -> str | None:
    """`"openai-gpt"` or `"gpt2"` if a `config.json` is of such a model, by its type or, in old files, its class."""
    check_types("config.json", config, {"model_type": str | None, "architectures": list[str] | None})
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


def generation_settings(folder: Path) -> GenerationConfig | None:
    """What the `generation_config.json` of a folder says, if there is one; a `ValueError` if it is damaged."""
    path = folder / GENERATION_CONFIG_NAME
    if not path.is_file():
        return None
    with reading(path):
        values = read_json(path)
        check_types(path, values, _GENERATION_TYPES)
        GenerationConfig(**values).validate()
        return GenerationConfig.from_pretrained(folder)


def adapter_problems(settings: dict[str, Any]) -> list[str]:
    """
    A sentence for each thing that an `adapter_config.json` says and no adapter of ours does. peft takes names of
    modules for regular expressions, computes new weights as the settings ask, and imports what they name: only plain
    names and numbers are taken, of a size that adapters have.
    """
    wrong = {name: repr(value)[:80] for name, value in settings.items() if not _is_plain(name, value)}
    wanted = f"plain names of modules, and numbers up to {_LARGEST:,}, are taken"
    return [f"{name} is {value}; {wanted}" for name, value in wrong.items()]


def _is_plain(name: str, value: Any) -> bool:
    if name in _FREE_TEXTS or value in (None, {}):
        return True
    if "init" in name and isinstance(value, str):
        return value in _INITIALIZATIONS
    if name in ("rank_pattern", "alpha_pattern", "trainable_token_indices") and isinstance(value, dict):
        value = [*value, *value.values()]
    items = value if isinstance(value, list) else [value]
    plain = [item for item in items if isinstance(item, str) and re.fullmatch(r"[\w.-]*", item)]
    small = [item for item in items if isinstance(item, int | float) and abs(item) <= _LARGEST]
    return len(plain) + len(small) == len(items)
