"""
Model cards: facts as YAML (`base`), one kind for each thing that has a card, and a callback for a Trainer.

The text of a card is a Jinja template in `templates`.
"""
