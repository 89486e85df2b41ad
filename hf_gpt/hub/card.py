"""The card of a repository on the Hub: its metadata checked, and how to load it said."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import DatasetCard, ModelCard, RepoCard
from huggingface_hub.utils import yaml_dump

from ..files import CARD
from ..model.configuration_gpt import AUTO_MAP

HEADING = "## Load it from the Hub"
# Adapters that peft knows nothing of until hf_gpt is imported.
OWN_METHODS = ("HOULSBY", "BITFIT", "PREFIX_TUNING", "PROMPT_TUNING")
PIPELINE_TAGS = {
    "AutoModel": "feature-extraction",
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForMultipleChoice": "multiple-choice",
    "AutoModelForSequenceClassification": "text-classification",
}
# How cards of fine-tuned models load theirs.
_THIS_FOLDER = 'folder = "."  # this repository'
# A path of somebody's machine, and no address.
_MACHINE_PATH = re.compile(
    r"(?<![\w/:.~-])(?:/(?:home|Users|root|tmp|mnt|media|data|scratch|work|workspace|opt|srv|var|private|content)/"
    r"|~/|[A-Z]:\\)[^\s`\"')>\]|]+"
)


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
    that the Hub wants and a section that says how to load it.

    Args:
        folder (`Path`): what is uploaded.
        kind (`str`): `"model"`, `"tokenizer"`, `"adapter"` or `"features"`.
        repo_id (`str`): where to.
        settings (`dict`): of the repository's configuration file.
        revision (`str`, *optional*): branch or tag to load.
        base_model (`str`, *optional*): Hub id of the model that this one was made from.

    Raises:
        ValueError: if the metadata is not valid, or the card names a path of this machine.
    """
    card = _read_card(folder, kind, repo_id)
    data = card.data.to_dict()
    auto_class = _auto_class(settings) if kind == "model" else None
    defaults: dict[str, Any] = {"tags": ["gpt", "hf_gpt"]}
    if kind != "features":
        defaults["library_name"] = "peft" if kind == "adapter" else "transformers"
    if auto_class is not None:
        defaults["pipeline_tag"] = PIPELINE_TAGS[auto_class]
    data |= {name: value for name, value in defaults.items() if data.get(name) is None}
    if base_model is not None:
        data["base_model"] = base_model
        # peft writes the place of the base model on this machine into a tag.
        data["tags"] = [tag for tag in data["tags"] if not str(tag).startswith("base_model:")]
    section = _SECTIONS[kind](repo_id, settings, "" if revision is None else f', revision="{revision}"')
    body = card.text.split(f"\n{HEADING}\n")[0].strip()
    text = f"---\n{yaml_dump(data, sort_keys=False).strip()}\n---\n\n{body}\n\n{HEADING}\n\n{section}\n"
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
        text = path.read_text(encoding="utf-8").replace(_THIS_FOLDER, f'folder = "{repo_id}"')
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


def _block(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```"])


def _tokenizer_note(settings: dict[str, Any]) -> str:
    if settings.get("mode") == "fast":
        return "The tokenizer needs nothing else."
    return "The tokenizer needs `pip install ftfy spacy`."


def _tokenizer_line(repo_id: str, revision: str) -> str:
    return f'tokenizer = AutoTokenizer.from_pretrained("{repo_id}"{revision}, trust_remote_code=True)'


def _model_section(repo_id: str, settings: dict[str, Any], revision: str) -> str:
    auto_class = _auto_class(settings)
    with_tokenizer = "mode" in settings
    names = f"{auto_class}, AutoTokenizer" if with_tokenizer else auto_class
    lines = [f"from transformers import {names}", ""]
    if with_tokenizer:
        lines.append(_tokenizer_line(repo_id, revision))
    lines.append(f'model = {auto_class}.from_pretrained("{repo_id}"{revision}, trust_remote_code=True)')
    note = (
        "The repository carries its code, which `trust_remote_code=True` runs: read it first. With hf_gpt installed, "
    )
    note += "`import hf_gpt` and leave that out."
    return f"{_block(*lines)}\n\n{note}" + (f" {_tokenizer_note(settings)}" if with_tokenizer else "")


def _tokenizer_section(repo_id: str, settings: dict[str, Any], revision: str) -> str:
    block = _block("from transformers import AutoTokenizer", "", _tokenizer_line(repo_id, revision))
    return f"{block}\n\n{_tokenizer_note(settings)}"


def _adapter_section(repo_id: str, settings: dict[str, Any], revision: str) -> str:
    method = settings["peft_type"]
    if method in OWN_METHODS:
        lines = ("from hf_gpt import load_adapter", "", f'model = load_adapter("{repo_id}"{revision})')
        return f"{_block(*lines)}\n\nAdapters of the type {method} need hf_gpt."
    auto_class, base = _auto_class(settings), settings["base_model_name_or_path"]
    labels = settings.get("id2label") or {}
    head = f", num_labels={len(labels)}" if auto_class == "AutoModelForSequenceClassification" else ""
    with_tokenizer = "mode" in settings
    lines = [
        "from peft import PeftModel",
        f"from transformers import {auto_class}{', AutoTokenizer' if with_tokenizer else ''}",
        "",
        *([_tokenizer_line(repo_id, revision)] if with_tokenizer else []),
        f'base = {auto_class}.from_pretrained("{base}"{head}, trust_remote_code=True)',
        f'model = PeftModel.from_pretrained(base, "{repo_id}"{revision})',
    ]
    note = "The base model's repository carries its code, which `trust_remote_code=True` runs: read it first. With "
    note += f'hf_gpt installed, `hf_gpt.load_adapter("{repo_id}")` does all of it.'
    if with_tokenizer:
        note += f" {_tokenizer_note(settings)}"
    if head:
        note += f" Classes: {', '.join(f'`{name}`' for name in labels.values())}."
    return f"{_block(*lines)}\n\n{note}"


def _features_section(repo_id: str, settings: dict[str, Any], revision: str) -> str:
    if settings["format"] in ("parquet", "arrow"):
        return _block(
            "from datasets import load_dataset", "", f'rows = load_dataset("{repo_id}"{revision}, split="train")'
        )
    line = f'folder = snapshot_download("{repo_id}"{revision}, repo_type="dataset")'
    return _block("from huggingface_hub import snapshot_download", "", line)


_SECTIONS: dict[str, Callable[[str, dict[str, Any], str], str]] = {
    "model": _model_section,
    "tokenizer": _tokenizer_section,
    "adapter": _adapter_section,
    "features": _features_section,
}
