"""The commands as a user runs them: `hf-gpt`, `python -m hf_gpt`, and the scripts, which are the same."""

import json
import re
import runpy
import signal
import subprocess
import sys
import time
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import httpx
import pytest
import transformers
import yaml
from huggingface_hub.errors import RevisionResolutionError
from transformers import AutoTokenizer

import hf_gpt.__main__ as entry
from hf_gpt import GPT_MINI, GPTForCausalLM, __version__
from hf_gpt.commands import command as as_command
from hf_gpt.commands import parse_arguments
from hf_gpt.hub.repositories import local_folder

from ..support.runs import ARGUMENTS, REPOSITORY, finetune, run_command, start_run

COMMANDS = sorted(path.stem for path in (REPOSITORY / "hf_gpt" / "commands").glob("[!_]*"))
SMALL = ("--max_train_rows", 16, "--max_eval_rows", 12, "--num_train_epochs", 1, "--use_cpu", "true")


def test_every_script_is_a_command(hf_gpt):
    assert sorted(path.stem for path in (REPOSITORY / "scripts").glob("*.py")) == COMMANDS
    assert EntryPoint("hf-gpt", "hf_gpt.__main__:main", "console_scripts").load() is entry.main
    status, printed, _ = hf_gpt()
    assert status == 0
    listed = [line.split()[0] for line in printed.splitlines() if line.startswith("  ")]
    assert listed == [name.replace("_", "-") for name in COMMANDS]
    assert hf_gpt("--version")[1] == f"{__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name, hf_gpt):
    """Of a command, by the beginning of its name, without the Trainer's flags unless they are asked for."""
    word = name.replace("_", "-")
    status, printed, _ = hf_gpt(word[:-1], "--help")
    assert (status, f"\n    hf-gpt {word} " in printed) == (0, True)
    assert printed.startswith(f"usage: hf-gpt {word} ")
    assert "--adam_beta1" not in printed
    if name in ("evaluate_task", "finetune", "pretrain"):
        common = ["help_all", "config", *import_module(f"hf_gpt.commands.{name}").COMMON.split()]
        assert {f"--{each}" for each in common} == set(re.findall(r"^  (--\w+)", printed, re.MULTILINE))
        assert len(printed.splitlines()) <= 80
        assert "--adam_beta1" in hf_gpt(word, "--help_all")[1]


@pytest.mark.parametrize("kind", ["tf-release", "openai-gpt"])
def test_fine_tuning_from_what_others_published(kind, tiny_checkpoint, tmp_path, hf_gpt, converted):
    """`--model_name_or_path` takes the release's folder, and a stock model with its own vocabulary files."""
    source, heads = tmp_path / "source", ["--n_head", 2]
    converted(tiny_checkpoint, source, "--to", kind, "--head", "language-model")
    if kind == "openai-gpt":
        heads = []
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (source / name).unlink()
    before = sorted(source.iterdir())
    flags = ("--task", "questions", "--model_name_or_path", source, "--output_dir", tmp_path / "out", *SMALL)
    status, printed, errors = hf_gpt("finetune", *flags, *heads, "--disable_tqdm", "true")
    assert status == 0, errors
    assert "test accuracy: " in printed
    assert "Writing model shards" not in errors
    assert sorted(source.iterdir()) == before
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["model_type"], config["vocab_size"]) == ("hf_gpt", 8004)
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("she was").input_ids[-1] == config["classify_token_id"]


NOWHERE = ("--model_name_or_path", "no/such/folder")
# What every command is given that it cannot do.
MISTAKES = {
    "analyze": ("attention", *NOWHERE, "--output_dir", "OUT"),
    "convert": ("no/such/folder", "OUT"),
    "demo": NOWHERE,
    "evaluate_task": (*NOWHERE, "--task", "questions", "--output_dir", "OUT"),
    "extract_features": (*NOWHERE, "--input_files", "no.txt", "--output_dir", "OUT"),
    "finetune": (*NOWHERE, "--task", "questions", "--output_dir", "OUT"),
    **dict.fromkeys(("generate", "perplexity"), (*NOWHERE, "--text", "she", "--output_file", "OUT/a.json")),
    "pretrain": ("--text_files", "no.txt", "--tokenizer", "no/such/folder", "--output_dir", "OUT"),
    "push_to_hub": ("no/such/folder", "--repo_id", "user/name", "--dry_run"),
    "score": (*NOWHERE, "--text", "she", "--output_file", "OUT/a.jsonl"),
    "surprisal": (*NOWHERE, "--text", "she", "--output_file", "OUT/a.html"),
    "train_tokenizer": ("--text_files", "no.txt", "--output_dir", "OUT"),
    "measure/benchmark": ("--suites", "sorting", "--output_dir", "OUT"),
    "measure/tasks": ("--tasks", "sorting", "--data_dir", "no/such/folder", "--output_dir", "OUT"),
    "measure/parity": ("--golden", "no/such/folder"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_end_with_one_line(name, tmp_path, monkeypatch, capsys):
    flags = [flag.replace("OUT", str(tmp_path / "out")) for flag in MISTAKES[name]]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *flags])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(REPOSITORY / "scripts" / f"{name}.py"), run_name="__main__")
    errors = capsys.readouterr().err
    assert end.value.code == 2
    # A bar may stand before it, as tqdm was imported before.
    assert re.fullmatch(rf"{Path(name).name}\.py: .+", errors.splitlines()[-1])
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()


EXPECTED = [ValueError("one line\nand another"), OSError("disk"), httpx.ConnectError("no network")]
EXPECTED += [yaml.YAMLError("bad"), RevisionResolutionError("Cannot resolve revision 'main' for model 'user/model'")]


