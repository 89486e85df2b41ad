"""What is uploaded of a folder: its kind, the files, without paths of this machine, and all of it checked."""

import contextlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from transformers.tokenization_utils_base import FULL_TOKENIZER_FILE, TOKENIZER_CONFIG_FILE
from transformers.trainer import TRAINER_STATE_NAME
from transformers.utils import ADAPTER_CONFIG_NAME, ADAPTER_SAFE_WEIGHTS_NAME, CONFIG_NAME

from ..files import CARD, read_json, read_tensor_file
from ..files.weights import check_tensors, misfits
from ..model import modeling_gpt
from ..model.configuration_gpt import AUTO_MAP, GPTConfig
from .card import is_machine_path, render_card
from .checks import (
    FEATURE_DATA,
    FEATURES,
    HEAD_CONFIG,
    NO_SETTINGS,
    RepositoryError,
    check_config,
    check_repository,
    is_known,
    is_training_state,
)
from .code import add_code
from .downloads import is_hub_id

UNFINISHED_FEATURES = "feature_settings.json"
# Whose presence tells what a folder holds, in the order of looking.
CONFIGURATIONS = {
    "adapter": ADAPTER_CONFIG_NAME,
    "model": CONFIG_NAME,
    "tokenizer": TOKENIZER_CONFIG_FILE,
    "features": FEATURES,
}
# What nobody else should see: tokens of the Hub, GitHub, OpenAI and AWS, settings that hold one, private keys.
_SECRET = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|sk-[\w-]{30,}|AKIA[0-9A-Z]{16})\b"
    r"|[\"']?\b((hub|hf|access|auth|api|bearer|refresh)[_-]?)?token[\"']?\s*[:=]\s*[\"'][^\s\"'<>]{8,}[\"']"
    r"|[\"']?\b(api[_-]?key|(client[_-]?)?secret|password)[\"']?\s*[:=]\s*[\"'][^\s\"'<>]{8,}[\"']"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----",
    re.IGNORECASE,
)
_TEXTS = (".json", ".md", ".txt", "")


@dataclass
class Staged:
    """
    What is to be uploaded: a `folder` that holds exactly these files, large ones as links; its `kind`, a key of
    `CONFIGURATIONS`; the text of README.md, what of the source is not uploaded, and what the user should know.
    """

    folder: Path
    kind: str
    card: str = ""
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def repo_type(self) -> str:
        """`str`: of the repository."""
        return "dataset" if self.kind == "features" else "model"

    def files(self) -> list[tuple[str, int]]:
        """Names and sizes in bytes."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return [(path.relative_to(self.folder).as_posix(), path.stat().st_size) for path in found]


def kind_of(folder: Path) -> str:
    """
    What a folder holds, a key of `CONFIGURATIONS`; a `ValueError` if it is none, or holds nothing of these or two at
    once.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder.")
    kinds = [kind for kind, name in CONFIGURATIONS.items() if (folder / name).is_file()]
    if {"adapter", "model"} <= set(kinds):
        raise ValueError(
            f"{folder} holds {ADAPTER_CONFIG_NAME} and {CONFIG_NAME}, so nobody can tell whether it is an adapter or "
            "a whole model: push a folder with one of them."
        )
    if not kinds:
        if (folder / UNFINISHED_FEATURES).is_file():
            raise ValueError(f"{folder}: the features are not finished; give the command that extracts them again.")
        raise ValueError(
            f"{folder} holds nothing that is known here: a model has {CONFIG_NAME}, an adapter {ADAPTER_CONFIG_NAME}, "
            f"a tokenizer {TOKENIZER_CONFIG_FILE}, extracted features {FEATURES}."
        )
    return kinds[0]


