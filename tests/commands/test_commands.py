"""The commands of `scripts/` as a user runs them."""

import json
import multiprocessing
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import torch
import transformers
import yaml
from huggingface_hub.errors import RevisionResolutionError
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from hf_gpt.commands import command as as_command
from hf_gpt.commands import parse_arguments

from ..support.golden import CARRIED
from ..support.runs import ARGUMENTS, finetune, save_tiny_model

REPOSITORY = Path(__file__).resolve().parents[2]
MEASURES = sorted(f"measure/{path.stem}" for path in (REPOSITORY / "scripts" / "measure").glob("*.py"))
RELEASE = CARRIED / "tiny_seed0" / "checkpoint"
RELEASE_VOCABULARY = 211


@pytest.fixture
def command(monkeypatch, capsys):
    """`command(script, *flags)` runs a script in this process and returns (exit status, output, errors)."""

    def run(script, *flags):
        monkeypatch.setattr(sys, "argv", [script, *map(str, flags)])
        status = 0
        try:
            runpy.run_path(str(REPOSITORY / "scripts" / script), run_name="__main__")
        except SystemExit as error:
            status = error.code
        printed = capsys.readouterr()
        return status, printed.out, printed.err if not isinstance(status, str) else status

    return run


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    """A text long enough for a few rows of 32 tokens, in two documents."""
    rows = (REPOSITORY / "hf_gpt/tasks/data/stories.jsonl").read_text().splitlines()
    stories = [json.loads(row)["story"] for row in rows[:120]]
    folder = tmp_path_factory.mktemp("books")
    for number in range(4):
        (folder / f"book_{number}.txt").write_text("\n\n".join(stories[number::4]), encoding="utf-8")
    return folder


@pytest.fixture
def release(tmp_path, book, command) -> Path:
    """The tiny release with a vocabulary of its size, made by our own script."""
    vocabulary = tmp_path / "vocabulary"
    flags = ("--text_files", book, "--vocab_size", RELEASE_VOCABULARY, "--output_dir", vocabulary)
    assert command("train_tokenizer.py", *flags)[0] == 0
    folder = tmp_path / "release"
    shutil.copytree(RELEASE, folder)
    for pattern in ("encoder_bpe_*.json", "vocab_*.bpe"):
        (file,) = vocabulary.glob(pattern)
        shutil.copy(file, folder)
    return folder


def test_converted_release_loads_and_generates(release, tmp_path, command):
    output = tmp_path / "converted"
    status, printed, _ = command("convert.py", release, output, "--n_head", 4)
    assert status == 0
    assert "is the OpenAI TensorFlow release: " in printed
    model, tokenizer = AutoModelForCausalLM.from_pretrained(output), AutoTokenizer.from_pretrained(output)
    assert len(tokenizer) == model.config.vocab_size == RELEASE_VOCABULARY + 4
    assert tokenizer.model_max_length == model.config.n_positions == 40
    specials = list(range(RELEASE_VOCABULARY, RELEASE_VOCABULARY + 4))
    assert GenerationConfig.from_pretrained(output).suppress_tokens == specials
    generated = model.generate(**tokenizer("she was", return_tensors="pt"), max_new_tokens=8, do_sample=False)
    assert not set(generated[0].tolist()) & set(specials)
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "params_3.npy").unlink(), "params_3.npy is missing"),
        (lambda folder: (folder / "params_3.npy").write_bytes(b"\x93NUMPY"), "params_3.npy is not a readable array"),
        (lambda folder: (folder / "params_shapes.json").unlink(), "params_shapes.json is missing"),
        (lambda folder: next(folder.glob("vocab_*.bpe")).unlink(), "--no_tokenizer"),
    ],
    ids=["missing piece", "truncated piece", "no shapes", "no vocabulary"],
)
def test_conversion_refuses_broken_releases(change, message, release, tmp_path, command):
    change(release)
    output = tmp_path / "converted"
    status, _, errors = command("convert.py", release, output, "--n_head", 4)
    assert status == 2
    assert message in errors
    assert not output.exists()


