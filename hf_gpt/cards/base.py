"""What all cards have in common: facts as YAML, text by packaged templates, files written atomically."""

import dataclasses
import math
import os
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import yaml
from huggingface_hub import ModelCard, ModelCardData

from ..files import CARD, FACTS, check_types, read_yaml, reading, write_text
from ..files.templates import render_template
from ..hub.card import name_repository

TEMPLATES = Path(__file__).parent / "templates"


class Card:
    """What the cards have in common: their facts as YAML, and rendering through a packaged template."""

    kind: ClassVar[str]
    # Where the model is published, and what the card's code loads otherwise.
    repo_id: str | None
    folder: str

    def render(self) -> ModelCard:
        """The card, its metadata checked by `huggingface_hub`."""
        text = render_template(TEMPLATES / f"{self.kind}.md", card_data=self.metadata().to_yaml(), **self.values())
        return ModelCard(text if self.repo_id is None else name_repository(text, self.repo_id, self.folder))

    def metadata(self) -> ModelCardData:
        """The head of the card, which the Hub reads."""
        raise NotImplementedError

    def values(self) -> dict[str, Any]:
        """What the template is filled in with."""
        return {"card": self}

    def save(self, folder: str | os.PathLike) -> None:
        """Write `card.yaml` and `README.md` into a folder, each atomically."""
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
        kinds = {kind.kind: kind for kind in Card.__subclasses__()}
        with reading(path):
            facts = read_yaml(path)
            kind = kinds.get(facts.pop("kind", None))
            if kind is None:
                raise ValueError(f"kind must be one of {', '.join(sorted(kinds))}")
            check_types(path, facts, get_type_hints(kind))
            card = kind(**facts)
            card.render()  # which finds what is wrong within a fact
        return card


def _default(item: dataclasses.Field) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
