"""
To the Hugging Face Hub and back: models, tokenizers, adapters and features.

    push("outputs/questions", "user/questions", tag="v1")
    folder = download("user/questions", revision="v1")

What is pushed loads where hf_gpt is not installed (`trust_remote_code=True`); neither code nor pickles are fetched.
"""

import os
import tempfile
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.utils import validate_repo_id
from tqdm import tqdm
from transformers.utils import ADAPTER_CONFIG_NAME

from ..files import CARD, first_line, read_json
from .repositories import RepositoryError, download
from .staging import check_base_model, code_files, stage

__all__ = ["RepositoryError", "check_base_model", "code_files", "download", "push"]


def push(
    folder: str | os.PathLike,
    repo_id: str,
    *,
    dry_run: bool = False,
    private: bool = False,
    revision: str | None = None,
    tag: str | None = None,
    commit_message: str | None = None,
    base_model: str | None = None,
    token: str | None = None,
) -> str | None:
    """
    Upload a folder: a model with any head, a tokenizer, an adapter, or extracted features.

    Files of a fixed list of names (`UPLOADED` of `hf_gpt.hub.repositories`) are sent, with hf_gpt's code; what else
    is there stays here, which is printed. What stands in these files is sent as it is, but for paths of this machine:
    nothing looks for secrets in them. After a failure the same call resumes.

    Args:
        folder (`str` or `PathLike`): what to upload; it is only read.
        repo_id (`str`): `user/name`; a repository that is not there is created.
        dry_run (`bool`, *optional*, defaults to `False`): only check, and print the files and the card, offline.
        private, revision, tag, commit_message, token: as in `huggingface_hub.HfApi`; a `revision` that is not there is
            created from `main`, and `tag` names the new state.
        base_model (`str`, *optional*): Hub id of the model that this one was made from; an adapter whose base model is
            a folder needs it.

    Returns the address of the commit, or None for a dry run. A `ValueError` for a folder that others could not load,
    or a bad name; and if the upload breaks off.
    """
    for flag, name in (("--repo_id", repo_id), ("--base_model", base_model or repo_id)):
        if "/" not in name:
            raise ValueError(f"{flag} {name}: say whose it is, as in user/{name}.")
        validate_repo_id(name)
    with tempfile.TemporaryDirectory(prefix="hf_gpt_push_") as temporary:
        staged = Path(temporary)
        kind, left_out = stage(Path(folder), staged, repo_id, base_model, tag or revision)
        files = [path for path in sorted(staged.rglob("*")) if path.is_file()]
        sizes = [f"{path.relative_to(staged)!s:30} {tqdm.format_sizeof(path.stat().st_size):>6}B" for path in files]
        print("\n  ".join([f"{repo_id} ({kind}):", *sizes]))
        print(f"Not uploaded: {', '.join(left_out) or 'nothing'}.", flush=True)
        if dry_run:
            print(f"\n{CARD}:\n\n{(staged / CARD).read_text(encoding='utf-8')}\nNothing was sent (dry run).")
            return None
        title = commit_message or f"Upload {kind} with hf_gpt"
        where = {"repo_id": repo_id, "repo_type": "dataset" if kind == "features" else "model"}
        api, adapter = HfApi(token=token), staged / ADAPTER_CONFIG_NAME
        try:
            # `create_repo` would upload to a public one without a word.
            if private and api.repo_exists(**where) and not api.repo_info(**where).private:
                raise RepositoryError(f"{repo_id} exists and is public: --private is for new ones.")
            if adapter.is_file() and not api.repo_exists(base := read_json(adapter)["base_model_name_or_path"]):
                raise RepositoryError(f"The base model {base} is not on the Hub: push it first, or give --base_model.")
            api.create_repo(**where, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(**where, branch=revision, exist_ok=True)
            commit = api.upload_folder(**where, folder_path=staged, revision=revision, commit_message=title)
            if tag is not None:
                api.create_tag(**where, tag=tag, revision=commit.oid)
        except RepositoryError:
            raise
        except Exception as error:  # of the client, the network and the storage behind it, which have no common base
            raise ValueError(
                f"The upload to {repo_id} broke off: {first_line(error)}. Give the same command again (after `hf auth "
                "login`, if you may not write there): files that were sent are not sent again."
            ) from error
    return commit.commit_url
