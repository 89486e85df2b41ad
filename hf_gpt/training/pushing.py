"""Pushing while training: `--push_to_hub` of the Trainer, with what others need to load and to go on from."""

import os
import shutil
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, get_token
from peft import PeftModel
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy

from ..hub.code import add_code
from ..hub.downloads import is_hub_id
from ..hub.staging import check_secrets, checkpoint_files, clean_settings

# Folder of an output folder with copies of what is being sent.
SENDING = "sending"


def check_can_push(model: Any, args: TrainingArguments) -> None:
    """A `ValueError` without a token, and for an adapter whose base model is a folder of this machine."""
    if not (args.hub_token or get_token()):
        raise ValueError("--push_to_hub: you are not logged in. Give `hf auth login`, or set HF_TOKEN.")
    if isinstance(model, PeftModel):
        base = model.active_peft_config.base_model_name_or_path or ""
        if not is_hub_id(base) or "/" not in base:
            raise ValueError(
                f"--push_to_hub: an adapter is pushed without its base model, and {base or 'the base model'} is a "
                "folder that nobody else has. Push that one first (scripts/push_to_hub.py), and start from its Hub id."
            )


class PushCheckpoints(TrainerCallback):
    """
    Sends checkpoints as `hub_strategy`, `hub_revision`, `hub_token` and `hub_always_push` say, with these differences
    to transformers: a checkpoint is sent once it is whole, with the code and a complete `auto_map`, so that one who
    has no hf_gpt goes on from it; nothing unfinished is sent, no file that is not known, no path of this machine, and
    no pickle beside the state of training. What could not be sent is said; the next checkpoint is the next try.
    """

    def __init__(self, trainer: Trainer):
        self.trainer = trainer
        self._hub = HfApi(token=trainer.args.hub_token)
        self._jobs: list[Future] = []
        shutil.rmtree(Path(trainer.args.output_dir) / SENDING, ignore_errors=True)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if not state.is_world_process_zero or args.hub_strategy == HubStrategy.END:
            return
        if all(job.done() for job in self._jobs):
            self.finish()
        elif not args.hub_always_push:
            return
        self.trainer.callback_handler.on_push_begin(args, state, control)
        name = f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        sent = Path(args.output_dir) / SENDING / name
        shutil.rmtree(sent, ignore_errors=True)
        shutil.copytree(Path(args.output_dir) / name, sent, copy_function=_link_tensors)
        message = f"Training in progress, step {state.global_step}"
        self._jobs.append(self._hub.run_as_future(self._upload, sent, message, args))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.finish()

    def finish(self) -> None:
        """Wait until all is sent, and say what was not."""
        for error in (job.exception() for job in self._jobs):
            if error is not None:
                print(f"A checkpoint was not pushed to {self.trainer.hub_model_id}: {error}", file=sys.stderr)
        self._jobs = []

    def _upload(self, sent: Path, message: str, args: TrainingArguments) -> None:
        repo_id = self.trainer.hub_model_id
        where = {"repo_id": repo_id, "folder_path": sent, "revision": args.hub_revision}
        try:
            add_code(sent)
            clean_settings(sent)
            check_secrets(sent, sent)
            model, whole = checkpoint_files(sent)
            if args.hub_revision is not None:
                self._hub.create_branch(repo_id, branch=args.hub_revision, exist_ok=True)
            self._hub.upload_folder(**where, commit_message=message, allow_patterns=model)
            if args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
                is_last = args.hub_strategy == HubStrategy.CHECKPOINT
                self._hub.upload_folder(
                    **where,
                    path_in_repo="last-checkpoint" if is_last else sent.name,
                    commit_message=f"{message}, checkpoint",
                    allow_patterns=whole,
                )
        finally:
            shutil.rmtree(sent, ignore_errors=True)


def _link_tensors(source: str, target: str) -> None:
    """A link to what is large and never changed, so that the checkpoint may be deleted meanwhile; copies else."""
    try:
        if Path(source).suffix not in (".safetensors", ".pt", ".bin", ".distcp"):
            raise OSError
        os.link(source, target)
    except OSError:  # or a file system without hard links
        shutil.copy2(source, target)
