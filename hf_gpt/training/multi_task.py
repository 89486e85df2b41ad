"""
Training on several tasks together: one transformer with a head for each task (Liu et al., 2019, "Multi-task deep
neural networks for natural language understanding").
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Sampler

from ..model.configuration_gpt import GPTConfig
from ..model.modeling_gpt import GPTPreTrainedModel, GPTTaskModel, GPTTaskOutput
from ..tasks import TaskSpec, get_task
from ..tasks.metrics import compute_metrics_for
from ..tasks.report import describe_batches
from ..trees.mixture import MultiTaskRows, MultiTaskSampler
from .arguments import DataArguments, FineTuningArguments, ModelArguments
from .trainer import GPTTrainer

# What chooses the best checkpoint: the mean over the tasks of their main metrics.
MEAN_METRIC = "task_mean"
# What the names of the heads' parameters begin with, followed by the task.
HEADS = "heads"


class MultiTaskModel(nn.Module):
    """
    One transformer with the heads of several tasks, each on its own or all in turn; the state dict holds the
    transformer once: `transformer.*` and `heads.TASK.*`. Of the tasks' models the first gives the transformer, and the
    others lose theirs to it; they stay whole models, and can be saved as such.
    """

    _no_split_modules = GPTPreTrainedModel._no_split_modules

    def __init__(self, task_models: Mapping[str, GPTTaskModel]):
        super().__init__()
        self.transformer = next(iter(task_models.values())).transformer
        heads = {}
        for task, model in task_models.items():
            model.transformer = self.transformer
            heads[task] = nn.ModuleDict(
                {name: child for name, child in model.named_children() if name != "transformer"}
            )
        self.heads = nn.ModuleDict(heads)
        # In a dict of Python, so that torch does not find the shared parameters again in every model.
        self.task_models = dict(task_models)

    @property
    def config(self) -> GPTConfig:
        """The configuration of the transformer, which is that of the first task."""
        return self.transformer.config

    def train(self, mode: bool = True) -> "MultiTaskModel":
        """As any module's; the tasks' models, whose modules these are, follow."""
        super().train(mode)
        for model in self.task_models.values():
            model.train(mode)
        return self

    def gradient_checkpointing_enable(self, **kwargs: Any) -> None:
        """As `PreTrainedModel`'s: compute the blocks again in the backward pass instead of keeping their states."""
        self.transformer.gradient_checkpointing_enable(**kwargs)

    def forward(self, task: str, labels: torch.Tensor | None = None, **inputs: Any) -> GPTTaskOutput:
        """
        Output of one task's model, whose inputs these are; see `GPTTaskModel`. In training the other heads are part of
        the loss with the factor 0, so that every parameter has a gradient, as `DistributedDataParallel` wants it.
        """
        outputs = self.task_models[task](labels=labels, **inputs)
        if self.training and outputs.loss is not None:
            outputs.loss = outputs.loss + 0 * sum(parameter.sum() for parameter in self.unused_parameters(task))
        return outputs

    def unused_parameters(self, task: str) -> list[nn.Parameter]:
        """Parameters of all heads but one."""
        return [value for name, head in self.heads.items() if name != task for value in head.parameters()]

    def state_of(self, task: str, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The part of a state dict of this model that is one task's, under the names of that task's own model."""
        prefix = f"{HEADS}.{task}."
        own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        return own | {name: value for name, value in state.items() if not name.startswith(f"{HEADS}.")}


class MultiTaskTrainer(GPTTrainer):
    """
    `GPTTrainer` for a `MultiTaskModel` on `MultiTaskRows`. A step's global batch is of one task on all ranks and in
    all accumulation steps; a head moves only in steps of its own task. Evaluation goes over all tasks and adds the
    mean of their main metrics; the rows of its splits say their `task`. The log holds `task_loss_TASK`, too, the mean
    over the task's own steps. With `rows_cap`, an epoch has so many rows of a task at most.
    """

    model: MultiTaskModel

    def __init__(self, *args: Any, specs: Mapping[str, TaskSpec], rows_cap: int | None = None, **kwargs: Any):
        self.specs = dict(specs)
        self._rows_cap = rows_cap
        super().__init__(*args, **kwargs)

    def task_models(self) -> list[GPTTaskModel]:
        """Those of all tasks."""
        return list(self.model.task_models.values())

    def filled_rows(self) -> MultiTaskRows:
        """The training rows; their sampler fills the batches."""
        return self.train_dataset

    def train_sampler(self, rows: MultiTaskRows) -> Sampler:
        """The order of the training rows."""
        return self.follow_epochs(self.mixture())

    def mixture(self) -> MultiTaskSampler:
        """The order of the training rows, from the first epoch on."""
        lengths = [self.row_lengths(part.rows) for part in self.train_dataset.parts.values()]
        return MultiTaskSampler(lengths, *self.order(), rows_cap=self._rows_cap)

    def describe_batches(self) -> str:
        """How many steps of an epoch each task has, and how much of its batches is padding."""
        mixture = self.mixture()
        lines = [f"An epoch has {sum(mixture.batch_counts())} steps, each of one task:"]
        for number, (task, part) in enumerate(self.train_dataset.parts.items()):
            batches = mixture.batches_of(number)
            padding = describe_batches(part.rows, batches.ravel(), self.args.train_batch_size).strip()
            lines.append(f"  {task}: {len(batches)} steps; {padding}")
        return "\n".join(lines)

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

    def evaluate(
        self,
        eval_dataset: str | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """
        Metrics of one task's validation rows; without a task, those of all tasks as `eval_TASK_METRIC`, and the mean
        of their main metrics as `eval_task_mean`.
        """
        if eval_dataset is not None:
            self.compute_metrics = compute_metrics_for(self.specs[eval_dataset], self.eval_dataset[eval_dataset])
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        # Comes back to this method once for each task.
        metrics = super().evaluate(None, ignore_keys, metric_key_prefix)
        main = [metrics[f"{metric_key_prefix}_{task}_{spec.main_metric}"] for task, spec in self.specs.items()]
        mean = {f"{metric_key_prefix}_{MEAN_METRIC}": float(np.mean(main))}
        self.log(mean)
        return metrics | mean

    def write_whole_model(self, folder: Path) -> None:
        """Write each task's model with its tokenizer into a folder of its own."""
        state = self.accelerator.get_state_dict(self.model)
        for task, model in self.model.task_models.items() if self.args.should_save else ():
            model.config.use_cache = self.args.use_cache
            model.save_pretrained(folder / task, state_dict=self.model.state_of(task, state))
            self.processing_class.save_pretrained(folder / task)


def tasks_of(model_args: ModelArguments, data: DataArguments, args: FineTuningArguments) -> dict[str, DataArguments]:
    """
    What is to be read for each of the tasks of `--tasks`, in alphabetical order, so that a run does not depend on the
    order of the flag; a `ValueError` for what several tasks cannot have.
    """
    tasks = data.tasks or []
    for task in tasks:
        if task != "custom":
            get_task(task)
    twice = sorted({task for task in tasks if tasks.count(task) > 1})
    if twice:
        raise ValueError(f"--tasks names {', '.join(twice)} more than once: name each task once.")
    if len(tasks) < 2:
        raise ValueError(f"--tasks trains several tasks together: name at least two, or use --task {' '.join(tasks)}.")
    if data.task is not None or data.data_dir is not None:
        hint = "With --tasks the folders of data sets are named by --data_dirs trec=FOLDER sst2=FOLDER."
        raise ValueError(f"--task and --data_dir are of a single task: leave them out, or --tasks. {hint}")
    if model_args.adaptation != "full":
        problem = f"--adaptation {model_args.adaptation}: several tasks share a transformer that is trained as a whole"
        raise ValueError(f"{problem}. Leave it out, or train an adapter for each task with --task.")
    if args.seeds is not None:
        raise ValueError("--seeds repeats runs of a single task: with --tasks, start one run for each --seed.")
    if args.unfreeze != "none":
        raise ValueError(f"--unfreeze {args.unfreeze} is for a single task (--task): leave it out with --tasks.")
    if (strategy := args.train_sampling_strategy) not in ("group_by_length", "random"):
        raise ValueError(f"--train_sampling_strategy {strategy}: with --tasks, group_by_length or random.")
    folders = _folders(data.data_dirs or [], tasks)
    single = replace(data, tasks=None, data_dirs=None, task_rows_cap=None)
    return {task: replace(single, task=task, data_dir=folders.get(task)) for task in sorted(tasks)}


def _folders(entries: Sequence[str], tasks: Sequence[str]) -> dict[str, str]:
    folders: dict[str, str] = {}
    for entry in entries:
        task, equals, folder = entry.partition("=")
        if not (task and equals and folder):
            raise ValueError(f"--data_dirs {entry}: write the task, an equals sign and its folder: trec=FOLDER.")
        if task not in tasks:
            raise ValueError(f"--data_dirs {entry}: {task} is not one of --tasks {' '.join(tasks)}.")
        if task in folders:
            raise ValueError(f"--data_dirs names the folder of {task} twice: {folders[task]} and {folder}.")
        folders[task] = folder
    return folders
