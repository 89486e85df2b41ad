"""Repositories of the Hub, fetched and checked before anything of them is loaded."""

import contextlib
import os
from pathlib import Path

from huggingface_hub import HfApi, is_offline_mode, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from .hub_checks import RepositoryError, check_names, check_repository

# Of a model's repository, what is fetched to load it; what a Trainer left beside it is not.
_MODEL_PATTERNS = ["*.safetensors", "*.json", "*.txt", "*.md", "*.py"]
_DATASET_PATTERNS = ["*.json", "*.md", "data/*"]


def download(
    repo_id: str,
    revision: str | None = None,
    *,
    repo_type: str = "model",
    token: str | None = None,
    cache_dir: str | os.PathLike | None = None,
) -> Path:
    """
    Fetch a repository and check it, so that loading it with hf_gpt runs none of its code.

    Args:
        repo_id (`str`): `user/name`.
        revision (`str`, *optional*): branch, tag or commit.
        repo_type (`str`, *optional*, defaults to `"model"`): `"dataset"` for features.
        token (`str`, *optional*): by default that of `hf auth login` or `HF_TOKEN`.
        cache_dir (`str` or `PathLike`, *optional*): by default that of the Hub's client.

    Returns:
        `Path`: the folder in the cache. The state that a Trainer left in the repository is not there.

    Raises:
        RepositoryError: for pickles, foreign code, paths that lead outside, files whose hash is not the one that the
            Hub has, and files that are cut short.
    """
    api = HfApi(token=token)
    where = {"repo_id": repo_id, "repo_type": repo_type}
    resolved = api.resolve_revision(**where, revision=revision, cache_dir=cache_dir)
    tree = api.list_repo_tree(**where, recursive=True, revision=resolved.resolved)
    check_names([entry.path for entry in tree], repo_id)
    folder = snapshot_download(
        **where,
        revision=resolved,
        token=token,
        cache_dir=cache_dir,
        allow_patterns=_DATASET_PATTERNS if repo_type == "dataset" else _MODEL_PATTERNS,
        ignore_patterns=None if repo_type == "dataset" else ["*/*"],
    )
    verified = api.verify_repo_checksums(**where, revision=resolved.resolved, cache_dir=cache_dir)
    wrong = [found["path"] for found in verified.mismatches]
    for name in wrong:
        # Otherwise it would be taken from the cache for ever.
        (Path(folder) / name).resolve().unlink(missing_ok=True)
        (Path(folder) / name).unlink(missing_ok=True)
    if wrong:
        raise RepositoryError(
            f"{repo_id} is refused: {', '.join(wrong)} arrived with another hash than the Hub announced. The copy was "
            "thrown away; try again, and tell the repository's owner if it stays so."
        )
    check_repository(folder, repo_id)
    return Path(folder)


def checked_revision(name: str, revision: str | None = None) -> str | None:
    """
    Fetch and check a model before it is loaded by its name.

    Args:
        name (`str`): folder or Hub id.
        revision (`str`, *optional*): branch, tag or commit of a repository.

    Returns:
        `str` or `None`: the revision to load: of a repository the commit that was checked, which is in the cache. A
        folder is the user's own and taken as it is; offline, what the cache holds is checked.

    Raises:
        RepositoryError: see `download`.
    """
    if os.path.isdir(name):
        return revision
    if not is_offline_mode():
        return download(name, revision).name
    with contextlib.suppress(LocalEntryNotFoundError):  # the cache need not hold all files
        check_repository(snapshot_download(name, revision=revision, local_files_only=True), name)
    return revision
