"""What an `adapter_config.json` may say."""

import re
from typing import Any

# What an adapter may say in words of its own.
_FREE_TEXTS = (
    *("auto_mapping", "base_model_name_or_path", "peft_version", "revision"),
    *("tokenizer_name_or_path", "prompt_tuning_init_text"),
)
# Ways to initialize the weights of a new adapter that compute nothing and read nothing.
_INITIALIZATIONS = ("gaussian", "orthogonal", "zero", "RANDOM", "SAMPLE_VOCAB")
LARGEST = 1 << 20


def is_plain(name: str, value: Any) -> bool:
    """
    Whether an adapter of ours may say so. peft takes names of modules for regular expressions, computes new weights as
    settings ask, and imports what they name: only plain names and numbers are taken, of a size that adapters have.
    """
    if name in _FREE_TEXTS or value in (None, {}):
        return True
    if "init" in name and isinstance(value, str):
        return value in _INITIALIZATIONS
    if name in ("rank_pattern", "alpha_pattern", "trainable_token_indices") and isinstance(value, dict):
        value = [*value, *value.values()]
    items = value if isinstance(value, list) else [value]
    plain = [item for item in items if isinstance(item, str) and re.fullmatch(r"[\w.-]*", item)]
    small = [item for item in items if isinstance(item, int | float) and abs(item) <= LARGEST]
    return len(plain) + len(small) == len(items)