def stage(
    folder: Path, target: Path, repo_id: str, base_model: str | None = None, revision: str | None = None
) -> Staged:
    """
    Put what is to be uploaded of a folder, which is only read, into an empty one (`target`), and check it.

    Args:
        repo_id (`str`), revision (`str`, *optional*): what the card tells to load.
        base_model (`str`, *optional*): Hub id of the model that this one was made from; adapters name theirs.

    Raises:
        ValueError: for anything that a stranger could not load, or should not see.
    """
    staged = Staged(target, kind_of(folder))
    _gather(folder, staged)
    check_secrets(target, folder)
    staged.notes += clean_settings(target)
    if staged.kind == "adapter":
        base_model = _set_base_model(target, base_model)
    if staged.kind != "features":
        add_code(target)
    settings = _all_settings(target, staged.kind)
    staged.card = render_card(folder, staged.kind, repo_id, settings, revision, base_model)
    _replace(target / CARD, staged.card)
    check_repository(target, str(folder), home=folder)
    _refuse_unloadable(folder, staged)
    if staged.kind == "model" and not (target / TOKENIZER_CONFIG_FILE).is_file():
        staged.notes.append("There is no tokenizer in the folder: AutoTokenizer will not find one in the repository.")
    if not re.search(r"^license:", staged.card, flags=re.MULTILINE):
        staged.notes.append("The card names no licence (`license:` in its first lines).")
    return staged


def _gather(folder: Path, staged: Staged) -> None:
    for path in sorted(folder.iterdir()):
        is_data = path.is_dir() and path.name == FEATURE_DATA and staged.kind == "features"
        if is_data:
            (staged.folder / FEATURE_DATA).mkdir()
        for file in sorted(path.iterdir()) if is_data else [path]:
            name = file.relative_to(folder).as_posix()
            if file.suffix == ".py":
                continue  # the code that is uploaded is that of hf_gpt as it is installed
            if is_known(name):
                (staged.folder / name).symlink_to(file.resolve())
            else:
                staged.left_out.append(f"{name}/" if file.is_dir() else name)


def checkpoint_files(folder: Path) -> tuple[list[str], list[str]]:
    """
    Of a Trainer's checkpoint, the files that are the model, and those and the state to go on from; of a card nothing,
    as that of peft names the base model's folder.
    """
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    model = [name for name in names if is_known(name) and name != CARD]
    return model, model + [name for name in names if is_training_state(name)]


def _replace(path: Path, content: str | dict[str, Any]) -> None:
    """Write a file of the staged folder, and not what it is a link to."""
    if isinstance(content, dict):
        content = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    path.unlink(missing_ok=True)
    path.write_text(content, encoding="utf-8")


def clean_settings(folder: Path) -> list[str]:
    """
    Take the paths of this machine out of all settings of a folder that is to be uploaded; what its files are links to
    stays as it is. Returns what was shortened, for people; a `ValueError` names a file that is not JSON.
    """
    notes = []
    for path in sorted(folder.glob("*.json")):
        if path.name in NO_SETTINGS:
            continue
        shortened: list[str] = []
        cleaned = _without_paths(read_json(path), shortened)
        if path.name == TRAINER_STATE_NAME and cleaned.get("best_model_checkpoint"):
            # Whether or not it is absolute, it is a folder of this machine.
            cleaned["best_model_checkpoint"] = Path(cleaned["best_model_checkpoint"]).name
        _replace(path, cleaned)
        notes += [f"{path.name}: {found} is written as {Path(found).name}." for found in shortened]
    return notes


def check_secrets(folder: Path, source: Path) -> None:
    """
    Raise a `RepositoryError` if a text of a folder that is to be uploaded (of what stands in `source`) holds what
    looks like a token, a password or a private key.
    """
    problems = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in NO_SETTINGS):
        text = path.read_text(encoding="utf-8", errors="replace") if path.suffix in _TEXTS else ""
        if path.suffix == ".safetensors":
            # `check_repository` says what is wrong with one that cannot be read.
            with contextlib.suppress(SafetensorError), safe_open(path, framework="np") as tensors:
                text = "\n".join(f'"{name}": "{value}"' for name, value in (tensors.metadata() or {}).items())
        name = path.relative_to(folder).as_posix()
        found = (number for number, line in enumerate(text.splitlines(), start=1) if _SECRET.search(line))
        problems += [f"{name}, line {number}" for number in found]
    if problems:
        raise RepositoryError(
            f"{source} is not pushed: {'; '.join(problems)} {'holds' if len(problems) == 1 else 'hold'} what looks "
            "like a token, a password or a private key. Take it out; if it was ever published, revoke it."
        )


