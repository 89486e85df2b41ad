"""The README's Python runs and prints what it says; its commands name files and flags that exist."""

import contextlib
import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_gpt.training_args import CustomTaskArguments, DataArguments, FineTuningArguments, ModelArguments

REPOSITORY = Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
]


@pytest.mark.parametrize(("code", "printed"), PYTHON, ids=[f"block {index}" for index in range(len(PYTHON))])
def test_python_prints_what_the_readme_says(code, printed, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "README.md", "exec"), {})
    assert output.getvalue() == printed


def test_there_are_commands_and_code():
    assert len(PYTHON) >= 1
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("command", [line for line in COMMANDS if "scripts/" in line])
def test_commands_name_what_exists(command):
    for path in re.findall(r"scripts/[\w/]+\.\w+", command):
        assert (REPOSITORY / path).is_file(), path
    if "finetune.py" in command:
        types = (ModelArguments, DataArguments, CustomTaskArguments, FineTuningArguments)
        known = {item.name for kind in types for item in dataclasses.fields(kind)} | {"config"}
        assert set(re.findall(r"--(\w+)", command.split("finetune.py")[1])) <= known


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
    file.stem: json.loads(file.read_text(encoding="utf-8")) for file in REPOSITORY.glob("scripts/results/*.json")
}


def tokenizer_lines(results: dict) -> list[str]:
    """Both tables of the tokenizer's modes."""
    texts = {
        "golden texts as written": "golden, as written",
        "golden texts corrupted by machine (mojibake and the like)": "golden, corrupted",
        "sentences of public-domain fiction": "sentences",
    }
    ways = {
        "`exact`": "exact",
        "`fast`": "fast",
        "`openai-gpt` in transformers": "stock openai-gpt",
        "plain loop of ftfy, clean-up, spaCy and a Python BPE": "plain loop",
    }
    lines = []
    for label, name in texts.items():
        found = results["agreement"][name]
        lines.append(f"| {label} | {found['number']:,} | {found['share']:.3%} |")
    for label, name in ways.items():
        speeds = [f"{found['words per processor second'] / 1000:.0f}" for found in results["speed"][name].values()]
        lines.append(f"| {' | '.join([label, *speeds])} |")
    return lines


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_tables_are_the_scripts_output(name, monkeypatch):
    """Every line that a script makes of its saved results stands in the README."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    import benchmark
    import measure_devices
    import measure_tasks
    import train_adapters

    results = RESULTS[name]
    if name == "frozen_training":
        assert f"{results['times as long without the cache, later epochs']:.1f} times as fast" in README
        return
    if name == "tasks":
        tables = [measure_tasks.table(results)]
    elif name == "tokenizer_modes":
        tables = tokenizer_lines(results)
    elif name == "devices":
        tables = [measure_devices.table(results)]
    elif name.startswith("adapters"):
        tables = [train_adapters.table(results)]
    else:
        # The sweeps are the picture.
        shown = {key: one for key, one in results["results"].items() if one["suite"] not in ("choices", "context")}
        tables = [each(shown) for each in benchmark.TABLES]
    lines = [line for table in tables for line in table.splitlines() if line]
    assert len(lines) >= 3
    in_readme = README.splitlines()
    assert [line for line in lines if line not in in_readme] == []
