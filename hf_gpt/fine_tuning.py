"""Fine-tuning on a task, from checked arguments to metrics, predictions and a card."""

import json
import math
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoConfig, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint

from .configuration_gpt import GPTConfig
from .conversion import default_generation_config, is_release, load_release, read_release, release_config
from .data_collator import IGNORED_LABEL, TokenTreeCollator
from .input_transforms import InputTransform, SpecialIds
from .metrics import TRAINER_PADDING, compute_metrics_for
from .model_card import FineTunedCard
from .modeling_gpt import GPTForMultipleChoice, GPTForSequenceClassification, GPTPreTrainedModel
from .task_encoding import EncodingStatistics, encode_split
from .tasks import TaskData, TaskSpec, custom_task, load_task, task_table
from .tokenization_gpt import GPTTokenizer
from .trainer import GPTTrainer
from .training_args import CustomTaskArguments, DataArguments, FineTuningArguments, ModelArguments

RESULT_FILES = ("metrics.json", "predictions.tsv", "README.md")


def check_output_dir(args: FineTuningArguments) -> str | None:
    """
    Where to resume from, after making sure that nothing is overwritten unasked.

    Args:
        args (`FineTuningArguments`): `output_dir`, `overwrite_output_dir`, and `resume_from_checkpoint`: a folder, or
            `last` for the newest checkpoint of `output_dir`.

    Returns:
        `str` or `None`: the checkpoint's folder.

    Raises:
        ValueError: if the folder is not empty and neither flag allows that, or the checkpoint does not exist.
    """
    output = Path(args.output_dir)
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output_dir {output} is a file; name a folder.")
    resume = args.resume_from_checkpoint
    if resume == "last":
        resume = get_last_checkpoint(str(output)) if output.is_dir() else None
        if resume is None:
            raise ValueError(f"--resume_from_checkpoint last: {output} holds no checkpoint.")
    if resume is not None:
        if not Path(resume).is_dir():
            raise ValueError(f"--resume_from_checkpoint {resume}: there is no such folder.")
        return resume
    if output.is_dir() and any(output.iterdir()) and not args.overwrite_output_dir:
        raise ValueError(
            f"{output} is not empty. Name another --output_dir, replace what is there with --overwrite_output_dir, or "
            "go on with --resume_from_checkpoint last."
        )
    return None


def load_task_data(data: DataArguments, custom: CustomTaskArguments) -> TaskData:
    """
    Rows of the task that the arguments name.

    Raises:
        ValueError, FileNotFoundError: for an unknown task, or files and rows that are not as they should be.
    """
    if not data.task:
        raise ValueError("Name a task with --task; --list_tasks prints all.")
    if data.task != "custom":
        return load_task(data.task, data.data_dir)
    if custom.train_file is None:
        raise ValueError("--task custom needs --train_file and the names of its columns.")
    return load_task(custom_task(**custom.task_options()))


def load_tokenizer(args: ModelArguments) -> GPTTokenizer:
    """
    The tokenizer of a model, with the task template switched on.

    Raises:
        ValueError: if there is none, or it is not a `GPTTokenizer`.
    """
    name = args.tokenizer_name or args.model_name_or_path
    if is_release(name) and not (Path(name) / "tokenizer_config.json").is_file():
        return GPTTokenizer.from_release(name, task_template=True)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, revision=args.revision, task_template=True)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"No tokenizer could be loaded from {name} ({error}). Name one with --tokenizer_name: a folder with "
            "tokenizer.json, or the release's folder with encoder_bpe_40000.json and vocab_40000.bpe."
        ) from error
    if not isinstance(tokenizer, GPTTokenizer):
        raise ValueError(f"{name} has a {type(tokenizer).__name__}; a GPTTokenizer is needed (see --tokenizer_name).")
    return tokenizer


