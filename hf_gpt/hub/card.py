"""The card of a repository on the Hub: its metadata checked, and how to load it said."""

import re
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import DatasetCard, ModelCard, RepoCard
from huggingface_hub.utils import yaml_dump

from ..files import CARD
from ..files.templates import render_template
from ..model.configuration_gpt import AUTO_MAP

_TEMPLATE = Path(__file__).parent / "templates" / "load.md"
HEADING = "## Load it from the Hub"
# Adapters that peft knows nothing of until hf_gpt is imported.
OWN_METHODS = ("HOULSBY", "BITFIT", "PREFIX_TUNING", "PROMPT_TUNING")
PIPELINE_TAGS = {
    "AutoModel": "feature-extraction",
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForMultipleChoice": "multiple-choice",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
}
# What cards load before anybody knows where they are published.
THIS_REPOSITORY = 'folder = "."  # this repository'
# A path of somebody's machine, and no address.
_MACHINE_PATH = re.compile(
    r"(?<![\w/:.~-])(?:/(?:home|Users|root|tmp|mnt|media|data|scratch|work|workspace|opt|srv|var|private|content)/"
    r"|~/|[A-Z]:\\)[^\s`\"')>\]|]+"
)


def name_repository(text: str, repo_id: str, folder: str = ".") -> str:
    """The text of a card whose code loads a repository instead of a folder (what the code loads now)."""
    if folder == ".":
        return text.replace(THIS_REPOSITORY, f'folder = "{repo_id}"')
    return text.replace(f'"{folder}"', f'"{repo_id}"')


def machine_paths(text: str) -> list[str]:
    """The paths in a text that mean something on one machine only."""
    return _MACHINE_PATH.findall(text)


def is_machine_path(value: str) -> bool:
    """Whether a setting is such a path."""
    return _MACHINE_PATH.match(value) is not None or (value[:1] == "/" and len(value) < 1000 and Path(value).exists())


def render_card(
    folder: Path, kind: str, repo_id: str, settings: dict[str, Any], revision: str | None, base_model: str | None
) -> str:
    """
    The text of README.md as it is uploaded: that of the folder, or a new one where there is none, with the metadata
    that the Hub wants and a section that says how to load it, at a `revision` if there is one. `settings` are those of
    the repository's configuration file, `base_model` is the Hub id of the model that this one was made from.

    Raises:
        ValueError: if the metadata is not valid, or the card names a path of this machine.
    """
    card = _read_card(folder, kind, repo_id)
    data = card.data.to_dict()
    defaults: dict[str, Any] = {"tags": ["gpt", "hf_gpt"]}
    if kind != "features":
        defaults["library_name"] = "peft" if kind == "adapter" else "transformers"
    if kind == "model":
        defaults["pipeline_tag"] = PIPELINE_TAGS[_auto_class(settings)]
    data |= {name: value for name, value in defaults.items() if data.get(name) is None}
    if base_model is not None:
        data["base_model"] = base_model
        # peft writes the place of the base model on this machine into a tag.
        data["tags"] = [tag for tag in data["tags"] if not str(tag).startswith("base_model:")]
    section = render_template(
        _TEMPLATE,
        kind=kind,
        repo_id=repo_id,
        revision=revision,
        settings=settings,
        auto_class=_auto_class(settings),
        own_methods=OWN_METHODS,
    )
    body = card.text.split(f"\n{HEADING}\n")[0].strip()
    text = f"---\n{yaml_dump(data, sort_keys=False).strip()}\n---\n\n{body}\n\n{HEADING}\n\n{section.strip()}\n"
    for number, line in enumerate(text.splitlines(), start=1):
        if machine_paths(line):
            raise ValueError(
                f"{CARD}, line {number} as it would be uploaded names a path of this machine, "
                f"{machine_paths(line)[0]}: put that right in {folder / CARD}."
            )
    return text


def _read_card(folder: Path, kind: str, repo_id: str) -> RepoCard:
    path = folder / CARD
    text = f"---\ntags: [gpt, hf_gpt]\n---\n\n# {repo_id.split('/')[-1]}\n\n{_FIRST_LINES[kind]}\n"
    if path.is_file():
        text = name_repository(path.read_text(encoding="utf-8"), repo_id)
    if kind == "features":
        # Nobody wrote this card by hand.
        text = _MACHINE_PATH.sub(lambda match: Path(match[0]).name, text)
    try:
        return (DatasetCard if kind == "features" else ModelCard)(text)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: the metadata between the lines --- is not valid: {error}") from error


_FIRST_LINES = {
    "model": "The original GPT (Radford et al., 2018).",
    "tokenizer": "A tokenizer of the original GPT (Radford et al., 2018).",
    "adapter": "An adapter for the original GPT (Radford et al., 2018).",
    "features": "Hidden states of the original GPT (Radford et al., 2018).",
}


def _auto_class(settings: dict[str, Any]) -> str:
    name = (settings.get("architectures") or ["GPTModel"])[0]
    if settings.get("task_type") == "CAUSAL_LM":
        name = "GPTForCausalLM"
    return next((auto for auto, reference in AUTO_MAP.items() if reference == f"modeling_gpt.{name}"), "AutoModel")
