"""Pushing while training: `--push_to_hub` of the Trainer, with what others need to load and to go on from."""

import os
import shutil
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, get_token
from peft import PeftModel
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy
from transformers.utils import PushInProgress

from ..hub import push
from ..hub.code import add_code
from ..hub.downloads import is_hub_id
from ..hub.staging import check_secrets, checkpoint_files, clean_settings
from .checkpoints import WholeCheckpointTrainer

# Folder of an output folder with links to what is being sent.
SENDING = "sending"


class HubTrainer(WholeCheckpointTrainer):
    """
    A Trainer whose `push_to_hub`, `hub_model_id`, `hub_strategy`, `hub_revision`, `hub_private_repo`, `hub_token` and
    `hub_always_push` mean what they mean in transformers, with these differences:

    - Checkpoints hold the code and a complete `auto_map`, so that one who has no hf_gpt goes on from them.
    - A checkpoint is sent once it is whole, from links, so it may be deleted meanwhile; nothing unfinished is sent,
      no file that is not known, no path of this machine, and no pickle beside the state of training.
    - What could not be sent is said; the next checkpoint is the next try.
    - The end of training is pushed by `push_to_hub()`, when model, card and metrics stand in the output folder; it
      checks them as `hf_gpt.hub.push` does.

    Raises:
        ValueError: with `push_to_hub`, without a token, or for an adapter whose base model is a folder.
    """

    def __init__(self, model: Any = None, args: Any = None, **kwargs: Any):
        if args is not None and args.push_to_hub:
            _check_can_push(model, args)
        self._hub: HfApi | None = None
        super().__init__(model, args, **kwargs)
        if self.args.push_to_hub and self.is_world_process_zero():
            self._hub = HfApi(token=self.args.hub_token)
            shutil.rmtree(Path(self.args.output_dir) / SENDING, ignore_errors=True)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.args.push_to_hub and self.args.should_save:
            add_code(Path(output_dir or self.args.output_dir))

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """The Trainer's own, without its push: `push_to_hub` comes when all is written."""
        super().save_model(output_dir, _internal_call=True)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Nothing: at this point the checkpoint is not whole."""

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self._hub is not None and self.args.hub_strategy != HubStrategy.END:
            checkpoint = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            self._send_checkpoint(Path(self._get_output_dir(trial)) / checkpoint)

    def _send_checkpoint(self, checkpoint: Path) -> None:
        if self.push_in_progress is not None and not self.push_in_progress.is_done():
            if not self.args.hub_always_push:
                return
        else:
            self._report_unsent()
            self.push_in_progress = PushInProgress([])
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        links = checkpoint.parent / SENDING / checkpoint.name
        shutil.rmtree(links, ignore_errors=True)
        shutil.copytree(checkpoint, links, copy_function=_link)
        message = f"Training in progress, step {self.state.global_step}"
        self.push_in_progress.jobs.append(self._hub.run_as_future(self._upload_checkpoint, links, message))

    def _upload_checkpoint(self, links: Path, message: str) -> None:
        where = {"repo_id": self.hub_model_id, "folder_path": links, "revision": self.args.hub_revision}
        try:
            clean_settings(links)
            check_secrets(links, links)
            model, whole = checkpoint_files(links)
            if self.args.hub_revision is not None:
                self._hub.create_branch(self.hub_model_id, branch=self.args.hub_revision, exist_ok=True)
            self._hub.upload_folder(**where, commit_message=message, allow_patterns=model)
            if self.args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
                is_last = self.args.hub_strategy == HubStrategy.CHECKPOINT
                self._hub.upload_folder(
                    **where,
                    path_in_repo="last-checkpoint" if is_last else links.name,
                    commit_message=f"{message}, checkpoint",
                    allow_patterns=whole,
                )
        finally:
            shutil.rmtree(links, ignore_errors=True)

    def _finish_current_push(self) -> None:
        super()._finish_current_push()
        self._report_unsent()

    def _report_unsent(self) -> None:
        if self._hub is None or self.push_in_progress is None:
            return
        jobs: list[Future] = self.push_in_progress.jobs
        for error in (job.exception() for job in jobs):
            if error is not None:
                print(f"A checkpoint was not pushed to {self.hub_model_id}: {error}", file=sys.stderr)
        self.push_in_progress = None

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **kwargs: Any,
    ) -> str | None:
        """
        Push the output folder as `hf_gpt.hub.push` does; for arguments see the Trainer's method. It always waits.

        Returns:
            `str` or `None`: address of the commit; `None` on all processes but the first.
        """
        if self.hub_model_id is None:
            self.init_hf_repo(token=token, private=private)
        self._finish_current_push()
        if not self.is_world_process_zero():
            return None
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        return push(
            self.args.output_dir,
            self.hub_model_id,
            revision=revision or self.args.hub_revision,
            commit_message=commit_message,
            token=token or self.args.hub_token,
        )


def _check_can_push(model: Any, args: Any) -> None:
    if not (args.hub_token or get_token()):
        raise ValueError("--push_to_hub: you are not logged in. Give `hf auth login`, or set HF_TOKEN.")
    if isinstance(model, PeftModel):
        base = model.active_peft_config.base_model_name_or_path or ""
        if not is_hub_id(base) or "/" not in base:
            raise ValueError(
                f"--push_to_hub: an adapter is pushed without its base model, and {base or 'the base model'} is a "
                "folder that nobody else has. Push that one first (scripts/push_to_hub.py), and start from its Hub id."
            )


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # file systems without hard links
        shutil.copy2(source, target)
