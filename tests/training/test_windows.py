"""Words and questions: passages longer than the context, read in windows, and models that read from both sides."""

import json
import shutil

import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoModelForTokenClassification, AutoTokenizer

from hf_gpt import GPTForMaskedLM, TokenTreeCollator, token_trees
from hf_gpt.tasks import load_task

from ..support.formats.question_answering import QUESTIONS, squad
from ..support.runs import evaluation, finetune, predictions

pytestmark = pytest.mark.whole

TAGS = {"Ada": "B-PER", "Lovelace": "I-PER", "Bob": "B-PER", "Rome": "B-LOC"}
SENTENCES = ["Ada Lovelace met Bob .", "Bob met Ada in Rome .", "In Rome Ada met Bob .", "Ada met Bob in Rome ."]
# One sentence is longer than the context of 64.
TEXTS = [*(f"{one} {two}" for one in SENTENCES for two in SENTENCES), " ".join(SENTENCES * 5)]
ROWS = [{"words": text.split(), "tags": [TAGS.get(word, "O") for word in text.split()]} for text in TEXTS]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Tagged words, words without tags, and twenty questions to learn, to choose by and to predict."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "new.jsonl").write_text("".join(json.dumps({"words": row["words"]}) + "\n" for row in ROWS))
    (folder / "other.jsonl").write_text('{"words": ["a"], "tags": ["X"]}\n{"words": ["b"], "tags": ["Y"]}\n')
    for name in ("train", "dev", "test"):
        (folder / f"{name}-v1.1.json").write_text(squad(QUESTIONS))
    return folder


def tagging(model, output, files, name="own", *more) -> dict:
    """A run on words; the last of repeated flags counts."""
    flags = ["--model_name_or_path", model, "--task", "custom", "--words_column", "words", "--label_column", "tags"]
    for split in ("train", "validation", "test"):
        flags += [f"--{split}_file", files / f"{name}.jsonl"]
    flags += ["--learning_rate", 1e-2, "--per_device_train_batch_size", 6, "--num_train_epochs", 4, "--dropout", 0]
    return finetune(*flags, "--output_dir", output, *more)


@pytest.fixture(scope="module")
def tagged_run(tiny_checkpoint, files, tmp_path_factory):
    output = tmp_path_factory.mktemp("tagging") / "out"
    return output, tagging(tiny_checkpoint, output, files)


@pytest.fixture(scope="module")
def answered_run(tiny_checkpoint, files, tmp_path_factory):
    output = tmp_path_factory.mktemp("answers") / "out"
    flags = ["--model_name_or_path", tiny_checkpoint, "--task", "squad", "--data_dir", files, "--output_dir", output]
    flags += ["--learning_rate", 1e-2, "--per_device_train_batch_size", 10, "--num_train_epochs", 50, "--dropout", 0]
    flags += ["--lm_coef", 0, "--eval_strategy", "no", "--save_strategy", "no", "--load_best_model_at_end", "false"]
    return output, finetune(*flags)


