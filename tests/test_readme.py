"""The documents are true: Python runs and prints what they say, commands and files exist, tables are measured."""

import contextlib
import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import requires
from pathlib import Path

import benchmark
import parity
import pretraining
import pytest
import tasks
from packaging.requirements import Requirement
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments

from .bounds import PROJECT, lowest

REPOSITORY = Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
MEASURED = (REPOSITORY / "scripts" / "measure" / "README.md").read_text(encoding="utf-8")
RECIPES = (REPOSITORY / "scripts" / "configs" / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", README, flags=re.DOTALL)
BLOCKS = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines()]


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


@pytest.mark.parametrize("command", [line for line in COMMANDS if "scripts/" in line])
def test_commands_name_what_exists_and_write_into_the_ignored_folder(command):
    for path in re.findall(r"scripts/[\w/]+\.\w+", command):
        assert (REPOSITORY / path).is_file(), path
    if "finetune.py" in command:
        types = (ModelArguments, DataArguments, FineTuningArguments)
        known = {item.name for kind in types for item in dataclasses.fields(kind)} | {"config"}
        assert set(re.findall(r"--(\w+)", command.split("finetune.py")[1])) <= known
    written = re.findall(r"--output_dir (\S+)", command) + re.findall(r"convert\.py \S+ (\S+)", command)
    assert all(folder.startswith("outputs/") for folder in written)
    assert "outputs/" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_make_targets_exist():
    targets = re.findall(r"^make ([\w-]+)", "\n".join(COMMANDS), flags=re.MULTILINE)
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)] == []


def build(kind: str, clone: Path, output: Path) -> zipfile.ZipFile:
    """The wheel that setuptools makes of a copy of the repository: `wheel` or `editable`."""
    pytest.importorskip("setuptools")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, clone / name)
    code = f"import sys; from setuptools.build_meta import build_{kind}; build_{kind}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(output)], cwd=clone, check=True, capture_output=True)
    (wheel,) = output.glob("*.whl")
    return zipfile.ZipFile(wheel)


def test_an_editable_install_is_a_path(tmp_path):
    """setuptools' finder would lose to a folder of the package's name, such as the clone, in the working directory."""
    (tmp_path / "hf_gpt" / "hf_gpt").mkdir(parents=True)
    shutil.copy(REPOSITORY / "hf_gpt" / "__init__.py", tmp_path / "hf_gpt" / "hf_gpt" / "__init__.py")
    with build("editable", tmp_path / "hf_gpt", tmp_path) as archive:
        (name,) = [name for name in archive.namelist() if "dist-info" not in name]
        assert Path(archive.read(name).decode().strip()) == tmp_path / "hf_gpt"


def test_a_wheel_holds_every_file_and_its_command_runs_where_there_is_no_clone(tmp_path):
    clone, site = tmp_path / "clone", tmp_path / "site"
    for name in ("hf_gpt", "model_cards", "scripts"):  # the package links to the bundled model and the recipes
        shutil.copytree(REPOSITORY / name, clone / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    walked = [(Path(folder), names) for folder, _, names in os.walk(clone / "hf_gpt", followlinks=True)]
    files = {(folder / name).relative_to(clone).as_posix() for folder, names in walked for name in names}
    with build("wheel", clone, tmp_path) as archive:
        assert {name for name in archive.namelist() if name.startswith("hf_gpt/")} == files
        archive.extractall(site)
    assert {"hf_gpt/tasks/data/questions.jsonl", "hf_gpt/py.typed"} <= files
    (entry_points,) = site.glob("*.dist-info/entry_points.txt")
    assert "hf-gpt = hf_gpt.__main__:main" in entry_points.read_text()
    flags = ["--config", "questions", "--model_name_or_path", "no/such/folder", "--output_dir", "out"]
    command, environment = [sys.executable, "-m", "hf_gpt", "finetune", *flags], os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("hf-gpt finetune: no/such/folder: "), done.stderr


def test_bounds_are_not_below_those_of_transformers_nor_versions_that_fail_with_the_others():
    wanted = {each.name: each.specifier for each in map(Requirement, requires("transformers")) if each.marker is None}
    bounds = [line.split("==") for line in lowest()]
    assert len(wanted.keys() & {name for name, _ in bounds}) >= 4
    assert [name for name, bound in bounds if name in wanted and not wanted[name].contains(bound)] == []
    # pyarrow refuses this numpy, gradio 5 imports what huggingface_hub no longer has, pandas refuses this jinja2.
    lines = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["demo"]]
    ours = {each.name: each.specifier for each in map(Requirement, lines)}
    for name, version in (("numpy", "1.26.4"), ("gradio", "5.0.0"), ("jinja2", "3.1.1")):
        assert not ours[name].contains(version), name


def test_the_bundled_model_is_small_and_has_its_special_tokens():
    folder = REPOSITORY / "model_cards" / "gpt-mini"
    assert (folder / "model.safetensors").stat().st_size <= 16_000_000
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer) == 8004
    special = tokenizer.convert_tokens_to_ids(["_start_", "_delimiter_", "_classify_", "<pad>"])
    assert special == list(range(8000, 8004))


def tables_of(name: str, results: dict) -> list[str]:
    """The tables that a script makes of its saved results, or made when it was here."""
    if name.startswith("tasks"):
        return [tasks.tables(results)]
    if name in ("parity", "pretraining"):
        return parity.tables(results) if name == "parity" else pretraining.tables(results["results"])
    # Choices and context are the figure.
    shown = {key: one for key, one in results.get("results", {}).items() if one["suite"] not in ("choices", "context")}
    timed = {key: one for key, one in shown.items() if "ratio" in one and "padding" in one}
    return [*results.get("tables", ()), *([benchmark.table(timed)] if timed else ())]


def test_tables_are_the_scripts_output():
    """Every line of every table in the README of the measurements, and no other, is made of the saved results."""
    files = REPOSITORY.glob("scripts/measure/results/*.json")
    results = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    assert len(results) >= 20
    times = results.pop("frozen_training")["times as long without the cache, later epochs"]
    assert f"{times:.1f} times as fast" in MEASURED
    assert results["parity"]["gpt-mini"] == parity.digest(parity.MODEL / "model.safetensors"), "of other weights"
    made = {line for name in results for table in tables_of(name, results[name]) for line in table.splitlines()}
    first, *tables = re.findall(r"(?:^\|.*\n)+", MEASURED, flags=re.MULTILINE)
    assert first.startswith("| table | command |")
    assert {line for table in tables for line in table.splitlines()} == made - {""}
    header = next(line for line in README.splitlines() if line.startswith("| work |"))
    quoted = README.split(header)[1].strip().split("\n\n")[0].splitlines()
    assert len(quoted) >= 3
    assert {header, *quoted} <= made


@pytest.mark.parametrize("text", [README, MEASURED, RECIPES], ids=["front page", "measurements", "recipes"])
def test_files_that_are_named_are_there(text):
    base = {README: "", MEASURED: "scripts/measure", RECIPES: "scripts/configs"}[text]
    for place in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (REPOSITORY / base / place).exists(), place
    for path in re.findall(r"(?<!:)\b(?:scripts|hf_gpt|tests|model_cards)/[\w/.-]*\w", text):
        assert (REPOSITORY / path).exists() or "NAME" in path, path
