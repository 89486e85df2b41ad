"""What all cards have in common: facts as YAML, text by packaged templates, files that are whole or not there."""

import dataclasses
import math
import os
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import yaml
from huggingface_hub import ModelCard, ModelCardData

from ..files import CARD, FACTS, write_text
from ..files.reading import check_types, read_yaml

_KINDS: dict[str, type["Card"]] = {}


class Card:
    """What the cards have in common: their facts as YAML, and rendering through a packaged template."""

    kind: ClassVar[str]
    tags: list[str]

    def __init_subclass__(cls) -> None:
        _KINDS[cls.kind] = cls

    def render(self) -> ModelCard:
        """The card, its metadata checked by `huggingface_hub`."""
        return ModelCard.from_template(self.metadata(), template_str=read_template(self.kind), **self.values())

    def metadata(self) -> ModelCardData:
        """The head of the card, which the Hub reads."""
        raise NotImplementedError

    def values(self) -> dict[str, Any]:
        """What the template is filled in with."""
        raise NotImplementedError

    def check_parts(self, path: Path) -> None:
        """Raise a `ValueError` that names `path` if what stands within a fact cannot be rendered."""

    def save(self, folder: str | os.PathLike) -> None:
        """Write `card.yaml` and `README.md` into a folder, each whole or not at all."""
        own = {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if getattr(self, item.name) != _default(item)
        }
        facts = yaml.safe_dump({"kind": self.kind} | own, sort_keys=False, allow_unicode=True, width=math.inf)
        text = str(self.render())
        write_text(Path(folder) / FACTS, facts)
        write_text(Path(folder) / CARD, text)

    @staticmethod
    def load(folder: str | os.PathLike) -> "Card":
        """
        The card whose facts a folder holds.

        Raises:
            ValueError: if there is no `card.yaml`, or it is not one.
        """
        path = Path(folder) / FACTS
        if not path.is_file():
            raise ValueError(f"{folder} has no {FACTS}: there is nothing to render a card from.")
        facts = read_yaml(path)
        name = facts.pop("kind", None)
        kind = _KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise ValueError(f"{path} must hold `name: value` lines, with kind one of {', '.join(sorted(_KINDS))}.")
        known = {item.name: item for item in dataclasses.fields(kind)}
        unknown = sorted(str(name) for name in facts.keys() - known.keys())
        if unknown:
            raise ValueError(f"{path}: unknown {', '.join(unknown)}. Known are {', '.join(known)}.")
        required = [name for name, item in known.items() if _default(item) is dataclasses.MISSING]
        check_types(path, facts, get_type_hints(kind), required)
        card = kind(**facts)
        card.check_parts(path)
        return card


def read_template(kind: str) -> str:
    """The text of a packaged Jinja template."""
    return resources.files(__package__).joinpath("templates", f"{kind}.md").read_text(encoding="utf-8")


def cell(value: Any) -> str:
    """A value as the text of a table's cell."""
    return " ".join(str(value).split()).replace("|", "\\|")


def _default(item: dataclasses.Field) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
