"""The original GPT (Radford et al., 2018) for transformers: importing this package registers its classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from .adapters import adapter_config, load_adapter
from .conversion import stock
from .model.configuration_gpt import GPTConfig
from .model.modeling_gpt import (
    GPTForCausalLM,
    GPTForMultipleChoice,
    GPTForSequenceClassification,
    GPTModel,
    GPTPreTrainedModel,
    GPTTaskOutput,
)
from .model.tokenization_gpt import GPTTokenizer

__version__ = "0.1.0"

AutoConfig.register(GPTConfig.model_type, GPTConfig, exist_ok=True)
AutoModel.register(GPTConfig, GPTModel, exist_ok=True)
AutoModelForCausalLM.register(GPTConfig, GPTForCausalLM, exist_ok=True)
AutoModelForMultipleChoice.register(GPTConfig, GPTForMultipleChoice, exist_ok=True)
AutoModelForSequenceClassification.register(GPTConfig, GPTForSequenceClassification, exist_ok=True)
AutoTokenizer.register(GPTConfig, fast_tokenizer_class=GPTTokenizer, exist_ok=True)

stock.install()

__all__ = [
    "GPTConfig",
    "GPTForCausalLM",
    "GPTForMultipleChoice",
    "GPTForSequenceClassification",
    "GPTModel",
    "GPTPreTrainedModel",
    "GPTTaskOutput",
    "GPTTokenizer",
    "adapter_config",
    "load_adapter",
]
