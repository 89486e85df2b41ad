"""The original GPT (Radford et al., 2018) for transformers: importing this package registers its classes."""

from importlib import import_module
from typing import Any

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from .adapters import adapter_config, load_adapter
from .conversion import stock
from .model.configuration_gpt import GPTConfig
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

AutoConfig.register(GPTConfig.model_type, GPTConfig, exist_ok=True)
AutoModel.register(GPTConfig, GPTModel, exist_ok=True)
AutoModelForCausalLM.register(GPTConfig, GPTForCausalLM, exist_ok=True)
AutoModelForMaskedLM.register(GPTConfig, GPTForMaskedLM, exist_ok=True)
AutoModelForMultipleChoice.register(GPTConfig, GPTForMultipleChoice, exist_ok=True)
AutoModelForQuestionAnswering.register(GPTConfig, GPTForQuestionAnswering, exist_ok=True)
AutoModelForSequenceClassification.register(GPTConfig, GPTForSequenceClassification, exist_ok=True)
AutoModelForTokenClassification.register(GPTConfig, GPTForTokenClassification, exist_ok=True)
AutoTokenizer.register(GPTConfig, fast_tokenizer_class=GPTTokenizer, exist_ok=True)

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
