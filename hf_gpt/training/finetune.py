"""Fine-tuning on a task or several, from arguments to metrics, predictions and a card: `run`, top to bottom."""

import copy
import shutil
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from datasets import Dataset, Value
from peft import PeftModel
from torch import nn
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from .. import files
from ..adapters import HEAD_CONFIG, head_config, virtual_tokens
from ..cards import FineTunedCard, fill_in
from ..hub.repositories import EVAL_RESULTS
from ..model.modeling_gpt import GPTTaskModel
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks import TaskData, TaskSpec, metrics, report
from ..tasks.spec import TEXT_TO_TEXT
from ..trees.collators import TokenTreeCollator
from .arguments import DataArguments, FineTuningArguments, LauncherArguments, ModelArguments, check_adaptation
from .frozen import FEATURES, FrozenFeatureHead, cache_features, collate_features
from .loading import check_resumption, describe_start, load_model
from .multi_task import MEAN_METRIC, MultiTaskModel, MultiTaskTrainer, tasks_of
from .rows import encode_task, input_transform, load_task_data, longest_first
from .text_to_text import TextToTextTrainer, declare_targets
from .trainer import GPTTrainer, choose_products, last_checkpoint, state_of

# What a run writes into its folder. A whole model and an adapter in one folder would be taken for each other.
RESULT_FILES = (files.METRICS, files.PREDICTIONS, files.PRETRAINING, files.CARD, files.FACTS, HEAD_CONFIG)
RESULT_FILES += ("config.json", "generation_config.json", "model.safetensors")
RESULT_FILES += ("adapter_config.json", "adapter_model.safetensors")
SETTINGS, RESULTS = "settings.json", "results.json"
# Of the Trainer's arguments those that the runs of several seeds share.
_SHARED = [*FineTuningArguments.__annotations__, "max_steps", "gradient_accumulation_steps", "label_smoothing_factor"]


@dataclass
class Part:
    """One task of a run: its rows as they were read, and by split as its model with its head reads them; a folder."""

    task: TaskData
    rows: dict[str, Dataset]
    model: GPTTaskModel | PeftModel
    max_length: int
    output: Path


@files.in_output_folder
def run(model_args: ModelArguments, data: DataArguments, args: FineTuningArguments) -> dict[str, Any]:
    """
    Fine-tune, evaluate, and write model, tokenizer, predictions, metrics and card into `args.output_dir`, or with
    `data.tasks` into a folder for each. What `metrics.json` holds, which is written last, is returned: `metrics` by
    split and name; `chance`, the main metric on the validation rows without reading the texts; `train_seconds` since
    the run was resumed; `warnings`; and settings. Of several tasks, these of each in `tasks`. Wrong input is a
    `ValueError` or `FileNotFoundError` before training starts or a file is overwritten.
    """
    if not model_args.model_name_or_path:
        raise ValueError("Name a model with --model_name_or_path: an hf_gpt folder, a Hub id or the release's folder.")
    tasks = {"": data} if data.tasks is None else tasks_of(model_args, data, args)
    check_adaptation(model_args, data, args)
    checkpoint, output, is_first = check_output_dir(args), Path(args.output_dir), args.process_index == 0
    choose_products(args, checkpoint)
    with args.main_process_first(desc="reading the data"):
        read = {folder: load_task_data(of_task) for folder, of_task in tasks.items()}
        tokenizer, parts = model_args.tokenizer_source.tokenizer(task_template=True), []
        for folder, task in read.items():
            model = load_model(model_args, task.spec, tokenizer, args.seed)
            declare_targets(model, task.spec, tokenizer, data)
            transform = input_transform(data, task.spec, model.config, tokenizer, virtual_tokens(model))
            rows = encode_task(task, data, tokenizer, transform)
            parts.append(Part(task, rows, model, transform.max_length, output / folder))
    if model_args.adaptation == "frozen":
        model = FrozenFeatureHead(model)
    elif data.tasks is not None:
        model = MultiTaskModel({part.task.spec.name: part.model for part in parts})
    check_resumption(checkpoint, model, parts[0].model)
    if is_first:
        print(f"Starts from {describe_start(model_args, parts[0].task.spec.family)}.")
        print(*(report.describe_task(part.task, part.rows, tokenizer) for part in parts), sep="\n", flush=True)
        if (config := parts[0].model.config).lm_coef != model_args.lm_coef:
            why = "it would train nothing" if config.is_causal else "the model reads from both sides"
            print(f"The language-model loss is left out (lm_coef 0, not {model_args.lm_coef:g}): {why}.", flush=True)
    trainer = make_trainer(model, parts, tokenizer, data, args)
    if is_first and args.overwrite_output_dir and checkpoint is None:
        for folder in {output, *(part.output for part in parts)}:
            remove_earlier_results(folder)
    summary = trainer.finished_record(checkpoint, files.METRICS)
    if summary is None:
        seconds = trainer.train(resume_from_checkpoint=checkpoint).metrics["train_runtime"]
        facts = {"train_seconds": seconds, "steps": trainer.state.global_step, "resumed": checkpoint is not None}
        records = {part.task.spec.name: record_of(part, trainer, model_args) | facts for part in parts}
        summary, *_ = records.values()
        if data.tasks is not None:
            summary = summarise_tasks(records)
        trainer.save_whole_model()
        if is_first:
            for part in parts:
                write_card(part, records[part.task.spec.name], trainer, model_args, data)
            files.write_json(output / files.METRICS, summary)
            print_results(parts, records, summary, output)
    if is_first:
        shutil.rmtree(output / FEATURES, ignore_errors=True)
    if args.push_to_hub and data.tasks is None:
        trainer.push_to_hub()
    return summary


