"""Repositories of the Hub: settings, tokenizers and safetensors are fetched, never code or pickles."""

import os
from pathlib import Path

from huggingface_hub import is_offline_mode, snapshot_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME

from ..files import read_json
from .checks import FETCHED, STOCK_PICKLES, WEIGHTS, RepositoryError, stock_type


def download(
    repo_id: str,
    revision: str | None = None,
    *,
    repo_type: str = "model",
    token: str | None = None,
    cache_dir: str | os.PathLike | None = None,
    weights: bool = True,
    stock_pickles: bool = False,
) -> Path:
    """
    Fetch of a repository what hf_gpt reads, all of one commit: neither its code nor its pickles come to the disk.

    Args:
        repo_id, revision, repo_type, token, cache_dir: as in `huggingface_hub.snapshot_download`; features are of the
            type `"dataset"`.
        weights (`bool`, *optional*, defaults to `True`): false where a tokenizer alone is wanted.
        stock_pickles (`bool`, *optional*, defaults to `False`): of a stock model that has no safetensors, fetch
            `pytorch_model.bin`, which only torch's `weights_only` may read.

    Returns:
        `Path`: the folder in the cache, named as the commit. Offline, what the cache holds of it.

    Raises:
        RepositoryError: for a model whose weights are in pickles alone; else what huggingface_hub raises.
    """
    where = {"repo_type": repo_type, "token": token, "cache_dir": cache_dir, "local_files_only": is_offline_mode()}
    wanted = [name for name in FETCHED if weights or name not in WEIGHTS]
    folder = Path(snapshot_download(repo_id, revision=revision, allow_patterns=wanted, **where))
    is_model = (folder / CONFIG_NAME).is_file() and not (folder / ADAPTER_CONFIG_NAME).is_file()
    if weights and is_model and not any(folder.glob("model*.safetensors")):
        if stock_pickles and stock_type(read_json(folder / CONFIG_NAME)) is not None:
            return Path(snapshot_download(repo_id, revision=folder.name, allow_patterns=STOCK_PICKLES, **where))
        raise RepositoryError(
            f"{repo_id} has no weights in safetensors, and pickles are not fetched. Those of a stock openai-gpt or "
            f"gpt2 can be converted: scripts/convert.py {repo_id} FOLDER."
        )
    return folder


def is_hub_id(name: str) -> bool:
    """Whether a name is that of a repository, rather than a path; a few old ones have no `user/`."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return not os.path.exists(name)


def local_folder(name: str | os.PathLike, revision: str | None = None, **options: bool) -> Path:
    """
    The folder that a name stands for: the user's own, or else that of `download`, whose other arguments are `options`.
    A `ValueError` with the reason in one line if there is none.
    """
    name = os.fspath(name)
    if os.path.isdir(name):
        return Path(name)
    if not is_hub_id(name):
        raise ValueError(f"{name}: there is no such folder, and it is no name of a repository on the Hub.")
    try:
        return download(name, revision, **options)
    except RepositoryError:
        raise
    except Exception as error:  # of the client and the network, which have no common base
        message = " ".join(
            f"{name}: there is no such file or folder here, and the Hub does not give it: {error}".split()
        )
        raise ValueError(message) from error