def test_conversion_keeps_what_is_there(release, tmp_path, command):
    output = tmp_path / "converted"
    flags = (release, output, "--n_head", 4, "--no_tokenizer", "--head", "multiple-choice")
    assert command("convert.py", *flags)[0] == 0
    before = (output / "model.safetensors").read_bytes()
    status, _, errors = command("convert.py", *flags)
    assert status == 2
    assert "already exists" in errors
    assert (output / "model.safetensors").read_bytes() == before


def test_fine_tuning_from_the_release(release, tmp_path, command):
    """`--model_name_or_path` takes the release's folder, weights and vocabulary."""
    flags = ("--task", "questions", "--model_name_or_path", release, "--n_head", 4, "--output_dir", tmp_path / "out")
    small = ("--max_train_rows", 16, "--max_eval_rows", 12, "--num_train_epochs", 1, "--use_cpu", "true")
    status, printed, errors = command("finetune.py", *flags, *small, "--disable_tqdm", "true")
    assert status == 0, errors
    assert "test accuracy: " in printed
    assert "Writing model shards" not in errors
    assert json.loads((tmp_path / "out" / "config.json").read_text())["n_positions"] == 40


def test_fine_tuning_from_a_stock_model(release, tmp_path, command):
    """`--model_name_or_path` takes a stock openai-gpt as it is, with its own vocabulary files."""
    stock = tmp_path / "stock"
    assert command("convert.py", release, stock, "--to", "openai-gpt", "--n_head", 4)[0] == 0
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (stock / name).unlink()
    before = sorted(stock.iterdir())
    assert [path.name for path in before] == ["config.json", "merges.txt", "model.safetensors", "vocab.json"]
    flags = ("--task", "questions", "--model_name_or_path", stock, "--output_dir", tmp_path / "out")
    small = ("--max_train_rows", 16, "--max_eval_rows", 12, "--num_train_epochs", 1, "--use_cpu", "true")
    status, printed, errors = command("finetune.py", *flags, *small, "--disable_tqdm", "true")
    assert status == 0, errors
    assert "test accuracy: " in printed
    assert sorted(stock.iterdir()) == before
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["model_type"], config["vocab_size"]) == ("hf_gpt", RELEASE_VOCABULARY + 4)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("she was").input_ids[-1] == config["classify_token_id"]


def test_list_of_tasks(command):
    status, printed, _ = command("finetune.py", "--list_tasks")
    assert status == 0
    for name in ("questions", "stories", "trec", "sst2", "snli", "copa", "openbookqa", "rocstories"):
        assert f"\n{name} " in printed


# What every command is given that it cannot do.
MISTAKES = {
    "measure/benchmark": ("--suites", "sorting", "--output_dir", "OUT"),
    "analyze": ("attention", "--model_name_or_path", "no/such/folder", "--output_dir", "OUT"),
    "convert": ("no/such/folder", "OUT"),
    "demo": ("--model_name_or_path", "no/such/folder", "--export_space", "OUT"),
    "evaluate_task": ("--model_name_or_path", "no/such/folder", "--task", "questions", "--output_dir", "OUT"),
    "extract_features": ("--model_name_or_path", "no/such/folder", "--input_files", "no.txt", "--output_dir", "OUT"),
    "generate": ("--model_name_or_path", "no/such/folder", "--text", "she", "--output_file", "OUT/a.json"),
    "finetune": ("--model_name_or_path", "no/such/folder", "--task", "questions", "--output_dir", "OUT"),
    "inspect_text": ("--model_name_or_path", "no/such/folder", "--text", "she", "--output_file", "OUT/a.html"),
    "measure/tasks": ("--tasks", "sorting", "--data_dir", "no/such/folder", "--output_dir", "OUT"),
    "perplexity": ("--model_name_or_path", "no/such/folder", "--text", "she", "--output_file", "OUT/a.json"),
    "pretrain": ("--text_files", "no.txt", "--tokenizer", "no/such/folder", "--output_dir", "OUT"),
    "push_to_hub": ("no/such/folder", "--repo_id", "user/name", "--dry_run"),
    "score": ("--model_name_or_path", "no/such/folder", "--text", "she", "--output_file", "OUT/a.tsv"),
    "measure/parity": ("--golden", "no/such/folder"),
    "measure/pretraining": (
        "--models",
        "no/such/1",
        "--text_files",
        "no.txt",
        "--tokens_per_step",
        "1",
        "--output_dir",
        "OUT",
    ),
    "train_tokenizer": ("--text_files", "no.txt", "--output_dir", "OUT"),
}


