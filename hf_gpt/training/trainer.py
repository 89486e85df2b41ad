"""The Trainer of the task heads: both loss terms in the log, the release's optimizer and schedules."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Sampler, SequentialSampler
from transformers import TrainerCallback
from transformers.trainer_utils import EvalLoopOutput, EvalPrediction, IntervalStrategy, TrainOutput

from ..model.modeling_gpt import GPTForSequenceClassification, GPTTaskModel
from ..tasks.report import describe_batches
from ..tasks.spec import SINGLE_LABEL
from ..trees.collators import LengthGroupedSampler, MaskedRows, PaddedDataset, TokenTreeCollator
from .arguments import FineTuningArguments
from .checkpoints import WholeCheckpointTrainer
from .optimization import ReleaseAdam, decay_groups
from .unfreezing import UnfreezingPlan, scale_by_level

LOSS_TERMS = ("task_loss", "lm_loss")
_PREDICTION_PARTS = ("predictions", "label_ids", "inputs", "losses")


class SetEpoch(TrainerCallback):
    """
    Tells a sampler or a data set which epoch it is. accelerate does so too, but not through the two wrappers that
    stand around the sampler when a run of several processes goes on in the middle of an epoch.
    """

    def __init__(self, follower: LengthGroupedSampler | MaskedRows):
        self.follower = follower

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.follower.set_epoch(int(state.epoch or 0))


def own_random_state(device: torch.device) -> AbstractContextManager:
    """What is drawn within leaves the random states of CPU and device as they are."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device.index or 0], device_type=device.type)


def in_row_order(arrays: Any, order: Sequence[int]) -> Any:
    """An array, or several, whose rows stand in `order`, as the rows stood before; `None` stays."""
    if isinstance(arrays, tuple | list):
        return type(arrays)(in_row_order(array, order) for array in arrays)
    return None if arrays is None else arrays[np.argsort(order)]