def check_output_dir(args: LauncherArguments) -> str | None:
    """The checkpoint to resume from, if any; a `ValueError` if it is not whole, or results would be overwritten."""
    output, resume, may_replace = Path(args.output_dir), args.resume_from_checkpoint, args.overwrite_output_dir
    if resume == "last":
        if (found := last_checkpoint(output, args)) is not None:
            return str(found)
        # An interruption before the first checkpoint has left no result.
        may_replace = may_replace or files.contents(output).isdisjoint(RESULT_FILES)
        if args.process_index == 0:
            print(f"{output} holds no checkpoint yet: training starts at the beginning.", flush=True)
    elif resume is not None:
        if not (state_of(resume) and any(Path(resume).glob("optimizer*"))):
            raise ValueError(f"--resume_from_checkpoint {resume} is not a whole checkpoint with an optimizer's state.")
        return resume
    files.check_empty(output, may_replace, f"{files.OVERWRITE} Or resume with --resume_from_checkpoint last.")
    return None


def remove_earlier_results(output: Path) -> None:
    """Result files and checkpoints of an earlier run, which the new run replaces; other files stay."""
    for name in RESULT_FILES:
        (output / name).unlink(missing_ok=True)
    for path in output.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        (path / TRAINER_STATE_NAME).unlink(missing_ok=True)  # it is not whole from now on
        shutil.rmtree(path)
    for name in (files.UNFINISHED, EVAL_RESULTS):
        shutil.rmtree(output / name, ignore_errors=True)


def make_trainer(
    model: nn.Module, parts: list[Part], tokenizer: GPTTokenizer, data: DataArguments, args: FineTuningArguments
) -> GPTTrainer:
    """The Trainer of a run; a frozen model is run once over all rows, whose features take the place of their trees."""
    collator = TokenTreeCollator(tokenizer.pad_token_id, model.config.is_causal)
    more: dict[str, Any] = {"model": model, "args": args, "processing_class": tokenizer}
    args.greater_is_better = True
    if data.tasks is not None:
        args.metric_for_best_model = f"eval_{MEAN_METRIC}"
        for part in parts:  # batches name their task
            for split, rows in part.rows.items():
                part.rows[split] = rows.add_column("task", [part.task.spec.name] * len(rows))
        return MultiTaskTrainer(
            train_dataset={part.task.spec.name: part.rows["train"] for part in parts},
            eval_dataset={part.task.spec.name: longest_first(part.rows["validation"])[0] for part in parts},
            data_collator=collator,
            specs={part.task.spec.name: part.task.spec for part in parts},
            **more,
        )
    (part,), spec = parts, parts[0].task.spec
    if isinstance(model, FrozenFeatureHead):
        part.rows = cache_features(part.model, part.rows, collator, args)
        collator = partial(collate_features, config=model.config)
    more |= {"train_dataset": part.rows["train"], "eval_dataset": longest_first(part.rows["validation"])[0]}
    if spec.family == TEXT_TO_TEXT:
        args.metric_for_best_model, args.greater_is_better = "eval_loss", False
        return TextToTextTrainer(metrics=spec.metrics, **more)
    args.metric_for_best_model = f"eval_{spec.main_metric}"
    measure = metrics.compute_metrics_for(spec, more["eval_dataset"])
    return GPTTrainer(data_collator=collator, compute_metrics=measure, **more)


