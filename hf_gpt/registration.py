"""
What hf_gpt registers with other libraries, each when that library has been imported: until then nothing is imported.

transformers gets the classes for its Auto mappings, as stand-ins that import the model's code when they are used; peft
gets our methods; and the model's classes, when they are there, learn to read stock checkpoints.
"""

import sys
from collections.abc import Callable
from enum import Enum
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

PACKAGE = __name__.rpartition(".")[0]
MODEL_CODE = f"{PACKAGE}.model.modeling_gpt"


class _AfterImport(MetaPathFinder):
    """Runs an action as soon as a module has been imported."""

    def __init__(self, module: str, action: Callable[[], None]):
        self.module, self.action = module, action

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The module's own specification, whose loader runs the action behind the module."""
        if fullname != self.module:
            return None
        found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: Any) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self.action()

            spec.loader.exec_module = execute_and_act
        return spec


def after_import(module: str, action: Callable[[], None]) -> None:
    """Run an action once: at once if a module has been imported, else as soon as it is."""
    if module in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _AfterImport(module, action))


class LazyClass:
    """
    Stands for a class in another library's tables until it is needed: whatever is asked of it is asked of the class,
    and so is whether an object is an instance.

    Args:
        module (`str`): name of the class's module in this package.
        name (`str`): name of the class.
        attributes (`Any`): what is known of the class before it is imported.
    """

    def __init__(self, module: str, name: str, **attributes: Any):
        self.__module__ = f"{PACKAGE}.{module}"
        self.__name__ = self.__qualname__ = name
        vars(self).update(attributes)

    def _resolved(self) -> type:
        return getattr(import_module(self.__module__), self.__name__)

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyClass, (self.__module__.removeprefix(f"{PACKAGE}."), self.__name__)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._resolved(), attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._resolved()(*args, **kwargs)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self._resolved())

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._resolved())


def _register_with_transformers() -> None:
    """Our configuration, tokenizer and models for `AutoConfig`, `AutoTokenizer` and `AutoModelFor...`."""
    import transformers

    from .model.configuration_gpt import GPTConfig
    from .model.tokenization_gpt import GPTTokenizer

    GPTConfig.get_config_dict = classmethod(_config_dict)
    transformers.AutoConfig.register(GPTConfig.model_type, GPTConfig, exist_ok=True)
    transformers.AutoTokenizer.register(GPTConfig, fast_tokenizer_class=GPTTokenizer, exist_ok=True)
    # The Auto classes compare the configuration's class.
    _register_models(lambda name: LazyClass("model.modeling_gpt", name, config_class=GPTConfig))


