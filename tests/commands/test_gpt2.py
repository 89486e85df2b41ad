"""Every command takes a stock GPT-2 and a converted one; those that read texts print the same for both."""

import pytest
from transformers import AutoTokenizer, pipeline

from hf_gpt import GPTForSequenceClassification, GPTTokenizer
from hf_gpt.demo import Demo

from ..support.runs import evaluation, finetune, pretraining, run_command

TEXT = "Who was the first man on the moon?"


@pytest.fixture(scope="module")
def converted_gpt2(stock_gpt2, tmp_path_factory):
    """Folder of what the stock model was converted to; tests only read it."""
    run_command("convert", stock_gpt2, folder := tmp_path_factory.mktemp("gpt2") / "converted")
    return folder


@pytest.mark.parametrize(
    "command",
    [
        *("generate --max_new_tokens 5 --text TEXT", "score --text TEXT", "surprisal --text TEXT"),
        *("perplexity --text TEXT", "extract_features --input_files FILE --output_dir OUT"),
        "evaluate_task --task stories --zero_shot --max_eval_rows 20 --output_dir OUT",
    ],
    ids=lambda command: command.split()[0],
)
def test_texts(command, stock_gpt2, converted_gpt2, tmp_path, hf_gpt):
    """A stock model and the converted one print the same, and have the same hidden states and scores."""
    (tmp_path / "a.txt").write_text(f"{TEXT}\n")
    results = []
    for name, model in (("stock", stock_gpt2), ("converted", converted_gpt2)):
        words = {"TEXT": TEXT, "FILE": tmp_path / "a.txt", "OUT": tmp_path / name}
        flags = [words.get(word, word) for word in command.split()]
        status, printed, errors = hf_gpt(*flags, "--model_name_or_path", model)
        assert status == 0, errors
        files = [file for file in (tmp_path / name).rglob("*") if file.suffix in (".parquet", ".tsv")]
        assert len(files) == ("OUT" in command)
        results.append([file.read_bytes() for file in files] or printed.replace(str(model), "MODEL"))
    assert results[0] == results[1]


@pytest.mark.whole
@pytest.mark.parametrize("adaptation", ["full", "lora"])
def test_fine_tuning(adaptation, stock_gpt2, tmp_path):
    output = tmp_path / "questions"
    flags = ["--task", "questions", "--model_name_or_path", stock_gpt2, "--adaptation", adaptation]
    flags += ["--max_train_rows", 40, "--max_eval_rows", 20]
    finetune(*flags, "--max_steps", 3, "--learning_rate", 1e-3, "--output_dir", output)
    tokenizer = AutoTokenizer.from_pretrained(output)
    assert type(tokenizer) is GPTTokenizer
    assert tokenizer.byte_level
    assert "with new rows of _start_" in (output / "README.md").read_text(encoding="utf-8")
    if adaptation == "full":
        model = GPTForSequenceClassification.from_pretrained(output)
        assert model.config.untrained_token_ids is None
        batch = tokenizer([TEXT, "Why?"], padding=True, return_tensors="pt")
        assert model.eval()(**batch).logits.shape == (2, 6)
    flags = ["--model_name_or_path", output, "--task", "questions", "--max_eval_rows", 20]
    assert evaluation(*flags, "--output_dir", tmp_path / "measured")["metrics"]


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_pretraining_continues(kind, stock_gpt2, tmp_path, capsys):
    (tmp_path / "a.txt").write_text(f"{TEXT}\n\nIt was a cat, said he.\n" * 200)
    flags = ["--text_files", tmp_path / "a.txt", "--model_name_or_path", stock_gpt2, "--max_steps", 2]
    pretraining(*flags, "--output_dir", tmp_path / "out", "--masked", kind == "masked")
    assert "with new rows of _start_" in capsys.readouterr().out
    assert AutoTokenizer.from_pretrained(tmp_path / "out").byte_level
    if kind == "masked":
        assert len(pipeline("fill-mask", model=str(tmp_path / "out"))("It was a<mask> cat.")) == 5


def test_the_page(stock_gpt2):
    assert Demo(str(stock_gpt2)).next_tokens(TEXT, 3)
