"""
Model cards: facts as YAML (`base`), one kind for each thing that has a card, and a callback for a Trainer.

The text of a card is a Jinja template in `templates`.
"""

from .base import Card
from .fine_tuned import FineTunedCard
from .pretrained import PretrainedCard

__all__ = ["Card", "FineTunedCard", "PretrainedCard"]
