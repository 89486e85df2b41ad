"""Repositories of the Hub: what is uploaded and fetched (never code or pickles), and what configurations may say."""

import os
from pathlib import Path
from typing import Any

from huggingface_hub import is_offline_mode, snapshot_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ..files import GPT_MINI

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


def download(repo_id: str, revision: str | None = None, *, weights: bool = True, **kwargs: Any) -> Path:
    """
    Fetch of a repository what hf_gpt reads, all of one commit: neither its code nor its pickles come to the disk.

    `weights` is false where a tokenizer alone is wanted; further arguments are those of
    `huggingface_hub.snapshot_download`, such as `repo_type` (features are a `"dataset"`), `token` and `cache_dir`.

    Returns the folder in the cache, named as the commit; offline, what the cache holds of it. A `RepositoryError` for
    a model whose weights are in pickles alone.
    """
    wanted = [name for name in (*FETCHED, *SHARDS) if weights or name not in (*WEIGHTS, *SHARDS)]
    where = {"revision": revision, "local_files_only": is_offline_mode(), **kwargs}
    folder = Path(snapshot_download(repo_id, allow_patterns=wanted, **where))
    is_model = (folder / CONFIG_NAME).is_file() and not (folder / ADAPTER_CONFIG_NAME).is_file()
    has_weights = any((folder / name).is_file() for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME))
    if weights and is_model and not has_weights:
        raise RepositoryError(f"{repo_id} has no {SAFE_WEIGHTS_NAME}, and pickles are not fetched.")
    return folder


def is_hub_id(name: str) -> bool:
    """Whether a name is that of a repository, rather than a path or gpt-mini; a few old ones have no `user/`."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return not os.path.exists(name) and name != os.path.basename(GPT_MINI)


def local_folder(name: str | os.PathLike, revision: str | None = None, weights: bool = True) -> Path:
    """
    The folder that a name stands for: the user's own, gpt-mini's, or else that of `download`. A `ValueError` with the
    reason in one line if there is none.
    """
    name = os.fspath(name)
    if os.path.isdir(name):
        return Path(name)
    if name == os.path.basename(GPT_MINI):
        return Path(GPT_MINI)
    if not is_hub_id(name):
        raise ValueError(f"{name}: there is no such folder, and it is no name of a repository on the Hub.")
    try:
        return download(name, revision, weights=weights)
    except RepositoryError:
        raise
    except Exception as error:  # of the client and the network, which have no common base
        reason = " ".join(str(error).split())
        raise ValueError(f"{name}: no such file or folder here, and the Hub does not give it: {reason}") from error
