"""Fine-tuning on a task or several, from checked arguments to metrics, predictions and a card."""

from pathlib import Path
from typing import Any

from ..adapters import resumption_problem
from ..adapters.virtual_tokens import virtual_tokens
from ..files import in_output_folder
from ..loading import load_tokenizer
from .arguments import DataArguments, FineTuningArguments, ModelArguments, check_adaptation
from .frozen import PreparedHead, head_problem
from .loading import load_model
from .multi_task import prepare_tasks
from .output import check_output_dir
from .rows import encode_task, input_transform, load_task_data
from .stages import Part, Prepared, fit, measure, write
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
    prepared = (prepare if data.tasks is None else prepare_tasks)(model_args, data, args)
    trainer = fit(prepared)
    return write(trainer, prepared, measure(trainer, prepared))


def prepare(model_args: ModelArguments, data: DataArguments, args: FineTuningArguments) -> Prepared:
    """Rows, tokenizer and model of a run on one task, checked against each other."""
    check_adaptation(model_args, args)
    checkpoint = check_output_dir(args)
    with args.main_process_first(desc="reading the data"):
        task = load_task_data(data)
        tokenizer = load_tokenizer(model_args)
        model = load_model(model_args, task.spec, tokenizer, args.seed)
        transform = input_transform(data, task.spec, model.config, virtual_tokens(model))
        prepared_class = PreparedHead if model_args.adaptation == "frozen" else Prepared
        part = Part(task, {}, model, transform.max_length, Path(args.output_dir))
        prepared = prepared_class([part], model, tokenizer, model_args, data, args, checkpoint)
        _check_resumption(prepared)
        part.rows = encode_task(task, data, tokenizer, transform)
    if args.unfreeze != "none":
        updates = planned_updates(len(part.rows["train"]), args)
        prepared.unfreezing = unfreezing_plan(args.unfreeze, args.unfreeze_every, model.config.n_layer, *updates)
    return prepared


def _check_resumption(prepared: Prepared) -> None:
    """Raise a `ValueError` where the checkpoint to go on from is that of another model."""
    if prepared.checkpoint is None:
        return
    problem = resumption_problem(prepared.parts[0].model, prepared.checkpoint)
    if problem is None and prepared.model_args.adaptation in ("full", "frozen"):
        problem = head_problem(prepared.model, prepared.checkpoint)
    if problem:
        raise ValueError(f"Training cannot go on from {prepared.checkpoint}: {problem}.")
