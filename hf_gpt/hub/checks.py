"""The names of the files that are uploaded and fetched, and what configurations may say."""

from pathlib import Path
from typing import Any

# Next to peft's own files in an adapter's folder: the configuration of the base model with the head of the task.
HEAD_CONFIG = "head_config.json"
FEATURES, FEATURE_DATA = "features.json", "data"
# Folder of what the Hub shows as results of a model, and on the data set's leaderboard.
EVAL_RESULTS = ".eval_results"
WEIGHTS = ("model.safetensors", "adapter_model.safetensors")
_NUMBER = "[0-9]" * 5
SHARDS = ("model.safetensors.index.json", f"model-{_NUMBER}-of-{_NUMBER}.safetensors")
# All that is fetched of a repository: neither code nor pickles.
FETCHED = (
    *("config.json", "generation_config.json", "adapter_config.json", HEAD_CONFIG, FEATURES, "README.md"),
    *("tokenizer.json", "tokenizer_config.json", "words.json", "vocab.json", "merges.txt"),
    *("special_tokens_map.json", "added_tokens.json"),
    *WEIGHTS,
    f"{FEATURE_DATA}/features-{_NUMBER}-of-{_NUMBER}.parquet",
)
# All that is uploaded, with the code of hf_gpt.
UPLOADED = (
    *FETCHED,
    *(f"{name}{suffix}" for name in ("LICENSE", "NOTICE") for suffix in ("", ".md", ".txt")),
    f"{EVAL_RESULTS}/*.yaml",
    *("metrics.json", "all_results.json", "train_results.json", "eval_results.json", "pretraining.json"),
)
# transformers' own models that hf_gpt reads -> how the names of their classes begin.
_STOCK_CLASSES = {"openai-gpt": "OpenAIGPT", "gpt2": "GPT2"}


class RepositoryError(ValueError):
    """A repository or folder that is not taken as it is."""


def stock_type(config: dict[str, Any]) -> str | None:
    """`"openai-gpt"` or `"gpt2"` if a `config.json` is of such a model, by its type or, in old files, its class."""
    if model_type := config.get("model_type"):
        return model_type if model_type in _STOCK_CLASSES else None
    first = (config.get("architectures") or [""])[0]
    return next((kind for kind, stem in _STOCK_CLASSES.items() if first.startswith(stem)), None)


def check_config(settings: dict[str, Any], where: str | Path) -> None:
    """Raise a `RepositoryError` for a `config.json` that names code or weights elsewhere, which would be fetched."""
    for name, found in settings.items():
        if name.endswith("attn_implementation") and "/" in str(found):
            raise RepositoryError(f"{where}: {name} names a kernel of the Hub, {found}, whose code would be run.")
        if name == "transformers_weights" and found not in (None, *WEIGHTS):
            raise RepositoryError(f"{where}: {name} names other weights, {found}.")