def predict_split(trainer: GPTTrainer, rows: Dataset, spec: TaskSpec) -> tuple[Any, dict[str, float]]:
    """Logits, or texts, of encoded rows in their order, and the task's metrics; none where no row has a label."""
    if isinstance(trainer, TextToTextTrainer):
        return trainer.predict_texts(rows)
    rows, places = longest_first(rows)
    trainer.compute_metrics = metrics.compute_metrics_for(spec, rows)
    prediction = trainer.predict(rows.remove_columns("label") if lacks_label(rows).all() else rows)
    found = {name: prediction.metrics.get(f"test_{name}") for name in spec.metrics}
    scores = {name: float(value) for name, value in found.items() if value is not None}
    return metrics.logits_of(prediction.predictions, spec)[places], scores


def lacks_label(rows: Dataset) -> np.ndarray:
    """Which labels of encoded rows are none: a boolean for each row, each of its labels, or each word of all rows."""
    if rows.features["label"] == Value("string"):
        return np.array([not label for label in rows["label"]])
    labels = rows.with_format("numpy")["label"][:]
    # Of words, of which sentences have unlike numbers.
    return metrics.lacks_label(np.concatenate(labels) if labels.dtype == object else labels)


def record_of(part: Part, trainer: GPTTrainer, model_args: ModelArguments) -> dict[str, Any]:
    """Evaluate a task; what its `metrics.json` holds (see `run`). Writes the predictions of the test rows."""
    spec, scores = part.task.spec, {}
    for split in [name for name in ("validation", "test") if name in part.rows]:
        rows = part.rows[split]
        logits, scores[split] = predict_split(trainer, rows, spec)
        if split == "test" and trainer.is_world_process_zero():
            report.write_predictions(part.output / files.PREDICTIONS, rows, logits, spec)
    train, validation = part.rows["train"], part.rows["validation"]
    score, doubt = scores["validation"].get(spec.main_metric), None
    if score is not None and spec.family != TEXT_TO_TEXT:
        doubt = report.chance_warning(spec, train, validation, score)
    learnt = {}
    if model_args.adaptation == "frozen" and part.model.config.head_layers == "mix":
        mix = part.model.head_mix
        learnt["layer_mix"] = {"weights": mix.scalars.softmax(0).tolist(), "gamma": mix.gamma.item()}
    return {
        "task": spec.name,
        "main_metric": next(iter(scores["validation"]), spec.main_metric),
        "metrics": {split: values for split, values in scores.items() if values},
        "chance": report.chance_level(spec, train, validation),
        "rows": {split: len(rows) for split, rows in part.rows.items()},
        "model": model_args.model_name_or_path,
        "starts_from": describe_start(model_args, spec.family),
        **{name: getattr(model_args, name) for name in ("random_weights", "transfer_layers", "adaptation")},
        "trained_parameters": sum(value.numel() for value in part.model.parameters() if value.requires_grad),
        **learnt,
        "max_length": part.max_length,
        "seed": trainer.args.seed,
        "fast_float32": trainer.args.fast_float32,
        "warnings": [*part.task.warnings, *filter(None, [doubt])],
    }


