"""Model cards: what was trained on what, and what was measured."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

PIPELINE_TAGS = {"multiple-choice": "multiple-choice"}

TEMPLATE = """---
{{ card_data }}
---

# {{ name }}

{{ summary }}

## Use

```python
{{ code }}
```

## Training data

{{ data }}

## Hyper-parameters

| name | value |
|---|---|
{% for name, value in hyperparameters.items() -%}
| {{ name }} | {{ value }} |
{% endfor %}
## Results

| split | metric | value |
|---|---|---|
{% for split, metric, value in results -%}
| {{ split }} | {{ metric }} | {{ value }} |
{% endfor %}
{{ result_note }}

## Limits

{% for limit in limits -%}
- {{ limit }}
{% endfor %}"""


@dataclass
class FineTunedCard:
    """
    What the card of a fine-tuned model says.

    Args:
        name (`str`): title.
        task (`str`): name of the task.
        family (`str`): its family.
        description (`str`): what the task asks.
        base_model (`str`): model that training started from.
        random_weights (`bool`): whether its weights were drawn anew.
        data_licence, data_source (`str`): as the task states them.
        hyperparameters (`dict`): settings, in the order to print.
        metrics (`dict[str, dict[str, float]]`): measured values by split and metric.
        rows (`dict[str, int]`): number of rows by split.
        seed (`int`): of the run.
        seconds (`float`): duration of training.
        label_names (`list[str]`, *optional*): classes.
        adaptation (`str`, *optional*, defaults to `"full"`): the method of an adapter, which is saved without its
            base model.
    """

    name: str
    task: str
    family: str
    description: str
    base_model: str
    random_weights: bool
    data_licence: str
    data_source: str
    hyperparameters: dict[str, Any]
    metrics: dict[str, dict[str, float]]
    rows: dict[str, int]
    seed: int
    seconds: float
    label_names: list[str] | None = None
    tags: list[str] = field(default_factory=lambda: ["gpt", "hf_gpt"])
    adaptation: str = "full"

    def render(self) -> ModelCard:
        """The card, its metadata checked by `huggingface_hub`."""
        pipeline = PIPELINE_TAGS.get(self.family, "text-classification")
        base = self.base_model if is_hub_id(self.base_model) else None
        data = ModelCardData(
            language="en",
            library_name="peft" if self._is_adapter else "transformers",
            tags=[*self.tags, self.adaptation] if self._is_adapter else self.tags,
            pipeline_tag=pipeline,
            base_model=base,
            model_name=self.name,
            eval_results=[
                EvalResult(
                    task_type=pipeline,
                    dataset_type=self.task,
                    dataset_name=self.task,
                    dataset_split=split,
                    metric_type=metric,
                    metric_value=round(value, 4),
                )
                for split, values in self.metrics.items()
                for metric, value in values.items()
            ]
            or None,
        )
        start = f"`{base or Path(self.base_model).name}`"
        origin = f"the architecture of {start} with random weights" if self.random_weights else start
        what = "The original GPT (Radford et al., 2018)"
        if self._is_adapter:
            what = f"An adapter (`{self.adaptation}`, with the head of the task) for the original GPT {start},"
        return ModelCard.from_template(
            data,
            template_str=TEMPLATE,
            name=self.name,
            summary=(
                f"{what} fine-tuned on the task `{self.task}`, starting from {origin}. {self.description.rstrip('.')}."
            ),
            code=self._code(),
            data=(
                f"`{self.task}`, from {self.data_source or 'files of the user'}; licence: "
                f"{self.data_licence or 'not stated'}. Rows: "
                + ", ".join(f"{split} {count:,}" for split, count in self.rows.items())
                + "."
            ),
            hyperparameters=self.hyperparameters,
            results=[
                (split, metric, f"{value:.4f}")
                for split, values in self.metrics.items()
                for metric, value in values.items()
            ],
            result_note=(
                f"One run with the seed {self.seed}, {self.seconds:.0f} seconds of training; the checkpoint with the "
                "best validation metric was kept."
            ),
            limits=[
                "The figures are those of one seed; other seeds differ.",
                "English only; all text is lower-cased.",
                "The model repeats the biases of the texts that it was pretrained and fine-tuned on.",
            ],
        )

    @property
    def _is_adapter(self) -> bool:
        return self.adaptation != "full"

    def _code(self) -> str:
        if self._is_adapter:
            return self._adapter_code()
        if self.family == "multiple-choice":
            return (
                "import torch\n"
                "import hf_gpt\n"
                "from transformers import AutoModelForMultipleChoice, AutoTokenizer\n\n"
                'folder = "."  # this repository\n'
                "tokenizer = AutoTokenizer.from_pretrained(folder)\n"
                "model = AutoModelForMultipleChoice.from_pretrained(folder)\n"
                'context, choices = "It rained all day.", ["The street is wet.", "The street is dry."]\n'
                'inputs = tokenizer([context] * len(choices), choices, padding=True, return_tensors="pt")\n'
                "scores = model(**{name: value.unsqueeze(0) for name, value in inputs.items()}).logits\n"
                "print(torch.softmax(scores, dim=-1))"
            )
        example = '"What is the capital of France?"'
        if self.family in ("entailment", "similarity"):
            example = '{"text": "It rained all day.", "text_pair": "The street is wet."}'
        return (
            "import hf_gpt\n"
            "from transformers import pipeline\n\n"
            'folder = "."  # this repository\n'
            'classify = pipeline("text-classification", model=folder)\n'
            f"print(classify({example}))"
        )

    def _adapter_code(self) -> str:
        texts = '"What is the capital of France?"'
        if self.family in ("entailment", "similarity"):
            texts = '"It rained all day.", "The street is wet."'
        inputs = f'dict(tokenizer({texts}, return_tensors="pt"))'
        if self.family == "multiple-choice":
            texts = '["It rained all day."] * 2, ["The street is wet.", "The street is dry."]'
            inputs = f'tokenizer({texts}, padding=True, return_tensors="pt")\n'
            inputs += "inputs = {name: value.unsqueeze(0) for name, value in inputs.items()}"
        return (
            "from hf_gpt import GPTTokenizer, load_adapter\n\n"
            'folder = "."  # this repository\n'
            f"model = load_adapter(folder)  # base_model= says where {Path(self.base_model).name} is\n"
            "tokenizer = GPTTokenizer.from_pretrained(folder)\n"
            f"inputs = {inputs}\n"
            "print(model(**inputs).logits.softmax(-1))"
        )


def is_hub_id(name: str) -> bool:
    """Whether a name is a repository id rather than a folder."""
    return not os.path.exists(name) and name.count("/") <= 1 and not name.startswith((".", "/", "~"))
