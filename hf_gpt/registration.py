"""
What hf_gpt registers with transformers and peft, each when that library has been imported: until then nothing is. For
the model's classes stand-ins are registered, which import the model's code when they are used.
"""

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

_PACKAGE = __name__.rpartition(".")[0]
_MODEL_CODE, _STOCK = f"{_PACKAGE}.model.modeling_gpt", f"{_PACKAGE}.conversion.stock"
_METHODS = f"{_PACKAGE}.adapters.methods"


class _AfterImport(MetaPathFinder):
    """Runs a module's action (`_ACTIONS`) as soon as it has been imported."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The module's own specification, whose loader runs the action behind the module."""
        if fullname not in _ACTIONS:
            return None
        # There are several after `importlib.reload(hf_gpt)`.
        others = (finder for finder in sys.meta_path if type(finder).__name__ != type(self).__name__)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: Any) -> None:
                execute(module)
                _ACTIONS.pop(fullname, bool)()

            spec.loader.exec_module = execute_and_act
        return spec


class _LazyClass:
    """Stands for a class in another library's tables: whatever is asked of it is asked of the class."""

    def __init__(self, module: str, name: str, **known: Any):
        self.__module__, self.__name__, self.__qualname__ = module, name, name
        vars(self).update(known)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(getattr(import_module(self.__module__), self.__name__), attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(self.__module__), self.__name__)(*args, **kwargs)


def _register_with_transformers() -> None:
    import transformers

    from .model.configuration_gpt import AUTO_MAP, GPTConfig
    from .model.tokenization_gpt import GPTTokenizer

    GPTConfig.get_config_dict = classmethod(_config_dict)
    transformers.AutoConfig.register(GPTConfig.model_type, GPTConfig, exist_ok=True)
    transformers.AutoTokenizer.register(GPTConfig, fast_tokenizer_class=GPTTokenizer, exist_ok=True)
    code = sys.modules.get(_MODEL_CODE)
    for auto_class, reference in AUTO_MAP.items():
        if auto_class != "AutoConfig":
            name = reference.rpartition(".")[2]
            model_class = getattr(code, name) if code else _LazyClass(_MODEL_CODE, name, config_class=GPTConfig)
            getattr(transformers, auto_class).register(GPTConfig, model_class, exist_ok=True)


def _config_dict(cls: type, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """As in transformers; the configuration of a stock `openai-gpt` or `gpt2` becomes one of ours."""
    from transformers import PreTrainedConfig

    from .hub.repositories import check_config

    config, unused = PreTrainedConfig.get_config_dict.__func__(cls, *args, **kwargs)
    check_config(config, f"config.json of {args[0]}")
    return import_module(_STOCK).own_config(config), unused


def _register_classes() -> None:
    """The classes themselves in the place of their stand-ins; they read stock checkpoints and folders of adapters."""
    _register_with_transformers()
    sys.modules[_MODEL_CODE].GPTPreTrainedModel.from_pretrained = classmethod(_from_pretrained)
    import_module(_STOCK)


def _from_pretrained(cls: type, pretrained_model_name_or_path: Any, *args: Any, adapter_kwargs=None, **kwargs) -> Any:
    """As in transformers, whose own loader of adapters knows neither their heads and labels nor all methods."""
    from transformers import PreTrainedModel

    folder = (adapter_kwargs or {}).get("_adapter_model_path")
    if folder and _head_of(folder, adapter_kwargs.get("revision")) == cls.__name__:
        asked = {key: kwargs[key] for key in ("attn_implementation", "device_map", "dtype") if key in kwargs}
        adapted = import_module(f"{_PACKAGE}.adapters").load_adapter(folder, pretrained_model_name_or_path, **asked)
        if adapted.active_peft_config.is_prompt_learning:
            raise ValueError(f"{folder} has virtual tokens, which are no part of a model: use hf_gpt.load_adapter.")
        model = adapted.get_base_model()
        model._hf_peft_config_loaded = True
        return model
    load = PreTrainedModel.from_pretrained.__func__
    return load(cls, pretrained_model_name_or_path, *args, adapter_kwargs=adapter_kwargs, **kwargs)


def _head_of(folder: Any, revision: Any) -> str | None:
    """The class whose head an adapter has; `None` if it has no `head_config.json`, as ours have."""
    from transformers.utils import cached_file

    from .files import read_json
    from .hub.repositories import HEAD_CONFIG

    path = cached_file(folder, HEAD_CONFIG, revision=revision, _raise_exceptions_for_missing_entries=False)
    return path and next(iter(read_json(Path(path)).get("architectures") or [None]))


def _register_with_peft() -> None:
    """Make peft know our two methods, the modules of our models, and how its Auto classes load our adapters."""
    from peft import auto
    from peft.utils import PeftType, constants, register_peft_method

    for method in ("Houlsby", "BitFit"):
        # peft's list of methods is an enumeration, and `register_peft_method` takes members only.
        name = method.upper()
        member = str.__new__(PeftType, name)
        member._name_ = member._value_ = name
        PeftType._member_names_.append(name)
        PeftType._member_map_[name] = PeftType._value2member_map_[name] = member
        type.__setattr__(PeftType, name, member)
        prefix = f"{method.lower()}_"
        config, model = (_LazyClass(_METHODS, method + part, prefix=prefix) for part in ("Config", "Model"))
        register_peft_method(name=method.lower(), config_cls=config, model_cls=model)
    # Our blocks have the module names of GPT-2's, so what peft adapts there by default it adapts here.
    for name, table in vars(constants).items():
        if name.startswith("TRANSFORMERS_MODELS_TO_") and isinstance(table, dict) and "gpt2" in table:
            table.setdefault("hf_gpt", table["gpt2"])
    base = auto.AutoPeftModel.__base__
    from_pretrained = base.from_pretrained.__func__

    def load(cls, pretrained_model_name_or_path, adapter_name="default", is_trainable=False, **kwargs):
        """As in peft; an adapter of ours with its head and labels, as `load_adapter` does."""
        name = pretrained_model_name_or_path
        if kwargs.get("config") is not None or not _head_of(name, kwargs.get("revision")):
            return from_pretrained(cls, name, adapter_name, is_trainable, **kwargs)
        load_adapter = import_module(f"{_PACKAGE}.adapters").load_adapter
        return load_adapter(name, is_trainable=is_trainable, adapter_name=adapter_name, **kwargs)

    base.from_pretrained = classmethod(load)


_ACTIONS = {"transformers": _register_with_transformers, "peft": _register_with_peft, _MODEL_CODE: _register_classes}


def register() -> None:
    """See the module; `import hf_gpt` calls it once."""
    sys.meta_path.insert(0, _AfterImport())
    for module in [name for name in _ACTIONS if name in sys.modules]:
        _ACTIONS.pop(module)()
