"""
A training run in stages: what is prepared is fitted, measured and written.

    prepared = prepare(model_args, data, args)   # `fine_tuning`; `multi_task` and `frozen` prepare otherwise
    trainer = begin(prepared)
    trainer.train(resume_from_checkpoint=prepared.checkpoint)
    record = write(trainer, prepared, measure(trainer, prepared))
"""

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset
from peft import PeftModel
from torch import nn

from ..adapters import HEAD_CONFIG, head_config, resumption_problem
from ..cards.callback import fill_in
from ..cards.fine_tuned import FineTunedCard
from ..files import METRICS, PREDICTIONS, read_json, write_json
from ..model.modeling_gpt import GPTTaskModel
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks import TaskData, TaskSpec
from ..tasks.metrics import compute_metrics_for, logits_of
from ..tasks.report import chance_level, chance_warning, describe_task, write_predictions
from ..tasks.submissions import write_submission
from ..trees.collators import IGNORED_LABEL, TokenTreeCollator
from ..trees.transforms import InputTransform
from .arguments import DataArguments, FineTuningArguments, ModelArguments, on_precision
from .checkpoints import HEAD_LAYERS, saved_shapes
from .loading import describe_start, layers_read
from .output import FEATURES, remove_earlier_results
from .trainer import GPTTrainer
from .unfreezing import UnfreezingPlan

# Metrics by split.
Scores = dict[str, dict[str, float]]


@dataclass
class Part:
    """
    One task of a run: what was read; by split its rows as the model reads them; its model with its head; the layout of
    its rows; the folder of its results.
    """

    task: TaskData
    rows: dict[str, Dataset]
    model: GPTTaskModel | PeftModel
    transform: InputTransform
    output: Path

    @property
    def spec(self) -> TaskSpec:
        """`TaskSpec`: the declaration of the task."""
        return self.task.spec

    def trained_parameters(self) -> int:
        """How many numbers of its model are trained."""
        return sum(value.numel() for value in self.model.parameters() if value.requires_grad)


