"""The original GPT (Radford et al., 2018) for transformers: importing this package registers its classes."""

from importlib import import_module
from typing import Any

import transformers

from .adapters import adapter_config, load_adapter
from .conversion import stock
from .model import modeling_gpt
from .model.configuration_gpt import AUTO_MAP, GPTConfig
from .model.modeling_gpt import (
    GPTForCausalLM,
    GPTForMaskedLM,
    GPTForMultipleChoice,
    GPTForQuestionAnswering,
    GPTForSequenceClassification,
    GPTForTokenClassification,
    GPTModel,
    GPTPreTrainedModel,
    GPTTaskOutput,
)
from .model.tokenization_gpt import GPTTokenizer

__version__ = "0.1.0"

transformers.AutoConfig.register(GPTConfig.model_type, GPTConfig, exist_ok=True)
transformers.AutoTokenizer.register(GPTConfig, fast_tokenizer_class=GPTTokenizer, exist_ok=True)
for _auto_class, _reference in AUTO_MAP.items():
    if _auto_class != "AutoConfig":
        _model_class = getattr(modeling_gpt, _reference.removeprefix("modeling_gpt."))
        getattr(transformers, _auto_class).register(GPTConfig, _model_class, exist_ok=True)

stock.install()

# What training needs, read when it is asked for.
_TRAINING = {
    "FineTuningArguments": "training.arguments",
    "GPTTrainer": "training.trainer",
    "TokenTreeCollator": "trees.collators",
    "token_trees": "training.rows",
}

__all__ = [
    "FineTuningArguments",
    "GPTConfig",
    "GPTForCausalLM",
    "GPTForMaskedLM",
    "GPTForMultipleChoice",
    "GPTForQuestionAnswering",
    "GPTForSequenceClassification",
    "GPTForTokenClassification",
    "GPTModel",
    "GPTPreTrainedModel",
    "GPTTaskOutput",
    "GPTTokenizer",
    "GPTTrainer",
    "TokenTreeCollator",
    "adapter_config",
    "load_adapter",
    "token_trees",
]


def __getattr__(name: str) -> Any:
    if name not in _TRAINING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_TRAINING[name]}", __name__), name)
