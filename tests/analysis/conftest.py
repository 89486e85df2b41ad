"""What the tests of all analyses share."""

import json
from pathlib import Path
from typing import Any

import pytest

from hf_gpt import GPTForCausalLM


@pytest.fixture(params=[False, True], ids=["gpt", "gpt2"])
def model(request, tiny_model):
    """A tiny language model, of post-norm and of pre-norm blocks, with 16 neurons a layer."""
    return tiny_model(GPTForCausalLM, norm_first=request.param, final_norm=request.param, n_inner=16)


@pytest.fixture
def analyzed(hf_gpt, tiny_checkpoint, tmp_path):
    """
    `analyzed(what, *flags, model=..., status=0)`: the JSON files that an analysis of a tiny model has written into the
    folder `out` of `tmp_path`, by their names, and what it printed.
    """

    def run(what: str, *flags, model: Path = tiny_checkpoint, status: int = 0) -> tuple[dict[str, Any], str]:
        out = tmp_path / "out"
        places = ("--model_name_or_path", model, "--output_dir", out, "--overwrite")
        found, printed, errors = hf_gpt("analyze", what, *places, *flags)
        assert found == status, errors
        assert all(path.stat().st_size > 1000 for path in out.iterdir() if path.suffix != ".json")
        return {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")}, errors if status else printed

    return run
