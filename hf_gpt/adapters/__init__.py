"""
Parameter-efficient fine-tuning through peft: settings of every method, loading and merging.

    model = get_peft_model(model, adapter_config("lora", model.config))
    model = load_adapter("outputs/questions-lora")

peft knows our methods, and the modules that its own adapt by default, from `hf_gpt.registration`.
"""

import json
import os
import re
from copy import deepcopy
from pathlib import Path
from typing import Any, get_type_hints

import torch
from peft import PeftConfig, PeftModel, get_peft_model
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.utils import SAFETENSORS_WEIGHTS_NAME, ModulesToSaveWrapper, constants, get_peft_model_state_dict
from torch import nn
from transformers import PreTrainedModel

from ..files import check_types, read_json, read_tensor_file, reading
from ..files.weights import check_tensors, load_weights, mismatches
from ..hub.repositories import HEAD_CONFIG, check_config, local_folder
from ..model.configuration_gpt import GPTConfig
from ..model.modeling_gpt import HEADS
from .methods import NO_MERGE

# The head of the task models: newly initialized for a task, so it is trained and saved whole.
HEAD = "score"
LINEAR_MODULES = ("c_attn", "c_proj", "c_fc")
_MODEL_CLASSES = {model_class.__name__: model_class for head, model_class in HEADS.items() if head != "none"}
# Each with peft's name for it.
METHODS = {
    "lora": "LORA",
    "ia3": "IA3",
    "prefix": "PREFIX_TUNING",
    "prompt": "PROMPT_TUNING",
    "houlsby": "HOULSBY",
    "bitfit": "BITFIT",
    "ln": "LN_TUNING",
}
_SIZED = ("lora", "prefix", "prompt", "houlsby")
# What an adapter may say in words of its own.
_FREE_TEXTS = (
    *("auto_mapping", "base_model_name_or_path", "peft_version", "revision"),
    *("tokenizer_name_or_path", "prompt_tuning_init_text"),
)
# Ways to initialize the weights of a new adapter that compute nothing and read nothing.
_INITIALIZATIONS = ("gaussian", "orthogonal", "zero", "RANDOM", "SAMPLE_VOCAB")
LARGEST = 1 << 20


def adapter_config(
    method: str, model_config: GPTConfig, size: int | None = None, task_type: str | None = None, **options: Any
) -> PeftConfig:
    """
    Settings of an adapter for a GPT model, for `peft.get_peft_model`; lora, houlsby and bitfit train the rows of the
    special tokens, too.

    | method | what is trained next to the head | source |
    |---|---|---|
    | `lora` | a product of two thin matrices for every matrix of the blocks | Hu et al. (2021) |
    | `ia3` | factors of query, key and value and of the inner feed-forward states | Liu et al. (2022) |
    | `prefix` | keys and values of virtual tokens in every block | Li and Liang (2021) |
    | `prompt` | embeddings of virtual tokens (without a language-model loss) | Lester et al. (2021) |
    | `houlsby` | two bottlenecks per block, and the layer norms | Houlsby et al. (2019) |
    | `bitfit` | the biases of the blocks | Ben Zaken et al. (2022) |
    | `ln` | the layer norms | Zhao et al. (2023) |

    Args:
        method (`str`): one of `METHODS`.
        model_config (`GPTConfig`): of the model to adapt.
        size (`int`, *optional*): rank of LoRA (8), number of virtual tokens (20), width of a bottleneck (32).
        task_type (`str`, *optional*): by default that of the task heads; `"CAUSAL_LM"` for the language model.
        options: settings of the method's configuration class, such as `use_dora`, `use_rslora`, `lora_dropout`,
            `modules_to_save` or `trainable_token_indices`; they override those above.

    Raises:
        ValueError: for an unknown method, a size that the method does not have, or more virtual tokens than the
            context holds.
    """
    if method not in METHODS:
        raise ValueError(f"Unknown adapter method {method!r}; choose one of {', '.join(METHODS)}.")
    if size is not None and (method not in _SIZED or size < 1):
        raise ValueError(f"size {size}: {', '.join(_SIZED)} have a size, of at least 1; {method} was asked for.")
    norms = ["ln_1", "ln_2", "ln_f"] if model_config.final_norm else ["ln_1", "ln_2"]
    head = [HEAD] if task_type is None else []
    # Of the special tokens, which pretraining has not seen.
    rows = {"trainable_token_indices": sorted(set(model_config.task_token_ids)) or None}
    # peft adds the head. The model of its task type SEQ_CLS takes the inputs of any task head.
    virtual = {"task_type": task_type or "SEQ_CLS", "modules_to_save": None, "num_virtual_tokens": size or 20}
    settings = {"task_type": task_type, "modules_to_save": head or None}
    settings |= {
        "lora": {"target_modules": [*LINEAR_MODULES], "r": size or 8, "lora_alpha": 2 * (size or 8), **rows},
        # One vector scales the fused query, key and value: the paper's has no part for the query.
        "ia3": {"target_modules": ["c_attn", "mlp.c_proj"], "feedforward_modules": ["mlp.c_proj"]},
        "prefix": virtual,
        # Lester et al. (2021), section 3.2: prompts that start as words of the vocabulary learn better.
        "prompt": {**virtual, "prompt_tuning_init": "SAMPLE_VOCAB"},
        # The paper trains the layer norms, too (section 2.1).
        "houlsby": {"target_modules": ["attn", "mlp"], "modules_to_save": [*head, *norms], **rows}
        | {"bottleneck_size": size or 32},
        "bitfit": {"target_modules": [*LINEAR_MODULES, *norms], **rows},
        "ln": {"target_modules": norms},
    }[method]
    if (count := settings.get("num_virtual_tokens", 0)) >= model_config.n_positions:
        raise ValueError(f"{count} virtual tokens leave no place in a context of {model_config.n_positions}.")
    return PEFT_TYPE_TO_CONFIG_MAPPING[METHODS[method]](**settings | options)