def _without_paths(value: Any, shortened: list[str]) -> Any:
    if isinstance(value, dict):
        private = ("_name_or_path", "name_or_path")
        return {name: _without_paths(item, shortened) for name, item in value.items() if name not in private}
    if isinstance(value, list):
        return [_without_paths(item, shortened) for item in value]
    if isinstance(value, str) and is_machine_path(value):
        shortened.append(value)
        return Path(value).name
    return value


def _set_base_model(target: Path, base_model: str | None) -> str:
    path = target / ADAPTER_CONFIG_NAME
    settings = read_json(path)
    named = base_model or settings.get("base_model_name_or_path") or ""
    # What the user says is an id, even where a folder has its name; `push` has looked at it.
    if "/" not in named or (base_model is None and not is_hub_id(named)):
        raise ValueError(
            f"The adapter's base model is {named or 'not named'}, which nobody else has. Push that model first, then "
            "name its Hub id with --base_model user/name."
        )
    if base_model is not None:
        _replace(path, settings | {"base_model_name_or_path": base_model, "revision": None})
    return named


def _all_settings(target: Path, kind: str) -> dict[str, Any]:
    """What the section of the card is written from: the settings of tokenizer, head and all in one."""
    files = (target / name for name in (TOKENIZER_CONFIG_FILE, HEAD_CONFIG, CONFIGURATIONS[kind]))
    return {name: value for file in files if file.is_file() for name, value in read_json(file).items()}


def _refuse_unloadable(folder: Path, staged: Staged) -> None:
    target, problems = staged.folder, []
    for path in sorted(target.glob("*model*.safetensors")):
        check_tensors(read_tensor_file(path), folder / path.name)
    if staged.kind == "model":
        problems += _model_problems(target)
    if staged.kind == "adapter" and not (target / ADAPTER_SAFE_WEIGHTS_NAME).is_file():
        problems.append(f"{ADAPTER_SAFE_WEIGHTS_NAME} is missing")
    if staged.kind == "features" and not any((target / FEATURE_DATA).glob("*")):
        problems.append(f"there is nothing in {FEATURE_DATA}")
    if (target / TOKENIZER_CONFIG_FILE).is_file():
        try:
            Tokenizer.from_file(str(target / FULL_TOKENIZER_FILE))
        except Exception as error:  # the library raises nothing more special
            is_there = (target / FULL_TOKENIZER_FILE).is_file()
            problems.append(f"{FULL_TOKENIZER_FILE} {f'cannot be read ({error})' if is_there else 'is missing'}")
    if problems:
        raise RepositoryError(f"{folder} is not pushed: {'; '.join(problems)}.")


def _model_problems(target: Path) -> list[str]:
    settings = read_json(target / CONFIG_NAME)
    if settings.get("model_type") != GPTConfig.model_type:
        return [
            f"{CONFIG_NAME} is that of a {settings.get('model_type')} model, and its code is not hf_gpt's: convert it"
        ]
    name = (settings.get("architectures") or [None])[0]
    if f"modeling_gpt.{name}" not in AUTO_MAP.values():
        return [f"{CONFIG_NAME} names the class {name}, which hf_gpt does not have"]
    try:
        check_config(settings, CONFIG_NAME)
        with torch.device("meta"):
            model = getattr(modeling_gpt, name)(GPTConfig.from_dict(settings))
    except ValueError as error:
        return [f"{CONFIG_NAME}: {error}"]
    stored: dict[str, list[int]] = {}
    for path in sorted(target.glob("model*.safetensors")):
        with safe_open(path, framework="pt") as weights:
            stored |= {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118
    if not stored:
        return ["there are no weights (model.safetensors)"]
    wanted = {name: value.shape for name, value in model.state_dict().items()}
    tied = set(model._tied_weights_keys or {}) if model.config.tie_word_embeddings else set()
    wanted, stored = ({name: value for name, value in side.items() if name not in tied} for side in (wanted, stored))
    return [f"its checkpoint {problem}" for problem in misfits(wanted, stored)]
