"""
Training on several tasks together: one transformer with a head for each task (Liu et al., 2019, "Multi-task deep
neural networks for natural language understanding").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors import safe_open
from transformers.utils import SAFE_WEIGHTS_NAME

from ..files import in_output_folder
from ..loading import load_tokenizer
from ..tasks import TaskData, get_task
from ..trees.mixture import MultiTaskCollator, MultiTaskRows
from .arguments import CustomTaskArguments, DataArguments, FineTuningArguments, ModelArguments
from .loading import load_model
from .multi_task_model import HEADS, MEAN_METRIC, MultiTaskModel, MultiTaskTrainer
from .output import check_output_dir
from .rows import encode_task, input_transform, load_task_data
from .stages import Part, Prepared, Scores, fit, measure, write
from .trainer import GPTTrainer

# What the records of all tasks of a run have in common.
_SHARED = ("model", "starts_from", "random_weights", "transfer_layers", "adaptation", "task_rows_cap", "seed")
_SHARED += ("train_seconds", "steps", "resumed")


def tasks_of(model_args: ModelArguments, data: DataArguments, args: FineTuningArguments) -> dict[str, DataArguments]:
    """
    What is to be read for each of the tasks of `--tasks`, in alphabetical order: a run does not depend on the order
    of the flag.

    Raises:
        ValueError: for fewer than two tasks, one that is there twice or unknown, a folder that belongs to no task, and
            flags that several tasks cannot have.
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
        raise ValueError(
            "--task and --data_dir are of a single task: leave them out, or --tasks. With --tasks the folders of data "
            "sets are named by --data_dirs trec=FOLDER sst2=FOLDER."
        )
    if model_args.adaptation != "full":
        raise ValueError(
            f"--adaptation {model_args.adaptation}: several tasks share a transformer that is trained as a whole. "
            "Leave it out, or train an adapter for each task with --task."
        )
    if args.seeds is not None:
        raise ValueError("--seeds repeats runs of a single task: with --tasks, start one run for each --seed.")
    if args.unfreeze != "none":
        raise ValueError(f"--unfreeze {args.unfreeze} is for a single task (--task): leave it out with --tasks.")
    if args.train_sampling_strategy not in ("group_by_length", "random"):
        raise ValueError(
            f"--train_sampling_strategy {args.train_sampling_strategy}: with --tasks, group_by_length or random."
        )
    if not model_args.model_name_or_path:
        raise ValueError("Name a model with --model_name_or_path: an hf_gpt folder, a Hub id or the release's folder.")
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


@in_output_folder
def run_tasks(
    model_args: ModelArguments, data: DataArguments, custom: CustomTaskArguments, args: FineTuningArguments
) -> dict[str, Any]:
    """
    Train the tasks of `data.tasks` together, evaluate, and write a model folder `args.output_dir/TASK` for each, with
    tokenizer, predictions, metrics and card.

    Returns:
        `dict`: what the `metrics.json` of the output folder holds: the record of each task, and the means over the
        tasks.

    Raises:
        ValueError, FileNotFoundError: for any input that is wrong, before training starts or a file is overwritten.
    """
    prepared = prepare_tasks(model_args, data, custom, args)
    trainer = fit(prepared)
    return write(trainer, prepared, measure(trainer, prepared))


def prepare_tasks(
    model_args: ModelArguments, data: DataArguments, custom: CustomTaskArguments, args: FineTuningArguments
) -> "PreparedTasks":
    """
    Rows, tokenizer and model of a run on several tasks, checked against each other.

    Raises:
        ValueError, FileNotFoundError: for any input that is wrong.
    """
    wanted = tasks_of(model_args, data, args)
    checkpoint = check_output_dir(args)
    with args.main_process_first(desc="reading the data"):
        if checkpoint is not None:
            _check_tasks_of(Path(checkpoint), wanted)
        loaded = {task: _load(task, part, custom) for task, part in wanted.items()}
        tokenizer = load_tokenizer(model_args)
        model = MultiTaskModel(
            {task: load_model(model_args, found.spec, tokenizer, args.seed) for task, found in loaded.items()}
        )
        parts = []
        for task, found in loaded.items():
            transform = input_transform(wanted[task], found.spec, model.config)
            encoded = encode_task(found, wanted[task], tokenizer, transform)
            # Batches say their task.
            encoded = {
                split: (rows.add_column("task", [task] * len(rows)), statistics)
                for split, (rows, statistics) in encoded.items()
            }
            output = Path(args.output_dir) / task
            parts.append(Part(found, encoded, model.task_models[task], transform.max_length, output))
    return PreparedTasks(parts, model, tokenizer, model_args, data, args, checkpoint)


