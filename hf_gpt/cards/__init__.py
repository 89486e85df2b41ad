"""
Cards of models that were fine-tuned or pretrained: what was trained on what, what was measured, code that runs.

    card = FineTunedCard("tickets", "classification", "user/gpt-mini", data_source="our help desk, 2024")
    fill_in(card, trainer.args, trainer.state, trainer.model)
    card.save("outputs/tickets")

After the facts in `card.yaml` were corrected by hand, `FineTunedCard.load(folder).save(folder)` writes all again.
"""

import dataclasses
import math
import os
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self, get_type_hints

import torch
import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, ModelCardData, eval_result_entries_to_yaml
from torch import nn
from transformers import TrainerState, TrainingArguments

from ..files import CARD, FACTS, check_types, read_yaml, reading, write_text
from ..files.templates import get_template
from ..hub.card import PIPELINE_TAGS, THIS_REPOSITORY
from ..hub.repositories import EVAL_RESULTS, is_hub_id
from ..tasks.metrics import METRICS
from ..tasks.spec import TEXT_TO_TEXT, TaskSpec

TEMPLATES = Path(__file__).parent / "templates"
SPREAD = ("median", "lowest", "highest")
_CLASSES = {
    "multiple-choice": "AutoModelForMultipleChoice",
    "language-model": "AutoModelForCausalLM",
    TEXT_TO_TEXT: "AutoModelForCausalLM",
    "masked-language-model": "AutoModelForMaskedLM",
    "tagging": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
}


@dataclass
class FineTunedCard:
    """
    The card of a fine-tuned model, an adapter or a language model; `fill_in` adds what a Trainer knows. Of the facts
    (all but the first two optional):

        task, family, description, problem_type, task_version, label_names: see `TaskSpec`; the family may also be
            `language-model` or `masked-language-model`.
        base_model: folder or Hub id of the model that training started from (empty for a new one); `base_on_hub` says
            which (by default a Hub id if there is no such folder), `random_weights` whether its weights were new.
        data_licence, data_source, dataset_id, dataset_config, dataset_revision: of the data; the last on the Hub.
        metrics, rows: measured values by split and metric; number of rows by split.
        main_metric, chance: the metric that counts, and its value on the validation rows without reading the texts.
        seeds: the same run with other seeds, as `hf_gpt.training.finetune.summarise` returns it.
        seconds, resumed: duration of training, and whether it counts from where a run was resumed.
        kept_step, chosen_by: the step that the weights are of, and the metric that chose it.
        adaptation: `full`, `frozen` if the head alone was trained, or the method of an adapter.
        limits: known limits in addition to those that follow from the facts.
    """

    task: str
    family: str
    base_model: str = ""
    name: str = ""
    description: str = ""
    problem_type: str | None = None
    random_weights: bool = False
    base_on_hub: bool | None = None
    data_licence: str = ""
    data_source: str = ""
    dataset_id: str | None = None
    dataset_config: str | None = None
    dataset_revision: str | None = None
    task_version: int | None = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    main_metric: str | None = None
    chance: float | None = None
    seed: int | None = None
    seeds: dict[str, Any] | None = None
    seconds: float | None = None
    resumed: bool = False
    kept_step: int | None = None
    chosen_by: str | None = None
    hardware: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    label_names: list[str] | None = None
    max_length: int | None = None
    adaptation: str = "full"
    licence: str | None = None
    limits: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.name or f"{self.base_name}-{self.task}"
        if self.base_on_hub is None:
            # Decided now: the folder may be gone, or be another machine's, when the card is rendered again.
            self.base_on_hub = is_hub_id(self.base_model)

    @classmethod
    def for_task(cls, spec: TaskSpec, base_model: str, **facts: Any) -> Self:
        """The card of a declared task, with what the task knows; `facts` are further arguments and override it."""
        known = {name: getattr(spec, name) for name in ("family", "description", "problem_type", "main_metric")}
        known |= {"data_licence": spec.licence, "data_source": spec.source, "task_version": spec.version}
        known["label_names"] = list(spec.label_names) if spec.label_names else None
        known |= {f"dataset_{name}": getattr(spec.hub, name, None) for name in ("id", "config", "revision")}
        return cls(task=spec.name, base_model=base_model, **known | facts)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Self:
        """The card whose facts a folder holds; a `ValueError` if its `card.yaml` is wrong."""
        path = Path(folder) / FACTS
        with reading(path):
            facts = read_yaml(path)
            check_types(path, facts, get_type_hints(cls))
            card = cls(**facts)
            card.render()  # which finds what is wrong within a fact
        return card

    def save(self, folder: str | os.PathLike) -> None:
        """Write `card.yaml`, `README.md` and, of a data set of the Hub, `.eval_results` into a folder, atomically."""
        facts = {name: value for name, value in dataclasses.asdict(self).items() if value not in (None, "", [], {})}
        texts = {FACTS: yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=math.inf)}
        # For the Hub's leaderboards the main metric on the test rows, or else the validation rows, of its data set.
        split = "test" if self.main_metric in self.metrics.get("test", {}) else "validation"
        value = self.metrics.get(split, {}).get(self.main_metric, math.nan)
        if self.dataset_id is not None and math.isfinite(value):
            notes = f"{self.main_metric}, {self.rows.get(split, 0):,} rows of {split}"
            entry = EvalResultEntry(self.dataset_id, self.dataset_config or "default", round(value, 4), notes=notes)
            texts[f"{EVAL_RESULTS}/{self.task}.yaml"] = yaml.safe_dump(eval_result_entries_to_yaml([entry]))
        for name, text in (texts | {CARD: str(self.render())}).items():
            write_text(Path(folder) / name, text)

    def render(self) -> ModelCard:
        """The card, its metadata checked by `huggingface_hub`."""
        results, derived = self.eval_results(), self.base_on_hub and not self.random_weights
        data = ModelCardData(
            language="en",
            license=self.licence,
            library_name="peft" if self.is_adapter else "transformers",
            tags=["gpt", "hf_gpt", *([self.adaptation] if self.is_adapter else [])],
            pipeline_tag=PIPELINE_TAGS[self.auto_class],
            base_model=self.base_model if derived else None,
            base_model_relation=("adapter" if self.is_adapter else "finetune") if derived else None,
            datasets=[self.dataset_id] if self.dataset_id else None,
            model_name=self.name if results else None,
            eval_results=results or None,
        )
        values = {"card": self, "card_data": data.to_yaml(), "results": results, "this_repository": THIS_REPOSITORY}
        return ModelCard(get_template(TEMPLATES / "fine_tuned.md").render(values, spread=SPREAD if self.seeds else ()))

    @property
    def is_adapter(self) -> bool:
        """`bool`: whether weights of the base model are needed, too."""
        return self.adaptation not in ("full", "frozen")

    @property
    def base_name(self) -> str:
        """`str`: the last part of the base model's folder or Hub id."""
        return Path(self.base_model.rstrip("/")).name

    @property
    def auto_class(self) -> str:
        """`str`: the Auto class of transformers that loads the model."""
        return _CLASSES.get(self.family, "AutoModelForSequenceClassification")

    def eval_results(self) -> list[EvalResult]:
        """The finite measured values as `model-index` has them; with several seeds, each says how the others did."""
        place = {"dataset_config": self.dataset_config, "dataset_revision": self.dataset_revision}
        names, results = (PIPELINE_TAGS[self.auto_class], self.dataset_id or self.task, self.task), []
        for split, values in self.metrics.items():
            described = {"task": self.task, "version": self.task_version, "rows": self.rows.get(split)}
            place["dataset_args"] = {name: item for name, item in described.items() if item is not None}
            for metric, value in values.items():
                if not math.isfinite(value):  # a correlation of constant predictions is no result
                    continue
                kind, options, *_ = METRICS.get(metric, (metric, {}))
                arguments = options | ({} if self.seed is None else {"seed": self.seed})
                if self.seeds and (others := self.seeds["metrics"].get(split, {}).get(metric)) is not None:
                    arguments |= {"seeds": self.seeds["seeds"], **{name: round(others[name], 4) for name in SPREAD}}
                measured = {"metric_value": round(value, 4), "metric_name": metric, "metric_args": arguments or None}
                results.append(EvalResult(*names, kind, dataset_split=split, **place, **measured))
        return results


