"""`hf-gpt`, `python -m hf_gpt` and the scripts are the same commands."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import hf_gpt.__main__ as entry
from hf_gpt import __version__

REPOSITORY = Path(__file__).resolve().parents[2]
COMMANDS = sorted(path.stem for path in (REPOSITORY / "hf_gpt" / "commands").glob("[!_]*"))


@pytest.fixture
def hf_gpt(monkeypatch, capsys):
    """`hf_gpt(*words)` runs a command in this process and returns (exit status, output, errors)."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["hf-gpt", *map(str, words)])
        status = 0
        try:
            EntryPoint("hf-gpt", f"{entry.__name__}:main", "console_scripts").load()()
        except SystemExit as error:
            status = error.code
        return status, *capsys.readouterr()

    return run


def test_every_script_is_a_command():
    scripts = {path.stem for path in (REPOSITORY / "scripts").glob("*.py")}
    assert scripts == set(COMMANDS)


def test_list_of_commands(hf_gpt):
    status, printed, _ = hf_gpt()
    assert status == 0
    assert [line.split()[0] for line in printed.splitlines() if line.startswith("  ")] == [
        name.replace("_", "-") for name in COMMANDS
    ]
    assert hf_gpt("--version")[1] == f"{__version__}\n"


def test_an_unknown_command_is_guessed_at(hf_gpt):
    assert hf_gpt("push_to_hob")[::2] == (2, "hf-gpt: there is no command push_to_hob; did you mean push-to-hub?\n")
    assert hf_gpt("p")[0] == 2
    assert hf_gpt("qwertyuiop")[::2] == (2, "hf-gpt: there is no command qwertyuiop; hf-gpt --help lists all.\n")


def test_the_beginning_of_a_name_will_do(hf_gpt):
    assert hf_gpt("inspect", "--help")[1].startswith("usage: hf-gpt inspect-text ")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_the_command(name, hf_gpt):
    word = name.replace("_", "-")
    status, printed, _ = hf_gpt(word, "--help")
    assert status == 0
    assert printed.startswith(f"usage: hf-gpt {word} ")
    assert f"    hf-gpt {word} " in printed
    assert "python scripts/" not in printed


def test_errors_name_the_command(hf_gpt, tmp_path):
    status, _, errors = hf_gpt("convert", tmp_path / "nothing", tmp_path / "out")
    assert status == 2
    assert errors.splitlines()[-1].startswith("hf-gpt convert: ")


def test_as_a_module(tmp_path):
    """From another folder, as after an installation of the wheel."""
    done = subprocess.run(
        [sys.executable, "-m", "hf_gpt", "finetune", "--lerning_rate", "1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "did you mean --learning_rate?" in done.stderr
