"""
To the Hugging Face Hub and back: models, tokenizers, adapters and features.

    push("outputs/questions", "user/questions", tag="v1")
    folder = download("user/questions", revision="v1")

What is pushed loads where hf_gpt is not installed (`trust_remote_code=True`), and is checked before anything is sent.
Of what is on the Hub neither code nor pickles are fetched. Retries and resumption are huggingface_hub's.
"""

import os
import tempfile
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id
from tqdm import tqdm
from transformers.utils import ADAPTER_CONFIG_NAME

from ..files import CARD, first_line, read_json
from .checks import RepositoryError
from .code import code_files, register_for_hub
from .downloads import download
from .staging import stage

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

    Files of a fixed list of names are sent (`hf_gpt.hub.checks.UPLOADED`), with the code of hf_gpt and a complete
    `auto_map`; whatever else is in the folder stays here, which is printed. What stands in these files is sent as it
    is, but for paths of this machine: nothing looks for secrets in them. After a failure the same call resumes: files
    that were sent are not sent again.

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
        ValueError: before anything is sent, for a folder that others could not load, and a bad name; and if the
            Hub does not take it, or the upload breaks off.
    """
    for flag, name in (("--repo_id", repo_id), ("--base_model", base_model)):
        if name is not None and "/" not in name:
            raise ValueError(f"{flag} {name}: say whose it is, as in user/{name}.")
        validate_repo_id(name or repo_id)
    if create_pr and (revision or tag):
        raise ValueError("--create_pr proposes a change of main: leave out --revision and --tag.")
    with tempfile.TemporaryDirectory(prefix="hf_gpt_push_") as temporary:
        staged = Path(temporary)
        kind, notes = stage(Path(folder), staged, repo_id, base_model, tag or revision)
        print("\n".join([*_listed(staged, f"{repo_id} ({kind})"), *notes]), flush=True)
        if dry_run:
            card = (staged / CARD).read_text(encoding="utf-8")
            print(f"\n{CARD}:\n\n{card}\nNothing was sent (dry run).", flush=True)
            return None
        api = HfApi(token=token)
        where = {"repo_id": repo_id, "repo_type": "dataset" if kind == "features" else "model"}
        message = commit_message or f"Upload {kind} with hf_gpt"
        try:
            _check_state(api, where, private, tag)
            if kind == "adapter":
                _check_base(api, read_json(staged / ADAPTER_CONFIG_NAME)["base_model_name_or_path"])
            api.create_repo(**where, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(**where, branch=revision, exist_ok=True)
            options = {"revision": revision, "create_pr": create_pr, "commit_message": message}
            commit = api.upload_folder(**where, folder_path=staged, **options)
            if tag is not None:
                api.create_tag(**where, tag=tag, revision=commit.oid)
        except RepositoryError:
            raise
        except Exception as error:  # of the client, the network and the storage behind it, which have no common base
            raise _upload_error(repo_id, error) from error
    return commit.pr_url or commit.commit_url


def _listed(staged: Path, title: str) -> list[str]:
    files = sorted(path for path in staged.rglob("*") if path.is_file())
    sizes = {path.relative_to(staged).as_posix(): path.stat().st_size for path in files}
    width = max(map(len, sizes))
    lines = [f"{title}: {len(sizes)} files, {tqdm.format_sizeof(sum(sizes.values()))}B"]
    return lines + [f"  {name.ljust(width)}  {tqdm.format_sizeof(size):>6}B" for name, size in sizes.items()]


def _check_state(api: HfApi, where: dict[str, str], private: bool, tag: str | None) -> None:
    """Raise a `RepositoryError` for a repository that is public, or has the tag."""
    try:
        info = api.repo_info(**where)
    except RepositoryNotFoundError:
        return
    if private and not info.private:
        raise RepositoryError(f"{where['repo_id']} exists and is public: --private is for new ones.")
    if tag is not None and tag in {ref.name for ref in api.list_repo_refs(**where).tags}:
        raise RepositoryError(f"{where['repo_id']} has a tag {tag} already, and tags stay where they are.")


def _check_base(api: HfApi, base: str) -> None:
    if not api.repo_exists(base):
        raise RepositoryError(
            f"The adapter's base model {base} is not on the Hub: push it first, or name another with --base_model."
        )


def _upload_error(repo_id: str, error: Exception) -> ValueError:
    reason = error.__cause__ if type(error) is RuntimeError and error.__cause__ else error
    if isinstance(reason, HfHubHTTPError) and reason.response.status_code in (401, 403):
        login = "give `hf auth login`, or set HF_TOKEN"
        return ValueError(f"The Hub does not let you write to {repo_id} ({first_line(reason)}): {login}.")
    return ValueError(
        f"The upload to {repo_id} broke off: {first_line(reason)}. Give the same command again: files that were sent "
        "are not sent again."
    )