def load_model(args: ModelArguments, spec: TaskSpec, tokenizer: GPTTokenizer, seed: int) -> GPTPreTrainedModel:
    """
    The model with the head of a task, in float32.

    Args:
        args (`ModelArguments`): what to start from.
        spec (`TaskSpec`): the task.
        tokenizer (`GPTTokenizer`): its ids must be those of the model.
        seed (`int`): of newly drawn weights.

    Raises:
        ValueError: if model and tokenizer do not belong together, or the model is none of ours.
        FileNotFoundError: if a file of the release is missing.
    """
    model_class = GPTForMultipleChoice if spec.family == "multiple-choice" else GPTForSequenceClassification
    settings: dict[str, Any] = {"lm_coef": args.lm_coef, "release_quirks": args.release_quirks}
    if args.dropout is not None:
        settings |= dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop"), args.dropout)
    if spec.family != "multiple-choice":
        settings["problem_type"] = spec.problem_type
        if spec.label_names:
            settings["id2label"] = dict(enumerate(spec.label_names))
            settings["label2id"] = {name: index for index, name in enumerate(spec.label_names)}
        else:
            settings["num_labels"] = 1
    set_seed(seed)
    name = args.model_name_or_path
    if is_release(name):
        if args.random_weights:
            config = release_config(read_release(name), n_head=args.n_head, **settings)
            model = model_class(config)
        else:
            model = load_release(name, model_class, n_head=args.n_head, seed=seed, **settings)
        model.set_attn_implementation(args.attn_implementation)
    else:
        config = AutoConfig.from_pretrained(name, revision=args.revision, **settings)
        if not isinstance(config, GPTConfig):
            raise ValueError(
                f"{name} is a {config.model_type} model; hf_gpt fine-tunes its own. Convert the OpenAI release with "
                "scripts/convert_openai_checkpoint.py."
            )
        if args.random_weights:
            config._attn_implementation = args.attn_implementation
            model = model_class(config)
        else:
            model = model_class.from_pretrained(
                name,
                config=config,
                revision=args.revision,
                dtype=torch.float32,
                attn_implementation=args.attn_implementation,
            )
    _check_ids(model.config, tokenizer, name)
    model.generation_config = default_generation_config(model.config)
    return model


def _check_ids(config: GPTConfig, tokenizer: GPTTokenizer, name: str) -> None:
    pairs = {
        "_start_": (config.start_token_id, tokenizer.bos_token_id),
        "_delimiter_": (config.delimiter_token_id, tokenizer.sep_token_id),
        "_classify_": (config.classify_token_id, tokenizer.cls_token_id),
        "<pad>": (config.pad_token_id, tokenizer.pad_token_id),
    }
    wrong = [
        f"{token} is {ours} in the model and {theirs} in the tokenizer"
        for token, (ours, theirs) in pairs.items()
        if ours != theirs
    ]
    if len(tokenizer) > config.vocab_size:
        wrong.append(f"the model has {config.vocab_size} rows and the tokenizer {len(tokenizer)} tokens")
    if wrong:
        raise ValueError(f"The tokenizer does not belong to {name}: {'; '.join(wrong)}.")


def input_transform(data: DataArguments, spec: TaskSpec, config: GPTConfig) -> InputTransform:
    """
    The layout of a task's rows for a model.

    Raises:
        ValueError: if `--max_length` is longer than the model's context.
    """
    if data.max_length is not None and data.max_length > config.n_positions:
        raise ValueError(f"--max_length {data.max_length} is longer than the model's context of {config.n_positions}.")
    return InputTransform(
        family=spec.family,
        special=SpecialIds(config.start_token_id, config.delimiter_token_id, config.classify_token_id),
        max_length=data.max_length or config.n_positions,
        rule=data.truncation,
        share_prefix=data.share_prefix,
    )


def encode_task(
    task: TaskData, data: DataArguments, tokenizer: GPTTokenizer, transform: InputTransform
) -> dict[str, tuple[Dataset, EncodingStatistics]]:
    """Encoded splits with their statistics, cut to `--max_train_rows` and `--max_eval_rows`."""
    encoded = {}
    for split, rows in task.splits.items():
        limit = data.max_train_rows if split == "train" else data.max_eval_rows
        if limit is not None:
            rows = rows.select(range(min(limit, len(rows))))
        encoded[split] = encode_split(
            rows, task.spec.text_columns, tokenizer, transform, data.num_proc, desc=f"tokenizing {split}"
        )
    return encoded


def describe_task(
    task: TaskData, encoded: dict[str, tuple[Dataset, EncodingStatistics]], tokenizer: GPTTokenizer
) -> str:
    """Splits, statistics, labels and the first training example decoded, for the eye before training starts."""
    lines = [f"Task {task.spec.name} ({task.spec.family}), version {task.spec.version}"]
    for split, (_, statistics) in encoded.items():
        lines.append(f"  {split}: {statistics}")
        if task.notes.get(split):
            lines.append(f"    {task.notes[split]}")
    train = encoded["train"][0]
    if task.spec.label_names:
        counts = Counter(train["label"]) if not isinstance(train[0]["label"], list) else {}
        names = [
            f"{index} {name}" + (f" ({counts[index]:,})" if counts else "")
            for index, name in enumerate(task.spec.label_names)
        ]
        lines.append(f"  labels: {', '.join(names)}")
    first = train[0]
    lines.append(f"First training example ({first['id']}), label {first['label']}:")
    for end in first["path_ends"]:
        indices = [end]
        while first["parent_index"][indices[-1]] != indices[-1]:
            indices.append(first["parent_index"][indices[-1]])
        lines.append("  " + tokenizer.decode([first["input_ids"][index] for index in reversed(indices)]))
    return "\n".join(lines)


