"""
The original GPT (Radford et al., 2018) for transformers.

Importing this package registers its classes with transformers and peft (see `registration`) and takes no time: what
its names stand for is imported when they are first used.
"""

from importlib import import_module
from typing import Any

from . import registration

__version__ = "0.2.0"

# Module -> its public names.
_NAMES = {
    "adapters": "adapter_config load_adapter",
    "files": "GPT_MINI",
    "model.configuration_gpt": "GPTConfig",
    "model.modeling_gpt": "GPTForCausalLM GPTForMaskedLM GPTForMultipleChoice GPTForQuestionAnswering "
    "GPTForSequenceClassification GPTForTokenClassification GPTModel GPTPreTrainedModel GPTTaskOutput",
    "model.tokenization_gpt": "GPTTokenizer",
    "performance": "pack_for_inference use_fast_float32",
    "training.arguments": "FineTuningArguments",
    "training.rows": "token_trees",
    "training.trainer": "GPTTrainer",
    "trees.collators": "TokenTreeCollator",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


registration.register()
