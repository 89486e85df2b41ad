"""The model and its tokenizer: all that is uploaded with every model, so these files import siblings only."""

import transformers  # noqa: F401  # first, or the registration that it brings about finds a module half imported