def chance_level(spec: TaskSpec, train: Dataset, evaluated: Dataset) -> float:
    """
    What answering without reading the text reaches in the main metric: the share of the most frequent training
    class, or of one choice in those of an item; 0 for correlations and F1.
    """
    if spec.main_metric != "accuracy":
        return 0.0
    if spec.family == "multiple-choice":
        return float(np.mean([1 / len(ends) for ends in evaluated["path_ends"]]))
    majority = Counter(train["label"]).most_common(1)[0][0]
    return float(np.mean([label == majority for label in evaluated["label"]]))


def chance_warning(spec: TaskSpec, train: Dataset, evaluated: Dataset, score: float) -> str | None:
    """A warning if a score cannot be told from the level of chance (two standard errors), else `None`."""
    chance = chance_level(spec, train, evaluated)
    margin = 2 * math.sqrt(max(chance * (1 - chance), 0.25 * (chance == 0)) / max(1, len(evaluated)))
    if score > chance + margin:
        return None
    return (
        f"WARNING: {spec.main_metric} {score:.3f} cannot be told from chance ({chance:.3f} on {len(evaluated):,} "
        "rows): the model has learnt nothing from these labels. Check the labels and the first example above, raise "
        "--num_train_epochs, or try other --learning_rate and --seed values; small pretrained models need more "
        "of both."
    )


def write_predictions(path: Path, encoded: Dataset, logits: np.ndarray, spec: TaskSpec) -> None:
    """
    A table of predictions: `id`, `label` (empty where there is none), `prediction`, and one probability (or score)
    per class or choice; written whole or not at all.
    """
    logits = np.where(logits == TRAINER_PADDING, -np.inf, logits) if spec.family == "multiple-choice" else logits
    if spec.problem_type == "regression":
        values, predictions = logits.reshape(len(logits), 1), logits.reshape(-1)
        names = ["score"]
    elif spec.problem_type == "multi_label_classification":
        values = 1 / (1 + np.exp(-logits))
        predictions = ["|".join(np.asarray(spec.label_names)[row > 0.5]) for row in values]
        names = [f"p({name})" for name in spec.label_names]
    else:
        values = torch.tensor(logits).softmax(-1).numpy()
        labels = spec.label_names or range(logits.shape[1])
        predictions = [labels[index] for index in logits.argmax(-1)]
        names = [f"p({name})" for name in labels]
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write("\t".join(["id", "label", "prediction", *names]) + "\n")
        for row, prediction, numbers in zip(encoded.select_columns(["id", "label"]), predictions, values, strict=True):
            label = _written_label(row["label"], spec)
            file.write("\t".join([row["id"], label, str(prediction), *(f"{number:.6g}" for number in numbers)]) + "\n")
    temporary.replace(path)


def _written_label(label: Any, spec: TaskSpec) -> str:
    if isinstance(label, list):
        return "|".join(name for name, chosen in zip(spec.label_names, label, strict=True) if chosen > 0)
    if label == IGNORED_LABEL or label != label:
        return ""
    return spec.label_names[label] if spec.label_names else str(label)


def run(
    model_args: ModelArguments, data: DataArguments, custom: CustomTaskArguments, args: FineTuningArguments
) -> dict[str, Any]:
    """
    Fine-tune, evaluate, and write model, tokenizer, predictions, metrics and card into `args.output_dir`.

    Returns:
        `dict`: what `metrics.json` holds.

    Raises:
        ValueError, FileNotFoundError: for any input that is wrong, before training starts or a file is overwritten.
    """
    if not model_args.model_name_or_path:
        raise ValueError("Name a model with --model_name_or_path: an hf_gpt folder, a Hub id or the release's folder.")
    checkpoint = check_output_dir(args)
    is_main = args.process_index == 0
    with args.main_process_first(desc="reading the data"):
        task = load_task_data(data, custom)
        spec = task.spec
        tokenizer = load_tokenizer(model_args)
        model = load_model(model_args, spec, tokenizer, args.seed)
        transform = input_transform(data, spec, model.config)
        encoded = encode_task(task, data, tokenizer, transform)
    if is_main:
        print(describe_task(task, encoded, tokenizer), flush=True)
    compute_metrics = compute_metrics_for(spec)
    args.metric_for_best_model = f"eval_{spec.main_metric}"
    args.greater_is_better = True
    output = Path(args.output_dir)
    if is_main and args.overwrite_output_dir and checkpoint is None:
        _remove_earlier_results(output)

    trainer = GPTTrainer(
        model=model,
        args=args,
        train_dataset=encoded["train"][0],
        eval_dataset=encoded["validation"][0],
        data_collator=TokenTreeCollator(tokenizer.pad_token_id),
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
    )
    result = trainer.train(resume_from_checkpoint=checkpoint)
    metrics = evaluate_splits(trainer, encoded, spec, output)
    trainer.save_model()
    if is_main:
        # A pickle, of use to nobody who loads the model.
        (output / "training_args.bin").unlink(missing_ok=True)
    record = {
        "task": spec.name,
        "main_metric": spec.main_metric,
        "metrics": {split: values for split, values in metrics.items() if values},
        "chance": chance_level(spec, encoded["train"][0], encoded["validation"][0]),
        "rows": {split: len(rows) for split, (rows, _) in encoded.items()},
        "model": model_args.model_name_or_path,
        "random_weights": model_args.random_weights,
        "seed": args.seed,
        "train_seconds": result.metrics["train_runtime"],
        "steps": trainer.state.global_step,
    }
    if is_main:
        _write_json(output / "metrics.json", record)
        card = _card(record, spec, model_args, args, trainer)
        card.render().save(output / "README.md")
        _report(record, spec, encoded, output)
    return record