@pytest.mark.parametrize("script", MISTAKES)
def test_mistakes_end_with_one_line(script, tmp_path, command):
    flags = [flag.replace("OUT", str(tmp_path / "out")) for flag in MISTAKES[script]]
    status, _, errors = command(f"{script}.py", *flags)
    assert status == 2
    # A bar may stand before it, as tqdm was imported before.
    assert re.fullmatch(rf"{Path(script).name}\.py: .+", errors.splitlines()[-1])
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "error",
    [
        ValueError("one line\nand another"),
        OSError("disk"),
        RevisionResolutionError("Cannot resolve revision 'main' for model 'model_card/gpt-mini'"),
        httpx.ConnectError("no network"),
        yaml.YAMLError("bad"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_libraries_raise_ends_with_one_line(error, monkeypatch, tmp_path, capsys):
    """Where several processes run, the launcher is told as well."""

    @as_command()
    def main():
        raise error

    report = tmp_path / "error.json"
    monkeypatch.setattr(sys, "argv", ["some.py"])
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(report))
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr().err
    assert end.value.code == 2
    assert re.fullmatch(r"some\.py: .+\n", printed)
    assert json.loads(report.read_text())["message"] == printed.strip()


def test_bugs_keep_their_traceback():
    @as_command()
    def main():
        return {}["missing"]

    with pytest.raises(KeyError):
        main()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batch_size", "8"], "no flag --batch_size; did you mean"),
        (["--lr=1e-3"], "no flag --lr; "),
        (["--lerning_rate", "1"], "did you mean --learning_rate?"),
        (["--qwertyuiop"], "--help lists all"),
        (["--learning_rate", "high"], "invalid float value: 'high'"),
        (["--output_dir", "out", "--learning_rate=-1e-3"], "--learning_rate -0.001: the number must be at least 0"),
        (["--output_dir", ""], "with --output_dir"),
        ([], "with --output_dir"),
        (["--output_dir", "out", "--report_to", "wandb"], "pip install wandb"),
        (["--output_dir", "out", "--deepspeed", "zero.json"], "DeepSpeed is not installed"),
        (["--output_dir", "out", "--accelerator_config", '{"a": 1}'], "unexpected keyword argument"),
        (["--output_dir", "out", "--task", "questions", "--model_name_or_path", "gpt"], "no such file or folder here"),
    ],
)
def test_wrong_flags(flags, message, command, monkeypatch):
    monkeypatch.setattr(transformers.integrations.integration_utils, "is_wandb_available", lambda: False)
    monkeypatch.setattr("hf_gpt.training.arguments.is_deepspeed_available", lambda: False)
    status, _, errors = command("finetune.py", *flags)
    assert status == 2
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"task: \xff\xfe", "not UTF-8"),
        (b"task: " + b"[" * 5000, "levels deep"),
        (b"task: [", "is not valid YAML"),
        (b"- task", "must hold `name: value` lines"),
        (b"batch_size: 8", "no setting batch_size; did you mean"),
        (b"task: [trec, sst2]", "task is one value, not the list ['trec', 'sst2']"),
        (b"optim: [adamw_torch]", "optim is one value, not the list"),
    ],
    ids=["encoding", "depth", "syntax", "list", "unknown", "list-for-one", "list-for-one-of-the-trainers"],
)
def test_wrong_configurations(content, message, tmp_path, command):
    (tmp_path / "task.yaml").write_bytes(content)
    status, _, errors = command("finetune.py", "--config", tmp_path / "task.yaml", "--output_dir", tmp_path / "out")
    assert status == 2
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(("value", "meaning"), [("True", "last"), ("last", "last"), ("false", None)])
def test_resuming_as_the_trainer_writes_it(value, meaning):
    *_, training = parse_arguments(ARGUMENTS, ["--output_dir", "out", "--resume_from_checkpoint", value])
    assert training.resume_from_checkpoint == meaning


