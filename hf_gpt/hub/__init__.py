"""
To the Hugging Face Hub and back: models, tokenizers, adapters and features.

    push("outputs/questions", "user/questions", tag="v1")
    folder = download("user/questions", revision="v1")

What is pushed loads where hf_gpt is not installed (`trust_remote_code=True`), and is checked before anything is sent;
what is downloaded is checked before anything is loaded. Retries and resumption are huggingface_hub's.
"""

import os
import tempfile
from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id
from tqdm import tqdm
from transformers.utils import ADAPTER_CONFIG_NAME

from ..files import first_line, read_json
from .checks import RepositoryError
from .code import code_files, register_for_hub
from .downloads import download
from .staging import Staged, stage

__all__ = ["RepositoryError", "code_files", "download", "push", "register_for_hub"]


def push(
    folder: str | os.PathLike,
    repo_id: str,
    *,
    dry_run: bool = False,
    private: bool = False,
    revision: str | None = None,
    tag: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    base_model: str | None = None,
    token: str | None = None,
) -> str | None:
    """
    Upload a folder: a model with any head, a tokenizer, an adapter, or extracted features.

    The code of hf_gpt and a complete `auto_map` go with models and tokenizers. The state of training, pickles, and
    whatever else is in the folder stay here, which is said. After a failure the same call goes on: files that were
    sent are not sent again.

    Args:
        folder (`str` or `PathLike`): what to upload; it is only read.
        repo_id (`str`): `user/name`; a repository that is not there is created.
        dry_run (`bool`, *optional*, defaults to `False`): check everything, print every file with its size and the
            card, and send nothing; neither network nor token are needed.
        private (`bool`, *optional*, defaults to `False`): create the repository as a private one.
        revision (`str`, *optional*): branch to upload to, created from `main` if it is not there.
        tag (`str`, *optional*): name for the new state; tags that exist are not moved.
        create_pr (`bool`, *optional*, defaults to `False`): propose the change instead of making it.
        commit_message (`str`, *optional*): title of the commit.
        base_model (`str`, *optional*): Hub id of the model that this one was made from; an adapter whose base model is
            a folder needs it.
        token (`str`, *optional*): by default that of `hf auth login` or `HF_TOKEN`.

    Returns:
        `str` or `None`: address of the commit, or of the pull request; `None` for a dry run.

    Raises:
        ValueError: before anything is sent, for a folder that others could not load, a bad name, a missing token; and
            if the upload breaks off.
    """
    _check_names(repo_id, revision, tag, create_pr, base_model)
    with tempfile.TemporaryDirectory(prefix="hf_gpt_push_") as temporary:
        staged = stage(Path(folder), Path(temporary), repo_id, base_model, tag or revision)
        print(_described(staged, repo_id, private), flush=True)
        if dry_run:
            print(f"\nREADME.md:\n\n{staged.card}\nNothing was sent (dry run).", flush=True)
            return None
        api = HfApi(token=token)
        _check_login(api)
        _check_repository_state(api, staged, repo_id, private, tag)
        where = {"repo_id": repo_id, "repo_type": staged.repo_type}
        try:
            api.create_repo(**where, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(**where, branch=revision, exist_ok=True)
            commit = api.upload_folder(
                **where,
                folder_path=staged.folder,
                revision=revision,
                create_pr=create_pr,
                commit_message=commit_message or f"Upload {staged.kind} with hf_gpt",
            )
            if tag is not None:
                api.create_tag(**where, tag=tag, revision=commit.oid)
        except Exception as error:  # of the client, the network and the storage behind it, which have no common base
            reason = error.__cause__ if type(error) is RuntimeError and error.__cause__ else error
            if isinstance(reason, HfHubHTTPError) and reason.response.status_code in (401, 403):
                raise ValueError(f"The Hub does not let you write to {repo_id}: {first_line(reason)}.") from error
            raise ValueError(
                f"The upload to {repo_id} broke off: {first_line(reason)}. Give the same command again: files that "
                "were sent are not sent again."
            ) from error
    return commit.pr_url or commit.commit_url


def _check_names(repo_id: str, revision: str | None, tag: str | None, create_pr: bool, base_model: str | None) -> None:
    for name, value in (("--repo_id", repo_id), ("--base_model", base_model)):
        if value is None:
            continue
        validate_repo_id(value)
        if "/" not in value:
            raise ValueError(f"{name} {value}: say whose it is, as in user/{value}.")
    if create_pr and (revision or tag):
        raise ValueError("--create_pr proposes a change of main: leave out --revision and --tag.")


def _described(staged: Staged, repo_id: str, private: bool) -> str:
    files = staged.files()
    width = max(len(name) for name, _ in files)
    total = sum(size for _, size in files)
    kind = f"{staged.kind}, {'a private' if private else 'a public'} repository if it is new"
    lines = [f"{repo_id} ({kind}): {len(files)} files, {tqdm.format_sizeof(total)}B"]
    lines += [f"  {name.ljust(width)}  {tqdm.format_sizeof(size):>6}B" for name, size in files]
    if staged.left_out:
        lines.append(f"Not uploaded: {', '.join(staged.left_out)}.")
    return "\n".join(lines + staged.notes)


def _check_login(api: HfApi) -> None:
    if not (api.token or get_token()):
        raise ValueError("You are not logged in to the Hub: give `hf auth login`, or set HF_TOKEN.")
    try:
        api.whoami()
    except HfHubHTTPError as error:
        raise ValueError(f"The Hub does not take your token ({first_line(error)}): give `hf auth login`.") from error


def _check_repository_state(api: HfApi, staged: Staged, repo_id: str, private: bool, tag: str | None) -> None:
    if staged.kind == "adapter":
        base = read_json(staged.folder / ADAPTER_CONFIG_NAME)["base_model_name_or_path"]
        if not api.repo_exists(base):
            raise ValueError(
                f"The adapter's base model {base} is not on the Hub: push it first, or name another with --base_model."
            )
    try:
        info = api.repo_info(repo_id, repo_type=staged.repo_type)
    except RepositoryNotFoundError:
        return
    if private and not info.private:
        raise ValueError(f"{repo_id} exists and is public: --private is for new ones. Change it in its settings.")
    if tag is not None and tag in {ref.name for ref in api.list_repo_refs(repo_id, repo_type=staged.repo_type).tags}:
        raise ValueError(f"{repo_id} has a tag {tag} already, and tags stay where they are: choose another name.")
