"""The Trainer of the task heads: both loss terms in the log, the release's optimizer and schedules."""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Sampler, SequentialSampler
from transformers import TrainerCallback

from .checkpoints import WholeCheckpointTrainer
from .data_collator import FilledRows, LengthGroupedSampler
from .optimization import ReleaseAdam, get_release_schedule
from .training_args import FineTuningArguments

LOSS_TERMS = ("task_loss", "lm_loss")


class _TellSamplerEpoch(TrainerCallback):
    """
    Tells the sampler which epoch's order is wanted. accelerate does so too, but not through the two wrappers that
    stand around the sampler when a run of several processes goes on in the middle of an epoch.
    """

    def __init__(self, sampler: LengthGroupedSampler):
        self.sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.sampler.set_epoch(int(state.epoch or 0))


class GPTTrainer(WholeCheckpointTrainer):
    """
    `transformers.Trainer` with `FineTuningArguments` and checkpoints that are whole or not there.

    The models average both loss terms over the examples of the whole global batch (`num_items_in_batch`), so that
    one process, several processes and gradient accumulation give the same numbers. The log holds `loss`,
    `task_loss` and `lm_loss`, each the mean over the steps since the last line and over all ranks.

    Args:
        args (`FineTuningArguments`): settings.
        kwargs: see `transformers.Trainer`.
    """

    args: FineTuningArguments

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._term_sums: dict[str, torch.Tensor] = {}
        self._terms_since: int | None = None

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        """The release's Adam, or with `args.optimizer == "trainer"` the Trainer's own choice (`args.optim`)."""
        if self.optimizer is None and self.args.optimizer == "release":
            trained = [parameter for parameter in (model or self.model).parameters() if parameter.requires_grad]
            # The Trainer clips by the global norm before the step, over all shards: not again in the optimizer.
            self.optimizer = ReleaseAdam(
                trained,
                lr=self.args.learning_rate,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
                weight_decay=self.args.weight_decay,
                max_grad_norm=0,
                decay_vectors=self.args.decay_vectors,
            )
        return super().create_optimizer(model)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """One of the release's schedules, or with `args.schedule == "trainer"` that of `args.lr_scheduler_type`."""
        if self.lr_scheduler is None and self.args.schedule != "trainer":
            self.lr_scheduler = get_release_schedule(
                self.optimizer if optimizer is None else optimizer,
                self.args.schedule,
                num_training_steps,
                self.args.warmup,
            )
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)

    def first_epoch_order(self) -> np.ndarray:
        """Indices of the training rows in the order in which the first epoch reads them."""
        rows = len(self.train_dataset)
        order = np.fromiter(self._get_train_sampler(self._filled_rows()), dtype=np.int64)
        return order[order < rows]

    def _filled_rows(self) -> FilledRows:
        return FilledRows(self.train_dataset, self.args.train_batch_size * self.args.world_size)

    def get_train_dataloader(self) -> DataLoader:
        """Batches of rows of like length (or in random order, see `args.train_sampling_strategy`), filled up."""
        return self._get_dataloader(
            dataset=self._filled_rows(),
            description="Training",
            batch_size=self._train_batch_size,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    def _get_train_sampler(self, train_dataset: FilledRows | None = None) -> Sampler | None:
        args = self.args
        if train_dataset is None or args.train_sampling_strategy not in ("group_by_length", "random"):
            return super()._get_train_sampler(train_dataset)
        lengths = np.zeros(len(train_dataset.rows), dtype=np.int64)
        if args.train_sampling_strategy == "group_by_length":
            lengths = train_dataset.rows.with_format("numpy")[args.length_column_name][:]
        sampler = LengthGroupedSampler(
            lengths,
            args.train_batch_size * args.world_size * args.gradient_accumulation_steps,
            seed=args.seed if args.data_seed is None else args.data_seed,
            fillers=train_dataset.fillers,
        )
        self.remove_callback(_TellSamplerEpoch)
        self.add_callback(_TellSamplerEpoch(sampler))
        return sampler

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's own; it leaves the random state alone, so that training goes the same way without it."""
        with self._own_random_state():
            return super().evaluation_loop(*args, **kwargs)

    def _own_random_state(self) -> AbstractContextManager:
        device = self.args.device
        if device.type == "cpu":
            return torch.random.fork_rng(devices=[])
        return torch.random.fork_rng(devices=[device.index or 0], device_type=device.type)

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler | None:
        # The Trainer would group these by length too, and predictions would not come back in the order of the rows.
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """The joint loss; in training both of its terms are added up for the log."""
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if model.training:
            if self._terms_since is None:
                self._terms_since = self.state.global_step
            for name in LOSS_TERMS:
                term = outputs.get(name)
                if term is not None:
                    self._term_sums[name] = self._term_sums.get(name, 0) + term.detach().float()
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the loss terms to the training log lines."""
        if "loss" in logs and self._terms_since is not None:
            steps = max(1, self.state.global_step - self._terms_since)
            for name, total in self._term_sums.items():
                # Each rank's term is its share of the global batch's mean.
                logs[name] = self.accelerator.reduce(total, reduction="sum").item() / steps
            self._term_sums, self._terms_since = {}, None
        super().log(logs, start_time)
