"""Model cards of what was fine-tuned or pretrained: what was trained on what, what was measured, code that runs."""

from .fine_tuned import FineTunedCard, learning_rate_advice

__all__ = ["FineTunedCard", "learning_rate_advice"]
