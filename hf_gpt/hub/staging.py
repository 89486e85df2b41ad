"""What is uploaded of a folder: files of known names, without paths of this machine, with their code and a card."""

import fnmatch
import re
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers.tokenization_utils_base import FULL_TOKENIZER_FILE, TOKENIZER_CONFIG_FILE
from transformers.utils import ADAPTER_CONFIG_NAME, ADAPTER_SAFE_WEIGHTS_NAME, CONFIG_NAME

from ..files import CARD, read_json, read_tensor_file, reading, write_json, write_text
from ..files.weights import check_tensors, misfits
from ..model import modeling_gpt
from ..model.configuration_gpt import AUTO_MAP, GPTConfig
from .card import is_machine_path, render_card
from .checks import FEATURE_DATA, FEATURES, HEAD_CONFIG, NO_SETTINGS, RepositoryError, check_config, is_known
from .code import add_code, code_files
from .downloads import is_hub_id

# Whose presence says what a folder holds, in the order of looking.
CONFIGURATIONS = {
    "adapter": ADAPTER_CONFIG_NAME,
    "model": CONFIG_NAME,
    "tokenizer": TOKENIZER_CONFIG_FILE,
    "features": FEATURES,
}
_OWN_PLACES = ("_name_or_path", "name_or_path")
# What a Trainer keeps in a checkpoint to resume from, under DeepSpeed and FSDP as well.
_TRAINING_STATE = (
    *("optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt", "rng_state*.pth", "trainer_state.json"),
    *("head_layers.json", "latest", "global_step*/*.pt", "pytorch_model_fsdp.bin"),
    *("optimizer_[0-9]/*", "pytorch_model_fsdp_[0-9]/*"),
)


