"""What the tests of all analyses share."""

from pathlib import Path

import pytest


@pytest.fixture
def analyzed(hf_gpt, tiny_checkpoint, tmp_path):
    """`analyzed(what, *flags, model=...)`: the output folder of an analysis of a tiny model, and what it printed."""

    def run(what: str, *flags, model: Path = tiny_checkpoint) -> tuple[Path, str]:
        common = ("--model_name_or_path", model, "--output_dir", tmp_path / "out", "--overwrite")
        status, printed, errors = hf_gpt("analyze", what, *common, *flags)
        assert status == 0, errors
        return tmp_path / "out", printed

    return run
