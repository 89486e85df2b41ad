"""Flags of commands as fields of dataclasses, as `HfArgumentParser` takes them."""

import dataclasses
from collections.abc import Iterable
from typing import Any


def flag(default: Any = dataclasses.MISSING, help: str = "", choices: Iterable[Any] = ()) -> Any:
    """
    A field with what `--help` says of it, and the values that it may have, if these can be listed; without a default
    it is required. A list as default is a new one for each instance.
    """
    metadata = {"help": help} | ({"choices": [*choices]} if choices else {})
    if isinstance(default, list):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)
