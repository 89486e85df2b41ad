"""What the tests of scores, surprisals and continuations share."""

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer


@pytest.fixture
def loaded(tiny_checkpoint):
    """The model and the tokenizer that `read` reads."""
    return AutoModelForCausalLM.from_pretrained(tiny_checkpoint).eval(), AutoTokenizer.from_pretrained(tiny_checkpoint)


@pytest.fixture
def read(hf_gpt, tiny_checkpoint):
    """`read(command, *flags)`: what a command of a tiny model prints, and its warnings."""

    def run(command: str, *flags) -> tuple[str, str]:
        status, *printed = hf_gpt(command, "--model_name_or_path", tiny_checkpoint, *flags)
        assert status == 0, printed
        return tuple(printed)

    return run
