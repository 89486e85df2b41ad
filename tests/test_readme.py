"""The README's Python runs and prints what it says; its commands name files and flags that exist."""

import contextlib
import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments

REPOSITORY = Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
MEASURED = (REPOSITORY / "scripts" / "measure" / "README.md").read_text(encoding="utf-8")
RECIPES = (REPOSITORY / "scripts" / "configs" / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
]


@pytest.mark.parametrize(("code", "printed"), PYTHON, ids=[f"block {index}" for index in range(len(PYTHON))])
def test_python_prints_what_the_readme_says(code, printed, monkeypatch, tmp_path):
    """But for the logs of a training and of the libraries that it imports, which hold the time."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model_cards").symlink_to(REPOSITORY / "model_cards")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "README.md", "exec"), {})
    lines = output.getvalue().splitlines(keepends=True)
    assert "".join(line for line in lines if not re.match(r"\{'|\[\d{4}-", line)) == printed


def test_there_are_commands_and_code():
    assert len(PYTHON) >= 1
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("command", [line for line in COMMANDS if "scripts/" in line])
def test_commands_name_what_exists(command):
    for path in re.findall(r"scripts/[\w/]+\.\w+", command):
        assert (REPOSITORY / path).is_file(), path
    if "finetune.py" in command:
        types = (ModelArguments, DataArguments, FineTuningArguments)
        known = {item.name for kind in types for item in dataclasses.fields(kind)} | {"config"}
        assert set(re.findall(r"--(\w+)", command.split("finetune.py")[1])) <= known


@pytest.mark.parametrize("command", [line for line in COMMANDS if "scripts/" in line])
def test_commands_write_into_the_ignored_folder(command):
    written = re.findall(r"--output_dir (\S+)", command)
    written += re.findall(r"convert\.py \S+ (\S+)", command)
    assert all(folder.startswith("outputs/") for folder in written)
    assert "outputs/" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_one_process_needs_no_launcher():
    """Without a configuration the launcher prints what it was not told, and its own traceback below an error."""
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    helps = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "scripts" / "help").glob("*.txt")]
    lines = [*COMMANDS, *makefile.splitlines(), *"\n".join(helps).splitlines()]
    launched = [line for line in lines if "accelerate launch" in line and "scripts/" in line]
    assert [line for line in launched if "--config_file" not in line] == []


def test_the_minute_is_said_to_be_that_of_the_demonstration():
    (sentence,) = re.findall(r"[^.]*\bunder a minute\b", README)
    assert sentence.strip().startswith("Once that is done, `make demo`")


def test_an_editable_install_is_a_path(tmp_path):
    """setuptools' finder would lose to a folder of the package's name, such as the clone, in the working directory."""
    pytest.importorskip("setuptools")
    clone = tmp_path / "hf_gpt"
    (clone / "hf_gpt").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "hf_gpt/__init__.py"):
        shutil.copy(REPOSITORY / name, clone / name)
    build = "import sys; from setuptools.build_meta import build_editable; build_editable(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=clone, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if "dist-info" not in name]
        assert Path(archive.read(name).decode().strip()) == clone


def test_a_wheel_is_a_whole_product(tmp_path):
    """It holds every file of the package, and its command runs where there is no clone."""
    pytest.importorskip("setuptools")
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, clone / name)
    shutil.copytree(REPOSITORY / "hf_gpt", clone / "hf_gpt", ignore=shutil.ignore_patterns("__pycache__"))
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=clone, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("hf_gpt/")}
        archive.extractall(tmp_path / "site")
    carried = {
        path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "hf_gpt").rglob("*") if path.is_file()
    }
    assert packed == {name for name in carried if "__pycache__" not in name}
    assert {"hf_gpt/tasks/data/questions.jsonl", "hf_gpt/py.typed"} <= packed
    (entry_points,) = (tmp_path / "site").glob("*.dist-info/entry_points.txt")
    assert "hf-gpt = hf_gpt.__main__:main" in entry_points.read_text()
    flags = ["--task", "questions", "--max_train_rows", "8", "--model_name_or_path", "no/such/folder"]
    done = subprocess.run(
        [sys.executable, "-m", "hf_gpt", "finetune", *flags, "--output_dir", "out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("hf-gpt finetune: no/such/folder: "), done.stderr


def test_lower_bounds_are_those_of_transformers():
    """What transformers needs in a later version can never be as old as we said."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = {each.name: each for each in map(Requirement, requires("transformers")) if each.marker is None}
    shared = [each for each in map(Requirement, project["dependencies"]) if each.name in wanted]
    assert len(shared) >= 4
    for each in shared:
        (bound,) = [one.version for one in each.specifier if one.operator == ">="]
        assert wanted[each.name].specifier.contains(bound), each


