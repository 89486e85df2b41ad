"""The documents are true: Python runs and prints what they say, commands and files exist, tables are measured."""

import functools
import itertools
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import requires
from pathlib import Path

import benchmark
import paper
import parity
import pytest
import tasks
from packaging.requirements import Requirement
from transformers import AutoTokenizer, set_seed

from hf_gpt import GPT_MINI, GPTConfig, GPTForCausalLM

from .bounds import lowest
from .support.formats import FORMATS
from .support.task_files import write

REPOSITORY = Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
MEASURED = (REPOSITORY / "scripts" / "measure" / "README.md").read_text(encoding="utf-8")
PAGES = {"README.md": README}
PAGES |= {path.relative_to(REPOSITORY).as_posix(): path.read_text("utf-8") for path in REPOSITORY.glob("docs/*.md")}
PAGES |= {name: (REPOSITORY / name).read_text("utf-8") for name in ("CONTRIBUTING.md", "CHANGELOG.md")}
# What a page shows in Python, and what it says that this prints; without the Hub's checkpoints.
PYTHON = [
    (name, *found)
    for name, text in PAGES.items()
    for found in re.findall(r"```python\n(.*?)```\n(?:```text\n(.*?)```)?", text, flags=re.DOTALL)
    if "openai-community" not in found[0]
]
LINES = [
    (name, line)
    for name, text in PAGES.items()
    for block in re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
]
# The examples of the commands' help.
HELP = [
    " ".join(line.split())
    for path in sorted([*REPOSITORY.glob("hf_gpt/commands/*.py"), *REPOSITORY.glob("hf_gpt/analysis/*.py")])
    for line in re.findall(r"^    (hf-gpt .*)$", path.read_text("utf-8").replace("\\\n", " "), flags=re.MULTILINE)
]
TYPED = [line for text in PAGES.values() for line in re.findall(r"`(hf-gpt [a-z][^`]*--[^`]*)`", text)]


@pytest.mark.parametrize(("page", "code", "printed"), PYTHON, ids=[page for page, *_ in PYTHON])
def test_python_prints_what_the_page_says(page, code, printed, monkeypatch, tmp_path, capsys):
    """But for the logs of a training and of the libraries that it imports, which hold the time."""
    monkeypatch.chdir(tmp_path)
    set_seed(0)
    exec(compile(code, page, "exec"), {})
    lines = capsys.readouterr().out.splitlines(keepends=True)
    if printed:
        assert "".join(line for line in lines if not re.match(r"\{'|\[\d{4}-", line)) == printed


def test_commands_of_the_pages_have_these_flags_and_write_into_the_ignored_folder(hf_gpt):
    @functools.cache
    def flags_of(name: str) -> set[str]:
        status, shown, _ = hf_gpt(*name.split(), "--help_all")
        if status:  # a command without the Trainer's flags
            shown = hf_gpt(*name.split(), "--help")[1]
        return set(re.findall(r"--\w+", shown))

    lines = [line for _, line in LINES if line.startswith("hf-gpt ")] + TYPED + HELP
    assert len(lines) >= 50
    for line in lines:
        words = line.split("#")[0].split()
        name = " ".join(words[1:3] if words[1] == "analyze" else words[1:2])
        assert {word for word in words if word.startswith("--")} <= flags_of(name) | {"--help", "--help_all"}, line
        folders = re.findall(r"--output_dir (\S+)", line)
        assert all(folder.startswith("outputs/") or folder.isupper() for folder in folders), line
    assert "outputs/" in (REPOSITORY / ".gitignore").read_text().splitlines()


def write_files(folder: Path, converted) -> None:
    """What the pages suppose that a reader has: tables, books, the Story Cloze files, and OpenAI's folder."""
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(9000)]
    for book in range(6):
        text = "\n".join(" ".join(chance.choices(words, k=40)) + "." for _ in range(60))
        write(folder / "books", {f"{book}.txt": text})
    messages = [("My bill is wrong again.", "billing"), ("The app crashes at start.", "technical")] * 20
    rows = [f"{number},{text[:-1]} {number}.,{team}" for number, (text, team) in enumerate(messages)]
    write(folder, {"tickets.csv": "\n".join(["id,message,team", *rows]) + "\n"})
    new = [f"{row},It rained." for row in rows[:5]]
    write(folder, {"new.csv": "\n".join(["id,message,team,article", *new]) + "\n"})
    write(folder, {"reviews.csv": "id,text,label\n1,A good film.,1\n2,A bad one.,0\n"})
    articles = [f'{number},"It rained on day {number}. Then it stopped.",rain {number}' for number in range(30)]
    write(folder, {"rows.csv": "\n".join(["id,article,summary", *articles]) + "\n"})
    write(folder / "FOLDER", FORMATS["rocstories"][0])
    config = GPTConfig.from_pretrained(GPT_MINI, n_positions=128, n_embd=64, n_inner=None, n_layer=2, n_head=1)
    GPTForCausalLM(config).save_pretrained(folder / "own")
    AutoTokenizer.from_pretrained(GPT_MINI).save_pretrained(folder / "own")
    converted(folder / "own", folder / "finetune-transformer-lm" / "model", "--to", "tf-release")


