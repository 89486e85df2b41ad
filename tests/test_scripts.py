"""The commands of `scripts/` as a user runs them."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from .golden import CARRIED

REPOSITORY = Path(__file__).resolve().parents[1]
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
    rows = (REPOSITORY / "scripts/data/stories.jsonl").read_text().splitlines()
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


def test_wrong_arguments_end_with_one_line(tmp_path, command):
    status, _, errors = command("finetune.py", "--task", "nothing", "--output_dir", tmp_path / "out")
    assert status == 2
    assert errors.startswith("finetune.py: ")
    assert errors.count("\n") == 1


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
    assert status
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
    rows = (REPOSITORY / "scripts/data/stories.jsonl").read_text().splitlines()
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
    assert status
    assert "no.txt" in errors
    assert not (tmp_path / "out").exists()