@pytest.mark.parametrize(
    ("name", "version"), [("numpy", "1.26.4"), ("gradio", "5.0.0"), ("jinja2", "3.1.1")], ids=lambda value: value
)
def test_versions_that_do_not_go_with_the_others_are_not_allowed(name, version):
    """pyarrow refuses this numpy, gradio 5 imports what huggingface_hub has no more, pandas refuses this jinja2."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["demo"]]
    (wanted,) = [each for each in map(Requirement, lines) if each.name == name]
    assert not wanted.specifier.contains(version)


@pytest.mark.parametrize("target", re.findall(r"^make ([\w-]+)", "\n".join(COMMANDS), flags=re.MULTILINE))
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE)


def test_carried_model_is_small_and_whole():
    folder = REPOSITORY / "model_cards" / "gpt-mini"
    assert (folder / "model.safetensors").stat().st_size <= 16_000_000
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer) == 8004
    assert tokenizer.model_max_length == model.config.n_positions
    assert tokenizer.convert_tokens_to_ids(["_start_", "_delimiter_", "_classify_", "<pad>"]) == [
        8000,
        8001,
        8002,
        8003,
    ]
    encoded = tokenizer("She opened the door and looked at the old man.", return_tensors="pt")
    loss = model(**encoded, labels=encoded["input_ids"]).loss
    # Uniform guessing would be at 9; a damaged or untrained model is not far below.
    assert loss.item() < 6


RESULTS = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))
    for file in REPOSITORY.glob("scripts/measure/results/*.json")
}


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_tables_are_the_scripts_output(name, monkeypatch):
    """Every line that a script makes of its saved results stands in the README of the measurements."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts" / "measure"))
    import benchmark

    from scripts.measure import inside, parity, pretraining, tasks

    results = RESULTS[name]
    if name == "frozen_training":
        assert f"{results['times as long without the cache, later epochs']:.1f} times as fast" in MEASURED
        return
    tables = list(results.get("tables", ()))  # of a script that is no longer here
    if name.startswith("tasks"):
        tables.append(tasks.tables(results))
    elif name == "parity":
        tables += parity.tables(results)
        assert results["gpt-mini"] == parity.digest(parity.MODEL / "model.safetensors"), "measured of other weights"
    elif name == "inside":
        tables += inside.tables(results)
    elif name == "pretraining":
        tables += pretraining.tables(results["results"])
    elif "results" in results:
        # The sweeps are the picture.
        apart = {key: one for key, one in results["results"].items() if one["suite"] not in ("choices", "context")}
        tables += benchmark.tables(apart)
    lines = [line for table in tables for line in table.splitlines() if line]
    assert len(lines) >= 3
    shown = MEASURED.splitlines()
    assert [line for line in lines if line not in shown] == []


def test_the_front_page_quotes_what_was_measured():
    header = next(line for line in README.splitlines() if line.startswith("| work |"))
    rows = README.split(header)[1].strip().split("\n\n")[0].splitlines()
    assert len(rows) >= 3
    assert {header, *rows} <= set(MEASURED.splitlines())


@pytest.mark.parametrize("text", [README, MEASURED, RECIPES], ids=["front page", "measurements", "recipes"])
def test_files_that_are_named_are_there(text):
    base = {README: "", MEASURED: "scripts/measure", RECIPES: "scripts/configs"}[text]
    for place in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (REPOSITORY / base / place).exists(), place
    for path in re.findall(r"(?:scripts|hf_gpt|tests|model_cards)/[\w/.-]*\w", text):
        assert (REPOSITORY / path).exists() or "NAME" in path, path
