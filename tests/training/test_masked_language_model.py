"""A masked language model by the commands: pretrained from each start, fine-tuned, evaluated."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
)

from hf_gpt import GPTForMaskedLM
from hf_gpt.cards import FineTunedCard
from hf_gpt.training.language_model import masked_word_accuracy
from hf_gpt.training.packing import packed_dataset
from hf_gpt.trees.collators import MaskedRows

from ..support.runs import REPOSITORY, evaluation, finetune, predictions, pretraining
from ..support.stock_models import save_gpt2

pytestmark = pytest.mark.whole
MINI = REPOSITORY / "model_cards" / "gpt-mini"
SHAPE = ["--n_layer", 1, "--n_embd", 32, "--n_head", 2, "--n_positions", 128, "--tokenizer", MINI]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Flags of texts to train on, and of texts to measure."""
    folder = tmp_path_factory.mktemp("texts")
    rows = (REPOSITORY / "hf_gpt/tasks/data/stories.jsonl").read_text().splitlines()
    stories = [json.loads(row)["story"] for row in rows[:80]]
    (folder / "train.txt").write_text("\n\n".join(stories[:60]))
    (folder / "valid.jsonl").write_text("".join(json.dumps({"text": story}) + "\n" for story in stories[60:]))
    flags = ["--masked", "--text_files", folder / "train.txt", "--validation_files", folder / "valid.jsonl"]
    return [*flags, "--row_length", 64]


@pytest.fixture(scope="module")
def pretrained(files, tmp_path_factory):
    output = tmp_path_factory.mktemp("masked") / "out"
    flags = [*SHAPE, "--max_steps", 30, "--learning_rate", 1e-2, "--warmup_steps", 0, "--output_dir", output]
    record = pretraining(*files, *flags, "--eval_strategy", "steps", "--eval_steps", 1)
    return output, record


def test_words_that_are_guessed_whole():
    rows = MaskedRows([], np.array([False, True, True]), np.arange(3), 3)
    labels = np.array([[0, 1, 2, -100, 0], [-100, 0, 1, 1, -100]])
    guesses = np.array([[0, 1, 1, 0, 0], [1, 1, 1, 1, 2]])
    # Words: (0 1), (2), (0) that continues in the next row; (0 1), (1).
    assert masked_word_accuracy(guesses, labels, rows) == 3 / 5
    assert masked_word_accuracy(labels, labels, rows) == 1


