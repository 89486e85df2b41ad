"""The local Hub of a test, and folders to push to it."""

import shutil
from pathlib import Path

import pytest

from ..support.local_hub import LocalHub


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with LocalHub() as server:
        yield server.use_here(monkeypatch, tmp_path / "cache")


@pytest.fixture
def folder(tiny_checkpoint, tmp_path) -> Path:
    """A model of one's own."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "tiny"))
