"""
Model cards: what was trained on what, what was measured, and code that runs.

A card is a dataclass. `save` writes it twice: `card.yaml` has its facts, `README.md` is what a template of
`hf_gpt/cards/templates` makes of them. After facts were corrected or added by hand,

    python -m hf_gpt.cards.fine_tuned FOLDER

renders README.md again.
"""

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from huggingface_hub import EvalResult, ModelCardData

from ..files import CARD, write_text
from ..hub.card import PIPELINE_TAGS, THIS_REPOSITORY
from ..hub.downloads import is_hub_id
from ..tasks.metrics import METRICS
from ..tasks.spec import TaskSpec
from .base import Card

LOSSES = ("loss", "task_loss", "lm_loss")
_SPREAD = ("median", "lowest", "highest")
_CLASSES = {
    "multiple-choice": "AutoModelForMultipleChoice",
    "language-model": "AutoModelForCausalLM",
    "masked-language-model": "AutoModelForMaskedLM",
    "tagging": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
}


@dataclass
class FineTunedCard(Card):
    """
    The card of a fine-tuned model or an adapter. `hf_gpt.cards.callback` fills in what a Trainer knows.

    Args:
        task, family, description, problem_type, task_version, label_names: see `TaskSpec`; the family may also be
            `language-model` or `masked-language-model`.
        base_model (`str`): folder or Hub id of the model that training started from; empty for a new one.
        name (`str`, *optional*): title; by default base model and task.
        random_weights (`bool`, *optional*, defaults to `False`): whether the base model's weights were new.
        base_on_hub (`bool`, *optional*): whether `base_model` is a Hub id; by default, if there is no such folder.
        data_licence, data_source (`str`, *optional*): what the publisher says of the data, and where it is.
        dataset_id, dataset_config, dataset_revision (`str`, *optional*): its place on the Hub.
        hyperparameters, versions (`dict`): settings and packages, in the order to print.
        metrics, rows (`dict`): measured values by split and metric; number of rows by split.
        main_metric, chance (*optional*): the metric that counts, and what it is on the validation rows without reading
            the texts.
        losses (`list[dict]`): `part` (what was measured), and of `loss`, `task_loss` and `lm_loss` those known.
        seeds (`dict`, *optional*): the same run with other seeds, as `hf_gpt.training.finetune.summarise` returns it.
        seconds, resumed (*optional*): duration of training, and whether it counts from where a run was resumed.
        kept_step, chosen_by (*optional*): the step that the weights are of, and the metric that chose it.
        emissions (`dict`, *optional*): `grams` of CO2 equivalents, `seconds` and `place`, as codecarbon recorded them.
        max_length (`int`, *optional*): longest sequence in tokens.
        adaptation (`str`, *optional*, defaults to `"full"`): `frozen` if the head alone was trained, or the method of
            an adapter, which is saved without its base model.
        repo_id, licence (`str`, *optional*): where the model is published (the code then loads it from there), and its
            licence as the Hub writes it.
        limits (`list[str]`): known limits besides those that follow from the facts.
        tags (`list[str]`): for the Hub's search.
    """

    kind: ClassVar[str] = "fine_tuned"
    folder: ClassVar[str] = "."

    task: str
    family: str
    base_model: str
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
    losses: list[dict[str, str | float]] = field(default_factory=list)
    seed: int | None = None
    seeds: dict[str, Any] | None = None
    seconds: float | None = None
    resumed: bool = False
    kept_step: int | None = None
    chosen_by: str | None = None
    hardware: str | None = None
    emissions: dict[str, str | float | None] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    label_names: list[str] | None = None
    max_length: int | None = None
    adaptation: str = "full"
    repo_id: str | None = None
    licence: str | None = None
    limits: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=lambda: ["gpt", "hf_gpt"])

    def __post_init__(self) -> None:
        self.name = self.name or f"{self.base_name}-{self.task}"
        if self.base_on_hub is None:
            # Decided now: the folder may be gone, or be another machine's, when the card is rendered again.
            self.base_on_hub = is_hub_id(self.base_model)

    @classmethod
    def for_task(cls, spec: TaskSpec, base_model: str, **facts: Any) -> Self:
        """The card of a declared task, with what the task knows; `facts` are further arguments and override it."""
        hub = spec.hub
        known = {
            "description": spec.description,
            "problem_type": spec.problem_type,
            "data_licence": spec.licence,
            "data_source": spec.source,
            "dataset_id": hub and hub.id,
            "dataset_config": hub and hub.config,
            "dataset_revision": hub and hub.revision,
            "task_version": spec.version,
            "main_metric": spec.main_metric,
            "label_names": list(spec.label_names) if spec.label_names else None,
        }
        return cls(task=spec.name, family=spec.family, base_model=base_model, **known | facts)

    @property
    def is_adapter(self) -> bool:
        return self.adaptation not in ("full", "frozen")

    @property
    def base_name(self) -> str:
        return Path(self.base_model.rstrip("/")).name

    @property
    def auto_class(self) -> str:
        """`str`: the class of transformers that loads the model."""
        return _CLASSES.get(self.family, "AutoModelForSequenceClassification")

    def metadata(self) -> ModelCardData:
        results = self.eval_results()
        derived = self.base_on_hub and not self.random_weights
        carbon = self.emissions and {
            "emissions": self.emissions["grams"],
            "source": "codecarbon",
            "training_type": "fine-tuning",
            "geographical_location": self.emissions.get("place"),
            "hardware_used": self.hardware,
        }
        return ModelCardData(
            language="en",
            license=self.licence,
            library_name="peft" if self.is_adapter else "transformers",
            tags=[*self.tags, self.adaptation] if self.is_adapter else self.tags,
            pipeline_tag=PIPELINE_TAGS[self.auto_class],
            base_model=self.base_model if derived else None,
            base_model_relation=("adapter" if self.is_adapter else "finetune") if derived else None,
            datasets=[self.dataset_id] if self.dataset_id else None,
            model_name=self.name if results else None,
            eval_results=results or None,
            co2_eq_emissions=carbon and {name: value for name, value in carbon.items() if value is not None},
        )

    def eval_results(self) -> list[EvalResult]:
        """The measured values as `model-index` has them; with several seeds, each says how the others did."""
        results = []
        for split, metric, value in self._values():
            module, options = METRICS.get(metric, (metric, {}))
            spread = self._spread(split, metric)
            arguments = options | ({} if self.seed is None else {"seed": self.seed})
            if spread is not None:
                arguments |= {"seeds": self.seeds["seeds"]}
                arguments |= {name: round(spread[name], 4) for name in _SPREAD}
            rows = self.rows.get(split)
            described = {"task": self.task, "version": self.task_version, "rows": rows}
            results.append(
                EvalResult(
                    task_type=PIPELINE_TAGS[self.auto_class],
                    dataset_type=self.dataset_id or self.task,
                    dataset_name=self.task,
                    dataset_config=self.dataset_config,
                    dataset_revision=self.dataset_revision,
                    dataset_split=split,
                    dataset_args={name: item for name, item in described.items() if item is not None},
                    metric_type=module,
                    metric_name=metric,
                    metric_value=round(value, 4),
                    metric_args=arguments or None,
                )
            )
        return results

    def _values(self) -> list[tuple[str, str, float]]:
        """Split, metric and value; undefined values (a correlation of constant predictions) are no result."""
        return [
            (split, metric, value)
            for split, values in self.metrics.items()
            for metric, value in values.items()
            if math.isfinite(value)
        ]

    def _spread(self, split: str, metric: str) -> dict[str, Any] | None:
        return None if self.seeds is None else self.seeds["metrics"].get(split, {}).get(metric)

    def values(self) -> dict[str, Any]:
        titles = {"loss": "loss", "task_loss": "task loss", "lm_loss": "language-model loss"}
        known = [name for name in LOSSES if any(name in line for line in self.losses)]
        return super().values() | {
            "this_repository": THIS_REPOSITORY,
            "auto_class": self.auto_class,
            "loss_header": ["", *(titles[name] for name in known)],
            "losses": [
                [line["part"], *(f"{line[name]:.4f}" if name in line else "–" for name in known)]
                for line in self.losses
            ],
            "spread_names": list(_SPREAD),
            "results": [self._result(*value) for value in self._values()],
        }

    def _result(self, split: str, metric: str, value: float) -> list[str]:
        line = [split, metric, f"{value:.4f}"]
        if self.seeds is None:
            return line
        spread = self._spread(split, metric)
        return line + [f"{spread[name]:.4f}" if spread else "–" for name in _SPREAD]

    @property
    def is_at_chance(self) -> bool:
        """`bool`: whether the model is no better on the validation rows than without reading the texts."""
        score = self.metrics.get("validation", {}).get(self.main_metric)
        return bool(self.chance and score is not None and score <= self.chance)


def main(folders: list[str]) -> None:
    """Render the cards of folders again; wrong input ends with one line."""
    if not folders:
        sys.exit("Name folders with a card.yaml: python -m hf_gpt.cards.fine_tuned FOLDER ...")
    try:
        for folder in folders:
            write_text(Path(folder) / CARD, str(Card.load(folder).render()))
    except ValueError as error:
        sys.exit(f"model_card: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