@dataclass
class Prepared:
    """
    What a run trains, measures and writes, checked, and nothing overwritten yet: its tasks (`parts`), the model that
    the Trainer trains, the checkpoint that it goes on from, and what is trained when (see `GPTTrainer`).
    """

    parts: list[Part]
    model: nn.Module
    tokenizer: GPTTokenizer
    model_args: ModelArguments
    data: DataArguments
    args: FineTuningArguments
    checkpoint: str | None = None
    unfreezing: UnfreezingPlan | None = None

    trainer_class: ClassVar[type[GPTTrainer]] = GPTTrainer

    @cached_property
    def collator(self) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
        """`Callable`: makes the batches."""
        return TokenTreeCollator(self.tokenizer.pad_token_id, self.model.config.is_causal)

    @property
    def main_metric(self) -> str:
        """`str`: the metric that chooses the best checkpoint."""
        return self.parts[0].spec.main_metric

    @property
    def output(self) -> Path:
        """`Path`: the folder of the results."""
        return Path(self.args.output_dir)

    def resumption_problem(self) -> str | None:
        """
        Why training cannot go on from the checkpoint: its parameters, or the layers that its head reads, are others
        than those of the model, of which the Trainer would leave out what does not fit.
        """
        saved, model = saved_shapes(self.checkpoint), self.model
        if self.checkpoint is not None and (problem := resumption_problem(self.parts[0].model, self.checkpoint)):
            return problem
        if not saved or self.model_args.adaptation not in ("full", "frozen"):
            return None
        ours = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        if saved != ours:
            is_head, was_head = (not any("embed_tokens" in name for name in names) for names in (ours, saved))
            if is_head != was_head:
                return "it holds a head alone: add --adaptation frozen" if was_head else "it holds a whole model"
            other = sorted(name for name in ours.keys() | saved.keys() if ours.get(name) != saved.get(name))
            return f"it differs from this run's model in {', '.join(other[:3])}"
        file = Path(self.checkpoint) / HEAD_LAYERS  # older checkpoints do not have it
        layers = read_json(file)["layers"] if file.is_file() else model.config.layers_of_head
        if layers == model.config.layers_of_head:
            return None
        return f"its head reads layer {layers[0]}, this run's reads {layers_read(model.config)}"

    def describe(self) -> str:
        """What training starts from, and on which rows, for the eye before it starts."""
        lines = [f"Starts from {describe_start(self.model_args)}."]
        lines += [describe_task(part.task, part.rows, self.tokenizer) for part in self.parts]
        if not self.model.config.is_causal:
            lines.append(
                "The model reads from both sides: the language-model loss is left out (lm_coef 0), and what sequences "
                "have in common is computed for each."
            )
        return "\n".join(lines if self.unfreezing is None else [*lines, f"Trained are\n{self.unfreezing}"])

    def make_trainer(self) -> GPTTrainer:
        """The Trainer of the prepared model and rows."""
        (part,) = self.parts
        return self.trainer_class(
            model=self.model,
            args=self.args,
            train_dataset=part.rows["train"],
            eval_dataset=part.rows["validation"],
            data_collator=self.collator,
            processing_class=self.tokenizer,
            compute_metrics=compute_metrics_for(part.spec, part.rows["validation"]),
            unfreezing=self.unfreezing,
        )

    def settings_of(self, part: Part) -> dict[str, Any]:
        """Settings of a task's run for its card, beside those that the Trainer's arguments hold; none is left out."""
        args, full = self.args, self.model_args.adaptation == "full"
        return {
            "starts from": describe_start(self.model_args),
            "pretrained layers": self.model_args.transfer_layers,
            "learning rate from layer to layer": None if args.layer_decay == 1 else f"times {args.layer_decay}",
            "unfreezing": None if args.unfreeze == "none" else args.unfreeze,
            "trained parameters": None if full else f"{part.trained_parameters():,}",
        }

    def record_of(self, part: Part, scores: Scores, trainer: GPTTrainer) -> dict[str, Any]:
        """
        What a task's `metrics.json` holds: `metrics` by split and name; `chance`, the main metric on the validation
        rows without reading the texts; `train_seconds` of the training since it went on; `warnings` on the rows, and
        where a score cannot be told from chance.
        """
        args, history = self.model_args, trainer.state.log_history
        train, validation = part.rows["train"], part.rows["validation"]
        score = scores["validation"].get(part.spec.main_metric)
        steps = trainer.state.global_step
        doubt = None if score is None else chance_warning(part.spec, train, validation, score, steps)
        return {
            "task": part.spec.name,
            "main_metric": part.spec.main_metric,
            "metrics": {split: values for split, values in scores.items() if values},
            "chance": chance_level(part.spec, train, validation),
            "rows": {split: len(rows) for split, rows in part.rows.items()},
            "model": args.model_name_or_path,
            "starts_from": describe_start(args),
            **{name: getattr(args, name) for name in ("random_weights", "transfer_layers", "adaptation")},
            "trained_parameters": part.trained_parameters(),
            "max_length": part.transform.max_length,
            "seed": self.args.seed,
            "train_seconds": next(line["train_runtime"] for line in reversed(history) if "train_runtime" in line),
            "steps": trainer.state.global_step,
            "resumed": self.checkpoint is not None,
            "warnings": [*part.task.warnings, *filter(None, [doubt])],
        }

    def summarise(self, records: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """What the `metrics.json` of the whole run holds."""
        (record,) = records.values()
        return record

    def where(self) -> str:
        """Where the results are, for people."""
        others = ", metrics.json and predictions.tsv" if "test" in self.parts[0].rows else " and metrics.json"
        return f"model, card (README.md){others} are in {self.output}"


def begin(prepared: Prepared) -> GPTTrainer:
    """Tell what is going to be trained, and remove what an earlier run left, if that was asked for; the Trainer."""
    args = prepared.args
    args.metric_for_best_model, args.greater_is_better = f"eval_{prepared.main_metric}", True
    if args.process_index == 0:
        print(prepared.describe(), flush=True)
        if args.overwrite_output_dir and prepared.checkpoint is None:
            for folder in {prepared.output, *(part.output for part in prepared.parts)}:
                remove_earlier_results(folder)
    trainer = prepared.make_trainer()
    if args.process_index == 0:
        print(*filter(None, (trainer.describe_batches(), on_precision(args))), sep="\n", flush=True)
    return trainer


def measure(trainer: GPTTrainer, prepared: Prepared) -> dict[str, Scores]:
    """
    By task, metrics of the validation and test rows that have labels. Writes the predictions of the test rows, and
    where all of them are there and the task has judges, the file that these want.
    """
    found: dict[str, Scores] = {}
    for part in prepared.parts:
        found[part.spec.name] = scores = {}
        for split in [name for name in ("validation", "test") if name in part.rows]:
            rows = part.rows[split]
            logits, scores[split] = predict_split(trainer, rows, part.spec)
            if split == "test" and trainer.is_world_process_zero():
                write_predictions(part.output / PREDICTIONS, rows, logits, part.spec)
                if prepared.data.max_eval_rows is None:
                    written = write_submission(part.output, rows, logits, part.spec)
                    if written is not None:
                        print(f"For the judges: {written}")
    return found


def predict_split(trainer: GPTTrainer, rows: Dataset, spec: TaskSpec) -> tuple[np.ndarray, dict[str, float]]:
    """Logits of encoded rows in their order, and the task's metrics; none where no row has a label."""
    trainer.compute_metrics = compute_metrics_for(spec, rows)
    prediction = trainer.predict(rows.remove_columns("label") if is_unlabelled(rows) else rows)
    scores = {name: prediction.metrics.get(f"test_{name}") for name in spec.metrics}
    return logits_of(prediction.predictions, spec), {
        name: float(value) for name, value in scores.items() if value is not None
    }


def is_unlabelled(rows: Dataset) -> bool:
    """Whether no encoded row has a gold label."""
    return bool(lacks_label(rows).all())


def lacks_label(rows: Dataset) -> np.ndarray:
    """Which labels of encoded rows are none: a boolean for each row, each of its labels, or each word of all rows."""
    labels = rows.with_format("numpy")["label"][:]
    if labels.dtype == object:  # of words, of which sentences have unlike numbers
        labels = np.concatenate(labels)
    if labels.ndim == 1 and np.issubdtype(labels.dtype, np.floating):  # scores, of which -1 may be one
        return np.isnan(labels)
    return (labels == IGNORED_LABEL) | (labels == -1)


def write(trainer: GPTTrainer, prepared: Prepared, scores: Mapping[str, Scores]) -> dict[str, Any]:
    """
    Write models, cards and records. `metrics.json` is written last, and what it holds is returned: where it is, the
    run is finished.
    """
    trainer.save_whole_model()
    records = {part.spec.name: prepared.record_of(part, scores[part.spec.name], trainer) for part in prepared.parts}
    summary = prepared.summarise(records)
    if trainer.is_world_process_zero():
        for part in prepared.parts:
            if isinstance(part.model, PeftModel):
                write_json(part.output / HEAD_CONFIG, head_config(part.model))
            _card(prepared, part, records[part.spec.name], trainer).save(part.output)
            if part.output != prepared.output:
                write_json(part.output / METRICS, records[part.spec.name])
        shutil.rmtree(prepared.output / FEATURES, ignore_errors=True)
        write_json(prepared.output / METRICS, summary)
        _report(prepared, records, summary)
    return summary


def _card(prepared: Prepared, part: Part, record: Mapping[str, Any], trainer: GPTTrainer) -> FineTunedCard:
    facts = ("adaptation", "random_weights", "metrics", "rows", "chance", "resumed", "max_length")
    card = FineTunedCard.for_task(
        part.spec, record["model"], limits=record["warnings"], **{name: record[name] for name in facts}
    )
    fill_in(card, prepared.args, trainer.state, trainer.model)
    settings = prepared.settings_of(part)
    card.hyperparameters |= {name: value for name, value in settings.items() if value is not None}
    return card


def _report(prepared: Prepared, records: Mapping[str, Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
    """Metrics, time and place of the results; and a warning where a score cannot be told from chance."""
    measured = {f"{task} ": record["metrics"] for task, record in records.items()} if len(records) > 1 else {}
    print()
    for task, metrics in {**measured, "": summary["metrics"]}.items():
        for split, values in metrics.items():
            for name, value in values.items():
                print(f"{task}{split} {name}: {value:.4f}")
    minutes, seconds = divmod(round(summary["train_seconds"]), 60)
    print(f"training took {minutes} min {seconds} s, {summary['steps']} steps")
    print(prepared.where())
    for part in prepared.parts:
        # Those on the rows were told before training.
        for warning in records[part.spec.name]["warnings"][len(part.task.warnings) :]:
            print(f"{part.spec.name}: " * (len(records) > 1) + f"WARNING: {warning}", file=sys.stderr)