def test_configurations_are_found_from_everywhere(tmp_path, monkeypatch):
    """Paths in a configuration: from the working directory, beside the file, in the repository."""
    monkeypatch.chdir(tmp_path)
    config = REPOSITORY / "scripts/configs/questions.yaml"
    model, *_ = parse_arguments(ARGUMENTS, ["--config", str(config), "--output_dir", "out"])
    assert Path(model.model_name_or_path) == REPOSITORY / "model_cards/gpt-mini"
    own = tmp_path / "own"
    own.mkdir()
    (own / "tickets.csv").touch()
    values = {"task": "custom", "train_file": "tickets.csv", "data_dirs": ["trec=tickets.csv", "sst2=nowhere"]}
    (own / "own.yaml").write_text(yaml.safe_dump(values | {"model_name_or_path": "gpt2"}))
    model, data, _ = parse_arguments(ARGUMENTS, ["--config", "own/own.yaml", "--output_dir", "out"])
    assert data.train_file == "own/tickets.csv"
    assert data.data_dirs == ["trec=own/tickets.csv", "sst2=nowhere"]
    assert (data.task, model.model_name_or_path) == ("custom", "gpt2")


@pytest.mark.parametrize("written", ["tensorboard", "[tensorboard]"])
def test_settings_of_several_values_take_one(written, tmp_path):
    config = tmp_path / "own.yaml"
    config.write_text(f"report_to: {written}\ntasks: questions\n")
    _, data, training = parse_arguments(ARGUMENTS, ["--config", str(config), "--output_dir", "out"])
    assert training.report_to == ["tensorboard"]
    assert data.tasks == ["questions"]


def test_help_begins_with_what_is_needed_first(command):
    status, printed, _ = command("finetune.py", "--help")
    assert status == 0
    lines = printed.splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles[1:2] == ["Needed first:"]
    assert titles[-1] == "The Trainer's own:"
    first = lines[lines.index("Needed first:") : lines.index(titles[2])]
    names = {line.split()[0] for line in first if line.startswith("  --")}
    assert {"--task", "--model_name_or_path", "--output_dir", "--learning_rate"} <= names
    assert len(names) < 10


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


def run_finetune(log: Path, flags: list[str]) -> None:
    """The script as a process of its own, its output in a file."""
    torch.set_num_threads(1)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.argv = ["finetune.py", *flags]
        runpy.run_path(str(REPOSITORY / "scripts" / "finetune.py"), run_name="__main__")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_stopped_run_says_how_to_go_on(number, tmp_path):
    model, output = save_tiny_model(tmp_path / "model"), tmp_path / "out"
    flags = ["--task", "questions", "--model_name_or_path", str(model), "--output_dir", str(output)]
    flags += ["--max_train_rows", "200", "--max_eval_rows", "12", "--per_device_train_batch_size", "2"]
    flags += ["--num_train_epochs", "1", "--use_cpu", "true", "--disable_tqdm", "false"]
    flags += ["--save_strategy", "steps", "--eval_strategy", "steps", "--save_steps", "5", "--eval_steps", "5"]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([save_tiny_model.__module__])
    process = context.Process(target=run_finetune, args=(tmp_path / "log", flags))
    process.start()
    while process.is_alive() and not list(output.glob("checkpoint-*/trainer_state.json")):
        time.sleep(0.01)
    os.kill(process.pid, number)
    process.join(120)
    log = (tmp_path / "log").read_text()
    assert process.exitcode == 128 + number, log
    assert "Traceback" not in log
    assert log.splitlines()[-1] == (
        f"finetune.py: stopped ({number.name}). The same command with --resume_from_checkpoint last resumes from the "
        "last checkpoint."
    )
    record = finetune(*flags, "--resume_from_checkpoint", "last")
    assert (record["steps"], record["resumed"]) == (100, True)


