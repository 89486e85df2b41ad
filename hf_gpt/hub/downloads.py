"""Repositories of the Hub: settings, tokenizers and safetensors are fetched, never code or pickles."""

import os
from pathlib import Path
from typing import Any

from huggingface_hub import is_offline_mode, snapshot_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ..files import GPT_MINI
from .checks import FETCHED, SHARDS, WEIGHTS, RepositoryError


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