@pytest.mark.slow
def test_commands_run_as_printed(hf_gpt, converted, tmp_path, monkeypatch, own_datasets_cache):
    """One after the other, each once; pages that make what another one reads come first."""
    write_files(tmp_path, converted)
    monkeypatch.chdir(tmp_path)
    first = ("docs/conversion.md", "docs/quickstart.md", "README.md")
    printed = sorted(LINES, key=lambda each: (*(each[0] != name for name in first), each[0]))
    commands = {line: name for name, line in printed if line.startswith("hf-gpt ")}
    assert len(commands) >= 15
    for line, name in commands.items():
        words = shlex.split(line, comments=True)[1:]
        folder = tmp_path / words[words.index("--output_dir") + 1] if "--output_dir" in words else None
        if folder and folder.exists():  # another page has trained the same in other words
            words += ["--overwrite_output_dir"]
        status, shown, errors = hf_gpt(*words)
        assert status == 0, f"{name}: {line}\n{shown[-2000:]}{errors[-2000:]}"
    assert json.loads((tmp_path / "outputs" / "questions" / "metrics.json").read_text())["metrics"]["test"]
    assert len((tmp_path / "outputs" / "new" / "predictions.tsv").read_text().splitlines()) == 6


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package with the model and the recipes that it links to (`clone`), and what its wheel installs (`site`)."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("hf_gpt", "model_cards", "scripts"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, folder / "clone" / name, symlinks=True, ignore=ignored)
    with build("wheel", folder / "clone", folder) as archive:
        archive.extractall(folder / "site")
    assert next(folder.glob("*.whl")).stat().st_size <= 14_000_000
    return folder


def needs_no_file(line: str) -> bool:
    """Whether a command reads nothing that its user would have to bring, and serves no page."""
    words = shlex.split(line)
    read = [word for flag, word in itertools.pairwise(words) if not (flag.startswith("--output") or word[0] == "-")]
    return "demo" not in words and not [word for word in read if re.search(r"(?<!experiments)[/.]\w|/$", word)]


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in dict.fromkeys(HELP) if needs_no_file(line)])
def test_examples_of_the_help_run_from_a_wheel(line, installed, tmp_path):
    command = [sys.executable, "-m", "hf_gpt", *shlex.split(line)[1:]]
    environment = os.environ | {"PYTHONPATH": str(installed / "site")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_make_targets_exist():
    targets = [word for _, line in LINES if line.startswith("make ") for word in line.split("#")[0].split()[1:]]
    assert targets
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


def test_a_wheel_holds_every_file_and_its_command_runs_where_there_is_no_clone(installed, tmp_path):
    def files(folder):
        walked = os.walk(installed / folder / "hf_gpt", followlinks=True)
        return {os.path.relpath(Path(place, name), installed / folder) for place, _, names in walked for name in names}

    site = installed / "site"
    assert {"hf_gpt/tasks/data/questions.jsonl", "hf_gpt/py.typed"} <= files("clone") == files("site")
    (entry_points,) = site.glob("*.dist-info/entry_points.txt")
    assert "hf-gpt = hf_gpt.__main__:main" in entry_points.read_text()
    flags = ["--config", "questions", "--model_name_or_path", "no/such/folder", "--output_dir", "out"]
    command, environment = [sys.executable, "-m", "hf_gpt", "finetune", *flags], os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("hf-gpt finetune: no/such/folder: "), done.stderr


def test_bounds_are_not_below_those_of_transformers():
    wanted = {each.name: each.specifier for each in map(Requirement, requires("transformers")) if each.marker is None}
    bounds = [line.split("==") for line in lowest()]
    assert len(wanted.keys() & {name for name, _ in bounds}) >= 4
    assert [name for name, bound in bounds if name in wanted and not wanted[name].contains(bound)] == []


def tables_of(name: str, results: dict) -> list[str]:
    """The tables that a script makes of its saved results, or made when it was here."""
    if name.startswith("tasks"):
        return [tasks.tables(results)]
    if name == "paper":
        return [table.partition("\n\n")[2] for table in paper.tables(results["tasks"])]
    if name == "parity":
        return parity.tables(results)
    timed = {key: one for key, one in results.get("results", {}).items() if {"ratio", "padding"} <= one.keys()}
    # Choices and context are the figure.
    timed = {key: one for key, one in timed.items() if one["suite"] not in ("choices", "context")}
    return [*results.get("tables", ()), *([benchmark.table(timed)] if timed else ())]


def test_tables_are_the_scripts_output():
    """Every line of every table in the README of the measurements, and no other, is made of the saved results."""
    files = REPOSITORY.glob("scripts/measure/results/*.json")
    results = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    assert len(results) >= 20
    times = results.pop("frozen_training")["times as long without the cache, later epochs"]
    assert f"{times:.1f} times as fast" in MEASURED
    assert results["parity"]["gpt-mini"] == parity.digest(), "of other weights"
    made = {line for name in results for table in tables_of(name, results[name]) for line in table.splitlines()}
    first, *tables = re.findall(r"(?:^\|.*\n)+", MEASURED, flags=re.MULTILINE)
    assert first.startswith("| table | command |")
    assert {line for table in tables for line in table.splitlines()} == made - {""}
    header = next(line for line in README.splitlines() if line.startswith("| work |"))
    quoted = README.split(header)[1].strip().split("\n\n")[0].splitlines()
    assert len(quoted) >= 3  # the line below the header, and rows
    assert {header, *quoted} <= made


@pytest.mark.parametrize("name", [*PAGES, "scripts/measure/README.md", "scripts/configs/README.md"])
def test_files_that_are_named_are_there(name):
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    for place in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (REPOSITORY / name).parent.joinpath(place).exists(), place
    for path in re.findall(r"(?<!:)\b(?:scripts|hf_gpt|tests|model_cards)/[\w/.-]*\w", text):
        assert name == "CHANGELOG.md" or (REPOSITORY / path).exists() or "NAME" in path, path