def test_the_rate_of_the_models_card_is_proposed(tmp_path, command):
    """Where no other than the paper's was asked for."""
    flags = ("--model_name_or_path", REPOSITORY / "model_cards/gpt-mini", "--task", "none", "--output_dir", tmp_path)
    _, printed, _ = command("finetune.py", *flags)
    assert "was fine-tuned with --learning_rate 0.0005 (its card); this run takes 6.25e-05" in printed
    for more in (("--learning_rate", "1e-3"), ("--adaptation", "lora")):
        assert "its card" not in command("finetune.py", *flags, *more)[1]


def test_pretraining_resumes_and_refuses(book, tmp_path, command):
    output = tmp_path / "pretrained"
    flags = ["--text_files", book, "--tokenizer", REPOSITORY / "model_cards/gpt-mini", "--output_dir", output]
    flags += ["--n_layer", 1, "--n_embd", 32, "--n_head", 2, "--n_positions", 32, "--hold_out_every", 3]
    flags += ["--per_device_train_batch_size", 2, "--save_steps", 2, "--eval_steps", 2, "--use_cpu", "true"]
    flags += ["--validation_rows", 4, "--disable_tqdm", "true"]
    status, _, errors = command("pretrain.py", *flags, "--max_steps", 4)
    assert status == 0, errors
    record = json.loads((output / "pretraining.json").read_text())
    assert record["steps"] == 4
    assert record["tokens_seen"] == 4 * 2 * 32
    assert record["validation_perplexity"] < 20_000
    config = AutoModelForCausalLM.from_pretrained(output).config
    assert (config.use_cache, config.attn_pdrop, config.vocab_size) == (True, 0.1, 8004)

    status, _, errors = command("pretrain.py", *flags, "--max_steps", 4)
    assert status == 2
    assert "is not empty" in errors
    straight = torch.load(output / "checkpoint-4" / "optimizer.pt", weights_only=True)["state"]
    shutil.rmtree(output / "checkpoint-4")
    status, _, errors = command("pretrain.py", *flags, "--max_steps", 4, "--resume_from_checkpoint", "last")
    assert status == 0, errors
    resumed = torch.load(output / "checkpoint-4" / "optimizer.pt", weights_only=True)["state"]
    assert all(torch.equal(straight[key]["exp_avg"], resumed[key]["exp_avg"]) for key in straight)


@pytest.fixture(scope="module")
def small_pretraining(tmp_path_factory) -> list:
    """Flags of a tiny pretraining run on one small file."""
    rows = (REPOSITORY / "hf_gpt/tasks/data/stories.jsonl").read_text().splitlines()
    file = tmp_path_factory.mktemp("text") / "all.txt"
    file.write_text("\n\n".join(json.loads(row)["story"] for row in rows), encoding="utf-8")
    flags = ["--text_files", file, "--tokenizer", REPOSITORY / "model_cards/gpt-mini", "--n_layer", 1, "--n_embd", 32]
    flags += ["--n_head", 2, "--n_positions", 32, "--per_device_train_batch_size", 2, "--use_cpu", "true"]
    return [*flags, "--validation_rows", 4, "--disable_tqdm", "true", "--save_steps", 100]