def kind_of(folder: Path) -> str:
    """
    What a folder holds, a key of `CONFIGURATIONS`; a `ValueError` if it is none, or holds nothing of these or two at
    once.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder.")
    kinds = [kind for kind, name in CONFIGURATIONS.items() if (folder / name).is_file()]
    if not kinds or kinds[:2] == ["adapter", "model"]:
        raise ValueError(
            f"{folder} must hold exactly one of {ADAPTER_CONFIG_NAME} (an adapter) and {CONFIG_NAME} (a model), or "
            f"else {TOKENIZER_CONFIG_FILE} (a tokenizer) or {FEATURES} (features whose extraction is finished)."
        )
    return kinds[0]


def stage(
    folder: Path, target: Path, repo_id: str, base_model: str | None = None, revision: str | None = None
) -> tuple[str, list[str]]:
    """
    Put what is to be uploaded of a folder, which is only read, into an empty one (`target`), large files as links, and
    check it.

    Args:
        repo_id (`str`), revision (`str`, *optional*): what the card says how to load.
        base_model (`str`, *optional*): Hub id of the model that this one was made from; adapters name theirs.

    Returns:
        `tuple` of its kind (`str`), a key of `CONFIGURATIONS`, and what the user should know (`list[str]`).

    Raises:
        ValueError: for what nobody else could load: settings, weights and tokenizer that cannot be read, or do not go
            together; an adapter whose base model is a folder; a card that names a path of this machine.
    """
    kind, left_out = kind_of(folder), []
    for path in sorted(folder.iterdir()):
        is_data = kind == "features" and path.name == FEATURE_DATA
        for file in sorted(path.iterdir()) if is_data else [path]:
            name = file.relative_to(folder).as_posix()
            if is_known(name):
                (target / name).parent.mkdir(exist_ok=True)
                (target / name).symlink_to(file.resolve())
            elif file.suffix != ".py":  # the code that is uploaded is that of hf_gpt as it is installed
                left_out.append(name)
    clean_settings(target)
    if kind == "adapter":
        base_model = _set_base_model(target / ADAPTER_CONFIG_NAME, base_model)
    if kind != "features":
        add_code(target)
    files = (target / name for name in (TOKENIZER_CONFIG_FILE, HEAD_CONFIG, CONFIGURATIONS[kind]))
    settings = {name: value for file in files if file.is_file() for name, value in read_json(file).items()}
    write_text(target / CARD, card := render_card(folder, kind, repo_id, settings, revision, base_model))
    _check_loads(target, folder, kind)
    notes = [f"Not uploaded: {', '.join(left_out)}."] if left_out else []
    if kind == "model" and not (target / TOKENIZER_CONFIG_FILE).is_file():
        notes.append("There is no tokenizer in the folder: AutoTokenizer will not find one in the repository.")
    if not re.search(r"^license:", card, flags=re.MULTILINE):
        notes.append("The card names no licence (`license:` in its first lines).")
    return kind, notes


def checkpoint_files(folder: Path) -> tuple[list[str], list[str]]:
    """
    Of a Trainer's checkpoint, the files that are the model, and those and the state to resume from; of a card nothing,
    as that of peft names the base model's folder.
    """
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    own = {file.name for file in code_files()}
    model = [name for name in names if (is_known(name) and name != CARD) or name in own]
    return model, model + [name for name in names if any(fnmatch.fnmatchcase(name, kind) for kind in _TRAINING_STATE)]


def clean_settings(folder: Path) -> None:
    """
    Take the paths of this machine out of all settings of a folder that is to be uploaded; what its files are links to
    stays as it is. A `ValueError` names a file that is not JSON.
    """
    for path in sorted(folder.glob("*.json")):
        if path.name not in NO_SETTINGS:
            write_json(path, _without_paths(read_json(path)))


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        # Whether or not it is absolute, the best checkpoint is a folder of this machine.
        best = "best_model_checkpoint"
        kept = {name: item for name, item in value.items() if name not in ("_name_or_path", "name_or_path")}
        return {
            name: Path(item).name if name == best and item else _without_paths(item) for name, item in kept.items()
        }
    if isinstance(value, list):
        return list(map(_without_paths, value))
    return Path(value).name if isinstance(value, str) and is_machine_path(value) else value


def _set_base_model(path: Path, base_model: str | None) -> str:
    settings = read_json(path)
    named = base_model or settings.get("base_model_name_or_path") or ""
    # What the user says is an id, even where a folder has its name; `push` has looked at it.
    if "/" not in named or (base_model is None and not is_hub_id(named)):
        raise ValueError(
            f"The adapter's base model is {named or 'not named'}, which nobody else has. Push that model first, then "
            "name its Hub id with --base_model user/name."
        )
    if base_model is not None:
        write_json(path, settings | {"base_model_name_or_path": base_model, "revision": None})
    return named


def _check_loads(target: Path, folder: Path, kind: str) -> None:
    """Raise a `ValueError` that names the file for what others could not load."""
    stored: dict[str, torch.Tensor] = {}
    for path in sorted(target.glob("*model*.safetensors")):
        stored |= read_tensor_file(path)
        check_tensors(stored, folder / path.name)
    if kind in ("model", "adapter") and not stored:
        name = ADAPTER_SAFE_WEIGHTS_NAME if kind == "adapter" else "model.safetensors"
        raise RepositoryError(f"{folder} is not pushed: it has no {name}.")
    if kind == "features" and not (target / FEATURE_DATA).is_dir():
        raise RepositoryError(f"{folder} is not pushed: there is nothing in {FEATURE_DATA}.")
    if kind == "model":
        _check_model(read_json(target / CONFIG_NAME), {name: value.shape for name, value in stored.items()}, folder)
    if (target / TOKENIZER_CONFIG_FILE).is_file():
        with reading(folder / FULL_TOKENIZER_FILE):
            Tokenizer.from_file(str(target / FULL_TOKENIZER_FILE))


def _check_model(settings: dict[str, Any], stored: dict[str, torch.Size], folder: Path) -> None:
    name = (settings.get("architectures") or [None])[0]
    if settings.get("model_type") != GPTConfig.model_type or f"modeling_gpt.{name}" not in AUTO_MAP.values():
        raise RepositoryError(
            f"{folder} is not pushed: its model is a {name} of the type {settings.get('model_type')}, whose code is "
            "not hf_gpt's: convert it."
        )
    with reading(folder / CONFIG_NAME):
        check_config(settings, CONFIG_NAME)
        with torch.device("meta"):
            model = getattr(modeling_gpt, name)(GPTConfig.from_dict(settings))
    wanted = {name: value.shape for name, value in model.state_dict().items()}
    tied = set(model._tied_weights_keys or {}) if model.config.tie_word_embeddings else set()
    problems = misfits(*({name: side[name] for name in side.keys() - tied} for side in (wanted, stored)))
    if problems:
        raise RepositoryError(f"{folder} is not pushed: its checkpoint {'; '.join(problems)}.")