@dataclass
class PreparedTasks(Prepared):
    """A run on several tasks, each with a folder of its own in the output folder."""

    main_metric: ClassVar[str] = MEAN_METRIC

    def make_trainer(self) -> GPTTrainer:
        """See `Prepared`."""
        parts = {part.spec.name: part for part in self.parts}
        return MultiTaskTrainer(
            model=self.model,
            args=self.args,
            train_dataset=MultiTaskRows({task: part.rows("train") for task, part in parts.items()}),
            eval_dataset={task: part.rows("validation") for task, part in parts.items()},
            data_collator=MultiTaskCollator(self.tokenizer.pad_token_id, self.model.config.is_causal),
            processing_class=self.tokenizer,
            specs={task: part.spec for task, part in parts.items()},
            rows_cap=self.data.task_rows_cap,
        )

    def others(self, part: Part) -> list[str]:
        """The tasks that a task is trained with."""
        return [other.spec.name for other in self.parts if other is not part]

    def settings_of(self, part: Part) -> dict[str, Any]:
        """See `Prepared`."""
        return super().settings_of(part) | {
            "trained together with": ", ".join(self.others(part)),
            "rows of a task an epoch, at most": self.data.task_rows_cap,
            "checkpoint chosen by": "the mean of the tasks' main metrics",
        }

    def record_of(self, part: Part, scores: Scores, trainer: GPTTrainer) -> dict[str, Any]:
        """See `Prepared`."""
        more = {"trained_with": self.others(part), "task_rows_cap": self.data.task_rows_cap}
        return super().record_of(part, scores, trainer) | more

    def summarise(self, records: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """The records of all tasks, and the means of their main metrics in the splits in which all have one."""
        means = {}
        for split in ("validation", "test"):
            scores = [record["metrics"].get(split, {}).get(record["main_metric"]) for record in records.values()]
            if None not in scores:
                means[split] = {MEAN_METRIC: float(np.mean(scores))}
        shared = {name: next(iter(records.values()))[name] for name in _SHARED}
        return {"tasks": dict(records), "main_metric": MEAN_METRIC, "metrics": means, **shared}

    def where(self) -> str:
        """See `Prepared`."""
        tested = " and ".join(part.spec.name for part in self.parts if "test" in part.encoded)
        predictions = f", predictions.tsv of {tested}" if tested else ""
        return (
            f"each task's model, card and metrics.json{predictions} are in {self.output}/TASK, all metrics in "
            f"{self.output}"
        )


def _check_tasks_of(checkpoint: Path, tasks: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if a checkpoint has other heads than those of these tasks."""
    weights = checkpoint / SAFE_WEIGHTS_NAME
    if not weights.is_file():  # sharded
        return
    with safe_open(weights, framework="pt") as file:
        names = file.keys()
    found = sorted({name.split(".")[1] for name in names if name.startswith(f"{HEADS}.")})
    if found != sorted(tasks):
        raise ValueError(
            f"Training cannot go on from {checkpoint}: it is of the tasks {', '.join(found) or '(none)'}, not of "
            f"{', '.join(sorted(tasks))}."
        )


def _load(task: str, part: DataArguments, custom: CustomTaskArguments) -> TaskData:
    try:
        return load_task_data(part, custom)
    except (FileNotFoundError, ConnectionError) as error:
        raise type(error)(f"{error} (With --tasks: --data_dirs {task}=FOLDER.)") from error
