"""Output files that are whole or as they were, output folders of one run at a time, and errors that name the file."""

import json
import os
import subprocess
import sys
import textwrap
from pickle import UnpicklingError

import pytest
from jinja2 import UndefinedError

from hf_gpt.files import atomic, check_empty, check_settings, contents, output_folder, reading, write_json, write_text
from hf_gpt.files.templates import get_template

from ..support.runs import REPOSITORY, finetune


def test_a_file_is_replaced_as_a_whole(tmp_path):
    file = tmp_path / "new" / "text.txt"
    write_text(file, "first\r\n")
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "half \ud800")
    with pytest.raises(FileNotFoundError), atomic(file):
        pass  # nothing was written
    assert file.read_bytes() == b"first\r\n"
    assert [path.name for path in file.parent.iterdir()] == ["text.txt"]


def test_json_without_numbers_that_json_does_not_have(tmp_path):
    write_json(tmp_path / "a.json", {"a": [1.5, float("nan")], "b": {"c": float("inf")}, "d": (True, "NaN")})
    expected = {"a": [1.5, None], "b": {"c": None}, "d": [True, "NaN"]}
    assert (tmp_path / "a.json").read_text() == json.dumps(expected, indent=2) + "\n"


def test_what_a_folder_holds(tmp_path):
    for name in (".lock", ".metrics.json.123.tmp"):
        (tmp_path / name).touch()
    for folder in (tmp_path, tmp_path / "nothing"):
        assert contents(folder) == set()
        check_empty(folder)
    (tmp_path / "notes.txt").touch()
    check_empty(tmp_path, overwrite=True)
    with pytest.raises(ValueError, match=r"is not empty\. Go away\.$"):
        check_empty(tmp_path, hint="Go away.")
    with pytest.raises(ValueError, match=r"notes\.txt already exists"):
        check_empty(tmp_path / "notes.txt", overwrite=True)
    check_settings(tmp_path, {"rows": 3, "seed": 1}, {"seed": 1, "rows": 3})
    with pytest.raises(ValueError, match=r"holds results of other settings \(new, old, rows\)\. Go away\.$"):
        check_settings(tmp_path, {"rows": 3, "old": 1}, {"rows": 4, "new": 1}, "Go away.")


def test_templates(tmp_path):
    (tmp_path / "parts.md").write_text("{% macro row(value) %}\n| {{ value | cell }} |\n{% endmacro %}\n")
    template = tmp_path / "text.md"
    template.write_text('{% from "parts.md" import row %}\n{{ row(value) }}\n')
    assert get_template(template).render(value="a\nb|c") == "| a b\\|c |\n\n"
    with pytest.raises(UndefinedError, match="value"):
        get_template(template).render()


HOLDER = """
    import sys, time
    from pathlib import Path
    from hf_gpt.files import output_folder
    with output_folder(Path(sys.argv[1])), output_folder(Path(sys.argv[2]), whole=True):
        print("locked", flush=True)
        time.sleep(600)
"""


def test_a_second_run_is_refused_until_the_first_has_died(converted, tmp_path):
    folder, replaced = tmp_path / "out", tmp_path / "replaced"
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(folder), str(replaced)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(ValueError, match=rf"{folder} cannot .*another run"), output_folder(folder):
            pass
        with pytest.raises(ValueError, match="another run"):
            finetune("--task", "nothing", "--output_dir", folder, "--overwrite_output_dir")
        printed = converted(REPOSITORY / "model_cards/gpt-mini", replaced, status=2)
        assert (printed.count("\n"), "another run" in printed) == (1, True)
        # Other processes of the first run do not take part.
        with output_folder(folder, process_index=1):
            pass
        process.kill()
    assert contents(folder) == set()
    with output_folder(folder):
        write_text(folder / "kept.txt", "kept")
    assert os.listdir(folder) == ["kept.txt"]
    with output_folder(tmp_path / "empty"):
        assert (tmp_path / "empty").is_dir()
    assert not (tmp_path / "empty").exists()
    converted(REPOSITORY / "model_cards/gpt-mini", replaced)
    assert sorted(os.listdir(tmp_path)) == ["out", "replaced"]


def test_a_folder_that_cannot_be_written_to_is_refused_at_once(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ValueError, match=r"cannot be written to \((File exists|Not a directory)\)"):
            finetune("--task", "nothing", "--output_dir", folder)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("weight_map"), "there is no 'weight_map'"),
        (TypeError("'int' object is not iterable"), "'int' object is not iterable"),
        (UnpicklingError("header too large\nand more"), "header too large"),
        (OSError(22, "Invalid argument"), r"\[Errno 22\] Invalid argument"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_a_reader_raises_names_the_file(error, message, tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(ValueError, match=rf"^{path}, line 3: {message}\.$") as caught, reading(path, "line 3"):
        raise error
    assert caught.value.__cause__ is error


def test_an_error_that_names_the_file_stays_as_it_is(tmp_path):
    path = tmp_path / "a.json"
    for error in (ValueError(f"{path} is wrong."), FileNotFoundError(2, "No such file", str(path))):
        with pytest.raises(type(error)) as caught, reading(tmp_path), reading(path):
            raise error
        assert caught.value is error
    with pytest.raises(KeyboardInterrupt), reading(path):
        raise KeyboardInterrupt
