"""Adapters on disk, made once; tests only read them."""

from pathlib import Path

import pytest

from hf_gpt import GPTForCausalLM

from ..support.adapters import HEADS, VARIANTS, adapted, save_adapter


@pytest.fixture(scope="session")
def base(tiny_model, tmp_path_factory) -> Path:
    """A language model on disk, which every adapter starts from."""
    folder = tmp_path_factory.mktemp("base")
    tiny_model(GPTForCausalLM).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def saved_adapters(base, tmp_path_factory) -> dict[tuple[str, str], Path]:
    """Folders like those of `scripts/finetune.py`."""
    root, folders = tmp_path_factory.mktemp("adapters"), {}
    for variant in VARIANTS:
        for head in HEADS:
            folders[variant, head] = save_adapter(adapted(variant, head, base), root / f"{variant}-{head}")
    return folders
