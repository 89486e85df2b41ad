"""Fine-tuning on a task or several, from checked arguments to metrics, predictions and a card."""

import shutil
from pathlib import Path
from typing import Any

from ..adapters.virtual_tokens import virtual_tokens
from ..files import METRICS, in_output_folder
from ..loading import load_tokenizer
from ..tasks import TaskData
from .arguments import DataArguments, FineTuningArguments, ModelArguments, check_adaptation
from .frozen import PreparedHead
from .loading import load_model
from .multi_task import PreparedTasks, check_tasks_of, tasks_of
from .output import FEATURES, check_output_dir
from .rows import encode_task, input_transform, load_task_data
from .stages import Part, Prepared, begin, measure, write
from .unfreezing import planned_updates, unfreezing_plan


@in_output_folder
def run(model_args: ModelArguments, data: DataArguments, args: FineTuningArguments) -> dict[str, Any]:
    """
    Fine-tune, evaluate, and write model, tokenizer, predictions, metrics and card into `args.output_dir`, or with
    `data.tasks` into a folder for each; what its `metrics.json` holds (see `Prepared.summarise`). Input that is wrong
    is a `ValueError` or `FileNotFoundError` before training starts or a file is overwritten.
    """
    if not model_args.model_name_or_path:
        raise ValueError("Name a model with --model_name_or_path: an hf_gpt folder, a Hub id or the release's folder.")
    prepared = prepare(model_args, data, args)
    trainer = begin(prepared)
    summary = trainer.finished_record(prepared.checkpoint, METRICS)
    if summary is None:
        trainer.train(resume_from_checkpoint=prepared.checkpoint)
        summary = write(trainer, prepared, measure(trainer, prepared))
    elif args.process_index == 0:
        shutil.rmtree(prepared.output / FEATURES, ignore_errors=True)  # which its head was given once more
    if args.push_to_hub and prepared.parts[0].output == prepared.output:
        trainer.push_to_hub()
    return summary


def prepare(model_args: ModelArguments, data: DataArguments, args: FineTuningArguments) -> Prepared:
    """Rows, tokenizer and models of a run, checked against each other."""
    wanted = {"": data} if data.tasks is None else tasks_of(model_args, data, args)
    check_adaptation(model_args, args)
    checkpoint = check_output_dir(args)
    if data.tasks is not None:
        check_tasks_of(checkpoint, wanted)
    kind = PreparedHead if model_args.adaptation == "frozen" else Prepared if data.tasks is None else PreparedTasks
    with args.main_process_first(desc="reading the data"):
        loaded = {folder: _load(folder, of_task) for folder, of_task in wanted.items()}
        tokenizer = load_tokenizer(model_args)
        parts = []
        for folder, task in loaded.items():
            model = load_model(model_args, task.spec, tokenizer, args.seed)
            transform = input_transform(data, task.spec, model.config, virtual_tokens(model))
            parts.append(Part(task, {}, model, transform, Path(args.output_dir) / folder))
        prepared = kind(parts, parts[0].model, tokenizer, model_args, data, args, checkpoint)
        if data.tasks is None and (problem := prepared.resumption_problem()):
            raise ValueError(f"Training cannot go on from {checkpoint}: {problem}.")
        for part in parts:
            part.rows = encode_task(part.task, data, tokenizer, part.transform)
    if args.unfreeze != "none":
        updates = planned_updates(len(parts[0].rows["train"]), args)
        prepared.unfreezing = unfreezing_plan(args.unfreeze, args.unfreeze_every, model.config.n_layer, *updates)
    return prepared


def _load(task: str, data: DataArguments) -> TaskData:
    try:
        return load_task_data(data)
    except (FileNotFoundError, ConnectionError) as error:
        if not task:
            raise
        raise type(error)(f"{error} (With --tasks: --data_dirs {task}=FOLDER.)") from error
