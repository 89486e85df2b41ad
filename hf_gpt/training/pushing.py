"""Pushing while training: `--push_to_hub` of the Trainer, with what others need to load and to resume."""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, get_token
from peft import PeftModel
from transformers import TrainingArguments
from transformers.trainer_utils import HubStrategy

from ..hub.code import add_code
from ..hub.downloads import is_hub_id
from ..hub.staging import checkpoint_files, clean_settings


def check_can_push(model: Any, args: TrainingArguments) -> None:
    """A `ValueError` without a token, and for an adapter whose base model is a folder of this machine."""
    if not (args.hub_token or get_token()):
        raise ValueError("--push_to_hub: you are not logged in. Give `hf auth login`, or set HF_TOKEN.")
    base = model.active_peft_config.base_model_name_or_path or "" if isinstance(model, PeftModel) else "user/model"
    if not is_hub_id(base) or "/" not in base:
        raise ValueError(
            f"--push_to_hub: an adapter is pushed without its base model, and {base or 'the base model'} is a folder "
            "that nobody else has. Push that one first (scripts/push_to_hub.py), and start from its Hub id."
        )


def push_checkpoint(folder: Path, repo_id: str, args: TrainingArguments) -> None:
    """
    Send a whole checkpoint and wait, as `hub_strategy`, `hub_revision` and `hub_token` say: the model with its code
    and a complete `auto_map`, and with the strategies that keep checkpoints the state of training. No file that is not
    known is sent, and no path of this machine. What could not be sent is printed; the next checkpoint is the next try.
    """
    api, message = HfApi(token=args.hub_token), f"Training in progress, step {folder.name.rpartition('-')[2]}"
    places = {HubStrategy.CHECKPOINT: "last-checkpoint", HubStrategy.ALL_CHECKPOINTS: folder.name}
    with tempfile.TemporaryDirectory(prefix="hf_gpt_push_") as sent:
        # Files that are changed there are replaced, not what they are links to.
        shutil.copytree(folder.resolve(), sent, copy_function=os.symlink, dirs_exist_ok=True)
        where = {"repo_id": repo_id, "revision": args.hub_revision, "folder_path": sent}
        try:
            add_code(Path(sent))
            clean_settings(Path(sent))
            model, whole = checkpoint_files(Path(sent))
            if args.hub_revision is not None:
                api.create_branch(repo_id, branch=args.hub_revision, exist_ok=True)
            api.upload_folder(**where, commit_message=message, allow_patterns=model)
            if (place := places.get(args.hub_strategy)) is not None:
                where |= {"commit_message": f"{message}, checkpoint", "path_in_repo": place}
                api.upload_folder(**where, allow_patterns=whole)
        except Exception as error:  # of the client, the network and the storage behind it, which have no common base
            print(f"A checkpoint was not pushed to {repo_id}: {error}", file=sys.stderr)
