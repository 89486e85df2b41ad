"""What is refused in a repository, whoever sent it: pickles, foreign code, files that are cut short or lie outside."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers.tokenization_utils_base import TOKENIZER_CONFIG_FILE
from transformers.utils import (
    ADAPTER_CONFIG_NAME,
    ADAPTER_SAFE_WEIGHTS_NAME,
    CONFIG_NAME,
    GENERATION_CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
)

from ..files import check_types, read_json, read_npy
from ..model.configuration_gpt import GPTConfig
from .code import RELEASED_CODE, TOKENIZER_AUTO_MAP, code_files

# Beside peft's own files in an adapter's folder: the configuration of the base model with the head of the task.
HEAD_CONFIG = "head_config.json"
FEATURES, FEATURE_DATA = "features.json", "data"
TOKENIZER_FILES = (
    *("tokenizer.json", TOKENIZER_CONFIG_FILE, "vocab.json", "merges.txt"),
    *("special_tokens_map.json", "added_tokens.json"),
)
# What is read to load a model that others published (stock openai-gpt and gpt2).
STOCK_FILES = (CONFIG_NAME, GENERATION_CONFIG_NAME, SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, *TOKENIZER_FILES)
# With shards and the modules of `code_files`, all that is uploaded, and all that is fetched, of any repository.
KNOWN_FILES = (
    *(*STOCK_FILES, ADAPTER_CONFIG_NAME, ADAPTER_SAFE_WEIGHTS_NAME, HEAD_CONFIG, FEATURES, "README.md"),
    *("LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE", "NOTICE.md", "NOTICE.txt"),
    *("metrics.json", "all_results.json", "train_results.json", "eval_results.json", "pretraining.json"),
)
_NUMBER = r"\d{5}-of-\d{5}"
_WEIGHT_SHARD = re.compile(rf"model-{_NUMBER}\.safetensors")
_FEATURE_SHARD = re.compile(rf"{FEATURE_DATA}/features-{_NUMBER}(\.rows)?\.(parquet|arrow|npy|safetensors)")
# Weights that only `scripts/convert.py` reads, through torch's `weights_only`, and of stock models alone.
STOCK_PICKLE = re.compile(rf"pytorch_model(-{_NUMBER})?\.bin(\.index\.json)?")
# What a Trainer keeps in a checkpoint to go on from; nobody who loads a model reads it.
_CHECKPOINT = re.compile(r"(last-checkpoint|checkpoint-\d+)/")
_TRAINING_STATE = re.compile(
    r"(optimizer|scheduler|scaler)\.(pt|bin)|rng_state(_\d+)?\.pth|trainer_state\.json|head_layers\.json|latest|"
    r"global_step\d+/[\w.-]+\.pt|(optimizer|pytorch_model_fsdp)_\d+/(\.metadata|[\w.-]+\.distcp)|"
    r"pytorch_model_fsdp\.bin"
)
_LEFT_BY_TRAINERS = re.compile(r"training_args\.bin|([\w.-]+/)*events\.out\.tfevents\.[\w.-]+")
# Loading a file of these runs what it says.
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill")
# What may lie beside the known files: it is not fetched, and reading it would run nothing.
_HARMLESS_SUFFIXES = (
    *(".json", ".jsonl", ".yaml", ".yml", ".txt", ".md", ".csv", ".tsv", ".bpe"),
    *(".safetensors", ".parquet", ".arrow", ".npy"),
    *(".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf"),
)
_HARMLESS_NAMES = (".gitattributes", ".gitignore", "LICENSE", "NOTICE")
# Their strings are pieces of words and names of weights.
NO_SETTINGS = ("tokenizer.json", "vocab.json", "added_tokens.json", SAFE_WEIGHTS_INDEX_NAME)
# peft imports the package that an adapter names.
_PARENT_LIBRARIES = re.compile(r"(hf_gpt|transformers|peft)(\.\w+)*")
# What an adapter may say in words of its own, and its settings that are given by names of modules.
_FREE_TEXTS = (
    *("auto_mapping", "base_model_name_or_path", "peft_version", "revision"),
    *("tokenizer_name_or_path", "prompt_tuning_init_text"),
)
_BY_MODULE = ("rank_pattern", "alpha_pattern", "trainable_token_indices")
# Ways to draw the weights of a new adapter that compute nothing and read nothing.
_INITIALISATIONS = ("gaussian", "orthogonal", "zero")
_LARGEST = 1 << 20
_UNREADABLE = {
    ".safetensors": "is cut short or no safetensors file",
    ".npy": "is no array of numbers",
    ".json": "is not JSON, or holds no settings",
}
_OWN_CLASS = re.compile(r"(?P<module>\w+)\.GPT\w*")
# What transformers takes in a `config.json` beside the fields of `GPTConfig`, or has of other types than it can use.
_IMPLEMENTATION = str | dict | None
CONFIG_TYPES: dict[str, Any] = {
    **dict.fromkeys(("attn_implementation", "_attn_implementation"), _IMPLEMENTATION),
    **dict.fromkeys(("experts_implementation", "_experts_implementation"), _IMPLEMENTATION),
    **dict.fromkeys(("dtype", "torch_dtype", "model_type"), str | None),
    "architectures": list[str] | None,
    "auto_map": dict | None,
    "quantization_config": dict | None,
    "name_or_path": Any,
    "num_labels": int | None,
    "output_attentions": bool | None,
}
# Far above what there are models of, and below what could not be built.
_LARGEST_SIZES = {
    "vocab_size": 1 << 24,
    "n_positions": 1 << 20,
    "n_embd": 1 << 16,
    "n_layer": 1000,
    "n_head": 1 << 16,
    "n_inner": 1 << 18,
    "num_labels": 100_000,
}
# transformers' own models that hf_gpt reads -> how the names of their classes begin.
_STOCK_CLASSES = {"openai-gpt": "OpenAIGPT", "gpt2": "GPT2"}


class RepositoryError(ValueError):
    """A repository or folder that is not taken as it is."""


def is_known(name: str) -> bool:
    """Whether a file of a repository is one of those that are uploaded and fetched."""
    shards = (_WEIGHT_SHARD, _FEATURE_SHARD)
    return name in KNOWN_FILES or name in _own_code() or any(shard.fullmatch(name) for shard in shards)


def stock_type(config: dict[str, Any]) -> str | None:
    """`"openai-gpt"` or `"gpt2"` if a `config.json` is of such a model, by its type or, in old files, its class."""
    model_type, names = config.get("model_type"), config.get("architectures") or []
    if model_type is None:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"config.json: architectures must be a list of class names, not {names!r}.")
        model_type = next((kind for kind, stem in _STOCK_CLASSES.items() if names and names[0].startswith(stem)), None)
    if not isinstance(model_type, str | None):
        raise ValueError(f"config.json: model_type must be a string, not {model_type!r}.")
    return model_type if model_type in _STOCK_CLASSES else None


def check_config(settings: dict[str, Any], where: str | Path) -> None:
    """Raise a `ValueError` for what transformers would stumble over in a `config.json`: names, types and sizes."""
    fields = {field.name for field in dataclasses.fields(GPTConfig)}
    # What is neither a field nor a setting of transformers would hide a method or property of the class.
    for name in sorted(settings.keys() - fields - CONFIG_TYPES.keys() - GPTConfig.attribute_map.keys()):
        if hasattr(GPTConfig, name):
            raise ValueError(f"{where}: a configuration has no field {name}: leave it out.")
    check_types(where, settings, CONFIG_TYPES)
    quantization = settings.get("quantization_config")
    if quantization is not None:
        check_types(where, quantization, {"quant_method": str}, ["quant_method"], within="quantization_config")
    for name, found in settings.items():
        most = _LARGEST_SIZES.get(GPTConfig.attribute_map.get(name, name))
        if most is not None and isinstance(found, int) and found > most:
            raise ValueError(f"{where}: {name} must be at most {most:,}, not {found}.")


def is_weights(name: str) -> bool:
    """Whether a file holds weights of a model, or says where they are."""
    return name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME) or _WEIGHT_SHARD.fullmatch(name) is not None


def is_training_state(name: str) -> bool:
    """Whether a file of a checkpoint is there to go on from."""
    return _TRAINING_STATE.fullmatch(name) is not None


@functools.cache
def _own_code() -> dict[str, set[str]]:
    """SHA-256 of the modules of hf_gpt, as installed and as earlier versions uploaded them."""
    hashes = {name: set(released) for name, released in RELEASED_CODE.items()}
    for file in code_files():
        hashes.setdefault(file.name, set()).add(hashlib.sha256(file.read_bytes()).hexdigest())
    return hashes


def check_names(names: Iterable[str], where: str) -> None:
    """
    Look at the names of a repository's files, before any of them is fetched; messages call it `where`.

    Raises:
        RepositoryError: for names that lead outside, pickles, code that is not hf_gpt's, and files of a kind that is
            not known to be harmless.
    """
    _refuse(where, [problem for name in names if (problem := _name_problem(name)) is not None])


def _name_problem(name: str) -> str | None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or re.search(r"[\\:\x00-\x1f]", name):
        return f"{name!r} lies outside the folder"
    inside = _CHECKPOINT.sub("", name, count=1)
    if is_known(inside) or _LEFT_BY_TRAINERS.fullmatch(inside) or (inside != name and is_training_state(inside)):
        return None
    suffix = path.suffix.lower()
    if suffix in PICKLES:
        return f"{name} is a pickle, which runs code when it is loaded; safetensors is wanted"
    if suffix in (".py", ".pyc", ".so"):
        return f"{name} is code that is not hf_gpt's"
    if suffix not in _HARMLESS_SUFFIXES and path.name not in _HARMLESS_NAMES:
        return f"{name} is of a kind that is not known to be harmless"
    return None


def check_repository(
    folder: str | Path, where: str | None = None, home: Path | None = None, names: Iterable[str] | None = None
) -> None:
    """
    Look at the files of a repository on the disk. Nothing is executed, and no weights are read.

    Args:
        folder (`str` or `Path`): as it was downloaded, or is to be uploaded; messages call it `where`.
        home (`Path`, *optional*): another folder that links may lead to.
        names (`Iterable[str]`, *optional*): the files that will be read, by default all.

    Raises:
        RepositoryError: for what `check_names` refuses, links that lead outside, code that differs from hf_gpt's,
            JSON and safetensors that cannot be read or are cut short, arrays of objects, and configurations that name
            other code.
    """
    folder = Path(folder)
    where = where or str(folder)
    if names is None:
        files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        check_names(files, where)
    else:
        files = {name: folder / name for name in sorted(names)}
    problems = []
    # In the cache of the Hub, files are links into the folder `blobs`.
    homes = [folder.resolve(), *([home.resolve()] if home is not None else [])]
    if folder.parent.name == "snapshots":
        homes.append(folder.parent.parent.resolve() / "blobs")
    for name, path in files.items():
        if not any(path.resolve().is_relative_to(home) for home in homes):
            problems.append(f"{name} is a link that leads outside the folder")
        else:
            problems += _file_problems(name, path)
    _refuse(where, problems)


def _refuse(where: str, problems: list[str]) -> None:
    if problems:
        raise RepositoryError(f"{where} is refused: {'; '.join(problems)}.")


def _file_problems(name: str, path: Path) -> list[str]:
    """What a file says of itself, or does not hold; weights are not read."""
    try:
        if path.suffix == ".safetensors":
            # Reads the header, and compares the length of the file with what the header says.
            with safe_open(path, framework="np"):
                return []
        if path.suffix == ".npy":
            read_npy(path)
        if path.suffix == ".json":
            return [f"{name}: {problem}" for problem in _settings_problems(path, read_json(path))]
    except (OSError, SafetensorError, ValueError) as error:
        return [f"{name} {_UNREADABLE[path.suffix]} ({error})"]
    if path.suffix == ".py" and hashlib.sha256(path.read_bytes()).hexdigest() not in _own_code()[path.name]:
        return [
            f"{name} is no {path.name} that this hf_gpt knows: with trust_remote_code=True it would run foreign code "
            "(if a newer version of hf_gpt wrote it, install that one)"
        ]
    return []


def _settings_problems(path: Path, settings: dict[str, Any]) -> list[str]:
    problems = adapter_problems(settings) if path.name == ADAPTER_CONFIG_NAME else []
    shards = settings.get("weight_map")
    if shards is not None and not isinstance(shards, dict):
        problems.append("weight_map does not say what file each tensor is in")
    elif shards is not None:
        outside = sorted({str(shard) for shard in shards.values() if PurePosixPath(str(shard)).name != shard})
        problems += [f"{shard!r} lies outside the folder" for shard in outside]
    if path.name in NO_SETTINGS:
        return problems
    return problems + [problem for key, value in _nested(settings) for problem in _foreign(key, value)]


def _nested(settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All keys with their values, at any depth."""
    waiting: list[Any] = [settings]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value.items()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _foreign(key: str, value: Any) -> list[str]:
    """What a setting names that is not hf_gpt's, and that transformers or peft would fetch, import or run."""
    if key == "auto_map":
        entries = _entries(value)
        return [f"{auto} names {found}" for auto, entry in entries if (found := _foreign_code(entry)) is not None]
    if key == "custom_pipelines" and value:
        return ["custom_pipelines names pipelines of its own, whose code would be run"]
    if key == "parent_library" and value is not None and not _PARENT_LIBRARIES.fullmatch(str(value)):
        return [f"auto_mapping names the package {value}"]
    if key.endswith("attn_implementation") and "/" in json.dumps(value):
        return [f"{key} names a kernel of the Hub, {json.dumps(value)}, whose code would be run"]
    if key == "trust_remote_code" and value:
        return ["trust_remote_code is switched on"]
    if key == "transformers_weights" and value is not None and not is_weights(str(value)):
        return [f"transformers_weights names other weights, {value}"]
    return []


