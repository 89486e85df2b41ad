"""Measuring a fine-tuned model, or a language model without training, on a split of a task; or its answers alone."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from peft import PeftModel
from transformers import EvalPrediction

from ..adapters.virtual_tokens import virtual_tokens
from ..files import METRICS, PREDICTIONS, check_empty, in_output_folder, write_json
from ..loading import check_ids, load_tokenizer
from ..model.modeling_gpt import GPTForCausalLM, GPTForSequenceClassification, GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks import TaskData
from ..tasks.encoding import encode_split
from ..tasks.metrics import compute_metrics_for
from ..tasks.report import write_predictions
from ..tasks.spec import SPLITS, TaskSpec
from ..training.arguments import CustomTaskArguments, DataArguments, LauncherArguments, ModelArguments
from ..training.fine_tuning import input_transform, is_unlabelled, limited, load_task_data, predict_split
from ..training.loading import load_model, other_head
from ..training.trainer import GPTTrainer
from ..trees.collators import TokenTreeCollator
from .zero_shot import ZeroShotScorer, best_threshold, threshold_logits, zero_shot_rule, zero_shot_transform

RESULT_FILES = (METRICS, PREDICTIONS)


@dataclass
class EvaluationArguments(LauncherArguments):
    """What to measure; and the Trainer's own arguments."""

    base_model: str | None = field(
        default=None, metadata={"help": "Where the base model of an adapter is, if it is not where the adapter says."}
    )
    split: str = field(default="test", metadata={"help": "Part of the task to measure.", "choices": list(SPLITS)})
    zero_shot: bool = field(
        default=False, metadata={"help": "Answer by the language model's probabilities, without a trained head."}
    )
    zero_shot_prompt: str | None = field(
        default=None, metadata={"help": "With --zero_shot: what is appended to a text before a class's word."}
    )
    zero_shot_words: list[str] | None = field(
        default=None, metadata={"help": "With --zero_shot: one word per class, in the order of the labels."}
    )
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Rows of a step and device."})
    report_to: str = field(default="none", metadata={"help": "Trackers, such as tensorboard."})
    remove_unused_columns: bool = field(default=False, metadata={"help": "The collator reads all columns."})


@in_output_folder
def evaluate(
    model_args: ModelArguments, data: DataArguments, custom: CustomTaskArguments, args: EvaluationArguments
) -> dict[str, Any]:
    """
    Measure a model on one split of a task; writes `metrics.json` and `predictions.tsv` into `args.output_dir`.

    Own files (`--task custom`) without a training file have the classes of the model; rows without labels are
    predicted, not measured.

    Returns:
        `dict`: what `metrics.json` holds.

    Raises:
        ValueError, FileNotFoundError: for any input that is wrong, before a file is overwritten.
    """
    if not model_args.model_name_or_path:
        raise ValueError("Name a model with --model_name_or_path: a fine-tuned folder, or with --zero_shot any model.")
    if model_args.adaptation != "full":
        raise ValueError("A folder says by itself how its model was adapted: leave out --adaptation.")
    output = Path(args.output_dir)
    check_empty(output, args.overwrite_output_dir)
    with args.main_process_first(desc="reading the data"):
        task = _load_task(model_args, data, custom, args)
        if args.split not in task.splits:
            raise ValueError(f"{task.spec.name} has no split {args.split!r}, only {', '.join(task.splits)}.")
        tokenizer = load_tokenizer(model_args)
    if args.process_index == 0:
        for warning in task.warnings:
            print(f"WARNING: {warning}", file=sys.stderr)
    measure = _measure_zero_shot if args.zero_shot else _measure_head
    record = measure(task, tokenizer, model_args, data, args)
    if args.process_index == 0:
        write_json(output / METRICS, record)
        print(json.dumps(record, indent=2))
        print(f"metrics.json and predictions.tsv are in {output}")
    return record


def _load_task(
    model_args: ModelArguments, data: DataArguments, custom: CustomTaskArguments, args: EvaluationArguments
) -> TaskData:
    """The rows; of own files without a training file only the split that is measured, with the model's classes."""
    if data.task != "custom" or custom.train_file is not None:
        return load_task_data(data, custom)
    if not (args.zero_shot or model_args.source.kind == "tf-release"):
        config = model_args.source.config()
        if GPTForSequenceClassification.__name__ in (config.architectures or ()):
            custom = custom.with_labels_of(config)
    return load_task_data(data, custom, splits=(args.split,))


def _measure_head(
    task: TaskData, tokenizer: GPTTokenizer, model_args: ModelArguments, data: DataArguments, args: EvaluationArguments
) -> dict[str, Any]:
    spec, source = task.spec, model_args.source
    name = source.name
    if source.kind == "tf-release":
        raise ValueError(f"{name} is OpenAI's release, which has no head: fine-tune it first, or add --zero_shot.")
    if source.kind == "adapter":
        model = _load_adapted_model(model_args, spec, tokenizer, args.base_model)
    else:
        if args.base_model is not None:
            raise ValueError(f"--base_model belongs to an adapter, and {name} is none: leave it out.")
        _check_head(model_args, spec)
        model = load_model(model_args, spec, tokenizer, args.seed, keep_head=True)
    trainer = _trainer(model, tokenizer, spec, args)
    transform = input_transform(data, spec, model.config, virtual_tokens(model))
    rows = _encoded(task, args.split, data, tokenizer, transform, args)
    logits, metrics = predict_split(trainer, rows, spec)
    return _finish(trainer, rows, logits, metrics, spec, model_args, args)


