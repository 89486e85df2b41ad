"""Repositories of the Hub, fetched and checked before anything of them is loaded."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from huggingface_hub import HfApi, is_offline_mode, snapshot_download
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id
from huggingface_hub.utils.sha import git_hash, sha_fileobj
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME

from ..files import first_line, read_json
from .checks import (
    STOCK_FILES,
    STOCK_PICKLE,
    RepositoryError,
    check_names,
    check_repository,
    is_known,
    is_weights,
    stock_type,
)


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
    Fetch a repository and check it, so that loading the folder with hf_gpt runs none of its code.

    The revision is resolved once, to a commit, and the folder holds files of that commit alone. Of a stock
    `openai-gpt` or `gpt2`, whose publishers keep weights for other libraries beside it, only what is read is fetched
    and checked. Offline, what the cache holds is checked.

    Args:
        repo_id (`str`): `user/name`.
        revision (`str`, *optional*): branch, tag or commit.
        repo_type (`str`, *optional*, defaults to `"model"`): `"dataset"` for features.
        token (`str`, *optional*): by default that of `hf auth login` or `HF_TOKEN`.
        cache_dir (`str` or `PathLike`, *optional*): by default that of the Hub's client.
        weights (`bool`, *optional*, defaults to `True`): false where a tokenizer alone is wanted.
        stock_pickles (`bool`, *optional*, defaults to `False`): of a stock model that has no safetensors, fetch
            `pytorch_model.bin`, which only torch's `weights_only` may read.

    Returns:
        `Path`: the folder in the cache, named as the commit. The state that a Trainer left is not there.

    Raises:
        RepositoryError: for pickles, foreign code, paths that lead outside, files whose hash is not the one that the
            Hub has, and files that are cut short.
    """
    where = {"repo_id": repo_id, "repo_type": repo_type, "cache_dir": cache_dir}
    if is_offline_mode():
        folder = Path(snapshot_download(**where, revision=revision, local_files_only=True))
        present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}

        def fetch(names: Iterable[str]) -> Path:
            return folder

    else:
        api = HfApi(token=token)
        commit = api.resolve_revision(**where, revision=revision).resolved
        listed = api.list_repo_tree(repo_id, recursive=True, revision=commit, repo_type=repo_type)
        tree = {entry.path: entry for entry in listed if isinstance(entry, RepoFile)}
        present = set(tree)

        def fetch(names: Iterable[str]) -> Path:
            chosen = {name: tree[name] for name in names}
            got = Path(snapshot_download(**where, revision=commit, token=token, allow_patterns=sorted(chosen)))
            _check_hashes(got, chosen, repo_id)
            return got

    is_stock = repo_type == "model" and CONFIG_NAME in present and ADAPTER_CONFIG_NAME not in present
    if is_stock:
        config = fetch([CONFIG_NAME]) / CONFIG_NAME
        try:
            is_stock = stock_type(read_json(config)) is not None
        except ValueError:  # `check_repository` says what is wrong with it
            is_stock = False
    if is_stock:
        wanted = {name for name in present if name in STOCK_FILES or is_weights(name)}
        if weights and not any(map(is_weights, wanted)):
            pickles = {name for name in present if STOCK_PICKLE.fullmatch(name)}
            if pickles and not stock_pickles:
                raise RepositoryError(
                    f"{repo_id} has its weights in pytorch_model.bin alone, which is a pickle. Convert it first: "
                    f"scripts/convert.py {repo_id} FOLDER."
                )
            wanted |= pickles
    else:
        check_names(present, repo_id)
        wanted = {name for name in present if is_known(name)}
    if not weights:
        wanted = {name for name in wanted if not is_weights(name)}
    folder = fetch(wanted)
    check_repository(folder, repo_id, names=wanted)
    return folder


def _check_hashes(folder: Path, files: Mapping[str, RepoFile], repo_id: str) -> None:
    """Raise a `RepositoryError` unless the files are those that the Hub announced; wrong ones are thrown away."""
    wrong = [name for name, file in files.items() if not _has_hash(folder / name, file)]
    for name in wrong:
        # Otherwise it would be taken from the cache for ever.
        (folder / name).resolve().unlink(missing_ok=True)
        (folder / name).unlink(missing_ok=True)
    if wrong:
        raise RepositoryError(
            f"{repo_id} is refused: {', '.join(wrong)} arrived with another hash than the Hub announced. The copy was "
            "thrown away; try again, and tell the repository's owner if it stays so."
        )


def _has_hash(path: Path, file: RepoFile) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as content:
        if file.lfs is not None:
            return sha_fileobj(content).hex() == file.lfs.sha256
        return git_hash(content.read()) == file.blob_id


def is_hub_id(name: str) -> bool:
    """Whether a name is that of a repository, rather than a path; a few old ones have no `user/`."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return not os.path.exists(name)


def local_folder(name: str | os.PathLike, revision: str | None = None, **options: bool) -> Path:
    """
    The folder that a name stands for: the user's own, taken as it is, or the checked copy of a repository on the Hub,
    at a branch, tag or commit; `options` are `weights` and `stock_pickles` of `download`.

    Raises:
        ValueError: if there is no such folder and the Hub does not give it, with the reason in one line.
    """
    name = os.fspath(name)
    if os.path.isdir(name):
        return Path(name)
    if os.path.exists(name):
        raise ValueError(f"{name} is a file: name the folder that holds it.")
    if not is_hub_id(name):
        raise ValueError(f"{name}: there is no such file or folder.")
    missing = f"{name}: there is no such file or folder here, and the Hub"
    try:
        return download(name, revision, **options)
    except RepositoryError:
        raise
    except RevisionNotFoundError as error:
        raise ValueError(f"{name} has no revision {revision} on the Hub.") from error
    except RepositoryNotFoundError as error:
        raise ValueError(f"{missing} has none of that name (or it is private: `hf auth login`).") from error
    except Exception as error:  # of the client and the network, which have no common base
        if is_offline_mode():
            raise ValueError(f"{missing} is not asked (HF_HUB_OFFLINE): its cache holds no copy.") from error
        raise ValueError(f"{missing} could not be asked ({first_line(error.__cause__ or error)}).") from error