def test_from_random_weights(pretrained, files):
    output, record = pretrained
    assert record == json.loads((output / "pretraining.json").read_text())
    assert record["start"] == "random weights"
    assert record["validation_masked_perplexity"] < 2000
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(output), AutoTokenizer.from_pretrained(output)
    assert (type(model), model.config.is_causal, model.config.mask_token_id) == (GPTForMaskedLM, False, 8004)
    assert (tokenizer.mask_token, len(tokenizer), model.config.vocab_size) == ("<mask>", 8005, 8005)
    assert (FineTunedCard.load(output).name, FineTunedCard.load(output).base_model) == (output.name, "")
    assert len(pipeline("fill-mask", model=str(output))("She opened the <mask> and ran.")) == 5
    # What was evaluated, by a plain loop over the rows.
    rows = packed_dataset([str(files[4])], tokenizer, 64)
    rows = MaskedRows.of(rows.select(np.linspace(0, len(rows), 5, endpoint=False).astype(int)), tokenizer)
    losses, right = [], []
    for row in map(rows.__getitem__, range(5)):
        pieces = torch.tensor(row["input_ids"]).tensor_split(row["starts"][1:])
        with torch.no_grad():
            logits = torch.cat([model(piece[None]).logits[0] for piece in pieces])
        labels = torch.tensor(row["labels"])
        losses.append(torch.nn.functional.cross_entropy(logits, labels).item())
        right.append(masked_word_accuracy(logits.argmax(-1).numpy()[None], labels.numpy()[None], rows))
    assert record["validation_masked_perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-4)
    assert record["validation_masked_word_accuracy"] == pytest.approx(np.mean(right), abs=0.1)


def test_pretraining_continues(pretrained, files, tmp_path):
    flags = ["--model_name_or_path", pretrained[0], "--learning_rate", 0, "--output_dir", tmp_path / "o"]
    record = pretraining(*files, *flags)
    assert record["start"] == f"{pretrained[0]}, an hf_gpt model"
    for name in ("masked_perplexity", "masked_word_accuracy"):
        before = record[f"validation_{name}_before"]
        assert record[f"validation_{name}"] == before == pretrained[1][f"validation_{name}"]
    before, after = (load_file(folder / "model.safetensors") for folder in (pretrained[0], tmp_path / "o"))
    assert all(torch.equal(after[name], value) for name, value in before.items())
    card = FineTunedCard.load(tmp_path / "o")
    assert (card.family, card.auto_class) == ("masked-language-model", "AutoModelForMaskedLM")
    assert card.metrics["validation"].keys() == {"masked_perplexity", "masked_word_accuracy"}
    # It is no causal one.
    with pytest.raises(ValueError, match="is a masked language model"):
        pretraining(*files[1:], "--model_name_or_path", tmp_path / "o", "--output_dir", tmp_path / "p")
    flags = ["--model_name_or_path", tmp_path / "o", "--task", "stories", "--zero_shot"]
    with pytest.raises(ValueError, match="is a masked language model"):
        evaluation(*flags, "--output_dir", tmp_path / "e")


def test_from_a_causal_model(tiny_checkpoint, files, tmp_path):
    """Its weights stay; the mask gets a row."""
    flags = ["--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "o"]
    pretraining(*files, *flags, "--learning_rate", 0)
    found, wanted = (load_file(folder / "model.safetensors") for folder in (tmp_path / "o", tiny_checkpoint))
    rows = "transformer.embed_tokens.weight"
    assert (len(found[rows]), len(wanted[rows])) == (8005, 8004)
    assert torch.equal(found.pop(rows)[:8004], wanted.pop(rows))
    assert all(torch.equal(found[name], value) for name, value in wanted.items())


def test_from_gpt2(files, tmp_path):
    """Without end marks: whole words are hidden as letters and spaces tell them."""
    save_gpt2(tmp_path / "gpt2", n_positions=64)
    flags = ["--model_name_or_path", tmp_path / "gpt2", "--output_dir", tmp_path / "o", "--max_steps", 20]
    record = pretraining(*files, *flags, "--learning_rate", 1e-2, "--warmup_steps", 0)
    assert record["validation_masked_perplexity"] < record["validation_masked_perplexity_before"] / 2
    assert len(pipeline("fill-mask", model=str(tmp_path / "o"))("She opened the<mask> and ran.")) == 5


@pytest.mark.parametrize(
    ("task", "flags"), [("questions", []), ("stories", []), ("stories", ["--adaptation", "frozen"])]
)
def test_fine_tuned_numbers_are_those_of_each_sequence_alone(task, flags, pretrained, tmp_path, capsys):
    rows = ["--max_train_rows", 24, "--max_eval_rows", 12, "--per_device_train_batch_size", 8]
    start = ["--model_name_or_path", pretrained[0], "--task", task, "--output_dir", tmp_path / "o"]
    record = finetune(*start, *rows, "--learning_rate", 1e-3, *flags)
    printed = capsys.readouterr().out
    assert "(lm_coef 0, not 0.5): the model reads from both sides" in printed
    assert record["starts_from"] == "GPTForMaskedLM; the head is newly initialized"
    auto = AutoModelForMultipleChoice if task == "stories" else AutoModelForSequenceClassification
    model, tokenizer = auto.from_pretrained(tmp_path / "o"), AutoTokenizer.from_pretrained(tmp_path / "o")
    assert (model.config.is_causal, model.config.lm_coef) == (False, 0)
    lines = (REPOSITORY / f"hf_gpt/tasks/data/{task}.jsonl").read_text().splitlines()
    rows = {str(row["id"]): row for row in map(json.loads, lines)}
    for found in predictions(tmp_path / "o")[:5]:
        row = rows[found["id"]]
        texts = [(row["story"], row[f"ending{n}"]) for n in "12"] if task == "stories" else [(row["text"],)]
        alone = [tokenizer(*text, return_tensors="pt")["input_ids"] for text in texts]
        logits = torch.cat([model(ids[None] if task == "stories" else ids).logits for ids in alone], dim=-1)
        values = [float(value) for name, value in found.items() if name.startswith("p(")]
        assert values == pytest.approx(logits.softmax(-1)[0].tolist(), abs=1e-4)
    # Evaluated again, it is what it was.
    flags = ["--model_name_or_path", tmp_path / "o", "--task", task, "--max_eval_rows", 12]
    again = evaluation(*flags, "--output_dir", tmp_path / "e")
    assert again["metrics"] == pytest.approx(record["metrics"]["test"])
