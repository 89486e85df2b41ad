"""
What a Trainer knows for a model card, and a callback that writes the card.

    facts = FineTunedCard(task="tickets", family="classification", base_model="user/gpt-mini",
                          data_source="our help desk, 2024", data_licence="not to be passed on")
    trainer = Trainer(..., callbacks=[ModelCardCallback(facts)])
"""

from importlib.metadata import version
from numbers import Real
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from peft import PeftModel
from torch import nn
from transformers import TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ..adapters import HEAD_CONFIG, head_config
from ..files import write_json
from ..trees.collators import PaddedDataset
from .fine_tuned import FineTunedCard

_NO_METRIC = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "loss")


class ModelCardCallback(TrainerCallback):
    """
    Writes a card, whose facts are those that a Trainer cannot know (task, family, base model, data set, licence), with
    what it knows: into every checkpoint, into the output folder at the end of training, and again after each later
    `evaluate` and `predict`. An adapter gets, next to it, the file that `hf_gpt.load_adapter` needs.

    The Trainer's own `push_to_hub` writes another card over this one, and peft's `save_pretrained` edits it:
    `callback.card.save(args.output_dir)` puts it back.
    """

    def __init__(self, card: FineTunedCard):
        self.card, self._trained = card, False

    def on_train_begin(self, args, state, control, train_dataloader, **kwargs: Any) -> None:
        self._trained, self.card.metrics, self.card.resumed = False, {}, state.global_step > 0
        self._count("train", train_dataloader)

    def on_save(self, args, state, control, model, **kwargs: Any) -> None:
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        if folder.is_dir():
            self._write(folder, args, state, model)

    def on_train_end(self, args, state, control, model, **kwargs: Any) -> None:
        self._trained = True
        self._write(Path(args.output_dir), args, state, model)

    def on_evaluate(self, args, state, control, model, metrics, eval_dataloader, **kwargs: Any) -> None:
        if scores := measured(metrics, "test_"):
            self.card.metrics["test"] = scores
        self._count("test" if scores else "validation", eval_dataloader)
        if self._trained:
            self._write(Path(args.output_dir), args, state, model)

    on_predict = on_evaluate

    def _count(self, split: str, loader: Any) -> None:
        rows = getattr(loader, "dataset", None)
        rows = rows.rows if isinstance(rows, PaddedDataset) else rows
        if hasattr(rows, "__len__"):
            self.card.rows[split] = len(rows)

    def _write(self, folder: Path, args: TrainingArguments, state: TrainerState, model: Any) -> None:
        validation = measured(fill_in(self.card, args, state, model), "eval_")
        found = {"validation": validation, "test": self.card.metrics.get("test")}
        self.card.metrics = {split: scores for split, scores in found.items() if scores}
        if state.is_world_process_zero:
            if isinstance(model, PeftModel):
                write_json(folder / HEAD_CONFIG, head_config(model))
            self.card.save(folder)


def fill_in(card: FineTunedCard, args: TrainingArguments, state: TrainerState, model: nn.Module) -> dict[str, float]:
    """
    Put what a Trainer knows into a card, in place, but for metrics and rows. Returns what was logged of the evaluation
    of the weights that are there now: that after training if there was one; else that of the best step, if the Trainer
    went back to it; else that of this step. The lines of several evaluation sets are joined.
    """
    history = state.log_history
    ends = [index for index, line in enumerate(history) if "train_runtime" in line]
    went_back = ends and args.load_best_model_at_end and state.best_model_checkpoint and state.best_global_step
    step = state.best_global_step if went_back else state.global_step
    evaluation: dict[str, float] = {}
    for lines in (history[ends[-1] + 1 :] if ends else [], [line for line in history if line.get("step") == step]):
        found = {name: value for line in lines for name, value in line.items() if name.startswith("eval_")}
        evaluation = evaluation or found
    if isinstance(model, PeftModel) and not card.is_adapter:
        card.adaptation = _plain(model.active_peft_config.peft_type).lower()
    card.hyperparameters, card.seed = hyperparameters(args, state, model), args.seed
    card.seconds = history[ends[-1]]["train_runtime"] if ends else None
    card.kept_step = step
    card.chosen_by = args.metric_for_best_model.removeprefix("eval_") if went_back else None
    device, device_module = args.device.type, getattr(torch, args.device.type, None)
    if hasattr(device_module, "get_device_name"):
        device = device_module.get_device_name(args.device)
    card.hardware = device if args.world_size == 1 else f"{args.world_size} x {device}"
    packages = [transformers, torch, *([peft] if card.is_adapter else [])]
    card.versions = {"hf_gpt": version("hf-gpt"), **{one.__name__: str(one.__version__) for one in packages}}
    return evaluation


def hyperparameters(args: TrainingArguments, state: TrainerState, model: nn.Module) -> dict[str, Any]:
    """Settings of a run by the names that a card gives them; of `FineTuningArguments`, the release's among them."""
    config = model.config
    schedule, warmup = getattr(args, "schedule", "trainer"), getattr(args, "warmup", args.warmup_steps)
    if schedule == "trainer":
        schedule, warmup = _plain(args.lr_scheduler_type), args.warmup_steps
    precision = _plain(next(model.parameters()).dtype)
    if args.bf16 or args.fp16:
        precision = "bf16 mixed" if args.bf16 else "fp16 mixed"
    elif getattr(args, "fast_float32", False):
        precision += ", products by oneDNN"
    own = {"release": "the release's Adam", "muon": "Muon and AdamW"}.get(getattr(args, "optimizer", "trainer"))
    settings = {
        "learning rate": args.learning_rate,
        "global batch size": args.train_batch_size * args.world_size * args.gradient_accumulation_steps,
        "epochs": args.num_train_epochs if args.max_steps <= 0 else round(state.epoch or 0, 2),
        "steps": state.global_step,
        "optimizer": own or _plain(args.optim),
        "schedule": f"{schedule}, warm-up {warmup:g}",
        "weight decay": args.weight_decay,
        "largest gradient norm": args.max_grad_norm,
        "dropout": getattr(config, "resid_pdrop", None),
        # Of the task heads; a language model alone has none, and several tasks are a module of ours.
        "language-model coefficient": None if hasattr(model, "lm_head") else getattr(config, "lm_coef", None),
        "label smoothing": args.label_smoothing_factor or None,
        "precision": precision,
        "context": getattr(config, "n_positions", None),
    }
    return {name: value for name, value in settings.items() if value is not None}


def _plain(value: Any) -> str:
    return str(getattr(value, "value", value)).removeprefix("torch.")


def measured(line: dict[str, float], prefix: str) -> dict[str, float]:
    """The metrics among what the Trainer reports, without the prefix of the split."""
    values = {name: value for name, value in line.items() if name.startswith(prefix) and isinstance(value, Real)}
    return {name[len(prefix) :]: float(value) for name, value in values.items() if not name.endswith(_NO_METRIC)}