def evaluate_splits(
    trainer: GPTTrainer, encoded: dict[str, tuple[Dataset, EncodingStatistics]], spec: TaskSpec, output: Path
) -> dict[str, dict[str, float]]:
    """Metrics of the validation and test rows that have labels; writes the predictions of the test rows."""
    metrics: dict[str, dict[str, float]] = {}
    for split in ("validation", "test"):
        if split not in encoded:
            continue
        rows = encoded[split][0]
        unlabelled = split == "test" and _is_unlabelled(rows)
        prediction = trainer.predict(rows.remove_columns("label") if unlabelled else rows, metric_key_prefix=split)
        scores = {name: prediction.metrics.get(f"{split}_{name}") for name in spec.metrics}
        metrics[split] = {name: float(value) for name, value in scores.items() if value is not None}
        if split == "test" and trainer.is_world_process_zero():
            output.mkdir(parents=True, exist_ok=True)
            write_predictions(output / "predictions.tsv", rows, prediction.predictions, spec)
    return metrics


def _is_unlabelled(rows: Dataset) -> bool:
    labels = np.asarray(rows.with_format("numpy")["label"][:], dtype=np.float64)
    return bool((np.isnan(labels) | (labels == IGNORED_LABEL) | (labels == -1)).all())


def _remove_earlier_results(output: Path) -> None:
    """Checkpoints and result files of an earlier run, which the new run replaces; other files stay."""
    for path in output.glob("checkpoint-*"):
        if path.is_dir():
            shutil.rmtree(path)
    for name in RESULT_FILES:
        (output / name).unlink(missing_ok=True)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def _card(record, spec: TaskSpec, model_args: ModelArguments, args: FineTuningArguments, trainer) -> FineTunedCard:
    return FineTunedCard(
        name=f"{Path(model_args.model_name_or_path.rstrip('/')).name}-{spec.name}",
        task=spec.name,
        family=spec.family,
        description=spec.description,
        base_model=model_args.model_name_or_path,
        random_weights=model_args.random_weights,
        data_licence=spec.licence,
        data_source=spec.source,
        hyperparameters={
            "learning rate": args.learning_rate,
            "global batch size": args.train_batch_size * args.world_size * args.gradient_accumulation_steps,
            "epochs": args.num_train_epochs,
            "steps": record["steps"],
            "optimizer": args.optimizer if args.optimizer == "release" else args.optim,
            "schedule": f"{args.schedule}, warm-up {args.warmup}"
            if args.schedule != "trainer"
            else args.lr_scheduler_type,
            "weight decay": args.weight_decay,
            "dropout": trainer.model.config.resid_pdrop,
            "language-model coefficient": trainer.model.config.lm_coef,
        },
        metrics=record["metrics"],
        rows=record["rows"],
        seed=args.seed,
        seconds=record["train_seconds"],
        label_names=list(spec.label_names) if spec.label_names else None,
    )


def _report(record, spec: TaskSpec, encoded, output: Path) -> None:
    print()
    for split, values in record["metrics"].items():
        for name, value in values.items():
            print(f"{split} {name}: {value:.4f}")
    minutes, seconds = divmod(round(record["train_seconds"]), 60)
    print(f"training took {minutes} min {seconds} s, {record['steps']} steps")
    print(f"model, card (README.md), metrics.json and predictions.tsv are in {output}")
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
