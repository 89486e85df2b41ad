"""What is written into peft's tables: two methods, a task type, and the modules that are adapted by default."""

from enum import Enum

from peft import TaskType
from peft.auto import MODEL_TYPE_TO_PEFT_MODEL_MAPPING
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.utils import PeftType, constants, register_peft_method

from ..model.configuration_gpt import GPTConfig
from .methods import BitFitConfig, BitFitModel, HoulsbyConfig, HoulsbyModel
from .virtual_tokens import GPT_TASK, PeftModelForGPTTask


def register() -> None:
    """Make peft know `HOULSBY`, `BITFIT`, `GPT_TASK` and the modules of `hf_gpt` models."""
    for config, model in ((HoulsbyConfig, HoulsbyModel), (BitFitConfig, BitFitModel)):
        _add_member(PeftType, config.method)
        if config.method not in PEFT_TYPE_TO_CONFIG_MAPPING:
            register_peft_method(name=config.method.lower(), config_cls=config, model_cls=model)
    _add_member(TaskType, GPT_TASK)
    MODEL_TYPE_TO_PEFT_MODEL_MAPPING[GPT_TASK] = PeftModelForGPTTask
    # Our blocks have the module names of GPT-2's, so what peft adapts there by default it adapts here.
    for name, table in vars(constants).items():
        if name.startswith("TRANSFORMERS_MODELS_TO_") and isinstance(table, dict) and "gpt2" in table:
            table.setdefault(GPTConfig.model_type, table["gpt2"])


def _add_member(enumeration: type[Enum], name: str) -> None:
    """peft's lists of methods and of task types are enumerations, and `register_peft_method` takes members only."""
    if name in enumeration.__members__:
        return
    member = str.__new__(enumeration, name)
    member._name_ = member._value_ = name
    enumeration._member_names_.append(name)
    enumeration._member_map_[name] = member
    enumeration._value2member_map_[name] = member
    type.__setattr__(enumeration, name, member)