@pytest.mark.parametrize("error", [*EXPECTED, KeyError("a bug")], ids=lambda error: type(error).__name__)
def test_what_libraries_raise_ends_with_one_line_and_bugs_with_a_traceback(error, monkeypatch, capsys):
    @as_command()
    def main():
        raise error

    monkeypatch.setattr(sys, "argv", ["some.py"])
    with pytest.raises(SystemExit if error in EXPECTED else KeyError) as end:
        main()
    if error in EXPECTED:
        assert end.value.code == 2
        assert re.fullmatch(r"some\.py: .+\n", capsys.readouterr().err)


WRONG_FLAGS = [
    ("push_to_hob", "there is no command push_to_hob; did you mean push-to-hub?"),
    ("p", "there is no command p; "),  # of three
    ("qwertyuiop", "there is no command qwertyuiop; hf-gpt --help lists all."),
    ("finetune --lerning_rate 1", "there is no flag --lerning_rate; did you mean --learning_rate?"),
    ("finetune --lr=1e-3", "no flag --lr; "),
    ("finetune --output_dir out --learning_rate=-1e-3", "--learning_rate -0.001: the number must be at least 0"),
    ("evaluate --output_dir out --dropout=2", "--dropout 2.0: the number must be"),
    ("pretrain --output_dir out --text_files a --row_length=1", "--row_length 1: the number must be"),
    ("finetune", "with --output_dir"),
    ("finetune --output_dir out --report_to wandb", "pip install wandb"),
    ("finetune --output_dir out --deepspeed zero.json", "use DDP or FSDP2"),
    ('finetune --output_dir out --accelerator_config {"a":1}', "unexpected keyword argument"),
    ("finetune --output_dir out --task questions --model_name_or_path gpt", "finetune: gpt: "),
]
WRONG_CONFIGURATIONS = {
    b"task: [": "is not valid YAML",
    b"- task": "must hold `name: value` lines",
    b"batch_size: 8": "no setting batch_size; did you mean",
    b"task: [trec, sst2]": "there is no flag sst2",
}


@pytest.mark.parametrize(
    ("words", "message"), [*WRONG_FLAGS, *WRONG_CONFIGURATIONS.items()], ids=lambda each: each[:30]
)
def test_wrong_flags_and_configurations(words, message, hf_gpt, monkeypatch, tmp_path):
    monkeypatch.setattr(transformers.integrations.integration_utils, "is_wandb_available", lambda: False)
    if isinstance(words, bytes):
        (tmp_path / "task.yaml").write_bytes(words)
        words = f"finetune --config {tmp_path}/task.yaml --output_dir {tmp_path}/out"
    status, _, errors = hf_gpt(*words.split())
    assert (status, errors.count("\n")) == (2, 1), errors
    assert message in errors


def test_configurations_are_found_from_everywhere(tmp_path, monkeypatch):
    """Bundled recipes and gpt-mini by name."""
    monkeypatch.chdir(tmp_path)
    model, *_ = parse_arguments(ARGUMENTS, ["--config", "questions", "--output_dir", "out"])
    assert model.model_name_or_path == "gpt-mini"
    assert model.source.model(GPTForCausalLM).config.vocab_size == 8004
    assert local_folder("gpt-mini") == Path(GPT_MINI)
    values = {"task": "custom", "train_file": "tickets.csv", "data_dirs": ["trec=tickets.csv", "sst2=nowhere"]}
    values |= {"report_to": "tensorboard", "tasks": "questions"}  # settings of several values take one
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(values | {"model_name_or_path": "gpt2"}))
    model, data, training = parse_arguments(ARGUMENTS, ["--config", "own.yaml", "--output_dir", "out"])
    assert (training.report_to, data.tasks) == (["tensorboard"], ["questions"])
    assert data.train_file == "tickets.csv"
    assert data.data_dirs == ["trec=tickets.csv", "sst2=nowhere"]
    assert (data.task, model.model_name_or_path) == ("custom", "gpt2")


STOPPED = """
import sys, time
from hf_gpt.commands import command

@command(resume="Resume it.")
def main():
    try:
        print("at work", flush=True)
        time.sleep(60)
    finally:
        print("saving", flush=True)
        time.sleep(60)

sys.argv = ["some.py"]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_second_stop_ends_with_the_same_line(number):
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", STOPPED], cwd=REPOSITORY, stdout=pipe, stderr=pipe, text=True)
    for line in ("at work\n", "saving\n"):
        assert process.stdout.readline() == line
        process.send_signal(number)
    assert process.wait(30) == 128 + number
    assert process.stderr.read() == f"\nsome.py: stopped ({number.name}). Resume it.\n"


def test_a_stopped_run_says_how_to_resume(tiny_checkpoint, tmp_path):
    output = tmp_path / "out"
    flags = ["--task", "questions", "--model_name_or_path", tiny_checkpoint, "--output_dir", output, *SMALL]
    flags += ["--max_train_rows", 80, "--per_device_train_batch_size", 2, "--disable_tqdm", "false"]
    flags += ["--save_strategy", "steps", "--eval_strategy", "steps", "--save_steps", 5, "--eval_steps", 5]
    process = start_run(tmp_path / "log", "finetune", *flags, function=run_command)
    while process.is_alive() and not list(output.glob("checkpoint-*/trainer_state.json")):
        time.sleep(0.01)
    process.terminate()
    process.join(120)
    status, log = process.exitcode, (tmp_path / "log").read_text()
    assert (status, "Traceback" in log) == (128 + signal.SIGTERM, False), log
    resume = "The same command with --resume_from_checkpoint last resumes from the last checkpoint."
    assert log.splitlines()[-1] == f"hf-gpt finetune: stopped (SIGTERM). {resume}"
    record = finetune(*flags, "--resume_from_checkpoint", "last")
    assert (record["steps"], record["resumed"]) == (40, True)
