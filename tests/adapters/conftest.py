"""A base model and an adapter on disk, made once; tests only read them."""

from pathlib import Path

import pytest

from hf_gpt import GPTForCausalLM

from ..support.adapters import adapted, save_adapter


@pytest.fixture(scope="session")
def base(tiny_model, tmp_path_factory) -> Path:
    """A language model, which every adapter starts from."""
    folder = tmp_path_factory.mktemp("base")
    tiny_model(GPTForCausalLM).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def saved_lora(base, tmp_path_factory) -> Path:
    """A folder like those of `scripts/finetune.py`."""
    return save_adapter(adapted("lora", "classification", base), tmp_path_factory.mktemp("lora"))
