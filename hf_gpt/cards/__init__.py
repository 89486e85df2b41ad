"""
Model cards of what was fine-tuned or pretrained: what was trained on what, what was measured, and code that runs.

A card is a data class (`fine_tuned`), which a Trainer fills in (`callback`), and its text a Jinja template in
`templates`; extracted features have one of their own (`features`).
"""

from .fine_tuned import FineTunedCard, learning_rate_advice

__all__ = ["FineTunedCard", "learning_rate_advice"]