def adapter_problems(settings: dict[str, Any]) -> list[str]:
    """
    A sentence for each thing that an `adapter_config.json` says and no adapter of ours does. peft takes names of
    modules for regular expressions, computes new weights as the settings ask, and imports what they name: only plain
    names and numbers are taken, of a size that adapters have.
    """
    problems = []
    for name, value in settings.items():
        if name in _FREE_TEXTS:
            continue
        if isinstance(value, dict):
            # Of the methods that compute weights anew, and of the library that trains in parallel.
            plain = not value or (name in _BY_MODULE and all(map(_is_plain, (*value, *value.values()))))
        elif name.startswith("init_") and isinstance(value, str):
            plain = value in _INITIALISATIONS
        else:
            plain = _is_plain(value)
        if not plain:
            shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}..."
            problems.append(f"{name} is {shown}; plain names of modules, and numbers up to {_LARGEST:,}, are taken")
    if settings.get("prompt_tuning_init") == "TEXT":
        problems.append("prompt_tuning_init is TEXT, for which peft loads another tokenizer")
    return problems


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(not isinstance(item, list) and _is_plain(item) for item in value)
    if isinstance(value, str):
        return re.fullmatch(r"[\w.-]*", value) is not None
    return value is None or (isinstance(value, (int, float)) and abs(value) <= _LARGEST)


def _entries(auto_map: Any) -> list[tuple[str, str]]:
    """Auto class and class, for one of the forms that `auto_map` has: names, or pairs of names."""
    pairs = auto_map.items() if isinstance(auto_map, dict) else [(next(iter(TOKENIZER_AUTO_MAP)), auto_map)]
    flat = [
        (name, entry) for name, value in pairs for entry in (value if isinstance(value, (list, tuple)) else [value])
    ]
    return [(str(name), str(entry)) for name, entry in flat if entry is not None]


def _foreign_code(reference: str) -> str | None:
    if "--" in reference:
        return f"code of another repository, {reference.split('--')[0]}"
    match = _OWN_CLASS.fullmatch(reference)
    if match is None or f"{match['module']}.py" not in _own_code():
        return f"code that is not hf_gpt's, {reference}"
    return None