def _config_dict(cls: type, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """As in transformers; the module that is imported puts one in its place that reads stock configurations, too."""
    import_module(f"{PACKAGE}.conversion.stock").install()
    return cls.get_config_dict(*args, **kwargs)


def _register_models(class_of: Callable[[str], Any]) -> None:
    """What `class_of` gives for the name of a model class, for the Auto classes of `AUTO_MAP`."""
    import transformers

    from .model.configuration_gpt import AUTO_MAP, GPTConfig

    for auto_class, reference in AUTO_MAP.items():
        if auto_class != "AutoConfig":
            model_class = class_of(reference.rpartition(".")[2])
            getattr(transformers, auto_class).register(GPTConfig, model_class, exist_ok=True)


def _register_model_code() -> None:
    """The classes themselves in the place of their stand-ins."""
    code = sys.modules[MODEL_CODE]
    code.GPTPreTrainedModel._load_pretrained_model = staticmethod(_load_pretrained_model)
    code.GPTPreTrainedModel.from_pretrained = classmethod(_from_pretrained)
    _register_models(lambda name: getattr(code, name))


def _load_pretrained_model(model: Any, *args: Any, **kwargs: Any) -> Any:
    """The same for weights."""
    import_module(f"{PACKAGE}.conversion.stock").install()
    return model._load_pretrained_model(model, *args, **kwargs)


def _from_pretrained(
    cls: type, pretrained_model_name_or_path: Any, *args: Any, adapter_kwargs: Any = None, **kwargs: Any
) -> Any:
    """As in transformers, whose own loader of adapters knows neither their heads and labels nor all methods."""
    from transformers import PreTrainedModel

    folder = (adapter_kwargs or {}).get("_adapter_model_path")
    if folder and _head_of(folder, adapter_kwargs.get("revision")) == cls.__name__:
        asked = {key: kwargs[key] for key in ("attn_implementation", "device_map", "dtype") if key in kwargs}
        adapted = import_module(f"{PACKAGE}.adapters").load_adapter(folder, pretrained_model_name_or_path, **asked)
        if adapted.active_peft_config.is_prompt_learning:
            raise ValueError(f"{folder} has virtual tokens, which are no part of a model: use hf_gpt.load_adapter.")
        model = adapted.get_base_model()
        model._hf_peft_config_loaded = True
        return model
    return PreTrainedModel.from_pretrained.__func__(
        cls, pretrained_model_name_or_path, *args, adapter_kwargs=adapter_kwargs, **kwargs
    )


def _head_of(folder: Any, revision: Any) -> str | None:
    """The class whose head an adapter has; `None` if it has no `head_config.json`, as ours have."""
    from transformers.utils import cached_file

    from .files import read_json
    from .hub.checks import HEAD_CONFIG

    path = cached_file(folder, HEAD_CONFIG, revision=revision, _raise_exceptions_for_missing_entries=False)
    return path and next(iter(read_json(Path(path)).get("architectures") or [None]))


def _register_with_peft_auto() -> None:
    """Let the Auto classes of peft load an adapter of ours with its head and labels, as `load_adapter` does."""
    from peft import auto

    from_pretrained = auto.AutoPeftModel.from_pretrained.__func__

    def load(
        cls: type,
        pretrained_model_name_or_path: Any,
        adapter_name: str = "default",
        is_trainable: bool = False,
        **kwargs: Any,
    ) -> Any:
        """As in peft."""
        name = pretrained_model_name_or_path
        if kwargs.get("config") is not None or not _head_of(name, kwargs.get("revision")):
            return from_pretrained(cls, name, adapter_name, is_trainable, **kwargs)
        load_adapter = import_module(f"{PACKAGE}.adapters").load_adapter
        return load_adapter(name, is_trainable=is_trainable, adapter_name=adapter_name, **kwargs)

    for name in ("", "ForCausalLM", "ForQuestionAnswering", "ForSequenceClassification", "ForTokenClassification"):
        getattr(auto, f"AutoPeftModel{name}").from_pretrained = classmethod(load)


def _register_with_peft() -> None:
    """Make peft know `HOULSBY`, `BITFIT` and the modules of `hf_gpt` models."""
    from peft.utils import PeftType, constants, register_peft_method

    for method in ("Houlsby", "BitFit"):
        _add_member(PeftType, method.upper())
        config, model = (
            LazyClass("adapters.methods", f"{method}{part}", prefix=f"{method.lower()}_")
            for part in ("Config", "Model")
        )
        register_peft_method(name=method.lower(), config_cls=config, model_cls=model)
    # Our blocks have the module names of GPT-2's, so what peft adapts there by default it adapts here.
    for name, table in vars(constants).items():
        if name.startswith("TRANSFORMERS_MODELS_TO_") and isinstance(table, dict) and "gpt2" in table:
            table.setdefault("hf_gpt", table["gpt2"])


def _add_member(enumeration: type[Enum], name: str) -> None:
    """peft's list of methods is an enumeration, and `register_peft_method` takes members only."""
    member = str.__new__(enumeration, name)
    member._name_ = member._value_ = name
    enumeration._member_names_.append(name)
    enumeration._member_map_[name] = member
    enumeration._value2member_map_[name] = member
    type.__setattr__(enumeration, name, member)


def register() -> None:
    """See the module; `import hf_gpt` calls it once."""
    after_import("transformers", _register_with_transformers)
    after_import("peft", _register_with_peft)
    after_import("peft.auto", _register_with_peft_auto)
    after_import(MODEL_CODE, _register_model_code)
