"""What is uploaded of a folder: files of known names, without paths of this machine, with their code and a card."""

import fnmatch
import sys
from pathlib import Path

from tokenizers import Tokenizer
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.tokenization_utils_base import FULL_TOKENIZER_FILE, TOKENIZER_CONFIG_FILE
from transformers.utils import ADAPTER_CONFIG_NAME, ADAPTER_SAFE_WEIGHTS_NAME, CONFIG_NAME, SAFE_WEIGHTS_NAME

from ..files import CARD, read_json, read_tensor_file, reading, write_json, write_text
from ..files.weights import check_tensors, generation_settings, load_weights
from ..model import modeling_gpt
from ..model.configuration_gpt import AUTO_MAP, GPTConfig
from ..model.tokenization_gpt import GPTTokenizer
from .card import render_card, without_paths
from .repositories import EVAL_RESULTS, FEATURE_DATA, FEATURES, HEAD_CONFIG, UPLOADED, check_config, is_hub_id

# Whose presence says what a folder holds, in the order of looking.
CONFIGURATIONS = {"adapter": ADAPTER_CONFIG_NAME, "model": CONFIG_NAME}
CONFIGURATIONS |= {"tokenizer": TOKENIZER_CONFIG_FILE, "features": FEATURES}
# Their strings are pieces of words.
_VOCABULARIES = (FULL_TOKENIZER_FILE, "words.json", "vocab.json", "added_tokens.json")


def stage(
    folder: Path, target: Path, repo_id: str, base_model: str | None = None, revision: str | None = None
) -> tuple[str, list[str]]:
    """
    Put what is to be uploaded of a folder, which is only read, into an empty one (`target`), settings without paths of
    this machine, other files as links, and check it; the card names `repo_id`, `base_model` and `revision`. Returns
    its kind, a key of `CONFIGURATIONS`, and the names that are left out; a `ValueError` for a folder of no kind, or of
    two, and for what nobody else could load.
    """
    kinds = [kind for kind, name in CONFIGURATIONS.items() if (folder / name).is_file()]
    if not kinds or kinds[:2] == ["adapter", "model"]:
        raise ValueError(f"{folder} is no folder with exactly one of {', '.join(CONFIGURATIONS.values())}.")
    kind, left_out = kinds[0], []
    within = (path for name in (FEATURE_DATA, EVAL_RESULTS) for path in sorted(folder.glob(f"{name}/*")))
    for path in (*sorted(folder.iterdir()), *within):
        name = path.relative_to(folder).as_posix()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in UPLOADED):
            (target / name).parent.mkdir(exist_ok=True)
            if path.suffix == ".json" and name not in _VOCABULARIES:
                write_text(target / name, without_paths(path.read_text(encoding="utf-8")))
            else:
                (target / name).symlink_to(path.resolve())
        elif path.suffix != ".py" and name not in (FEATURE_DATA, EVAL_RESULTS):  # the code is that of hf_gpt
            left_out.append(name)
    if kind == "adapter":
        if base_model is None:
            check_base_model(base_model := read_json(folder / ADAPTER_CONFIG_NAME).get("base_model_name_or_path"))
        else:  # an id, even where a folder has its name
            named = {"base_model_name_or_path": base_model, "revision": None}
            write_json(target / ADAPTER_CONFIG_NAME, read_json(target / ADAPTER_CONFIG_NAME) | named)
    if kind != "features":
        add_code(target)
    files = (target / name for name in (TOKENIZER_CONFIG_FILE, HEAD_CONFIG, CONFIGURATIONS[kind]))
    settings = {name: value for file in files if file.is_file() for name, value in read_json(file).items()}
    write_text(target / CARD, render_card(folder, kind, repo_id, settings, revision, base_model))
    _check_loads(folder, kind)
    return kind, left_out


def code_files(*owners: type) -> list[Path]:
    """The modules that classes need, by default those of configuration, models and tokenizer, and what they import."""
    files: dict[Path, None] = {}
    for owner in owners or (GPTConfig, modeling_gpt.GPTModel, GPTTokenizer):
        module = sys.modules[owner.__module__].__file__
        files |= dict.fromkeys(map(Path, (module, *sorted(get_relative_import_files(module)))))
    return list(files)


def add_code(folder: Path) -> None:
    """Give a folder of ours a complete `auto_map` and the modules that it names, in place of links."""
    maps = {CONFIG_NAME: (AUTO_MAP, (GPTConfig, modeling_gpt.GPTModel))}
    tokenizer = folder / TOKENIZER_CONFIG_FILE
    # A tokenizer for GPT-2 may be one of transformers' own.
    if tokenizer.is_file() and read_json(tokenizer).get("tokenizer_class") == GPTTokenizer.__name__:
        maps[tokenizer.name] = ({"AutoTokenizer": ["tokenization_gpt.GPTTokenizer", None]}, (GPTTokenizer,))
    for name, (auto_map, owners) in maps.items():
        if (folder / name).is_file():
            write_json(folder / name, read_json(folder / name) | {"auto_map": auto_map})
            for file in code_files(*owners):
                write_text(folder / file.name, file.read_text(encoding="utf-8"))


def check_base_model(named: str | None) -> None:
    """Raise a `ValueError` unless an adapter's base model is named by its Hub id."""
    if not named or "/" not in named or not is_hub_id(named):
        problem = f"The adapter's base model is {named or 'not named'}, which nobody else has"
        raise ValueError(f"{problem}: push that model first, then name its Hub id with --base_model user/name.")


def _check_loads(folder: Path, kind: str) -> None:
    """Raise a `ValueError` that names the file for what others could not load."""
    weights = folder / {"adapter": ADAPTER_SAFE_WEIGHTS_NAME, "model": SAFE_WEIGHTS_NAME}.get(kind, "")
    if not weights.exists():
        raise ValueError(f"{folder} has no weights: there is no {weights.name}.")
    if kind == "adapter":
        check_tensors(read_tensor_file(weights), weights)
    if kind == "model":
        settings = read_json(folder / CONFIG_NAME)
        name, model_type = (settings.get("architectures") or [None])[0], settings.get("model_type")
        if model_type != GPTConfig.model_type or f"modeling_gpt.{name}" not in AUTO_MAP.values():
            raise ValueError(f"{folder} is a {name} of the type {model_type}, whose code is not hf_gpt's.")
        check_config(settings, folder / CONFIG_NAME)
        with reading(folder / CONFIG_NAME):
            config = GPTConfig.from_dict(settings)
        generation_settings(folder)
        with reading(folder):
            load_weights(getattr(modeling_gpt, name), folder, config, whole=True)
    if (folder / TOKENIZER_CONFIG_FILE).is_file():
        with reading(folder / FULL_TOKENIZER_FILE):
            Tokenizer.from_file(str(folder / FULL_TOKENIZER_FILE))