def head_config(model: PeftModel) -> dict[str, Any]:
    """What `HEAD_CONFIG` holds: the adapted model's configuration, with its head, labels and loss."""
    base = model.get_base_model()
    return json.loads(base.config.to_json_string(use_diff=False)) | {"architectures": [type(base).__name__]}


def virtual_tokens(model: nn.Module) -> int:
    """How many positions of the context a model's adapter takes: 0 for all but prefix and prompt tuning."""
    if not isinstance(model, PeftModel) or not model.active_peft_config.is_prompt_learning:
        return 0
    return model.active_peft_config.num_virtual_tokens


def is_adapter(folder: str | os.PathLike) -> bool:
    """Whether a folder is an adapter's: it has an `adapter_config.json`."""
    return (Path(folder) / constants.CONFIG_NAME).is_file()


def adapted_config(folder: str | os.PathLike) -> GPTConfig:
    """
    The configuration of the model that an adapter (folder or Hub id) adapts: its head (`architectures`), labels and
    loss; a `ValueError` if there is no adapter with a head's configuration.
    """
    path = local_folder(folder) / HEAD_CONFIG
    if not path.is_file():
        raise ValueError(f"{folder} has no {HEAD_CONFIG}: its head is not known (peft.PeftModel may load it).")
    with reading(path):
        settings = read_json(path)
        check_config(settings, HEAD_CONFIG)
        config = GPTConfig.from_dict(settings)
        if (config.architectures or [None])[0] not in list(_MODEL_CLASSES):
            raise ValueError(f"architectures must name one of {', '.join(_MODEL_CLASSES)}")
    return config


def is_plain(name: str, value: Any) -> bool:
    """
    Whether an adapter of ours may say so. peft takes names of modules for regular expressions, computes new weights as
    settings ask, and imports what they name: only plain names and numbers are taken, of a size that adapters have.
    """
    if name in _FREE_TEXTS or value in (None, {}):
        return True
    if "init" in name and isinstance(value, str):
        return value in _INITIALIZATIONS
    if name in ("rank_pattern", "alpha_pattern", "trainable_token_indices") and isinstance(value, dict):
        value = [*value, *value.values()]
    items = value if isinstance(value, list) else [value]
    plain = [item for item in items if isinstance(item, str) and re.fullmatch(r"[\w.-]*", item)]
    small = [item for item in items if isinstance(item, int | float) and abs(item) <= LARGEST]
    return len(plain) + len(small) == len(items)


def _adapter_settings(folder: str | os.PathLike) -> PeftConfig:
    """What the `adapter_config.json` of a folder says, if it is what adapters of ours say."""
    path = Path(folder) / constants.CONFIG_NAME
    settings = read_json(path)
    if wrong := [f"{name} is {repr(value)[:80]}" for name, value in settings.items() if not is_plain(name, value)]:
        taken = f"plain names of modules, and numbers up to {LARGEST:,}, are taken"
        raise ValueError(f"{path} is refused: {'; '.join(wrong)}; {taken}.")
    method = settings.get("peft_type")
    # Of peft's other methods, some fetch further adapters or read files of torch's by names in the settings.
    if method not in list(METHODS.values()):
        raise ValueError(f"{folder} is an adapter of the method {method}; hf_gpt loads {', '.join(METHODS)}.")
    with reading(path):
        types = get_type_hints(PEFT_TYPE_TO_CONFIG_MAPPING[method])
        check_types(path, {name: value for name, value in settings.items() if value is not None}, types)
        return PeftConfig.from_peft_type(**settings)