def _load_adapted_model(
    model_args: ModelArguments, spec: TaskSpec, tokenizer: GPTTokenizer, base_model: str | None
) -> PeftModel:
    name = model_args.model_name_or_path
    if model_args.random_weights or model_args.transfer_layers is not None:
        raise ValueError(
            f"{name} is an adapter, measured as it was trained: no --random_weights, no --transfer_layers."
        )
    _check_head(model_args, spec)
    try:
        model = model_args.source.adapted(base_model, attn_implementation=model_args.attn_implementation)
    except ValueError as error:
        raise ValueError(f"{error} On the command line: --base_model.") from error
    check_ids(model.config, tokenizer, name)
    return model


def _check_head(model_args: ModelArguments, spec: TaskSpec) -> None:
    """Raise a `ValueError` where the model would be given a new head, or one for other labels."""
    problem = other_head(model_args.source, spec)
    if problem is not None:
        raise ValueError(
            f"{problem}: evaluate it on the task that it was trained on, fine-tune it first (scripts/finetune.py), or "
            "add --zero_shot."
        )


def _measure_zero_shot(
    task: TaskData, tokenizer: GPTTokenizer, model_args: ModelArguments, data: DataArguments, args: EvaluationArguments
) -> dict[str, Any]:
    spec = task.spec
    rule = zero_shot_rule(spec, args.zero_shot_prompt, args.zero_shot_words)
    model = _load_language_model(model_args, tokenizer)
    length = data.max_length or model.config.n_positions
    transform = zero_shot_transform(
        rule, tokenizer, min(length, model.config.n_positions), data.truncation, data.share_prefix
    )
    trainer = _trainer(ZeroShotScorer(model, rule.kind), tokenizer, spec, args, measured=rule.kind != "threshold")
    rows = _encoded(task, args.split, data, tokenizer, transform, args)
    logits, metrics = predict_split(trainer, rows, spec)
    extra: dict[str, Any] = {"zero_shot": rule.kind}
    if rule.kind == "words":
        extra |= {"prompt": rule.prompt, "words": list(rule.words)}
    if rule.kind == "threshold":
        compute = compute_metrics_for(spec)
        train = _encoded(task, "train", data, tokenizer, transform, args)
        scores, _ = predict_split(trainer, train, spec)
        labels = np.asarray(train["label"][:])
        extra["threshold"] = best_threshold(
            scores.reshape(-1), lambda logits: compute(EvalPrediction(logits, labels))[spec.main_metric]
        )
        logits = threshold_logits(logits, extra["threshold"])
        if not is_unlabelled(rows):
            metrics = compute(EvalPrediction(logits, np.asarray(rows["label"][:])))
    return _finish(trainer, rows, logits, metrics, spec, model_args, args) | extra


def _load_language_model(model_args: ModelArguments, tokenizer: GPTTokenizer) -> GPTPreTrainedModel:
    source, attention = model_args.source, model_args.attn_implementation
    if source.kind == "adapter":
        raise ValueError(
            f"{source.name} is an adapter of a task head: --zero_shot wants a language model, such as its base."
        )
    model = source.model(GPTForCausalLM, n_head=model_args.n_head, attn_implementation=attention)
    check_ids(model.config, tokenizer, source.name)
    return model


def _trainer(
    model: Any, tokenizer: GPTTokenizer, spec: TaskSpec, args: EvaluationArguments, measured: bool = True
) -> GPTTrainer:
    return GPTTrainer(
        model=model,
        args=args,
        data_collator=TokenTreeCollator(tokenizer.pad_token_id),
        compute_metrics=compute_metrics_for(spec) if measured else None,
    )


def _encoded(
    task: TaskData, split: str, data: DataArguments, tokenizer: GPTTokenizer, transform: Any, args: EvaluationArguments
) -> Any:
    """The encoded rows of a split, tokenized by one process; their statistics are printed."""
    rows = limited(task.splits[split], data.max_train_rows if split == "train" else data.max_eval_rows)
    with args.main_process_first(desc="tokenizing"):
        encoded, statistics = encode_split(
            rows, task.spec.text_columns, tokenizer, transform, data.num_proc, desc=f"tokenizing {split}"
        )
    if args.process_index == 0:
        print(f"{task.spec.name} {split}: {statistics}", flush=True)
    return encoded


def _finish(
    trainer: GPTTrainer,
    rows: Any,
    logits: np.ndarray,
    metrics: dict[str, float],
    spec: TaskSpec,
    model_args: ModelArguments,
    args: EvaluationArguments,
) -> dict[str, Any]:
    """Write the predictions; what there is to record."""
    output = Path(args.output_dir)
    if trainer.is_world_process_zero():
        for name in RESULT_FILES:
            (output / name).unlink(missing_ok=True)
        write_predictions(output / PREDICTIONS, rows, logits, spec)
    return {
        "task": spec.name,
        "split": args.split,
        "rows": len(rows),
        "model": model_args.model_name_or_path,
        "main_metric": spec.main_metric,
        "metrics": metrics,
    }
