"""Fine-tuning on the labels of words, from rows to predictions, in every way in which a model is trained."""

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForTokenClassification, AutoTokenizer, pipeline

from hf_gpt import GPTForMaskedLM
from hf_gpt.commands import parse_arguments
from hf_gpt.evaluation import EvaluationArguments, evaluate
from hf_gpt.training.arguments import DataArguments, ModelArguments

from ..support.runs import finetune, predictions, training_lines
from ..support.stock_models import save_gpt2
from ..support.task_files import jsonl

pytestmark = pytest.mark.whole

WORDS = {"Ada": "B-PER", "Lovelace": "I-PER", "met": "O", "Bob": "B-PER", "in": "O", "Rome": "B-LOC", ".": "O"}
SENTENCES = ["Ada Lovelace met Bob .", "Bob met Ada in Rome .", "In Rome Ada met Bob .", "Ada met Bob in Rome ."]
# One sentence is longer than the context of 64.
TEXTS = [*(f"{one} {two}" for one in SENTENCES for two in SENTENCES), " ".join(SENTENCES * 5)]
ROWS = [
    {"words": text.split(), "tags": [{"In": "O"}.get(word) or WORDS[word] for word in text.split()]} for text in TEXTS
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    (folder / "own.jsonl").write_text(jsonl(*ROWS))
    (folder / "new.jsonl").write_text(jsonl(*({"words": row["words"]} for row in ROWS)))
    return folder


def flags_of(model, files, output):
    own = files / "own.jsonl"
    return [
        *("--model_name_or_path", model, "--task", "custom", "--words_column", "words", "--label_column", "tags"),
        *("--train_file", own, "--validation_file", own, "--test_file", own, "--output_dir", output),
        *("--learning_rate", 1e-2, "--per_device_train_batch_size", 6, "--num_train_epochs", 4, "--dropout", 0),
    ]


@pytest.fixture(scope="module")
def tagged_run(tiny_checkpoint, files, tmp_path_factory):
    output = tmp_path_factory.mktemp("tagging") / "out"
    return output, finetune(*flags_of(tiny_checkpoint, files, output))


def test_output_of_a_run(tagged_run):
    output, record = tagged_run
    assert list(record["metrics"]["test"]) == ["entity_f1", "entity_precision", "entity_recall", "accuracy"]
    assert record["main_metric"] == "entity_f1"
    assert record["metrics"]["test"]["accuracy"] > 0.8
    lines = predictions(output)
    assert [line["word"] for line in lines] == [word for row in ROWS for word in row["words"]]
    assert [line["label"] for line in lines] == [tag for row in ROWS for tag in row["tags"]]
    right = sum(line["label"] == line["prediction"] for line in lines) / len(lines)
    assert right == pytest.approx(record["metrics"]["test"]["accuracy"])
    for line in training_lines(output / f"checkpoint-{record['steps']}"):
        assert line[0] == pytest.approx(line[1] + 0.5 * line[2], abs=1e-4)
    card = ModelCard.load(output / "README.md")
    assert card.data.pipeline_tag == "token-classification"
    assert {result.metric_type for result in card.data.eval_results} == {"seqeval", "accuracy"}


def test_the_card_and_the_pipeline_give_the_predictions(tagged_run, capsys):
    """As long as a sentence fits: the code of the card, and the pipeline at the last tokens of words."""
    output, _ = tagged_run
    first = predictions(output)[: len(ROWS[0]["words"])]
    code = ModelCard.load(output / "README.md").text.split("```python\n")[1].split("```")[0]
    code = code.replace('["It", "rained", "in", "Paris", "."]', repr(ROWS[0]["words"]))
    exec(code.replace('folder = "."', f"folder = {str(output)!r}"), {})
    shown = capsys.readouterr().out.strip()
    assert shown == str([(line["word"], line["prediction"]) for line in first])
    text = " ".join(ROWS[0]["words"])
    ends = {len(" ".join(ROWS[0]["words"][: count + 1])): line for count, line in enumerate(first)}
    tagger = pipeline("token-classification", model=str(output), device="cpu", ignore_labels=[])
    found = {token["end"]: token["entity"] for token in tagger(text)}
    assert {end: found[end] for end in ends} == {end: line["prediction"] for end, line in ends.items()}


def test_windows_give_what_each_gives_alone(tagged_run):
    output, _ = tagged_run
    model = AutoModelForTokenClassification.from_pretrained(output)
    tokenizer = AutoTokenizer.from_pretrained(output)
    words = ROWS[-1]["words"]
    tokens = tokenizer(words, add_special_tokens=False)["input_ids"]
    last = torch.tensor([len(ids) for ids in tokens]).cumsum(0) - 1
    flat = [token for ids in tokens for token in ids]
    room = model.config.n_positions - 2
    long = predictions(output)[-len(words) :]
    for end, line in zip(last.tolist(), long, strict=True):
        start = max(0, -(-(end + 1 - room) // (room // 2))) * (room // 2)
        ids = torch.tensor([[tokenizer.bos_token_id, *flat[start : end + 1]]])
        with torch.no_grad():
            label = model(ids).logits[0, -1].softmax(-1).max()
        assert float(line[f"p({line['prediction']})"]) == pytest.approx(label.item(), abs=1e-4)


def test_finished_models_are_measured_and_predict(tagged_run, files, tmp_path):
    output, record = tagged_run
    arguments = (ModelArguments, DataArguments, EvaluationArguments)
    flags = ["--model_name_or_path", output, "--task", "custom", "--words_column", "words", "--label_column", "tags"]
    flags += ["--use_cpu", "true", "--disable_tqdm", "true"]

    def measured(name):
        more = ["--test_file", files / name, "--output_dir", tmp_path / name]
        return evaluate(*parse_arguments(arguments, list(map(str, [*flags, *more]))))["metrics"]

    assert measured("own.jsonl") == pytest.approx(record["metrics"]["test"])
    assert measured("new.jsonl") == {}
    found = predictions(tmp_path / "new.jsonl")
    assert [line["prediction"] for line in found] == [line["prediction"] for line in predictions(output)]
    assert not any(line["label"] for line in found)


def test_a_head_of_other_labels_is_refused(tagged_run, files, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(jsonl({"words": ["a"], "tags": ["X"]}, {"words": ["b"], "tags": ["Y"]}))
    flags = [*flags_of(tagged_run[0], files, tmp_path / "out"), "--keep_head", "true"]
    for split in ("train", "validation", "test"):
        flags += [f"--{split}_file", other]
    with pytest.raises(ValueError, match="knows the labels B-LOC, B-PER, I-PER, O, custom has X, Y"):
        finetune(*flags)


def test_a_model_that_reads_both_sides(tiny_checkpoint, files, tmp_path):
    """A word's label depends on the words behind it, and padding changes nothing."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint, mask_token="<mask>")
    masked = GPTForMaskedLM.from_pretrained(tiny_checkpoint, is_causal=False)
    masked.resize_token_embeddings(len(tokenizer))
    masked.config.mask_token_id = tokenizer.mask_token_id
    for part in (masked, tokenizer):
        part.save_pretrained(tmp_path / "masked")
    finetune(*flags_of(tmp_path / "masked", files, tmp_path / "out"), "--max_steps", 2)
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "out")
    assert not model.config.is_causal
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out", task_template=True)
    inputs = tokenizer(ROWS[0]["words"], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits[0].softmax(-1).max(-1).values.tolist()
    last = dict(zip(inputs.word_ids(), logits, strict=True))
    lines = predictions(tmp_path / "out")[: len(ROWS[0]["words"])]
    found = [float(line[f"p({line['prediction']})"]) for line in lines]
    assert found == [pytest.approx(last[number], abs=1e-4) for number in range(len(lines))]


def test_words_of_a_gpt2(files, tmp_path):
    """They are tokenized as its tokenizer does given words: all but the first behind a space."""
    save_gpt2(tmp_path / "gpt2")
    finetune(*flags_of(tmp_path / "gpt2", files, tmp_path / "out"), "--max_steps", 2)
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = tokenizer(ROWS[0]["words"][:5], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**inputs).logits[0].softmax(-1).max(-1).values.tolist()
    last = dict(zip(inputs.word_ids(), probabilities, strict=True))
    lines = predictions(tmp_path / "out")[:5]
    found = [float(line[f"p({line['prediction']})"]) for line in lines]
    assert found == [pytest.approx(last[number], abs=1e-4) for number in range(5)]
