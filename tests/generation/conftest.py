"""Commands in this process."""

import sys

import pytest

import hf_gpt.__main__ as entry


@pytest.fixture
def hf_gpt(monkeypatch, capsys):
    """`hf_gpt(*words)` runs a command and returns (exit status, output, errors)."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["hf-gpt", *map(str, words)])
        status = 0
        try:
            entry.main()
        except SystemExit as error:
            status = error.code
        return status, *capsys.readouterr()

    return run
