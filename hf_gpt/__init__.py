"""
The original GPT (Radford et al., 2018) for transformers.

Importing this package registers its classes with transformers and peft (see `registration`) and takes no time: what
its names stand for is imported when they are first used.
"""

from importlib import import_module
from typing import Any

from . import registration

__version__ = "0.1.0"

# Public name -> its module.
_MODULES = {
    "FineTuningArguments": "training.arguments",
    "GPTConfig": "model.configuration_gpt",
    "GPTForCausalLM": "model.modeling_gpt",
    "GPTForMaskedLM": "model.modeling_gpt",
    "GPTForMultipleChoice": "model.modeling_gpt",
    "GPTForQuestionAnswering": "model.modeling_gpt",
    "GPTForSequenceClassification": "model.modeling_gpt",
    "GPTForTokenClassification": "model.modeling_gpt",
    "GPTModel": "model.modeling_gpt",
    "GPTPreTrainedModel": "model.modeling_gpt",
    "GPTTaskOutput": "model.modeling_gpt",
    "GPTTokenizer": "model.tokenization_gpt",
    "GPTTrainer": "training.trainer",
    "TokenTreeCollator": "trees.collators",
    "adapter_config": "adapters",
    "load_adapter": "adapters",
    "token_trees": "training.rows",
}
# Submodules that are there as attributes after `import hf_gpt`.
_SUBPACKAGES = ("adapters", "cards", "conversion", "files", "hub", "loading", "model", "tasks", "trees")

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    if name in _SUBPACKAGES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES})


registration.register()
