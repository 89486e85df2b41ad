"""Atomic checkpoints: how they are written and thrown away, and which one a run goes on from."""

import json
import math
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from safetensors import SafetensorError, safe_open
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import Trainer, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, OPTIMIZER_NAME_BIN, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy, TrainOutput
from transformers.utils import ADAPTER_SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_NAME

from ..files import UNFINISHED, check_space, read_json, sync
from ..hub import push
from .optimization import clip_gradients, get_release_schedule
from .pushing import PushCheckpoints, check_can_push

# File of a checkpoint: numbers of the layers that its head reads.
HEAD_LAYERS = "head_layers.json"
# File of DeepSpeed's that names the folder of its newest states.
_DEEPSPEED_INDEX = "latest"
_NAME = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)")


def checkpoints_in(output: Path) -> dict[int, Path]:
    """The checkpoint folders of an output folder by their step, newest first."""
    if not output.is_dir():
        return {}
    found = {
        int(match[1]): path for path in output.iterdir() if path.is_dir() and (match := _NAME.fullmatch(path.name))
    }
    return dict(sorted(found.items(), reverse=True))


def checkpoint_problems(folder: Path, has_deepspeed: bool = False) -> list[str]:
    """
    What keeps a run from going on from a checkpoint, a sentence each: files that are missing, cut short or garbled.
    DeepSpeed keeps model and optimizer in files of its own; the random states are `rng_problem`'s business.
    """
    problems, named = [], _NAME.fullmatch(folder.name)
    try:
        step = json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))["global_step"]
        if named and int(named[1]) != step:
            problems.append(f"{TRAINER_STATE_NAME} is that of step {step}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        problems.append(f"{TRAINER_STATE_NAME} cannot be read ({type(error).__name__})")
    problems += _weight_problems(folder)
    if has_deepspeed:
        problems += _deepspeed_problems(folder)
    # Sharded checkpoints (FSDP) keep one folder for all ranks, whose index is written last.
    elif not (folder / "optimizer_0" / ".metadata").is_file():
        problems += _archive_problems(folder, OPTIMIZER_NAME, OPTIMIZER_NAME_BIN)
    return problems + _archive_problems(folder, SCHEDULER_NAME)


def _deepspeed_problems(folder: Path) -> list[str]:
    """Problems of what DeepSpeed keeps: one archive of the model, one of the optimizer for each process."""
    try:
        states = folder / (folder / _DEEPSPEED_INDEX).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return [f"{_DEEPSPEED_INDEX} is missing: it was saved without DeepSpeed"]
    problems = _archive_problems(states, "mp_rank_00_model_states.pt")
    for rank in range(len(_random_states(folder))):
        shard = f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        problems += _archive_problems(states, shard, f"bf16_{shard}")
    return problems


def _random_states(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("rng_state*.pth")}


def _weight_problems(folder: Path) -> list[str]:
    if (folder / "pytorch_model_fsdp_0" / ".metadata").is_file():
        return []
    path = _first_file(folder, SAFE_WEIGHTS_NAME, ADAPTER_SAFE_WEIGHTS_NAME)
    if path is None:
        return [f"{SAFE_WEIGHTS_NAME} is missing"]
    try:
        # Checks the header, and that the file is exactly as long as the header says.
        with safe_open(path, framework="pt"):
            return []
    except (OSError, SafetensorError) as error:
        return [f"{path.name} cannot be read ({error})"]


def _first_file(folder: Path, *names: str) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _archive_problems(folder: Path, *names: str) -> list[str]:
    """Problems of the first of these files that is there: archives of `torch.save`, whose checksums are compared."""
    path = _first_file(folder, *names)
    if path is None:
        return [f"{names[0]} is missing"]
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (OSError, zipfile.BadZipFile) as error:
        return [f"{path.name} cannot be read ({error})"]
    return [f"{path.name} is damaged"] if broken else []


def saved_shapes(checkpoint: str | None) -> dict[str, tuple[int, ...]]:
    """Shapes of a checkpoint's parameters by their names; none where there is no file of them all (sharded ones)."""
    if checkpoint is None or not (Path(checkpoint) / SAFE_WEIGHTS_NAME).is_file():
        return {}
    with safe_open(Path(checkpoint) / SAFE_WEIGHTS_NAME, framework="pt") as weights:
        return {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118


def rng_problem(folder: Path, args: TrainingArguments) -> list[str]:
    """Whether a checkpoint lacks this process's random state, without which dropout would draw other masks."""
    name = "rng_state.pth" if args.world_size == 1 else f"rng_state_{args.process_index}.pth"
    saved = _random_states(folder)
    beyond = {"rng_state_0.pth"} if args.world_size == 1 else {"rng_state.pth", f"rng_state_{args.world_size}.pth"}
    if saved & beyond:
        return [f"it was saved by another number of processes than {args.world_size}"]
    return _archive_problems(folder, name)


def last_checkpoint(output: Path, args: TrainingArguments) -> Path | None:
    """
    The newest checkpoint in a run's folder that every process can go on from to the same bits; None where there is no
    checkpoint at all, a `ValueError` where there are some, but none is whole. Those passed over are printed.
    """
    found = checkpoints_in(output)
    problems = {
        step: checkpoint_problems(path, args.deepspeed_plugin is not None) + rng_problem(path, args)
        for step, path in found.items()
    }
    by_process = gather_object([problems])
    # Without a common file system, a process sees the checkpoints of its own machine.
    steps = [step for step in found if all(step in seen for seen in by_process)]
    problems = {step: list(dict.fromkeys(text for seen in by_process for text in seen[step])) for step in steps}
    for step, texts in problems.items():
        if not texts:
            return found[step]
        if args.process_index == 0:
            print(f"{found[step]} is passed over: {'; '.join(texts)}.", flush=True)
    if any(by_process):
        reasons = "; ".join(f"{found[step].name}: {texts[0]}" for step, texts in problems.items())
        raise ValueError(
            f"{output} holds no checkpoint to go on from to the same bits "
            f"({reasons or 'the processes see different ones'}). Name one with --resume_from_checkpoint to go on from "
            "it all the same, or start again with --overwrite_output_dir."
        )
    return None


def discard(path: Path) -> None:
    """Delete a checkpoint so that nobody takes a half deleted one for whole: it loses its name first."""
    grave = path.parent / UNFINISHED / f"deleted-{path.name}"
    shutil.rmtree(grave, ignore_errors=True)
    grave.parent.mkdir(exist_ok=True)
    path.rename(grave)
    shutil.rmtree(grave, ignore_errors=True)


def publish(staged: Path, final: Path) -> None:
    """Give a finished checkpoint its name, once all bytes are on the disk; one of that name is replaced as a whole."""
    for path in staged.rglob("*"):
        if path.is_file():
            sync(path)
    if final.is_dir():
        discard(final)
    staged.rename(final)


def rotate(output: Path, limit: int | None, keep: set[Path]) -> None:
    """Delete the oldest checkpoints until `limit` are left; `keep`, the newest and the best, stay in any case."""
    found = checkpoints_in(output)
    if limit is None or limit <= 0:
        return
    surplus = len(found) - max(limit, len(keep))
    for path in [path for path in reversed(found.values()) if path not in keep][: max(0, surplus)]:
        discard(path)


@contextmanager
def changed(args: TrainingArguments, **values: Any) -> Iterator[None]:
    """Other values of some arguments while the block runs."""
    before = {name: getattr(args, name) for name in values}
    vars(args).update(values)
    try:
        yield
    finally:
        vars(args).update(before)


class WholeCheckpointTrainer(Trainer):
    """
    `transformers.Trainer` that can be killed at any moment: checkpoints are atomic, that is, one is written in the
    folder `unfinished` and gets its name when all ranks have written their part, and only then do older ones go.

    The newest checkpoint stays beside the best one after training, too, so that a run that is killed while it is
    evaluated does not train again; nor does a run that goes on from its last step. Training that diverges ends with a
    `ValueError`, and nothing of it is saved.

    With `push_to_hub` (see `check_can_push`), checkpoints are sent by `PushCheckpoints`, and the end of training by
    `push_to_hub()`, when model, card and metrics stand in the output folder.
    """

    def __init__(self, model: Any = None, args: TrainingArguments | None = None, *more: Any, **kwargs: Any):
        if args is not None and args.push_to_hub:
            check_can_push(model, args)
        super().__init__(model, args, *more, **kwargs)
        if self.args.push_to_hub and self.is_world_process_zero():
            self.add_callback(PushCheckpoints(self))

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """As the Trainer does, provided that a checkpoint fits on the disk."""
        if self.args.should_save and self.args.save_strategy != SaveStrategy.NO:
            trained = sum(value.nbytes for value in self.model.parameters() if value.requires_grad)
            # The optimizer keeps as much, or twice that.
            needed = trained if self.args.save_only_model else 2 * trained
            check_space(Path(self.args.output_dir), needed, "A checkpoint")
        # The Trainer would delete checkpoints file by file, at the end of training the newest.
        self._total_limit = self.args.save_total_limit
        with changed(self.args, save_total_limit=None):
            return super().train(*args, **kwargs)

    def finished_record(self, checkpoint: str | None, name: str) -> dict[str, Any] | None:
        """
        The record that a run writes last into its output folder, if it is there and a checkpoint has all steps of this
        run behind it; a `ValueError` if that has more steps.
        """
        if checkpoint is None:
            return None
        done = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME)).global_step
        *_, steps = self.set_initial_training_values(self.args, self.get_train_dataloader())
        if done > steps:
            raise ValueError(
                f"{checkpoint} has {done:,} steps behind it, and this run would end after {steps:,}: raise "
                "--num_train_epochs or --max_steps, or start anew in another --output_dir."
            )
        # The first process decides for all: another machine's may see another file system.
        file = Path(self.args.output_dir) / name
        found = [read_json(file) if done == steps and file.is_file() else None]
        broadcast_object_list(found)
        if found[0] is not None and self.is_world_process_zero():
            print(f"{self.args.output_dir} is finished, with all of its {steps:,} steps: nothing is done.", flush=True)
        return found[0]

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """One of the release's schedules, or with `args.schedule == "trainer"` that of `args.lr_scheduler_type`."""
        schedule = getattr(self.args, "schedule", "trainer")
        if self.lr_scheduler is None and schedule != "trainer":
            self.lr_scheduler = get_release_schedule(
                optimizer or self.optimizer, schedule, num_training_steps, self.args.warmup_share(num_training_steps)
            )
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # The Trainer asks only after a step whether it was the last one.
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def _clip_grad_norm(self, model: torch.nn.Module) -> torch.Tensor | float:
        if self.args.device.type != "cpu" or self.is_deepspeed_enabled or self.is_fsdp_enabled:
            return super()._clip_grad_norm(model)
        return clip_gradients(model.parameters(), self.args.max_grad_norm)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As the Trainer does; a loss that is not finite ends the run, in all processes alike."""
        super().log(logs, start_time)
        # A scaler (fp16) leaves out steps that overflow: there, the weights alone tell.
        if not math.isfinite(logs.get("loss", 0.0)) and self.accelerator.scaler is None:
            raise self.divergence(f"the loss is {logs['loss']}")

    def refuse_diverged_weights(self) -> None:
        """A `ValueError`, in all processes, if a trained weight is not finite."""
        trained = [value for value in self.model.parameters() if value.requires_grad]
        # Of sharded weights, each process has its part.
        parts = [value.to_local() if hasattr(value, "to_local") else value for value in trained]
        broken = [~part.detach().isfinite().all() for part in parts]
        count = torch.stack(broken).sum() if broken else torch.zeros((), device=self.args.device)
        if self.accelerator.reduce(count, reduction="sum"):
            raise self.divergence("weights are not finite")

    def divergence(self, what: str) -> ValueError:
        """The error that ends a run that has diverged."""
        return ValueError(
            f"Training has diverged: {what} at step {self.state.global_step}, and nothing of that is saved. Lower the "
            f"--learning_rate ({self.args.learning_rate:g}), warm up for longer, or clip gradients (--max_grad_norm, "
            f"now {self.args.max_grad_norm:g}); then start again with --overwrite_output_dir."
        )

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        self.refuse_diverged_weights()
        output = Path(self._get_output_dir(trial))
        name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        staging = Path(self.args.output_dir) / UNFINISHED
        staged = staging / output.relative_to(self.args.output_dir) / name
        if self.args.should_save:
            shutil.rmtree(staging, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        with changed(self.args, output_dir=str(staging), push_to_hub=False):
            super()._save_checkpoint(model, trial)
        # The Trainer looks for the best checkpoint in the folder that it writes to.
        best = output / f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}"
        if self.state.best_global_step and (best.name == name or best.is_dir()):
            self.state.best_model_checkpoint = str(best)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            self.state.save_to_json(str(staged / TRAINER_STATE_NAME))
            self.complete_checkpoint(staged)
            publish(staged, output / name)
            rotate(output, self._total_limit, {output / name, best} & {*checkpoints_in(output).values()})
            shutil.rmtree(staging, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def complete_checkpoint(self, folder: Path) -> None:
        """Change what is in a checkpoint, before it gets its name."""
        # A pickle, of use to nobody who goes on from here.
        (folder / "training_args.bin").unlink(missing_ok=True)

    def push_to_hub(
        self, commit_message: str | None = "End of training", blocking: bool = True, **settings: Any
    ) -> str | None:
        """
        Push the output folder as `hf_gpt.hub.push` does, and wait; for arguments see the Trainer's method. It gives
        the address of the commit, on all processes but the first None.
        """
        args = self.args
        if self.hub_model_id is None:
            self.init_hf_repo(token=settings.get("token"), private=settings.get("private"))
        if not self.is_world_process_zero():
            return None
        self.callback_handler.on_push_begin(args, self.state, self.control)
        where = {"revision": args.hub_revision, "token": args.hub_token}
        where |= {name: settings[name] for name in where if settings.get(name)}
        return push(args.output_dir, self.hub_model_id, commit_message=commit_message, **where)

    def save_whole_model(self) -> None:
        """Write the model and its tokenizer into the output folder, each file atomically."""
        self.refuse_diverged_weights()
        output = Path(self.args.output_dir)
        staging = output / UNFINISHED
        if self.args.should_save:
            shutil.rmtree(staging, ignore_errors=True)
        if self.is_fsdp_enabled:
            # Shards would be of use to nobody who loads the model.
            self.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
        self.accelerator.wait_for_everyone()
        self.write_whole_model(staging)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            (staging / "training_args.bin").unlink(missing_ok=True)
            for path in sorted(path for path in staging.rglob("*") if path.is_file()):
                target = output / path.relative_to(staging)
                target.parent.mkdir(exist_ok=True)
                path.replace(target)
            shutil.rmtree(staging, ignore_errors=True)

    def write_whole_model(self, folder: Path) -> None:
        """Write what the output folder is to hold of model and tokenizer; called in all processes."""
        self.save_model(str(folder), _internal_call=True)
