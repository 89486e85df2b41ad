"""Every command takes a stock GPT-2 and a converted one; those that read texts print the same for both."""

import json

import pytest
from transformers import AutoTokenizer

from hf_gpt import GPTForSequenceClassification, GPTTokenizer
from hf_gpt.commands.convert import ConversionArguments
from hf_gpt.commands.convert import convert as write
from hf_gpt.demo import Demo

from ..support.runs import finetune
from ..support.stock_models import save_gpt2

TEXT = "Who was the first man on the moon?"


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """Folder of a stock model and of what it was converted to; tests only read them."""
    folder = tmp_path_factory.mktemp("gpt2")
    save_gpt2(folder / "stock")
    write(str(folder / "stock"), folder / "converted", ConversionArguments())
    return folder


@pytest.mark.parametrize("command", ["generate --max_new_tokens 5", "score", "surprisal", "perplexity", "features"])
def test_texts(command, gpt2, tmp_path, hf_gpt):
    """A stock model and the converted one print the same, and have the same hidden states."""
    (tmp_path / "a.txt").write_text(f"{TEXT}\n")
    results = []
    for name in ("stock", "converted"):
        output = tmp_path / name
        words = [*command.split(), "--text", TEXT]
        if command == "features":
            words = ["extract_features", "--input_files", tmp_path / "a.txt", "--output_dir", output]
        status, printed, errors = hf_gpt(*words, "--model_name_or_path", gpt2 / name)
        assert status == 0, errors
        arrays = [path.read_bytes() for path in sorted(output.rglob("*.parquet"))]
        assert bool(arrays) == (command == "features")
        results.append(arrays or printed.replace(str(gpt2 / name), "MODEL"))
    assert results[0] == results[1]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("source", "adaptation"), [("stock", "full"), ("stock", "lora"), ("converted", "lora"), ("converted", "frozen")]
)
def test_fine_tuning(source, adaptation, gpt2, tmp_path, hf_gpt):
    output = tmp_path / "questions"
    flags = ["--task", "questions", "--model_name_or_path", gpt2 / source, "--adaptation", adaptation]
    finetune(*flags, "--max_steps", 3, "--learning_rate", 1e-3, "--output_dir", output)
    tokenizer = AutoTokenizer.from_pretrained(output)
    assert type(tokenizer) is GPTTokenizer
    assert tokenizer.byte_level
    card = (output / "README.md").read_text(encoding="utf-8")
    assert ("with new rows of _start_" in card) == (source == "stock")
    if adaptation == "full":
        model = GPTForSequenceClassification.from_pretrained(output)
        assert model.config.untrained_token_ids is None
        batch = tokenizer([TEXT, "Why?"], padding=True, return_tensors="pt")
        assert model.eval()(**batch).logits.shape == (2, 6)
    status, _, errors = hf_gpt(
        "evaluate_task", "--model_name_or_path", output, "--task", "questions", "--output_dir", tmp_path / "measured"
    )
    assert status == 0, errors
    assert json.loads((tmp_path / "measured" / "metrics.json").read_text())


def test_zero_shot(gpt2, tmp_path, hf_gpt):
    flags = ["--task", "stories", "--zero_shot", "true", "--output_dir", tmp_path / "out"]
    flags += ["--split", "validation", "--model_name_or_path", gpt2 / "stock"]
    status, _, errors = hf_gpt("evaluate_task", *flags)
    assert status == 0, errors


@pytest.mark.whole
def test_pretraining_continues(gpt2, tmp_path, hf_gpt):
    (tmp_path / "a.txt").write_text(f"{TEXT}\n\nIt was a cat, said he.\n" * 200)
    flags = ["--text_files", tmp_path / "a.txt", "--model_name_or_path", gpt2 / "stock", "--max_steps", 2]
    flags += ["--per_device_train_batch_size", 2, "--use_cpu", "true", "--output_dir", tmp_path / "out"]
    status, out, errors = hf_gpt("pretrain", *flags)
    assert status == 0, errors
    assert "with new rows of _start_" in out
    assert AutoTokenizer.from_pretrained(tmp_path / "out").byte_level


def test_the_page(gpt2):
    page = Demo(str(gpt2 / "stock"))
    assert page.next_tokens(TEXT, 3)
