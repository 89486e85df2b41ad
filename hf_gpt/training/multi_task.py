"""Training on several tasks together: one transformer with a head for each task (MT-DNN, Liu et al., 2019)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from torch.utils.data import ConcatDataset

from ..model.modeling_gpt import GPTTaskModel, GPTTaskOutput
from ..tasks import TaskSpec
from ..tasks.metrics import compute_metrics_for
from ..trees.collators import MultiTaskSampler, PaddedDataset
from .arguments import DataArguments, FineTuningArguments, ModelArguments
from .trainer import GPTTrainer

# What chooses the best checkpoint: the mean over the tasks of their main metrics.
MEAN_METRIC = "task_mean"


class MultiTaskModel(nn.Module):
    """
    One transformer, that of the first task's model, with the heads of several tasks: `transformer.*`, `heads.TASK.*`.
    The tasks' models share it and stay whole, and can be saved as such.
    """

    def __init__(self, task_models: Mapping[str, GPTTaskModel]):
        super().__init__()
        self.transformer = next(iter(task_models.values())).transformer
        self.config = self.transformer.config
        self.gradient_checkpointing_enable = self.transformer.gradient_checkpointing_enable
        self.heads = nn.ModuleDict()
        for task, model in task_models.items():
            model.transformer = self.transformer
            parts = {name: child for name, child in model.named_children() if name != "transformer"}
            self.heads[task] = nn.ModuleDict(parts)
        # In a dict of Python, so that torch does not find the shared parameters again in every model; by folder.
        self.task_models = dict(task_models)

    def forward(self, task: str, labels: torch.Tensor | None = None, **inputs: Any) -> GPTTaskOutput:
        """
        Output of one task's model, whose inputs these are; see `GPTTaskModel`. In training the other heads are part of
        the loss with the factor 0, so that every parameter has a gradient, as `DistributedDataParallel` wants it.
        """
        model = self.task_models[task]
        model.training = self.training  # its modules are ours
        outputs = model(labels=labels, **inputs)
        if self.training and outputs.loss is not None:
            outputs.loss = outputs.loss + 0 * sum(parameter.sum() for parameter in self.unused_parameters(task))
        return outputs

    def unused_parameters(self, task: str) -> list[nn.Parameter]:
        """Parameters of all heads but one."""
        return [value for name, head in self.heads.items() if name != task for value in head.parameters()]


class MultiTaskTrainer(GPTTrainer):
    """
    `GPTTrainer` for a `MultiTaskModel` on rows by task, which name their `task`. A step's global batch is of one task,
    whose head alone moves; the log holds `task_loss_TASK`, the mean over its steps.
    """

    def __init__(
        self, model: Any, args: Any, train_dataset: dict[str, Dataset], specs: dict[str, TaskSpec], **more: Any
    ):
        self.specs = specs
        batch_size = args.train_batch_size * args.world_size * args.gradient_accumulation_steps
        rows = ConcatDataset(PaddedDataset(part, batch_size) for part in train_dataset.values())
        super().__init__(model, args, train_dataset=rows, **more)

    def train_sampler(self, rows: ConcatDataset, batch_size: int, seed: int) -> MultiTaskSampler:
        """The order of the training rows, in global batches of one task each."""
        sampler_of = super().train_sampler
        return MultiTaskSampler([sampler_of(part, batch_size, seed) for part in rows.datasets])

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        """The Trainer's own; the gradients of the heads that had no part in it go, so that no moment decays."""
        task = inputs["task"]
        loss = super().training_step(model, inputs, *args, **kwargs)
        for parameter in self.model.unused_parameters(task):
            parameter.grad = None
        return loss

    def loss_terms(self, inputs: dict[str, Any], outputs: Any) -> dict[str, torch.Tensor]:
        """Both terms, and the task's own loss."""
        terms = super().loss_terms(inputs, outputs)
        return terms | {f"task_loss_{inputs['task']}": terms["task_loss"]}

    def evaluate(self, eval_dataset: str | None = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Metrics of a task's validation rows; without one, those of all, and `eval_task_mean` of the main ones."""
        if eval_dataset is not None:
            self.compute_metrics = compute_metrics_for(self.specs[eval_dataset], self.eval_dataset[eval_dataset])
            return super().evaluate(eval_dataset, *args, **kwargs)
        # Comes back to this method once for each task.
        metrics = super().evaluate(None, *args, **kwargs)
        main = [metrics[f"eval_{task}_{spec.main_metric}"] for task, spec in self.specs.items()]
        mean = {f"eval_{MEAN_METRIC}": float(np.mean(main))}
        self.log(mean)
        return metrics | mean


def tasks_of(model_args: ModelArguments, data: DataArguments, args: FineTuningArguments) -> dict[str, DataArguments]:
    """What is read for each of `--tasks`, in alphabetical order; a `ValueError` for what several cannot have."""
    tasks, entries = sorted(set(data.tasks)), data.data_dirs or []
    folders = {task: folder for task, _, folder in (entry.partition("=") for entry in entries)}
    if len(tasks) < max(2, len(data.tasks)) or data.task is not None or data.data_dir is not None:
        raise ValueError("--tasks: name several tasks, each once; a single one, and its folder, is --task/--data_dir.")
    if len(folders) < len(entries) or not folders.keys() <= set(tasks) or not all(folders.values()):
        raise ValueError(f"--data_dirs {' '.join(entries)}: give each of --tasks one folder, as trec=FOLDER.")
    if model_args.adaptation != "full" or args.seeds is not None or args.is_sharded:
        raise ValueError("--tasks goes without --seeds and FSDP, and with --adaptation full.")
    single = replace(data, tasks=None, data_dirs=None)
    return {task: replace(single, task=task, data_dir=folders.get(task)) for task in tasks}
