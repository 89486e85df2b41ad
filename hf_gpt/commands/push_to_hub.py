"""
Push a folder to the Hugging Face Hub: a model with any head, a tokenizer, an adapter, or extracted features.

    hf-gpt push-to-hub outputs/questions --repo_id user/questions --dry_run
    hf-gpt push-to-hub outputs/questions-lora --repo_id user/questions-lora --base_model user/gpt-mini

The repository holds its code, so that others load it with `trust_remote_code=True` and without hf_gpt. Files of a
fixed list of names are sent; nothing looks for secrets in them. All is checked before anything is sent; `--dry_run`
prints every file with its size and the card, and needs neither network nor token. After a failure the same command
resumes where it stopped.
"""

from dataclasses import dataclass
from pathlib import Path

from transformers.utils import ADAPTER_CONFIG_NAME

from ..files import flag
from ..hub import push
from ..hub.repositories import HEAD_CONFIG
from . import command


@dataclass
class PushArguments:
    """Where to push to, and how."""

    repo_id: str = flag(help="user/name; a repository that is not there is created.")
    dry_run: bool = flag(False, "Check and print everything, send nothing.")
    private: bool = flag(False, "Create the repository as a private one.")
    revision: str | None = flag(None, "Branch to push to, by default main.")
    tag: str | None = flag(None, "Name for the new state, such as v1.")
    commit_message: str | None = flag(None, "Title of the commit.")
    base_model: str | None = flag(None, "Hub id of the model that this one was made from, for adapters above all.")


@command(__doc__, PushArguments, resume="The same command resumes where it stopped.", folder="Folder to push.")
def main(folder: str, args: PushArguments) -> None:
    """Check what hf_gpt's own adapter holds, and push."""
    if Path(folder, ADAPTER_CONFIG_NAME).is_file() and Path(folder, HEAD_CONFIG).is_file():
        from ..adapters import check_adapter

        check_adapter(folder)
    address = push(folder, **vars(args))
    if address is not None:
        print(f"Pushed: {address}")