def summarise_tasks(records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The records of all tasks, and the means of their main metrics in the splits in which all have one."""
    means = {}
    for record in records.values():
        record["trained_with"] = [task for task in records if task != record["task"]]
    for split in ("validation", "test"):
        scores = [record["metrics"].get(split, {}).get(record["main_metric"]) for record in records.values()]
        if None not in scores:
            means[split] = {MEAN_METRIC: float(np.mean(scores))}
    shared = ("model", "starts_from", "random_weights", "transfer_layers", "adaptation", "seed", "fast_float32")
    shared = {name: record[name] for name in (*shared, "train_seconds", "steps", "resumed")}
    return {"tasks": dict(records), "main_metric": MEAN_METRIC, "metrics": means, **shared}


def write_card(
    part: Part, record: dict[str, Any], trainer: GPTTrainer, model_args: ModelArguments, data: DataArguments
) -> None:
    """A task's card, what an adapter needs of its head, and of several tasks the own record of each."""
    args = trainer.args
    if isinstance(part.model, PeftModel):
        files.write_json(part.output / HEAD_CONFIG, head_config(part.model))
    names = ("adaptation", "random_weights", "main_metric", "metrics", "rows", "chance", "resumed", "max_length")
    facts = {name: record[name] for name in names}
    card = FineTunedCard.for_task(part.task.spec, record["model"], limits=record["warnings"], **facts)
    fill_in(card, args, trainer.state, trainer.model)
    settings = {
        "starts from": record["starts_from"],
        "pretrained layers": model_args.transfer_layers,
        "learning rate from layer to layer": None if args.layer_decay == 1 else f"times {args.layer_decay}",
        "unfreezing": None if args.unfreeze == "none" else args.unfreeze,
        "trained parameters": None if model_args.adaptation == "full" else f"{record['trained_parameters']:,}",
    }
    if model_args.adaptation == "frozen":
        config, reads = part.model.config, {None: "the last layer", "mix": "a learnt mix of all layers"}
        settings["head reads"] = reads.get(config.head_layers, f"layer {config.head_layers} of {config.n_layer}")
    if mix := record.get("layer_mix"):
        shares = ", ".join(f"{weight:.2f}" for weight in mix["weights"])
        settings["learnt mix, from the embedding up"] = f"{shares}; times {mix['gamma']:.2f}"
    if data.tasks is not None:
        settings["trained together with"] = ", ".join(record["trained_with"])
        files.write_json(part.output / files.METRICS, record)
    card.hyperparameters |= {name: value for name, value in settings.items() if value is not None}
    card.save(part.output)


def print_results(parts: list[Part], records: dict[str, dict], summary: dict[str, Any], output: Path) -> None:
    """Print metrics, time and place of the results; and a warning where a score is no better than chance."""
    several = "tasks" in summary
    for task, record in {**(records if several else {}), "": summary}.items():
        for split, found in record["metrics"].items():
            print(*(f"{task} {split} {name}: {value:.4f}".lstrip() for name, value in found.items()), sep="\n")
    print(f"training took {summary['train_seconds']:.0f} s, {summary['steps']} steps")
    print(f"model, card (README.md) and metrics.json are in {output}{'/TASK' * several}")
    for part in parts:  # warnings on the rows were printed before training
        for warning in records[part.task.spec.name]["warnings"][len(part.task.warnings) :]:
            print(f"{part.task.spec.name}: WARNING: {warning}", file=sys.stderr)


@files.in_output_folder
def run_seeds(model_args: ModelArguments, data: DataArguments, args: FineTuningArguments) -> dict[str, Any]:
    """
    Fine-tune with `args.seeds` seeds, counted up from `args.seed`, each in a folder `seed-N` of `args.output_dir`;
    write and return what `results.json` holds (see `summarise`). The same call resumes where an earlier one stopped.
    Wrong input, or runs of other settings in the folder, is a `ValueError` before anything is trained or overwritten.
    """
    if args.resume_from_checkpoint not in (None, "last"):
        raise ValueError("--seeds resumes by itself where it was stopped: leave out --resume_from_checkpoint.")
    output, records, is_first = Path(args.output_dir), {}, args.process_index == 0
    settings = asdict(model_args) | asdict(data)
    settings |= {name: value for name, value in args.to_dict().items() if name in _SHARED and name != "seeds"}
    with args.main_process_first(desc="checking the folder"):
        if (output / SETTINGS).is_file() and not args.overwrite_output_dir:
            files.check_settings(output, files.read_json(output / SETTINGS), settings)
        else:
            files.check_empty(output, args.overwrite_output_dir)
            for folder in output.glob("seed-*") if is_first else ():
                remove_earlier_results(folder)
            if is_first:
                (output / RESULTS).unlink(missing_ok=True)
                files.write_json(output / SETTINGS, settings)
    for seed in range(args.seed, args.seed + args.seeds):
        record = output / f"seed-{seed}" / files.METRICS
        if record.is_file():
            records[seed] = files.read_json(record)
        else:
            if is_first:
                print(f"Seed {seed} ({len(records) + 1} of {args.seeds})", flush=True)
            own = copy.deepcopy(args)
            own.output_dir, own.seed, own.overwrite_output_dir = str(record.parent), seed, False
            own.resume_from_checkpoint = "last"
            records[seed] = run(model_args, data, own)
        args.fast_float32 = records[seed].get("fast_float32", False)  # all seeds alike
    results = summarise(records)
    if is_first:
        files.write_json(output / RESULTS, results)
        for seed in records:
            card = FineTunedCard.load(output / f"seed-{seed}")
            card.seeds = results
            card.save(output / f"seed-{seed}")
        for split, found in results["metrics"].items():
            for name, value in found.items():
                print(f"{split} {name}: {value['median']:.4f} ({value['lowest']:.4f} to {value['highest']:.4f})")
        print(f"{RESULTS} is in {output}")
    return results


def summarise(records: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The record of several seeds: `metrics[split][metric]` has `values`, `median`, `lowest` and `highest`."""
    first = next(iter(records.values()))
    found: dict[str, dict[str, Any]] = {split: {} for split in first["metrics"]}
    for split, name in ((split, name) for split, names in first["metrics"].items() for name in names):
        runs = [record["metrics"][split][name] for record in records.values()]
        found[split][name] = {"values": runs, "median": median(runs), "lowest": min(runs), "highest": max(runs)}
    kept = {name: first[name] for name in ("task", "main_metric", "chance", "rows", "model", "random_weights")}
    return {**kept, "seeds": list(records), "metrics": found}
