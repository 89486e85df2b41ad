"""
The model and its tokenizer: configuration, blocks, attention, losses, heads, word splitting.

These files are uploaded side by side with every published model, so they import siblings only (`from .x import y`).
"""

# Before any of them, so that the registration, which transformers' import brings about, finds none half imported.
import transformers  # noqa: F401