def check_adapter(folder: str | os.PathLike) -> tuple[GPTConfig, PeftConfig]:
    """
    The configuration of an adapted model and the settings of the adapter, read without the base model. A `ValueError`
    for settings that are no adapter's of ours, weights that are missing, do not fit the model that `head_config.json`
    describes or are no finite numbers, and tokens outside the vocabulary.
    """
    config, adapter = adapted_config(folder), _adapter_settings(folder)
    with reading(folder):
        path = Path(folder, SAFETENSORS_WEIGHTS_NAME)
        if not path.is_file():
            raise ValueError(f"{folder} has no {path.name}: copy all files of the adapter.")
        tensors = read_tensor_file(path)
        check_tensors(tensors, path)
        tokens = getattr(adapter, "trainable_token_indices", None) or []
        tokens = [token for rows in tokens.values() for token in rows] if isinstance(tokens, dict) else tokens
        if not all(0 <= token < config.vocab_size for token in tokens):
            raise ValueError(f"trainable_token_indices are not all within the {config.vocab_size} rows")
        with torch.device("meta"):
            model = get_peft_model(_MODEL_CLASSES[config.architectures[0]](config), deepcopy(adapter))
        expected = get_peft_model_state_dict(model, save_embedding_layers=False)
        if problems := mismatches(expected, tensors):
            raise ValueError(f"it {', and '.join(problems)}: its weights do not fit what {constants.CONFIG_NAME} says")
    return config, adapter


def base_folder(folder: str | os.PathLike, base_model: str | os.PathLike | None = None) -> tuple[str, Path]:
    """
    The name of an adapter's base model, by default the one that it names, and its folder; a `ValueError` if there is
    none, or it is an adapter itself.
    """
    adapter = _adapter_settings(folder)
    name = os.fspath(base_model or adapter.base_model_name_or_path or "")
    try:
        found = local_folder(name, adapter.revision if base_model is None else None)
    except ValueError as error:
        raise ValueError(f"{folder}: no base model {name} ({error}) Say where it is with base_model=.") from error
    if is_adapter(found):
        advice = f"Merge that one first (scripts/convert.py {name} MERGED), and name the result with base_model="
        raise ValueError(f"{folder}: its base model {name} is an adapter itself. {advice}.")
    return name, found


def load_adapter(
    folder: str | os.PathLike,
    base_model: str | os.PathLike | None = None,
    is_trainable: bool = False,
    revision: str | None = None,
    adapter_name: str = "default",
    **kwargs: Any,
) -> PeftModel:
    """
    An adapter of `scripts/finetune.py` on its base model, in evaluation mode and float32 unless `dtype` says
    otherwise. Those that other code saved load as usual: `PeftModel.from_pretrained(model, folder)`.

    Args:
        folder: folder or Hub id of the adapter; of the latter a `revision`.
        base_model: folder or Hub id of the base model, by default the one that the adapter names.
        is_trainable: to train it further; not for prefix and prompt.
        adapter_name: what it is called in the model.
        kwargs: arguments of the base model's `from_pretrained`, such as `attn_implementation`.

    Raises:
        ValueError: if there is no adapter with a head's configuration, no base model, or weights are damaged.
    """
    folder = local_folder(folder, revision)
    config, adapter = check_adapter(folder)
    name, base = base_folder(folder, base_model)
    model_class = _MODEL_CLASSES[config.architectures[0]]
    with reading(folder, "its base model"):
        model = load_weights(model_class, base, config, new_head=True, **{"dtype": torch.float32} | kwargs)
    model.name_or_path = model.config.name_or_path = name
    with reading(folder):
        return PeftModel.from_pretrained(model, folder, adapter_name, is_trainable, config=adapter)


def resumption_problem(model: PreTrainedModel | PeftModel, checkpoint: str) -> str | None:
    """
    Why training cannot resume from a checkpoint's folder with a model as it was made for the run: one has an adapter
    that the other does not have; `None` if it can. peft itself would leave out what does not fit.
    """
    has_adapter = is_adapter(checkpoint)
    if not isinstance(model, PeftModel):
        return "it holds an adapter: name its --adaptation" if has_adapter else None
    if not has_adapter:
        return "it holds no adapter: leave out --adaptation"
    saved, ours = _adapter_settings(checkpoint).to_dict(), model.active_peft_config.to_dict()
    free = {"auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision"}
    other = sorted(name for name in (saved | ours).keys() - free if saved.get(name) != ours.get(name))
    return f"its adapter has another {', '.join(other)}" if other else None


def merge_adapter(model: PeftModel) -> PreTrainedModel:
    """
    The plain model that equals an adapted one, which is used up. A `ValueError` for methods that are no change of
    weights: prefix, prompt, and bottleneck adapters.
    """
    if model.active_peft_config.is_prompt_learning:
        raise ValueError(f"Virtual tokens cannot be merged: {NO_MERGE}")
    plain = model.merge_and_unload()
    # peft's LN tuning leaves the head in its wrapper.
    for name, module in list(plain.named_modules()):
        if isinstance(module, ModulesToSaveWrapper):
            own = module.unload_and_optionally_merge_module(merge=True, safe_merge=False, adapter_names=None)
            plain.set_submodule(name, own)
    return plain