def test_windows_of_words_give_what_each_gives_alone(tagged_run):
    output, record = tagged_run
    assert record["metrics"]["test"]["accuracy"] > 0.8
    expected = [pair for row in ROWS for pair in zip(row["words"], row["tags"], strict=True)]
    assert [(line["word"], line["label"]) for line in predictions(output)] == expected
    model = AutoModelForTokenClassification.from_pretrained(output)
    tokenizer, words = AutoTokenizer.from_pretrained(output), ROWS[-1]["words"]
    tokens = tokenizer(words, add_special_tokens=False)["input_ids"]
    last = torch.tensor([len(ids) for ids in tokens]).cumsum(0) - 1
    flat = [token for ids in tokens for token in ids]
    length = model.config.n_positions - 2
    for end, line in zip(last.tolist(), predictions(output)[-len(words) :], strict=True):
        start = max(0, -(-(end + 1 - length) // (length // 2))) * (length // 2)
        ids = torch.tensor([[tokenizer.bos_token_id, *flat[start : end + 1]]])
        with torch.no_grad():
            label = model(ids).logits[0, -1].softmax(-1).max()
        assert float(line[f"p({line['prediction']})"]) == pytest.approx(label.item(), abs=1e-4)


def test_words_without_tags_are_predicted_and_other_tags_refused(tagged_run, files, tmp_path):
    output, _ = tagged_run
    flags = ["--model_name_or_path", output, "--task", "custom", "--words_column", "words", "--label_column", "tags"]
    flags += ["--test_file", files / "new.jsonl", "--output_dir", tmp_path / "new"]
    assert evaluation(*flags)["metrics"] == {}
    found = predictions(tmp_path / "new")
    assert [line["prediction"] for line in found] == [line["prediction"] for line in predictions(output)]
    assert not any(line["label"] for line in found)
    with pytest.raises(ValueError, match="knows the labels B-LOC, B-PER, I-PER, O, custom has X, Y"):
        tagging(output, tmp_path / "out", files, "other", "--keep_head", "true")


def test_a_masked_model_reads_both_sides_of_words(tiny_checkpoint, files, tmp_path):
    """Padding must change nothing."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint, mask_token="<mask>")
    masked = GPTForMaskedLM.from_pretrained(tiny_checkpoint, is_causal=False)
    masked.resize_token_embeddings(len(tokenizer))
    masked.config.mask_token_id = tokenizer.mask_token_id
    for part in (masked, tokenizer):
        part.save_pretrained(tmp_path / "masked")
    tagging(tmp_path / "masked", tmp_path / "out", files, "own", "--max_steps", 2)
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "out")
    assert not model.config.is_causal
    tokenizer, words = AutoTokenizer.from_pretrained(tmp_path / "out", task_template=True), ROWS[0]["words"]
    inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**inputs).logits[0].softmax(-1).max(-1).values.tolist()
    last = dict(zip(inputs.word_ids(), probabilities, strict=True))
    found = [float(line[f"p({line['prediction']})"]) for line in predictions(tmp_path / "out")[: len(words)]]
    assert found == [pytest.approx(last[number], abs=1e-4) for number in range(len(words))]


def test_windows_of_passages_give_what_each_gives_alone(answered_run, files):
    """The span that is best in one softmax over the windows of a passage, each read as a sequence of its own."""
    output, record = answered_run
    assert record["metrics"]["test"]["exact_match"] > 0.9
    model = AutoModelForQuestionAnswering.from_pretrained(output).eval()
    tokenizer, rows = AutoTokenizer.from_pretrained(output), load_task("squad", files).splits["test"]
    trees = token_trees(rows.remove_columns("label"), tokenizer, max_length=64)
    with torch.no_grad():
        together = model(**TokenTreeCollator(tokenizer.pad_token_id)(list(trees)))
    assert sum(tree["input_ids"].count(tokenizer.cls_token_id) > 1 for tree in trees) > 10
    for number, row in enumerate(rows):
        question, passage = (
            tokenizer(row[name], add_special_tokens=False)["input_ids"] for name in ("question", "passage")
        )
        begin = [tokenizer.bos_token_id, *question, tokenizer.sep_token_id]
        length = model.config.n_positions - len(begin) - 1
        for place in range(0, len(passage), 7):
            first = max(0, -(-(place + 1 - length) // (length // 2))) * (length // 2)
            with torch.no_grad():
                alone = model(torch.tensor([[*begin, *passage[first : place + 1]]]))
            found = torch.stack([together.start_logits[number, place], together.end_logits[number, place]])
            expected = torch.stack([alone.start_logits[0, -1], alone.end_logits[0, -1]])
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        assert torch.isneginf(together.start_logits[number, len(passage) :]).all()


def test_questions_without_answers_are_predicted(answered_run, files, tmp_path):
    flags = ["--model_name_or_path", answered_run[0], "--task", "squad", "--output_dir", tmp_path / "new"]
    for name in ("train", "dev"):
        shutil.copy(files / f"{name}-v1.1.json", tmp_path)
    (tmp_path / "test-v1.1.json").write_text(squad({next(iter(QUESTIONS)): {}}, one=[], two=[]))
    assert evaluation(*flags, "--data_dir", tmp_path)["metrics"] == {}
    found = [(line["id"], line["label"], bool(line["prediction"])) for line in predictions(tmp_path / "new")]
    assert found == [("one", "", True), ("two", "", True)]
    with pytest.raises(ValueError, match="no zero-shot rule for squad"):
        evaluation(*flags[:4], "--data_dir", files, "--zero_shot", "true", "--output_dir", tmp_path / "zero")