def fill_in(card: FineTunedCard, args: TrainingArguments, state: TrainerState, model: nn.Module) -> None:
    """Put what any Trainer knows after training into a card, in place, but for metrics and rows."""
    went_back = args.load_best_model_at_end and state.best_model_checkpoint and state.best_global_step
    card.kept_step = state.best_global_step if went_back else state.global_step
    card.chosen_by = args.metric_for_best_model.removeprefix("eval_") if went_back else None
    card.seed = args.seed
    card.seconds = next(line["train_runtime"] for line in reversed(state.log_history) if "train_runtime" in line)
    name_of = getattr(torch.get_device_module(args.device), "get_device_name", None)
    device = name_of(args.device) if name_of else args.device.type
    card.hardware = device if args.world_size == 1 else f"{args.world_size} x {device}"
    packages = ("hf_gpt", "transformers", "torch", *(["peft"] if card.is_adapter else []))
    card.versions = {name: version(name) for name in packages}
    config, plain = model.config, args.to_dict()  # without enumerations
    schedule, warmup = plain.get("schedule", "trainer"), plain.get("warmup", args.warmup_steps)
    if schedule == "trainer":
        schedule, warmup = plain["lr_scheduler_type"], args.warmup_steps
    precision = str(next(model.parameters()).dtype).removeprefix("torch.")
    if args.bf16 or args.fp16:
        precision = "bf16 mixed" if args.bf16 else "fp16 mixed"
    elif plain.get("fast_float32"):
        precision += ", products by oneDNN"
    own = {"release": "the release's Adam", "muon": "Muon and AdamW"}.get(plain.get("optimizer"))
    settings = {
        "learning rate": args.learning_rate,
        "global batch size": args.train_batch_size * args.world_size * args.gradient_accumulation_steps,
        "epochs": args.num_train_epochs if args.max_steps <= 0 else round(state.epoch or 0, 2),
        "steps": state.global_step,
        "optimizer": own or plain["optim"],
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
    card.hyperparameters = {name: value for name, value in settings.items() if value is not None}


def learning_rate_advice(model: str, learning_rate: float) -> str | None:
    """What to say to a run whose learning rate is not the one that the card of its model, a folder, proposes."""
    try:
        proposed = ModelCard.load(Path(model) / CARD).data.get("fine_tuning_learning_rate", learning_rate)
    except (OSError, ValueError, yaml.YAMLError):  # no card, or none of ours: it is only advice
        return None
    if proposed == learning_rate:
        return None
    return f"The card of {model} proposes --learning_rate {proposed:g}; this run takes the paper's, {learning_rate:g}."
