"""What is uploaded of a folder: files of known names, without paths of this machine, with their code and a card."""

import fnmatch
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers.tokenization_utils_base import FULL_TOKENIZER_FILE, TOKENIZER_CONFIG_FILE
from transformers.utils import ADAPTER_CONFIG_NAME, ADAPTER_SAFE_WEIGHTS_NAME, CONFIG_NAME

from ..files import CARD, read_json, read_tensor_file, read_tensors, reading, write_json, write_text
from ..files.weights import check_tensors, generation_settings, load_weights
from ..model import modeling_gpt
from ..model.configuration_gpt import AUTO_MAP, GPTConfig
from .card import is_machine_path, render_card
from .checks import FEATURE_DATA, FEATURES, HEAD_CONFIG, NO_SETTINGS, UPLOADED, RepositoryError, check_config
from .code import add_code
from .downloads import is_hub_id

# Whose presence says what a folder holds, in the order of looking.
CONFIGURATIONS = {
    "adapter": ADAPTER_CONFIG_NAME,
    "model": CONFIG_NAME,
    "tokenizer": TOKENIZER_CONFIG_FILE,
    "features": FEATURES,
}


def stage(
    folder: Path, target: Path, repo_id: str, base_model: str | None = None, revision: str | None = None
) -> tuple[str, list[str]]:
    """
    Put what is to be uploaded of a folder, which is only read, into an empty one (`target`), settings without paths of
    this machine, other files as links, and check it.

    Args:
        repo_id (`str`), base_model, revision (`str`, *optional*): see `hf_gpt.hub.push`; the card names them.

    Returns:
        `tuple` of its kind (`str`), a key of `CONFIGURATIONS`, and what the user should know (`list[str]`).

    Raises:
        ValueError: for a folder of no kind, or of two, and for what nobody else could load.
    """
    kinds = [kind for kind, name in CONFIGURATIONS.items() if (folder / name).is_file()]
    if not kinds or kinds[:2] == ["adapter", "model"]:
        raise ValueError(f"{folder} is no folder with exactly one of {', '.join(CONFIGURATIONS.values())}.")
    kind, left_out = kinds[0], []
    for path in (*sorted(folder.iterdir()), *sorted(folder.glob(f"{FEATURE_DATA}/*"))):
        name = path.relative_to(folder).as_posix()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in UPLOADED):
            (target / name).parent.mkdir(exist_ok=True)
            if path.suffix == ".json" and name not in NO_SETTINGS:
                write_json(target / name, _without_paths(read_json(path)))
            else:
                (target / name).symlink_to(path.resolve())
        elif path.suffix != ".py" and name != FEATURE_DATA:  # the code that is uploaded is that of hf_gpt
            left_out.append(name)
    if kind == "adapter":
        settings = read_json(target / ADAPTER_CONFIG_NAME)
        if base_model is None:
            check_base_model(base_model := settings.get("base_model_name_or_path") or "")
        else:  # an id, even where a folder has its name
            settings |= {"base_model_name_or_path": base_model, "revision": None}
            write_json(target / ADAPTER_CONFIG_NAME, settings)
    if kind != "features":
        add_code(target)
    files = (target / name for name in (TOKENIZER_CONFIG_FILE, HEAD_CONFIG, CONFIGURATIONS[kind]))
    settings = {name: value for file in files if file.is_file() for name, value in read_json(file).items()}
    write_text(target / CARD, card := render_card(folder, kind, repo_id, settings, revision, base_model))
    _check_loads(folder, kind)
    notes = [f"Not uploaded: {', '.join(left_out)}."] if left_out else []
    if kind == "model" and not (target / TOKENIZER_CONFIG_FILE).is_file():
        notes.append("There is no tokenizer in the folder: AutoTokenizer will not find one in the repository.")
    if "\nlicense:" not in card:
        notes.append("The card names no licence (`license:` in its first lines).")
    return kind, notes


def _without_paths(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        kept = value.keys() - {"_name_or_path", "name_or_path"}
        return {name: _without_paths(item, name) for name, item in value.items() if name in kept}
    if isinstance(value, list):
        return list(map(_without_paths, value))
    is_path = isinstance(value, str) and (name == "best_model_checkpoint" or is_machine_path(value))
    return Path(value).name if is_path else value


def check_base_model(named: str) -> None:
    """Raise a `ValueError` unless an adapter's base model is named by its Hub id."""
    if "/" not in named or not is_hub_id(named):
        raise ValueError(
            f"The adapter's base model is {named or 'not named'}, which nobody else has: push that model first, then "
            "name its Hub id with --base_model user/name, or start training from it."
        )


def _check_loads(folder: Path, kind: str) -> None:
    """Raise a `ValueError` that names the file for what others could not load."""
    weights = {"adapter": ADAPTER_SAFE_WEIGHTS_NAME, "model": "model*.safetensors"}.get(kind)
    if weights is not None and not any(folder.glob(weights)):
        raise RepositoryError(f"{folder} has no weights: there is no {weights}.")
    if kind == "adapter":
        check_tensors(read_tensor_file(folder / weights), folder / weights)
    if kind == "model":
        settings = read_json(folder / CONFIG_NAME)
        name, model_type = (settings.get("architectures") or [None])[0], settings.get("model_type")
        if model_type != GPTConfig.model_type or f"modeling_gpt.{name}" not in AUTO_MAP.values():
            raise RepositoryError(f"{folder} is a {name} of the type {model_type}, whose code is not hf_gpt's.")
        with reading(folder / CONFIG_NAME):
            check_config(settings, CONFIG_NAME)
            config = GPTConfig.from_dict(settings)
        generation_settings(folder)
        with reading(folder):
            stored = read_tensors(folder)
            model = load_weights(getattr(modeling_gpt, name), folder, config)
        if unused := sorted(stored.keys() - model.state_dict().keys()):
            raise RepositoryError(f"{folder}: its {CONFIG_NAME} does not ask for {', '.join(unused[:3])}.")
    if (folder / TOKENIZER_CONFIG_FILE).is_file():
        with reading(folder / FULL_TOKENIZER_FILE):
            Tokenizer.from_file(str(folder / FULL_TOKENIZER_FILE))
