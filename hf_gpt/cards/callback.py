"""
What a Trainer knows for a model card, and a callback that writes the card where a script of one's own trains.

    facts = FineTunedCard(task="tickets", family="classification", base_model="model_cards/gpt-mini",
                          data_source="our help desk, 2024", data_licence="not to be passed on")
    trainer = Trainer(..., callbacks=[ModelCardCallback(facts)])
"""

import csv
import time
from importlib.metadata import version
from numbers import Real
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from peft import PeftModel
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ..adapters import HEAD_CONFIG, head_config
from ..files import write_json
from ..trees.collators import PaddedDataset
from .fine_tuned import LOSSES, FineTunedCard

# codecarbon's own name; the Trainer's CodeCarbonCallback has it write into the output folder.
EMISSIONS = "emissions.csv"
_NO_METRIC = {"runtime", "samples_per_second", "steps_per_second", "model_preparation_time", *LOSSES}
_ADAPTER_SIZES = ("r", "num_virtual_tokens", "bottleneck_size")


class ModelCardCallback(TrainerCallback):
    """
    Writes the card of a model, with what the Trainer knows: hyper-parameters, both losses where they are logged (as
    `GPTTrainer` does), metrics, rows, duration, hardware, and emissions where codecarbon recorded them.

    Every checkpoint gets the card of its step; the output folder gets one at the end of training, and again after
    each later `evaluate` and `predict`. An adapter gets, next to it, the file that `hf_gpt.load_adapter` needs.

    The Trainer's own `push_to_hub` writes another card over this one, and peft's `save_pretrained` edits it:
    `callback.card.save(args.output_dir)` puts it back, and `scripts/push_to_hub.py` renders it again from `card.yaml`.

    Args:
        card (`FineTunedCard`): the facts that a Trainer cannot know: task, family, base model, data set and licence.
    """

    def __init__(self, card: FineTunedCard):
        self.card = card
        self._started: float = 0.0
        self._trained = False

    def on_train_begin(self, args, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._started, self._trained = time.time(), False
        self.card.metrics, self.card.resumed = {}, state.global_step > 0
        self._count("train", kwargs["train_dataloader"])

    def on_save(self, args, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        if folder.is_dir():
            self._write(folder, args, state, kwargs["model"])

    def on_train_end(self, args, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._trained = True
        self._write(Path(args.output_dir), args, state, kwargs["model"])

    def on_evaluate(self, args, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        scores = measured(kwargs["metrics"], "test_")
        if scores:
            self.card.metrics["test"] = scores
        self._count("test" if scores else "validation", kwargs["eval_dataloader"])
        if self._trained:
            self._write(Path(args.output_dir), args, state, kwargs["model"])

    on_predict = on_evaluate

    def _count(self, split: str, loader: Any) -> None:
        rows = getattr(loader, "dataset", None)
        if isinstance(rows, PaddedDataset):
            rows = rows.rows
        if hasattr(rows, "__len__"):
            self.card.rows[split] = len(rows)

    def _write(self, folder: Path, args: TrainingArguments, state: TrainerState, model: Any) -> None:
        fill_in(self.card, args, state, model, self._started)
        scores = measured(evaluation_line(args, state)[0], "eval_")
        test = {"test": self.card.metrics["test"]} if "test" in self.card.metrics else {}
        self.card.metrics = ({"validation": scores} if scores else {}) | test
        if state.is_world_process_zero:
            folder.mkdir(parents=True, exist_ok=True)
            if isinstance(model, PeftModel):
                write_json(folder / HEAD_CONFIG, head_config(model))
            self.card.save(folder)


def fill_in(
    card: FineTunedCard,
    args: TrainingArguments,
    state: TrainerState,
    model: PreTrainedModel | PeftModel,
    started: float = 0.0,
) -> None:
    """
    Put what a Trainer knows into a card, in place; metrics and rows are the caller's business. codecarbon's records
    from before the start of training, in seconds since the epoch, are another run's.
    """
    finished = next((line for line in reversed(state.log_history) if "train_runtime" in line), None)
    evaluation, kept = evaluation_line(args, state)
    if isinstance(model, PeftModel) and not card.is_adapter:
        card.adaptation = _plain(model.active_peft_config.peft_type).lower()
    card.hyperparameters = hyperparameters(args, state, model)
    card.seed = args.seed
    card.seconds = None if finished is None else finished["train_runtime"]
    card.kept_step = kept
    card.chosen_by = args.metric_for_best_model.removeprefix("eval_") if _went_back(args, state) else None
    card.losses = losses(card, state, evaluation)
    card.hardware = hardware(args)
    card.emissions = None if finished is None else read_emissions(Path(args.output_dir), started)
    packages = [transformers, torch, *([peft] if card.is_adapter else [])]
    card.versions = {"hf_gpt": version("hf-gpt")} | {
        package.__name__: str(package.__version__) for package in packages
    }


def hyperparameters(
    args: TrainingArguments, state: TrainerState, model: PreTrainedModel | PeftModel
) -> dict[str, Any]:
    """Settings of a run by the names that a card gives them; of `FineTuningArguments`, the release's among them."""
    config = model.config
    scheduled = getattr(args, "schedule", "trainer")
    optimizer = getattr(args, "optimizer", "trainer")
    precision = _plain(next(model.parameters()).dtype)
    if args.bf16 or args.fp16:
        precision = "bf16 mixed" if args.bf16 else "fp16 mixed"
    # Several tasks, or a head on cached features, are modules of our own.
    is_language_model = hasattr(model, "lm_head")
    settings = {
        "learning rate": args.learning_rate,
        "global batch size": args.train_batch_size * args.world_size * args.gradient_accumulation_steps,
        "epochs": args.num_train_epochs if args.max_steps <= 0 else round(state.epoch or 0, 2),
        "steps": state.global_step,
        "optimizer": _plain(args.optim) if optimizer == "trainer" else "the release's Adam",
        "schedule": f"{_plain(args.lr_scheduler_type)}, warm-up {args.warmup_steps:g}"
        if scheduled == "trainer"
        else f"{scheduled}, warm-up {getattr(args, 'warmup', args.warmup_steps):g}",
        "weight decay": args.weight_decay,
        "largest gradient norm": args.max_grad_norm,
        "dropout": getattr(config, "resid_pdrop", None),
        # Of the task heads; a language model alone has none.
        "language-model coefficient": None if is_language_model else getattr(config, "lm_coef", None),
        "label smoothing": args.label_smoothing_factor or None,
        "precision": precision,
        "context": getattr(config, "n_positions", None),
    }
    if isinstance(model, PeftModel):
        adapter = model.active_peft_config
        sizes = [getattr(adapter, name) for name in _ADAPTER_SIZES if hasattr(adapter, name)]
        settings["adapter size"] = sizes[0] if sizes else None
        trained = sum(value.numel() for value in model.parameters() if value.requires_grad)
        settings["trained parameters"] = f"{trained:,}"
    return {name: value for name, value in settings.items() if value is not None}


def _plain(value: Any) -> str:
    return str(getattr(value, "value", value)).removeprefix("torch.")


def evaluation_line(args: TrainingArguments, state: TrainerState) -> tuple[dict[str, float], int]:
    """
    What was logged of the evaluation of the weights that are there now, and the step they are of.

    That is the evaluation after training if there was one; else that of the best step, if the Trainer went back to
    it; else the last one of this very step. The lines of several evaluation sets are joined.
    """
    history = state.log_history
    ends = [index for index, line in enumerate(history) if "train_runtime" in line]
    step = state.best_global_step if _went_back(args, state) else state.global_step
    after = history[ends[-1] + 1 :] if ends else []
    lines = [line for line in after if any(name.startswith("eval_") for name in line)]
    lines = lines or [line for line in history if line.get("step") == step]
    joined = {name: value for line in lines for name, value in line.items() if name.startswith("eval_")}
    return joined, step


def _went_back(args: TrainingArguments, state: TrainerState) -> bool:
    """Whether training is over and the Trainer has loaded the best checkpoint."""
    is_over = any("train_runtime" in line for line in state.log_history)
    return bool(is_over and args.load_best_model_at_end and state.best_model_checkpoint and state.best_global_step)


def measured(line: dict[str, float], prefix: str) -> dict[str, float]:
    """The metrics among what the Trainer reports, without the prefix of the split."""
    named = {name.removeprefix(prefix): value for name, value in line.items() if name.startswith(prefix)}
    return {
        name: float(value)
        for name, value in named.items()
        if isinstance(value, Real) and not any(f"_{name}".endswith(f"_{other}") for other in _NO_METRIC)
    }


def losses(card: FineTunedCard, state: TrainerState, evaluation: dict[str, float]) -> list[dict[str, Any]]:
    """The loss and its terms as the Trainer last logged them in training, and in the evaluation of these weights."""
    lines = []
    last = next((line for line in reversed(state.log_history) if "loss" in line), None)
    if last is not None:
        terms = {name: float(last[name]) for name in LOSSES if name in last}
        lines.append({"part": f"training, step {last['step']:,}"} | terms)
    if "eval_loss" in evaluation:
        terms = {name: float(evaluation[f"eval_{name}"]) for name in LOSSES if f"eval_{name}" in evaluation}
        if "language-model" not in card.family and "lm_loss" not in terms:
            # In evaluation the loss of the task heads is the task's alone.
            terms.setdefault("task_loss", terms["loss"])
        lines.append({"part": "validation"} | terms)
    return lines


def hardware(args: TrainingArguments) -> str:
    """The devices of a run as torch names them."""
    device = args.device
    if device.type == "cpu":
        name = f"CPU ({torch.backends.cpu.get_cpu_capability()}), threads: {torch.get_num_threads()}"
    else:
        named = getattr(getattr(torch, device.type, None), "get_device_name", None)
        name = device.type if named is None else named(device)
    return name if args.world_size == 1 else f"{args.world_size} x {name}"


def read_emissions(folder: Path, since: float = 0.0) -> dict[str, Any] | None:
    """
    What codecarbon recorded last in a folder: `grams` of CO2 equivalents, the `seconds` that they cover, and `place`.
    None where it recorded nothing after `since` (seconds since the epoch).
    """
    path = folder / EMISSIONS
    if not path.is_file() or path.stat().st_mtime < since:
        return None
    *_, last = [None, *csv.DictReader(path.read_text(encoding="utf-8").splitlines())]
    if last is None:
        return None
    place = ", ".join(filter(None, (last.get("region"), last.get("country_name"))))
    # codecarbon counts kilograms.
    record = {"grams": 1000 * float(last["emissions"]), "seconds": float(last["duration"])}
    return record | ({"place": place} if place else {})
