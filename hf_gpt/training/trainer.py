"""The Trainers: checkpoints that a run resumes from to the same bits, both loss terms in the log."""

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from huggingface_hub import get_token
from peft import PeftModel
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, TrainOutput, rotate_checkpoints, sort_checkpoints
from transformers.utils import ADAPTER_CONFIG_NAME

from ..files import UNFINISHED, read_json, write_json
from ..hub import check_base_model, push
from ..model.modeling_gpt import GPTTaskModel
from ..performance import use_fast_float32
from ..trees.collators import LengthGroupedSampler, MaskedRows, PaddedDataset, TokenTreeCollator
from .arguments import LauncherArguments
from .optimization import ReleaseAdam, clip_gradients, get_release_schedule
from .unfreezing import level_of, scale_by_level, unfreezing_plan


def state_of(checkpoint: str | Path) -> TrainerState | None:
    """The state of a checkpoint that was written to its end; None if its file, which comes last, is not whole."""
    try:
        return TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
    except (OSError, ValueError, TypeError):
        return None


def checkpoints_in(output: Path) -> list[Path]:
    """The whole checkpoints in an output folder, newest first."""
    return [Path(path) for path in reversed(sort_checkpoints(str(output))) if state_of(path)]


def last_checkpoint(output: Path, args: TrainingArguments) -> Path | None:
    """
    The newest checkpoint from which every process resumes to the same bits; None where there is no checkpoint, a
    `ValueError` where those that are there lack states, or are of another number of processes.
    """
    ranks = [""] if args.world_size == 1 else [f"_{rank}" for rank in range(args.world_size)]
    states, found = {f"rng_state{rank}.pth" for rank in ranks}, checkpoints_in(output)
    for path in found:
        if {file.name for file in path.glob("rng_state*")} == states and any(path.glob("optimizer*")):
            return path
    if found:
        problem = f"holds checkpoints, but none that {args.world_size} process(es) resume from to the same bits"
        raise ValueError(f"{output} {problem}: name one with --resume_from_checkpoint, or --overwrite_output_dir.")
    return None


