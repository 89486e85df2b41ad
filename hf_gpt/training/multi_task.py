"""
Training on several tasks together: one transformer with a head for each task (Liu et al., 2019, "Multi-task deep
neural networks for natural language understanding").
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from transformers.utils import SAFE_WEIGHTS_NAME

from ..files import METRICS, in_output_folder, write_json
from ..loading import load_tokenizer
from ..tasks import TaskData, TaskSpec, get_task
from ..tasks.report import chance_level, chance_warning, describe_batches, describe_task
from .arguments import CustomTaskArguments, DataArguments, FineTuningArguments, ModelArguments
from .fine_tuning import (
    card_of_run,
    check_output_dir,
    encode_task,
    evaluate_splits,
    input_transform,
    load_task_data,
    remove_earlier_results,
)
from .loading import describe_start, load_model
from .multi_task_model import HEADS, MEAN_METRIC, EncodedSplits, MultiTaskModel, MultiTaskTrainer


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

    `metrics.json` of the output folder is written last: where it is, the run is finished.

    Returns:
        `dict`: what that `metrics.json` holds: the record of each task, and the means over the tasks.

    Raises:
        ValueError, FileNotFoundError: for any input that is wrong, before training starts or a file is overwritten.
    """
    parts = tasks_of(model_args, data, args)
    checkpoint = check_output_dir(args)
    is_main = args.process_index == 0
    with args.main_process_first(desc="reading the data"):
        if checkpoint is not None:
            _check_tasks_of(Path(checkpoint), parts)
        loaded = {task: _load(task, part, custom) for task, part in parts.items()}
        specs = {task: rows.spec for task, rows in loaded.items()}
        tokenizer = load_tokenizer(model_args)
        model = MultiTaskModel(
            {task: load_model(model_args, spec, tokenizer, args.seed) for task, spec in specs.items()}
        )
        encoded = {
            task: encode_task(loaded[task], part, tokenizer, input_transform(part, specs[task], model.config))
            for task, part in parts.items()
        }
    args.metric_for_best_model = f"eval_{MEAN_METRIC}"
    args.greater_is_better = True
    output = Path(args.output_dir)
    if is_main and args.overwrite_output_dir and checkpoint is None:
        for folder in (output, *(output / task for task in parts)):
            remove_earlier_results(folder)

    trainer = MultiTaskTrainer(model, args, specs, encoded, tokenizer, data.task_rows_cap)
    if is_main:
        print(f"Starts from {describe_start(model_args)}.", flush=True)
        for task, splits in encoded.items():
            print(describe_task(loaded[task], splits, tokenizer), flush=True)
        print(describe_mixture(trainer), flush=True)
    result = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_whole_model()
    shared = {
        "model": model_args.model_name_or_path,
        "starts_from": describe_start(model_args),
        "random_weights": model_args.random_weights,
        "transfer_layers": model_args.transfer_layers,
        "adaptation": model_args.adaptation,
        "task_rows_cap": data.task_rows_cap,
        "seed": args.seed,
        "train_seconds": result.metrics["train_runtime"],
        "steps": trainer.state.global_step,
        "resumed": checkpoint is not None,
    }
    records = {}
    for task, splits in encoded.items():
        trainer.measure(task)
        metrics = evaluate_splits(trainer, splits, specs[task], output / task, is_whole=data.max_eval_rows is None)
        records[task] = _record(trainer, task, splits, metrics) | shared | {"warnings": list(loaded[task].warnings)}
    record = {"tasks": records, "main_metric": MEAN_METRIC, "metrics": _means(records), **shared}
    if is_main:
        for task, spec in specs.items():
            card = card_of_run(records[task], spec, model_args, args, trainer)
            card.hyperparameters |= _mixture_settings(records[task])
            card.save(output / task)
            write_json(output / task / METRICS, records[task])
        write_json(output / METRICS, record)
        _report(record, specs, encoded, output)
    return record


def _record(
    trainer: MultiTaskTrainer, task: str, splits: EncodedSplits, metrics: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """What is one task's own in its `metrics.json`."""
    spec, parameters = trainer.specs[task], trainer.model.task_models[task].parameters()
    return {
        "task": spec.name,
        "trained_with": [other for other in trainer.specs if other != task],
        "main_metric": spec.main_metric,
        "metrics": {split: values for split, values in metrics.items() if values},
        "chance": chance_level(spec, splits["train"][0], splits["validation"][0]),
        "rows": {split: len(rows) for split, (rows, _) in splits.items()},
        "trained_parameters": sum(value.numel() for value in parameters if value.requires_grad),
    }


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


def describe_mixture(trainer: MultiTaskTrainer) -> str:
    """How many steps of an epoch each task has, and how much of its batches is padding."""
    mixture = trainer.mixture()
    lines = [f"An epoch has {sum(mixture.batch_counts())} steps, each of one task:"]
    for number, (task, part) in enumerate(trainer.train_dataset.parts.items()):
        rows = len(part.rows)
        order = mixture.batches_of(number).reshape(-1) - mixture.first_index(number)
        lengths = part.rows.with_format("numpy")["length"][:]
        padding = describe_batches(lengths, order[order < rows], trainer.args.train_batch_size).strip()
        lines.append(f"  {task}: {mixture.batch_counts()[number]} steps; {padding}")
    return "\n".join(lines)


def _means(records: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The mean over the tasks of their main metrics, for each split in which all have one."""
    means = {}
    for split in ("validation", "test"):
        scores = [record["metrics"].get(split, {}).get(record["main_metric"]) for record in records.values()]
        if None not in scores:
            means[split] = {MEAN_METRIC: float(np.mean(scores))}
    return means


def _mixture_settings(record: dict[str, Any]) -> dict[str, Any]:
    settings = {"trained together with": ", ".join(record["trained_with"])}
    if record["task_rows_cap"] is not None:
        settings["rows of a task an epoch, at most"] = record["task_rows_cap"]
    return settings | {"checkpoint chosen by": "the mean of the tasks' main metrics"}


def _report(record, specs: Mapping[str, TaskSpec], encoded: Mapping[str, EncodedSplits], output: Path) -> None:
    print()
    for task, own in record["tasks"].items():
        for split, values in own["metrics"].items():
            for name, value in values.items():
                print(f"{task} {split} {name}: {value:.4f}")
    for split, values in record["metrics"].items():
        print(f"{split} {MEAN_METRIC}: {values[MEAN_METRIC]:.4f}")
    minutes, seconds = divmod(round(record["train_seconds"]), 60)
    print(f"training took {minutes} min {seconds} s, {record['steps']} steps")
    tested = [task for task, splits in encoded.items() if "test" in splits]
    predictions = f", predictions.tsv of {' and '.join(tested)}" if tested else ""
    print(f"each task's model, card and metrics.json{predictions} are in {output}/TASK, all metrics in {output}")
    for task, spec in specs.items():
        score = record["tasks"][task]["metrics"].get("validation", {}).get(spec.main_metric)
        train, validation = encoded[task]["train"][0], encoded[task]["validation"][0]
        warning = None if score is None else chance_warning(spec, train, validation, score)
        if warning:
            print(f"{task}: {warning}", file=sys.stderr)
