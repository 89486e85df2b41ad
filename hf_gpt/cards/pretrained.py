"""Cards of language models that are written and reviewed by hand, with their figures as data."""

import statistics
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_type_hints

from huggingface_hub import EvalResult, ModelCardData

from .base import Card

_EVALUATION = get_type_hints(EvalResult)


@dataclass
class PretrainedCard(Card):
    """
    The card of a language model, written and reviewed by hand, with its figures as data.

    Args:
        name, licence (`str`): title; of the weights, as the Hub writes it.
        summary, data, training (`str`): what it is, was trained on, and how; Markdown.
        code (`str`): Python that uses it.
        limits (`list[str]`): one sentence or two each.
        commands (`str`, *optional*): shell commands that `code` needs to have been run.
        use_note (`str`, *optional*): what stands behind the code.
        figures (`dict[str, str]`): of the training run.
        evaluation (`list[dict]`): arguments of `huggingface_hub.EvalResult`, all about text generation.
        results_note (`str`, *optional*): what `results` are.
        results (`list[dict]`): `task`, `weights` and `scores`, the test accuracies of several seeds.
        fine_tuning_learning_rate (`float`, *optional*): with which the whole model was fine-tuned, where it is another
            than the paper's.
        base_model (`str`, *optional*): Hub id of what it was converted from.
        folder (`str`, *optional*): what `code` loads.
        repo_id (`str`, *optional*): where the model is published; the code then loads it from there.
        tags (`list[str]`): for the Hub's search.
    """

    kind: ClassVar[str] = "pretrained"

    name: str
    licence: str
    summary: str
    code: str
    data: str
    training: str
    limits: list[str]
    commands: str = ""
    use_note: str = ""
    figures: dict[str, str] = field(default_factory=dict)
    evaluation: list[dict[str, Any]] = field(default_factory=list)
    results_note: str = ""
    results: list[dict[str, Any]] = field(default_factory=list)
    fine_tuning_learning_rate: float | None = None
    base_model: str | None = None
    folder: str = ""
    repo_id: str | None = None
    tags: list[str] = field(default_factory=lambda: ["gpt", "hf_gpt"])

    def metadata(self) -> ModelCardData:
        return ModelCardData(
            language="en",
            license=self.licence,
            library_name="transformers",
            pipeline_tag="text-generation",
            tags=self.tags,
            base_model=self.base_model,
            model_name=self.name if self.evaluation else None,
            eval_results=[EvalResult(task_type="text-generation", **line) for line in self.evaluation] or None,
        )

    def values(self) -> dict[str, Any]:
        results = []
        for line in self.results:
            each = ", ".join(f"{score:.3f}" for score in line["scores"])
            results.append([line["task"], line["weights"], f"{statistics.median(line['scores']):.3f}", each])
        return super().values() | {"results": results}


def learning_rate_advice(model: str, learning_rate: float) -> str | None:
    """What to say to a run whose learning rate is not the one that the card of its model, a folder, proposes."""
    try:
        proposed = getattr(Card.load(model), "fine_tuning_learning_rate", None)
    except ValueError:  # no card, or none of ours: it is only advice
        return None
    if proposed is None or proposed == learning_rate:
        return None
    return (
        f"{model} was fine-tuned with --learning_rate {proposed:g} (its card); this run takes {learning_rate:g}, the "
        "paper's for a model of GPT-1's size."
    )