class Products(TrainerCallback, ExportableState):
    """Has every checkpoint say how float32 products were computed."""

    def __init__(self, fast_float32: bool):
        self.fast_float32 = fast_float32

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it."""
        return {"args": {"fast_float32": self.fast_float32}, "attributes": {}}


def choose_products(args: LauncherArguments, checkpoint: str | None = None) -> None:
    """
    Decide `args.fast_float32` for a run and make the setting: as the flag says, else as the checkpoint from which the
    run resumes was made, else by the trial of `use_fast_float32`.
    """
    if args.fast_float32 is None and checkpoint is not None:
        recorded = state_of(checkpoint).stateful_callbacks.get(Products.__name__)
        args.fast_float32 = recorded is not None and recorded["args"]["fast_float32"]
    args.fast_float32 = args.device.type == "cpu" and use_fast_float32(args.fast_float32)
    if args.fast_float32 and args.process_index == 0:
        print("Products of float32 are computed by oneDNN (--fast_float32 false: by torch's default).", flush=True)


class WholeCheckpointTrainer(Trainer):
    """
    `transformers.Trainer` that can be interrupted at any moment and resumes to the same bits: a checkpoint is whole
    when its `trainer_state.json` is there, which is written after all ranks' parts. A run's folder can move.

    The newest checkpoint stays next to the best one after training. Gradients are clipped by an exact norm. Training
    that diverges ends with a `ValueError`, and nothing of it is saved. Nothing is pushed while training.
    """

    def __init__(self, model: Any = None, args: TrainingArguments | None = None, *more: Any, **kwargs: Any):
        if args is not None and args.push_to_hub:  # what would fail after training is refused before it
            if not (args.hub_token or get_token()):
                raise ValueError("--push_to_hub: you are not logged in. Give `hf auth login`, or set HF_TOKEN.")
            if isinstance(model, PeftModel):
                check_base_model(model.active_peft_config.base_model_name_or_path or "")
            args.hub_strategy = "end"  # the output folder is pushed when it is whole
        super().__init__(model, args, *more, **kwargs)
        self.add_callback(Products(bool(getattr(args, "fast_float32", False))))

    def finished_record(self, checkpoint: str | None, name: str) -> dict[str, Any] | None:
        """The record that a run wrote last into its output folder, if a checkpoint has all of its steps behind it."""
        file = Path(self.args.output_dir) / name
        if checkpoint is None or not file.is_file():
            return None
        done = state_of(checkpoint).global_step
        *_, steps = self.set_initial_training_values(self.args, self.get_train_dataloader())
        if done < steps:
            return None
        if self.is_world_process_zero():
            print(f"{self.args.output_dir} is finished, with {done:,} steps: nothing is done.", flush=True)
        return read_json(file)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """One of the release's schedules, or with `args.schedule == "trainer"` that of `args.lr_scheduler_type`."""
        schedule = getattr(self.args, "schedule", "trainer")
        if self.lr_scheduler is None and schedule != "trainer":
            warmup = getattr(self.args, "warmup", self.args.get_warmup_steps(num_training_steps) / num_training_steps)
            optimizer = optimizer or self.optimizer
            self.lr_scheduler = get_release_schedule(optimizer, schedule, num_training_steps, warmup)
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)

    def _init_training_state(self, *counts_and_checkpoint: Any) -> tuple[int, int]:
        start, checkpoint = super()._init_training_state(*counts_and_checkpoint), counts_and_checkpoint[3]
        if checkpoint is not None:
            # The folder may have moved since the Trainer wrote down where its best checkpoint was.
            folder, output = Path(checkpoint).parent, Path(self.args.output_dir)
            folder = output if output.is_dir() and output.samefile(folder) else folder
            best = folder / Path(state_of(checkpoint).best_model_checkpoint or "none").name
            self.state.best_model_checkpoint = str(best) if state_of(best) else None
        return start

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # The Trainer asks only after a step whether it was the last one.
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def _clip_grad_norm(self, model: torch.nn.Module) -> torch.Tensor | float:
        if self.args.device.type != "cpu" or self.is_fsdp_enabled:
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
        trained = [value.detach() for value in self.model.parameters() if value.requires_grad]
        # Of sharded weights, each process has its part.
        parts = [value.to_local() if hasattr(value, "to_local") else value for value in trained]
        count = sum((~part.isfinite().all() for part in parts), torch.zeros((), device=self.args.device))
        if self.accelerator.reduce(count, reduction="sum"):
            raise self.divergence("weights are not finite")

    def divergence(self, what: str) -> ValueError:
        """The error that ends a run that has diverged."""
        advice = f"Lower the --learning_rate ({self.args.learning_rate:g}), or clip gradients (--max_grad_norm)"
        where = f"at step {self.state.global_step}, and nothing of that is saved"
        return ValueError(f"Training has diverged: {what} {where}. {advice}.")

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        self.refuse_diverged_weights()
        folder = Path(self._get_output_dir(trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save:  # one of this name is replaced
            (folder / TRAINER_STATE_NAME).unlink(missing_ok=True)
        self.accelerator.wait_for_everyone()
        super()._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # Next comes trainer_state.json, which says that all have written.
        self.accelerator.wait_for_everyone()

    def _finalize_training(self, trial: Any, *args: Any) -> TrainOutput:
        limit, output = self.args.save_total_limit, Path(self._get_output_dir(trial))
        if self.args.should_save:  # what an interruption has left
            for path in {*output.glob(f"{PREFIX_CHECKPOINT_DIR}-*")} - {*checkpoints_in(output)}:
                shutil.rmtree(path)
            rotate_checkpoints(str(output), limit, self.state.best_model_checkpoint)
        # With a limit of 1 the Trainer would delete the newest checkpoint now.
        self.args.save_total_limit = None
        try:
            return super()._finalize_training(trial, *args)
        finally:
            self.args.save_total_limit = limit

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As the Trainer does, without its pickle of the arguments, which nothing reads; equal runs, equal files."""
        super().save_model(output_dir, _internal_call)
        folder = Path(output_dir or self.args.output_dir)
        if self.args.should_save:
            (folder / "training_args.bin").unlink(missing_ok=True)
            if (adapter := folder / ADAPTER_CONFIG_NAME).is_file():
                # peft writes sets of names, in an order that differs from process to process.
                values = read_json(adapter)
                sets = [name for name in values if name.endswith("modules") and isinstance(values[name], list)]
                write_json(adapter, values | {name: sorted(values[name]) for name in sets})

    def push_to_hub(self, commit_message: str | None = "End of training", **settings: Any) -> str | None:
        """`hf_gpt.hub.push` of the output folder, with its `revision` and `token`: the commit's address, or None."""
        if self.hub_model_id is None:
            self.init_hf_repo(token=settings.get("token"))
        if not self.is_world_process_zero():
            return None
        settings = {name: settings.get(name) or getattr(self.args, f"hub_{name}") for name in ("revision", "token")}
        return push(self.args.output_dir, self.hub_model_id, commit_message=commit_message, **settings)

    def save_whole_model(self) -> None:
        """
        Write the model and its tokenizer into the output folder, or in their folders those that it is made of (see
        `FrozenFeatureHead`, `MultiTaskModel`), each file atomically.
        """
        self.refuse_diverged_weights()
        output, staging = Path(self.args.output_dir), Path(self.args.output_dir) / UNFINISHED
        if self.args.should_save:
            shutil.rmtree(staging, ignore_errors=True)
        if self.is_fsdp_enabled:  # the model itself, not its shards
            self.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
        self.accelerator.wait_for_everyone()
        if not hasattr(self.model, "task_models"):
            self.save_model(str(staging), _internal_call=True)
        for name, model in getattr(self.model, "task_models", {}).items() if self.args.should_save else ():
            model.config.use_cache = self.args.use_cache
            model.save_pretrained(staging / name)
            self.processing_class.save_pretrained(staging / name)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            for path in sorted(path for path in staging.rglob("*") if path.is_file()):
                target = output / path.relative_to(staging)
                target.parent.mkdir(exist_ok=True)
                path.replace(target)
            shutil.rmtree(staging)


class SetEpoch(TrainerCallback):
    """Sets the epoch of a sampler or data set also inside accelerate's wrappers, and where a run resumes."""

    def __init__(self, follower: LengthGroupedSampler | MaskedRows):
        self.follower = follower

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the epoch that begins, or resumes."""
        self.follower.set_epoch(int(state.epoch or 0))


class GPTTrainer(WholeCheckpointTrainer):
    """
    `transformers.Trainer` with `FineTuningArguments` and atomic checkpoints, for a `datasets.Dataset` of token trees;
    without `eval_dataset` nothing is evaluated, whatever the arguments say.

    Both loss terms are means over the examples of the global batch (`num_items_in_batch`), so that one process,
    several processes and gradient accumulation give the same numbers; the log holds `loss`, `task_loss` and `lm_loss`,
    each the mean over the steps since the last line. `label_smoothing_factor` smooths the task's loss alone.

    With `args.unfreeze`, `unfreezing` is the plan of what is trained in which update (`UnfreezingPlan`); the other
    parameters keep their values and their moments, and the gradient's norm is that of those that are trained.
    """

    def __init__(self, model: Any = None, args: Any = None, **kwargs: Any):
        if kwargs.get("eval_dataset") is None and args is not None:
            args.eval_strategy, args.load_best_model_at_end = "no", False
        super().__init__(model, args, **kwargs)
        args, self.unfreezing = self.args, None
        if args.label_names is None and isinstance(self.data_collator, TokenTreeCollator):
            self.label_names = ["labels"]  # also those of spans, which the model takes one by one as well
        # By name, the sum since the last line of the log, and the steps that had the term.
        self._terms: dict[str, tuple[torch.Tensor, set[int]]] = {}
        if args.label_smoothing_factor:
            # The Trainer's own smoother would put a loss of the logits alone for the joint one.
            self.label_smoother = None
            for each in self.task_models():
                each.label_smoothing = args.label_smoothing_factor
        if isinstance(self.train_dataset, Dataset):  # as many rows as fill the batches of all ranks
            self.train_dataset = PaddedDataset(self.train_dataset, args.train_batch_size * args.world_size)
        if self.train_dataset is not None and args.unfreeze != "none":
            _, an_epoch, *_, updates = self.set_initial_training_values(args, self.get_train_dataloader())
            layers = self.model.config.n_layer
            self.unfreezing = unfreezing_plan(args.unfreeze, args.unfreeze_every, layers, updates, an_epoch)

    def task_models(self) -> list[GPTTaskModel]:
        """The models of ours whose joint loss is trained."""
        modules = (*getattr(self.model, "task_models", {}).values(), *self.model.modules())
        return [module for module in modules if isinstance(module, GPTTaskModel)]

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """The Trainer's own. The configurations say before the first step which rows of the embedding are trained."""
        for model in self.task_models():
            model.declare_rows_trained()
        return super().train(*args, **kwargs)

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        """The release's Adam, or with `args.optimizer == "trainer"` the Trainer's own choice (`args.optim`)."""
        is_new, args = self.optimizer is None, self.args
        if is_new and args.optimizer == "release":
            trained = [parameter for parameter in (model or self.model).parameters() if parameter.requires_grad]
            settings = {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
            settings |= {"weight_decay": args.weight_decay, "max_grad_norm": 0}  # the Trainer clips, over all shards
            self.optimizer = ReleaseAdam(trained, args.learning_rate, **settings)
        super().create_optimizer(model)
        if is_new and args.layer_decay < 1:
            scale_by_level(self.optimizer, model or self.model, args.layer_decay, self.model.config.n_layer)
        return self.optimizer

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler | None:
        """Batches of rows of like length, or in random order (`args.train_sampling_strategy`), set to every epoch."""
        if self.args.train_sampling_strategy == "sequential":
            return super()._get_train_sampler(train_dataset)
        args = self.args
        rows = args.train_batch_size * args.world_size * args.gradient_accumulation_steps
        seed = args.seed if args.data_seed is None else args.data_seed
        sampler = self.train_sampler(self.train_dataset, rows, seed)
        self.remove_callback(SetEpoch)
        self.add_callback(SetEpoch(sampler))
        return sampler

    def train_sampler(self, rows: PaddedDataset, batch_size: int, seed: int) -> Sampler:
        """The order of the training rows, in global batches of `batch_size` rows."""
        lengths = np.zeros(len(rows.rows), dtype=np.int64)
        if self.args.train_sampling_strategy == "group_by_length":
            lengths = rows.rows.with_format("numpy")[self.args.length_column_name][:]
        return LengthGroupedSampler(lengths, batch_size, seed, fillers=rows.fillers)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's own. It leaves the random state alone, so that training goes the same way without it."""
        with torch.random.fork_rng(devices=[]):  # what is drawn there, by loaders, is drawn on the CPU
            return super().evaluation_loop(*args, **kwargs)

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler | None:
        # The Trainer's own would group by length, too, and leave the predictions in that order.
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None

    def training_step(self, model: nn.Module, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Forward and backward pass; what is frozen in this update (`unfreezing`) has no gradient after it."""
        frozen = []
        if self.unfreezing is not None:
            trained, layers = self.unfreezing.trained_at(self.state.global_step), self.model.config.n_layer
            frozen = [each for name, each in self.model.named_parameters() if level_of(name, layers) not in trained]
        # DDP waits for the gradient of every parameter; alone, the backward pass need not go through what is frozen.
        is_alone = model is self.model and not self.args.activation_checkpointing
        for parameter in frozen:
            parameter.requires_grad_(not is_alone)
        loss = super().training_step(model, *args, **kwargs)
        # Before clipping, which comes next, and the optimizer, which leaves alone what has no gradient.
        for parameter in frozen:
            parameter.requires_grad_(True)
            parameter.grad = None
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict, return_outputs: bool = False, **more: Any) -> Any:
        """The joint loss; in training both of its terms are added up for the log."""
        loss, outputs = super().compute_loss(model, inputs, True, **more)
        if model.training:
            for name, term in self.loss_terms(inputs, outputs).items():
                total, steps = self._terms.get(name, (0, set()))
                self._terms[name] = total + term.detach().float(), steps | {self.state.global_step}
        return (loss, outputs) if return_outputs else loss

    def loss_terms(self, inputs: dict[str, Any], outputs: Any) -> dict[str, torch.Tensor]:
        """What the log says of a training batch: both loss terms, if they are computed."""
        return {name: outputs[name] for name in ("task_loss", "lm_loss") if outputs.get(name) is not None}

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the loss terms to the training log lines, each the mean over the steps that had it."""
        if "loss" in logs:
            for name, (total, steps) in self._terms.items():
                # Each rank's term is its share of the global batch's mean.
                logs[name] = self.accelerator.reduce(total, reduction="sum").item() / len(steps)
            self._terms = {}
        super().log(logs, start_time)
