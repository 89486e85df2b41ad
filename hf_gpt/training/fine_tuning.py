"""Fine-tuning on a task, from checked arguments to metrics, predictions and a card."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ..adapters import HEAD_CONFIG, head_config, resumption_problem
from ..adapters.virtual_tokens import virtual_tokens
from ..cards.callback import EMISSIONS, fill_in
from ..cards.fine_tuned import FineTunedCard
from ..files import (
    FACTS,
    METRICS,
    PREDICTIONS,
    PRETRAINING,
    UNFINISHED,
    check_empty,
    contents,
    in_output_folder,
    write_json,
)
from ..loading import load_tokenizer
from ..model.configuration_gpt import GPTConfig
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks import TaskData, TaskSpec, custom_task, load_task, task_table
from ..tasks.encoding import EncodingStatistics, encode_split
from ..tasks.metrics import compute_metrics_for, predictions_from_logits
from ..tasks.report import chance_level, chance_warning, describe_batches, describe_task, write_predictions
from ..tasks.submissions import GLUE_FILES, STORY_CLOZE_FILE, can_submit, write_submission
from ..trees.collators import IGNORED_LABEL, TokenTreeCollator
from ..trees.transforms import InputTransform, SpecialIds
from .arguments import CustomTaskArguments, DataArguments, FineTuningArguments, ModelArguments, check_adaptation
from .checkpoints import checkpoint_problems, checkpoints_in, discard, last_checkpoint
from .frozen import (
    FOLDER,
    FrozenFeatureHead,
    FrozenFeatureTrainer,
    cache_features,
    describe_frozen,
    describe_head,
    head_problem,
    remove_features,
)
from .loading import describe_start, load_model
from .trainer import GPTTrainer
from .unfreezing import planned_updates, unfreezing_plan

RESULT_FILES = (METRICS, PREDICTIONS, PRETRAINING, "README.md", *(name for name, _ in GLUE_FILES.values()))
RESULT_FILES += (STORY_CLOZE_FILE, FACTS, EMISSIONS)
# A whole model and an adapter in one folder would be taken for each other.
MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors")
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", HEAD_CONFIG)
# Where the Trainer puts TensorBoard's files.
TRACKER_LOGS = "runs"


def check_output_dir(args: FineTuningArguments) -> str | None:
    """
    Where to resume from, after making sure that nothing is overwritten unasked.

    Args:
        args (`FineTuningArguments`): `output_dir`, `overwrite_output_dir`, and `resume_from_checkpoint`: a folder, or
            `last` for the newest checkpoint of `output_dir`. Where a run was stopped before its first checkpoint, or
            never started, `last` starts it.

    Returns:
        `str` or `None`: the checkpoint's folder.

    Raises:
        ValueError: if the folder is not empty and neither flag allows that, or the checkpoint is not whole.
    """
    output = Path(args.output_dir)
    resume = args.resume_from_checkpoint
    only_leftovers = False
    if resume == "last":
        found = last_checkpoint(output, args)
        if found is not None:
            return str(found)
        only_leftovers = contents(output) <= {UNFINISHED, TRACKER_LOGS, FOLDER}
        if args.process_index == 0:
            print(f"{output} holds no checkpoint yet: training starts at the beginning.", flush=True)
    elif resume is not None:
        if not Path(resume).is_dir():
            raise ValueError(f"--resume_from_checkpoint {resume}: there is no such folder.")
        problems = checkpoint_problems(Path(resume), args.deepspeed_plugin is not None)
        if problems:
            raise ValueError(f"--resume_from_checkpoint {resume} is not a whole checkpoint: {'; '.join(problems)}.")
        return resume
    check_empty(
        output,
        args.overwrite_output_dir or only_leftovers,
        "Name another --output_dir, replace what is there with --overwrite_output_dir, or go on with "
        "--resume_from_checkpoint last.",
    )
    return None


def load_task_data(data: DataArguments, custom: CustomTaskArguments, splits: Sequence[str] | None = None) -> TaskData:
    """
    Rows of the task that the arguments name, of all splits or of these only.

    Raises:
        ValueError, FileNotFoundError: for an unknown task, or files and rows that are not as they should be.
    """
    if data.tasks or data.data_dirs or data.task_rows_cap is not None:
        raise ValueError(
            "--tasks, and --data_dirs and --task_rows_cap with it, are for training several tasks together with "
            "scripts/finetune.py; a single one is named by --task and --data_dir."
        )
    if not data.task:
        raise ValueError("Name a task with --task; --list_tasks prints all.")
    if data.task != "custom":
        return load_task(data.task, data.data_dir, splits=splits)
    if custom.train_file is None and splits is None:
        raise ValueError("--task custom needs --train_file and the names of its columns.")
    return load_task(custom_task(**custom.task_options()), data.data_dir, splits=splits)


def input_transform(data: DataArguments, spec: TaskSpec, config: GPTConfig, reserved: int = 0) -> InputTransform:
    """
    The layout of a task's rows for a model, of whose context `reserved` positions are taken (by virtual tokens).

    Raises:
        ValueError: if `--max_length` is longer than the model's context.
    """
    context = config.n_positions - reserved
    if data.max_length is not None and data.max_length > context:
        raise ValueError(f"--max_length {data.max_length} is longer than the model's context of {context}.")
    return InputTransform(
        family=spec.family,
        special=SpecialIds(config.start_token_id, config.delimiter_token_id, config.classify_token_id),
        max_length=data.max_length or context,
        rule=data.truncation,
        share_prefix=data.share_prefix,
    )


def encode_task(
    task: TaskData, data: DataArguments, tokenizer: GPTTokenizer, transform: InputTransform
) -> dict[str, tuple[Dataset, EncodingStatistics]]:
    """Encoded splits with their statistics, cut to `--max_train_rows` and `--max_eval_rows`."""
    encoded = {}
    for split, rows in task.splits.items():
        rows = limited(rows, data.max_train_rows if split == "train" else data.max_eval_rows)
        encoded[split] = encode_split(
            rows, task.spec.text_columns, tokenizer, transform, data.num_proc, desc=f"tokenizing {split}"
        )
    return encoded


def limited(rows: Dataset, limit: int | None) -> Dataset:
    """At most so many rows, drawn with a fixed seed and in their order: files are often sorted by label."""
    if limit is None or limit >= len(rows):
        return rows
    return rows.select(np.sort(np.random.default_rng(0).permutation(len(rows))[:limit]))


@in_output_folder
def run(
    model_args: ModelArguments, data: DataArguments, custom: CustomTaskArguments, args: FineTuningArguments
) -> dict[str, Any]:
    """
    Fine-tune, evaluate, and write model, tokenizer, predictions, metrics and card into `args.output_dir`.

    `metrics.json` is written last: where it is, the run is finished.

    Returns:
        `dict`: what `metrics.json` holds.

    Raises:
        ValueError, FileNotFoundError: for any input that is wrong, before training starts or a file is overwritten.
    """
    if not model_args.model_name_or_path:
        raise ValueError("Name a model with --model_name_or_path: an hf_gpt folder, a Hub id or the release's folder.")
    check_adaptation(model_args, args)
    checkpoint = check_output_dir(args)
    is_main, is_frozen = args.process_index == 0, model_args.adaptation == "frozen"
    with args.main_process_first(desc="reading the data"):
        task = load_task_data(data, custom)
        spec = task.spec
        tokenizer = load_tokenizer(model_args)
        model = load_model(model_args, spec, tokenizer, args.seed)
        trained = FrozenFeatureHead(model) if is_frozen else model
        problem = None if checkpoint is None else resumption_problem(model, checkpoint)
        if checkpoint is not None and model_args.adaptation in ("full", "frozen"):
            problem = problem or head_problem(trained, checkpoint)
        if problem:
            raise ValueError(f"Training cannot go on from {checkpoint}: {problem}.")
        transform = input_transform(data, spec, model.config, virtual_tokens(model))
        encoded = encode_task(task, data, tokenizer, transform)
    train = encoded["train"][0]
    trained_parameters = sum(value.numel() for value in trained.parameters() if value.requires_grad)
    unfreezing = None
    if args.unfreeze != "none":
        updates = planned_updates(len(train), args)
        unfreezing = unfreezing_plan(args.unfreeze, args.unfreeze_every, model.config.n_layer, *updates)
    if is_main:
        print(f"Starts from {describe_start(model_args)}.", flush=True)
        print(describe_task(task, encoded, tokenizer), flush=True)
        if is_frozen:
            print(describe_frozen(model.config, trained_parameters, model_args.lm_coef), flush=True)
        if unfreezing is not None:
            print(f"Trained are\n{unfreezing}", flush=True)
    compute_metrics = compute_metrics_for(spec)
    args.metric_for_best_model = f"eval_{spec.main_metric}"
    args.greater_is_better = True
    output = Path(args.output_dir)
    if is_main and args.overwrite_output_dir and checkpoint is None:
        remove_earlier_results(output)

    collator = TokenTreeCollator(tokenizer.pad_token_id)
    if is_frozen and model_args.cache_features:
        cache = cache_features(trained, {split: rows for split, (rows, _) in encoded.items()}, collator, args)
        encoded = {split: (cache.rows[split], statistics) for split, (_, statistics) in encoded.items()}
        train, collator = cache.rows["train"].select_columns(["feature_index", "label", "length"]), cache.collate
    trainer = (FrozenFeatureTrainer if is_frozen else GPTTrainer)(
        model=trained,
        args=args,
        train_dataset=train,
        eval_dataset=encoded["validation"][0],
        data_collator=collator,
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
        unfreezing=unfreezing,
    )
    if is_main:
        lengths = train.with_format("numpy")["length"][:]
        print(describe_batches(lengths, trainer.first_epoch_order(), args.train_batch_size), flush=True)
    result = trainer.train(resume_from_checkpoint=checkpoint)
    metrics = evaluate_splits(trainer, encoded, spec, output, is_whole=data.max_eval_rows is None)
    trainer.save_whole_model()
    if is_main and model_args.adaptation not in ("full", "frozen"):
        write_json(output / HEAD_CONFIG, head_config(model))
    record = {
        "task": spec.name,
        "main_metric": spec.main_metric,
        "metrics": {split: values for split, values in metrics.items() if values},
        "chance": chance_level(spec, train, encoded["validation"][0]),
        "rows": {split: len(rows) for split, (rows, _) in encoded.items()},
        "model": model_args.model_name_or_path,
        "starts_from": describe_start(model_args),
        "random_weights": model_args.random_weights,
        "transfer_layers": model_args.transfer_layers,
        "adaptation": model_args.adaptation,
        "trained_parameters": trained_parameters,
        "max_length": transform.max_length,
        "seed": args.seed,
        "train_seconds": result.metrics["train_runtime"],
        "steps": trainer.state.global_step,
        "resumed": checkpoint is not None,
        "warnings": list(task.warnings),
    }
    if is_main:
        card = card_of_run(record, spec, model_args, args, trainer)
        card.save(output)
        remove_features(output)
        write_json(output / METRICS, record)
        _report(record, spec, encoded, output)
    if args.push_to_hub:
        trainer.push_to_hub()
    return record


def evaluate_splits(
    trainer: GPTTrainer,
    encoded: dict[str, tuple[Dataset, EncodingStatistics]],
    spec: TaskSpec,
    output: Path,
    is_whole: bool = True,
) -> dict[str, dict[str, float]]:
    """
    Metrics of the validation and test rows that have labels. Writes the predictions of the test rows, and where all
    of them are there (`is_whole`) and the task has judges, the file that these want.
    """
    metrics: dict[str, dict[str, float]] = {}
    for split in ("validation", "test"):
        if split not in encoded:
            continue
        rows = encoded[split][0]
        logits, metrics[split] = predict_split(trainer, rows, spec)
        if split == "test" and trainer.is_world_process_zero():
            write_predictions(output / PREDICTIONS, rows, logits, spec)
            ids = rows["id"][:]
            if is_whole and can_submit(spec, ids):
                print(f"For the judges: {write_submission(spec, ids, predictions_from_logits(logits, spec), output)}")
    return metrics


def predict_split(trainer: GPTTrainer, rows: Dataset, spec: TaskSpec) -> tuple[np.ndarray, dict[str, float]]:
    """
    Logits of encoded rows in their order, and the task's metrics; none where no row has a label.

    Args:
        trainer (`GPTTrainer`): made with the task's `compute_metrics`.
        rows (`datasets.Dataset`): encoded rows.
        spec (`TaskSpec`): says which metrics.
    """
    prediction = trainer.predict(rows.remove_columns("label") if is_unlabelled(rows) else rows)
    scores = {name: prediction.metrics.get(f"test_{name}") for name in spec.metrics}
    return prediction.predictions, {name: float(value) for name, value in scores.items() if value is not None}


def is_unlabelled(rows: Dataset) -> bool:
    """Whether no encoded row has a gold label."""
    labels = rows.with_format("numpy")["label"][:]
    if labels.ndim == 1 and np.issubdtype(labels.dtype, np.floating):  # scores, of which -1 may be one
        return bool(np.isnan(labels).all())
    return bool(((labels == IGNORED_LABEL) | (labels == -1)).all())


def remove_earlier_results(output: Path) -> None:
    """Result files and checkpoints of an earlier run, which the new run replaces; other files stay."""
    for name in (*RESULT_FILES, *MODEL_FILES, *ADAPTER_FILES):
        (output / name).unlink(missing_ok=True)
    for path in checkpoints_in(output).values():
        discard(path)
    shutil.rmtree(output / UNFINISHED, ignore_errors=True)


def card_of_run(
    record, spec: TaskSpec, model_args: ModelArguments, args: FineTuningArguments, trainer
) -> FineTunedCard:
    card = FineTunedCard.for_task(
        spec,
        model_args.model_name_or_path,
        adaptation=model_args.adaptation,
        random_weights=model_args.random_weights,
        metrics=record["metrics"],
        rows=record["rows"],
        chance=record.get("chance"),
        resumed=record["resumed"],
        max_length=record.get("max_length"),
        limits=record["warnings"],
    )
    fill_in(card, args, trainer.state, trainer.model)
    known = {
        "starts from": record["starts_from"],
        "pretrained layers": model_args.transfer_layers,
        "learning rate from layer to layer": None if args.layer_decay == 1 else f"times {args.layer_decay}",
        "unfreezing": None if args.unfreeze == "none" else args.unfreeze,
    }
    if model_args.adaptation != "full":
        known["trained parameters"] = f"{record['trained_parameters']:,}"
    if model_args.adaptation == "frozen":
        known["head reads"] = describe_head(trainer.model.config)
    card.hyperparameters |= {name: value for name, value in known.items() if value is not None}
    return card


def _report(record, spec: TaskSpec, encoded, output: Path) -> None:
    print()
    for split, values in record["metrics"].items():
        for name, value in values.items():
            print(f"{split} {name}: {value:.4f}")
    minutes, seconds = divmod(round(record["train_seconds"]), 60)
    print(f"training took {minutes} min {seconds} s, {record['steps']} steps")
    others = ", metrics.json and predictions.tsv" if "test" in encoded else " and metrics.json"
    print(f"model, card (README.md){others} are in {output}")
    score = record["metrics"].get("validation", {}).get(spec.main_metric)
    warning = None if score is None else chance_warning(spec, encoded["train"][0], encoded["validation"][0], score)
    if warning:
        print(warning, file=sys.stderr)


def format_task_table() -> str:
    """The tasks as a table of text, for `--list_tasks`."""
    rows = task_table()
    columns = ["task", "family", "metrics", "paper", "licence", "files"]
    widths = {name: max(len(name), *(len(str(row[name])) for row in rows)) for name in columns}
    lines = ["  ".join(name.ljust(widths[name]) for name in columns)]
    lines += ["  ".join(str(row[name]).ljust(widths[name]) for name in columns).rstrip() for row in rows]
    return "\n".join(lines)