class GPTTrainer(WholeCheckpointTrainer):
    """
    `transformers.Trainer` with `FineTuningArguments` and atomic checkpoints; without `eval_dataset` nothing is
    evaluated, whatever the arguments say.

    The models average both loss terms over the examples of the whole global batch (`num_items_in_batch`), so that one
    process, several processes and gradient accumulation give the same numbers. The log holds `loss`, `task_loss` and
    `lm_loss`, each the mean over the steps since the last line and over all ranks. With `label_smoothing_factor` the
    task's loss is smoothed, over the classes or the choices that an item has, and the language-model term stays; of a
    task without one right class or choice it is a `ValueError`.

    Args:
        unfreezing (`UnfreezingPlan`, *optional*): which parameters are trained in which update; the others keep their
            values and their moments, and the gradient's norm is that of those that are trained. Not with sharding.
    """

    args: FineTuningArguments

    def __init__(
        self, model: Any = None, args: Any = None, *more: Any, unfreezing: UnfreezingPlan | None = None, **kwargs: Any
    ):
        if len(more) < 3 and kwargs.get("eval_dataset") is None and args is not None:
            args.eval_strategy, args.load_best_model_at_end = IntervalStrategy.NO, False
        super().__init__(model, args, *more, **kwargs)
        self.unfreezing = unfreezing
        if self.args.label_names is None and isinstance(self.data_collator, TokenTreeCollator):
            self.label_names = ["labels"]  # also those of spans, which the model takes one by one as well
        # By name, the sum since the last line of the log, and the steps that had the term.
        self._terms: dict[str, tuple[torch.Tensor, set[int]]] = {}
        if self.args.label_smoothing_factor:
            self._smooth_task_losses(self.args.label_smoothing_factor)

    def task_models(self) -> list[GPTTaskModel]:
        """The models of ours whose joint loss is trained."""
        return [module for module in self.model.modules() if isinstance(module, GPTTaskModel)]

    def _smooth_task_losses(self, share: float) -> None:
        """Have the models smooth: the Trainer's own smoother puts a loss of the logits alone for the joint one."""
        for model in self.task_models():
            config = model.config
            problem = config.problem_type or ("regression" if config.num_labels == 1 else None)
            if isinstance(model, GPTForSequenceClassification) and problem not in (None, SINGLE_LABEL):
                why = f"labels are smoothed where one class or choice is right, not in {problem}"
                raise ValueError(f"--label_smoothing_factor {share}: {why}: leave it out.")
            model.label_smoothing = share
            self.label_smoother = None

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """
        The Trainer's own. The configurations say before the first step, and where none is left to a resumed run, which
        rows of the embedding are trained.
        """
        for model in self.task_models():
            model.declare_rows_trained()
        return super().train(*args, **kwargs)

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        """
        The release's Adam, or with `args.optimizer == "trainer"` the Trainer's own choice (`args.optim`); the rates of
        layers differ with `args.layer_decay`.
        """
        is_new = self.optimizer is None
        if is_new and self.args.optimizer == "release":
            trained = [parameter for parameter in (model or self.model).parameters() if parameter.requires_grad]
            # DeepSpeed lays the parameters of a group end to end, and then a matrix looks like a vector.
            groups = decay_groups(trained, self.args.decay_vectors) if self.is_deepspeed_enabled else trained
            # The Trainer clips by the global norm before the step, over all shards: not again in the optimizer.
            self.optimizer = ReleaseAdam(
                groups,
                lr=self.args.learning_rate,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
                weight_decay=self.args.weight_decay,
                max_grad_norm=0,
                decay_vectors=self.args.decay_vectors,
            )
        super().create_optimizer(model)
        if is_new and self.args.layer_decay < 1:
            scale_by_level(self.optimizer, model or self.model, self.args.layer_decay, self.model.config.n_layer)
        return self.optimizer

    def describe_batches(self) -> str:
        """How much of the batches of the first epoch is padding."""
        order = np.fromiter(self.train_sampler(self.filled_rows()), dtype=np.int64)
        return describe_batches(self.train_dataset, order, self.args.train_batch_size)

    def filled_rows(self) -> PaddedDataset:
        """The training rows, as many as fill the batches of all ranks."""
        return PaddedDataset(self.train_dataset, self.args.train_batch_size * self.args.world_size)

    def get_train_dataloader(self) -> DataLoader:
        """Batches of rows of like length (or in random order, see `args.train_sampling_strategy`), filled up."""
        return self._get_dataloader(
            dataset=self.filled_rows(),
            description="Training",
            batch_size=self._train_batch_size,
            sampler_fn=self.train_sampler,
            is_training=True,
        )

    def train_sampler(self, rows: PaddedDataset) -> Sampler | None:
        """The order of the training rows."""
        if self.args.train_sampling_strategy not in ("group_by_length", "random"):
            return self._get_train_sampler(rows)
        batch_size, seed = self.order()
        return self.follow_epochs(
            LengthGroupedSampler(self.row_lengths(rows.rows), batch_size, seed, fillers=rows.fillers)
        )

    def order(self) -> tuple[int, int]:
        """Rows of a global batch, and the seed of their order."""
        args = self.args
        batch_size = args.train_batch_size * args.world_size * args.gradient_accumulation_steps
        return batch_size, args.seed if args.data_seed is None else args.data_seed

    def row_lengths(self, rows: Dataset) -> np.ndarray:
        """By what rows are grouped: their lengths, or with `train_sampling_strategy="random"` nothing."""
        if self.args.train_sampling_strategy == "group_by_length":
            return rows.with_format("numpy")[self.args.length_column_name][:]
        return np.zeros(len(rows), dtype=np.int64)

    def follow_epochs(self, sampler: Sampler) -> Sampler:
        """The sampler, which is told from now on which epoch it is."""
        self.remove_callback(SetEpoch)
        self.add_callback(SetEpoch(sampler))
        return sampler

    def evaluation_order(self, rows: Any) -> list[int] | None:
        """
        The order in which rows are evaluated, the longest first; `None` for their own, where lengths are unknown or
        not to count, or where what comes out is not put together.
        """
        args = self.args
        is_whole = args.eval_do_concat_batches and not args.batch_eval_metrics
        by_length = args.train_sampling_strategy == "group_by_length"
        has_lengths = isinstance(rows, Dataset) and args.length_column_name in rows.column_names
        if not (is_whole and by_length and has_lengths):
            return None
        return np.argsort(-self.row_lengths(rows), kind="stable").tolist()

    def evaluation_loop(self, dataloader: DataLoader, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """
        The Trainer's own over batches of rows of like length; predictions come in the order of the rows. It leaves
        the random state alone, so that training goes the same way without it.
        """
        order, compute_metrics = self.evaluation_order(dataloader.dataset), self.compute_metrics
        if order is not None and compute_metrics is not None:
            self.compute_metrics = lambda found: compute_metrics(
                EvalPrediction(*(in_row_order(getattr(found, name), order) for name in _PREDICTION_PARTS))
            )
        try:
            with own_random_state(self.args.device):
                output = super().evaluation_loop(dataloader, *args, **kwargs)
        finally:
            self.compute_metrics = compute_metrics
        if order is None:
            return output
        predictions, label_ids = in_row_order((output.predictions, output.label_ids), order)
        return output._replace(predictions=predictions, label_ids=label_ids)

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler | list[int] | None:
        # The Trainer's own would group by length, too, and leave the predictions in that order.
        order = self.evaluation_order(eval_dataset)
        if order is None and self.args.world_size <= 1:
            return SequentialSampler(eval_dataset)
        return order

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Forward and backward pass; what is frozen in this update (`unfreezing`) has no gradient after it."""
        if self.unfreezing is None:
            return super().training_step(model, inputs, num_items_in_batch)
        frozen = self.unfreezing.frozen_at(self.state.global_step, self.model.named_parameters())
        # DDP waits for the gradient of every parameter; alone, the backward pass need not go through what is frozen.
        is_alone = model is self.model and not self.args.activation_checkpointing
        for parameter in frozen:
            parameter.requires_grad_(not is_alone)
        loss = super().training_step(model, inputs, num_items_in_batch)
        # Before clipping, which comes next, and the optimizer, which leaves alone what has no gradient.
        for parameter in frozen:
            parameter.requires_grad_(True)
            parameter.grad = None
        return loss

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
            for name, term in self.loss_terms(inputs, outputs).items():
                total, steps = self._terms.get(name, (0, set()))
                self._terms[name] = total + term.detach().float(), steps | {self.state.global_step}
        return (loss, outputs) if return_outputs else loss

    def loss_terms(self, inputs: dict[str, Any], outputs: Any) -> dict[str, torch.Tensor]:
        """What the log says of a training batch: both loss terms, if they are computed."""
        return {name: outputs[name] for name in LOSS_TERMS if outputs.get(name) is not None}

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the loss terms to the training log lines, each the mean over the steps that had it."""
        if "loss" in logs:
            for name, (total, steps) in self._terms.items():
                # Each rank's term is its share of the global batch's mean.
                logs[name] = self.accelerator.reduce(total, reduction="sum").item() / len(steps)
            self._terms = {}
        super().log(logs, start_time)