def test_pretraining_on_one_file(small_pretraining, tmp_path, command):
    """Both parts come from the one file; a run that has ended inside an epoch trains no further."""
    (tmp_path / "shape.yaml").write_text("max_steps: 3\nlr_scheduler_type: constant\nwarmup_steps: 0\n")
    flags = [*small_pretraining, "--config", tmp_path / "shape.yaml", "--output_dir", tmp_path / "out"]
    status, printed, errors = command("pretrain.py", *flags)
    assert status == 0, errors
    assert "Held out: the middle 1/50 of each document (1 in all" in printed
    record = json.loads((tmp_path / "out" / "pretraining.json").read_text())
    assert record["steps"] == 3
    assert record["validation_tokens"] > 0
    # Of the special tokens, which no text holds.
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["untrained_token_ids"] == [8000, 8001, 8002]
    weights = (tmp_path / "out" / "model.safetensors").read_bytes()
    for _ in range(2):
        status, _, errors = command("pretrain.py", *flags, "--resume_from_checkpoint", "last")
        assert status == 0, errors
        again = json.loads((tmp_path / "out" / "pretraining.json").read_text())
        assert again | {"train_runtime_s": 0} == record | {"train_runtime_s": 0}
        assert (tmp_path / "out" / "model.safetensors").read_bytes() == weights
    assert [path.name for path in (tmp_path / "out").glob("checkpoint-*")] == ["checkpoint-3"]
    status, _, errors = command("pretrain.py", *flags, "--max_steps", 1, "--overwrite_output_dir")
    assert status == 0, errors
    assert [path.name for path in (tmp_path / "out").glob("checkpoint-*")] == ["checkpoint-1"]


DIVERGED = ["--max_steps", 12, "--max_grad_norm", 0, "--warmup_steps", 0, "--lr_scheduler_type", "constant"]


@pytest.mark.parametrize("flags", [[], ["--hold_out_every", 0, "--save_strategy", "no"]], ids=["saving", "the end"])
def test_pretraining_that_diverges_saves_nothing(flags, small_pretraining, tmp_path, command):
    flags = [*small_pretraining, *DIVERGED, *flags, "--learning_rate", 1e30, "--output_dir", tmp_path / "out"]
    status, _, errors = command("pretrain.py", *flags)
    assert status == 2
    assert errors.splitlines()[-1].startswith("pretrain.py: Training has diverged: ")
    assert not list((tmp_path / "out").rglob("*.safetensors"))
    assert not list((tmp_path / "out").rglob("pretraining.json"))


def test_pretraining_with_a_huge_loss(small_pretraining, tmp_path, command):
    flags = [*small_pretraining, *DIVERGED, "--learning_rate", 50, "--output_dir", tmp_path / "out"]
    status, _, errors = command("pretrain.py", *flags)
    assert status == 0, errors
    assert "far above that of guessing" in errors

    def refuse(constant):
        raise AssertionError(constant)

    record = json.loads((tmp_path / "out" / "pretraining.json").read_text(), parse_constant=refuse)
    assert record["validation_loss"] > 710
    assert record["validation_perplexity"] is None


def test_pretraining_checks_the_model_before_the_texts(small_pretraining, tmp_path, command):
    flags = [*small_pretraining, "--text_files", tmp_path / "no.txt", "--output_dir", tmp_path / "out"]
    status, _, errors = command("pretrain.py", *flags, "--n_head", 5)
    assert status == 2
    assert "n_embd (32) must be a multiple of n_head (5)" in errors


def test_pretraining_names_missing_texts(tmp_path, command):
    flags = ["--text_files", tmp_path / "no.txt", "--tokenizer", REPOSITORY / "model_cards/gpt-mini"]
    status, _, errors = command("pretrain.py", *flags, "--output_dir", tmp_path / "out", "--use_cpu", "true")
    assert status == 2
    assert "no.txt" in errors
    assert not (tmp_path / "out").exists()
