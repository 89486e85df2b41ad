"""Evaluation of a fine-tuned model, or of a language model without training, on a split of a task."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..adapters import load_adapter, virtual_tokens
from ..conversion.tokenizers import check_ids
from ..files import METRICS, PREDICTIONS, check_empty, flag, in_output_folder, write_json
from ..loading import Source
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks.encode import describe_encoded
from ..tasks.report import write_predictions
from ..tasks.spec import SPLITS, TEXT_TO_TEXT, TaskSpec
from ..training.arguments import DataArguments, LauncherArguments, ModelArguments
from ..training.finetune import lacks_label, predict_split
from ..training.loading import load_model, other_head
from ..training.rows import encode_task, input_transform, load_task_data
from ..training.text_to_text import TextToTextTrainer, declare_targets, saved_settings
from ..training.trainer import GPTTrainer, choose_products
from ..trees.any_model import longest_path
from ..trees.collators import TokenTreeCollator
from .zero_shot import ZeroShotScorer, load_language_model, zero_shot_rule, zero_shot_transform


@dataclass
class EvaluationArguments(LauncherArguments):
    """What to evaluate; and the Trainer's own arguments."""

    base_model: str | None = flag(None, "Where the base model of an adapter is, if it is not where the adapter says.")
    split: str = flag("test", "Part of the task to evaluate.", SPLITS)
    zero_shot: bool = flag(False, "Answer by the language model's probabilities, without a trained head.")
    zero_shot_prompt: str | None = flag(None, "With --zero_shot: what is appended to a text before a class's word.")
    zero_shot_score: str | None = flag(None, "With --zero_shot: mean of a choice's tokens, or sum.", ["mean", "sum"])
    zero_shot_words: list[str] | None = flag(None, "With --zero_shot: one word per class, in the order of the labels.")
    per_device_eval_batch_size: int = flag(64, "Rows of a step and device.")


@in_output_folder
def evaluate(model_args: ModelArguments, data: DataArguments, args: EvaluationArguments) -> dict[str, Any]:
    """
    Evaluate a model on one split of a task; writes `predictions.tsv` and `metrics.json`, and returns what that holds.
    Own files without a training file have the model's classes; rows without labels are predicted alone.
    """
    if not model_args.model_name_or_path:
        raise ValueError("Name a model with --model_name_or_path: a fine-tuned folder, or with --zero_shot any model.")
    if model_args.adaptation != "full":
        raise ValueError("A folder says by itself how its model was adapted: leave out --adaptation.")
    output, rule = Path(args.output_dir), None
    check_empty(output, args.overwrite_output_dir)
    choose_products(args)
    with args.main_process_first(desc="reading the data"):
        described, source = data, model_args.source
        if data.task == "custom" and not args.zero_shot and saved_settings(source.config(n_head=model_args.n_head)):
            described = replace(data, task_family=TEXT_TO_TEXT)
        elif data.task == "custom" and data.train_file is None and not args.zero_shot:
            kinds = [] if source.kind == "tf-release" else source.config().architectures or []
            if any(kind.endswith("Classification") for kind in kinds):  # of texts or words
                described = data.with_labels_of(source.config())
            _check_head(source, described.spec())
        task = load_task_data(described, splits=(args.split,))
        spec = task.spec
        if args.zero_shot:
            rule = zero_shot_rule(spec, args.zero_shot_prompt, args.zero_shot_words)
            tokenizer, model = load_language_model(model_args)
            length = min(data.max_length or sys.maxsize, longest_path(model))
            transform = zero_shot_transform(rule, tokenizer, length, data.truncation, data.share_prefix)
            if transform.tokenizer is not None:  # which reads the texts themselves
                tokenizer = _leave_texts
            score = args.zero_shot_score or ("sum" if rule.kind == "words" else "mean")
            model = ZeroShotScorer(model, mean=score == "mean")
        else:
            tokenizer = model_args.tokenizer_source.tokenizer(task_template=True)
            model = _load_head(model_args, spec, tokenizer, args)
            declare_targets(model, spec, tokenizer, data)
            transform = input_transform(data, spec, model.config, tokenizer, virtual_tokens(model))
        rows = encode_task(task, data, tokenizer, transform)[args.split]
    unlabelled = lacks_label(rows)
    measured = int((~unlabelled).sum()) if unlabelled.shape == (len(rows),) else len(rows)
    if args.process_index == 0:
        print(f"{spec.name} {args.split}: {describe_encoded(rows)}\n  {task.notes[args.split]}", flush=True)
    if spec.family == TEXT_TO_TEXT:
        trainer = TextToTextTrainer(model, args, spec.metrics, processing_class=tokenizer)
    else:
        pad_token_id = 0 if args.zero_shot else tokenizer.pad_token_id
        collator = TokenTreeCollator(pad_token_id, not args.zero_shot and model.config.is_causal)
        trainer = GPTTrainer(model=model, args=args, data_collator=collator)
    record = {"task": spec.name, "split": args.split, "rows": len(rows), "measured_rows": measured}
    record |= {"fast_float32": args.fast_float32, "model": model_args.model_name_or_path}
    if rule is not None:
        record |= {"zero_shot": rule.kind, "prompt": rule.prompt, "words": list(rule.words), "score": score}
    logits, record["metrics"] = predict_split(trainer, rows, spec)
    record["main_metric"] = next(iter(record["metrics"]), spec.main_metric)
    if args.process_index == 0:
        (output / METRICS).unlink(missing_ok=True)
        write_predictions(output / PREDICTIONS, rows, logits, spec)
        write_json(output / METRICS, record)
        print(json.dumps(record, indent=2), f"metrics.json and predictions.tsv are in {output}", sep="\n")
    return record


def _check_head(source: Source, spec: TaskSpec) -> None:
    """A `ValueError` if a model has no head, or one for another kind of task."""
    problem = f"{source.name} has no head" if source.kind == "tf-release" else other_head(source, spec)
    if problem is not None:
        hint = "evaluate it on the task that it was trained on, fine-tune it first (scripts/finetune.py)"
        raise ValueError(f"{problem}: {hint}, or add --zero_shot.")


def _load_head(model_args: ModelArguments, spec: TaskSpec, tokenizer: GPTTokenizer, args: EvaluationArguments) -> Any:
    source = model_args.source
    if args.base_model is not None and source.kind != "adapter":
        raise ValueError(f"--base_model belongs to an adapter, and {source.name} is none: leave it out.")
    _check_head(source, spec)
    if source.kind != "adapter":
        return load_model(model_args, spec, tokenizer, args.seed, keep_head=True)
    if model_args.random_weights or model_args.transfer_layers is not None:
        raise ValueError(f"{source.name} is an adapter: leave out --random_weights and --transfer_layers.")
    model = load_adapter(source.folder, args.base_model, attn_implementation=model_args.attn_implementation)
    check_ids(model.config, tokenizer, source.name)
    return model


def _leave_texts(texts: Sequence[str], **settings: Any) -> dict[str, Sequence[str]]:
    return {"input_ids": texts}
