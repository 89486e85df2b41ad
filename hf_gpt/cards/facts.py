"""
What a Trainer knows for a model card, after training.

    card = FineTunedCard("tickets", "classification", "user/gpt-mini", data_source="our help desk, 2024")
    fill_in(card, trainer.args, trainer.state, trainer.model)
    card.save("outputs/tickets")
"""

from importlib.metadata import version
from typing import Any

import peft
import torch
import transformers
from torch import nn
from transformers import TrainerState, TrainingArguments

from .fine_tuned import FineTunedCard


def fill_in(card: FineTunedCard, args: TrainingArguments, state: TrainerState, model: nn.Module) -> None:
    """Put what any Trainer knows after training into a card, in place, but for metrics and rows."""
    went_back = args.load_best_model_at_end and state.best_model_checkpoint and state.best_global_step
    card.kept_step = state.best_global_step if went_back else state.global_step
    card.chosen_by = args.metric_for_best_model.removeprefix("eval_") if went_back else None
    card.hyperparameters, card.seed = hyperparameters(args, state, model), args.seed
    card.seconds = next(line["train_runtime"] for line in reversed(state.log_history) if "train_runtime" in line)
    device, device_module = args.device.type, getattr(torch, args.device.type, None)
    if hasattr(device_module, "get_device_name"):
        device = device_module.get_device_name(args.device)
    card.hardware = device if args.world_size == 1 else f"{args.world_size} x {device}"
    packages = [transformers, torch, *([peft] if card.is_adapter else [])]
    card.versions = {"hf_gpt": version("hf-gpt"), **{one.__name__: str(one.__version__) for one in packages}}


def hyperparameters(args: TrainingArguments, state: TrainerState, model: nn.Module) -> dict[str, Any]:
    """Settings of a run by the names that a card gives them."""
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
        "dropout": config.resid_pdrop,
        # Of the task heads; a language model alone has none, and several tasks are a module of ours.
        "language-model coefficient": None if hasattr(model, "lm_head") else config.lm_coef,
        "label smoothing": args.label_smoothing_factor or None,
        "precision": precision,
        "context": config.n_positions,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _plain(value: Any) -> str:
    return str(getattr(value, "value", value)).removeprefix("torch.")
