"""Log-probabilities and perplexity of texts against plain loops, and what the commands print and write."""

import csv
import json
import math
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_gpt import GPTForCausalLM, GPTForSequenceClassification
from hf_gpt.generation import encode
from hf_gpt.generation.scoring import (
    BEGINNINGS,
    beginning_ids,
    perplexity,
    read_lines,
    read_pairs,
    score_last_words,
    score_texts,
    windows,
)
from hf_gpt.loading import open_source

from ..support.runs import REPOSITORY

CONTEXT = 24


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model(GPTForCausalLM, n_positions=CONTEXT)


def random_ids(length: int, seed: int = 0) -> list[int]:
    return torch.randint(16, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def plain_sliding_window(model, ids: list[int], context: int, stride: int) -> tuple[float, int]:
    """Negative log-likelihood and predicted tokens, by the loop of transformers' documentation."""
    total, counted, previous = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + context, len(ids))
        row = torch.tensor([ids[begin:end]])
        labels = row.clone()
        labels[:, : len(ids[begin:end]) - (end - previous)] = -100
        predicted = int((labels[:, 1:] != -100).sum())
        if predicted:
            with torch.no_grad():
                total += model(row, labels=labels).loss.item() * predicted
        counted += predicted
        previous = end
        if end == len(ids):
            break
    return total, counted


@pytest.mark.parametrize("stride", [1, 5, CONTEXT // 2])
@pytest.mark.parametrize("length", [2, CONTEXT - 1, CONTEXT, CONTEXT + 1, 3 * CONTEXT - 2, 100])
def test_perplexity_is_that_of_a_plain_loop(model, length, stride):
    ids = random_ids(length)
    total, counted = plain_sliding_window(model, ids, CONTEXT, stride)
    assert counted == length - 1
    (score,) = score_texts(model, [ids], stride, batch_size=3)
    assert score.perplexity == pytest.approx(math.exp(total / counted), rel=1e-6)


@pytest.mark.parametrize("stride", [1, 3, 4])
@pytest.mark.parametrize("length", range(12, 40))
def test_every_token_counts_once_behind_enough_context(length, stride):
    counted = [
        (place, place - begin) for begin, end, first in windows(length, 12, stride) for place in range(first, end)
    ]
    assert [place for place, _ in counted] == list(range(1, length))
    assert all(before >= 12 - stride >= stride for place, before in counted if place >= 12)
    assert all(end - begin <= 12 for begin, end, _ in windows(length, 12, stride))


def test_scores_are_the_models_own_losses(model):
    texts = [random_ids(length, seed) for seed, length in enumerate((7, 2, 20, 13, 1, 7))]
    scores = score_texts(model, texts, batch_size=2)
    for ids, score in zip(texts, scores, strict=True):
        assert score.tokens == len(ids)
        if len(ids) == 1:
            assert (score.log_probability, score.perplexity) == (0, None)
            continue
        row = torch.tensor([ids])
        with torch.no_grad():
            loss = model(row, labels=row).loss.item()
        assert score.log_probability == pytest.approx(-loss * (len(ids) - 1), abs=1e-5)
        assert score.perplexity == pytest.approx(math.exp(loss), rel=1e-5)


@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_what_texts_share_is_read_once_for_the_same_numbers(model, batch_size, monkeypatch):
    """Of neighbours, equals, beginnings of one another, texts of one token, and texts longer than the context."""
    begin = random_ids(9)
    texts = [
        [*begin[:shared], *random_ids(length, seed)] for seed, (shared, length) in enumerate([(9, 4), (5, 5)] * 4)
    ]
    texts += [begin, begin, begin[:4], begin[:1], [3, 4], [*begin, *random_ids(60)], [*begin, *random_ids(60)]]
    read = []
    forward = model.transformer.forward
    monkeypatch.setattr(
        model.transformer,
        "forward",
        lambda input_ids, **rest: read.append(input_ids.numel()) or forward(input_ids, **rest),
    )
    shared = score_texts(model, texts, batch_size=batch_size)
    tokens = sum(read)
    alone = score_texts(model, texts, batch_size=batch_size, share_prefix=False)
    assert [score.log_probability for score in shared] == pytest.approx(
        [score.log_probability for score in alone], abs=1e-4
    )
    assert tokens <= sum(read) - tokens
    if batch_size > 1:
        assert tokens < 0.9 * (sum(read) - tokens)


def test_untrained_tokens_have_no_probability(tiny_model):
    model = tiny_model(GPTForCausalLM)
    ids = random_ids(10)
    before = score_texts(model, [ids])[0].log_probability
    model.config.untrained_token_ids = sorted(set(range(16)) - set(ids))
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1]
    kept = [token for token in range(logits.shape[1]) if token not in model.excluded_token_ids]
    expected = logits[:, kept].log_softmax(-1)[range(9), [kept.index(token) for token in ids[1:]]].sum().item()
    after = score_texts(model, [ids])[0].log_probability
    assert after == pytest.approx(expected, abs=1e-5)
    assert after > before


@pytest.mark.parametrize("stride", [0, 13])
def test_strides_that_leave_too_little_context_are_refused(model, stride):
    with pytest.raises(ValueError, match=r"--stride \d+: at least 1 and at most 12, half the context"):
        score_texts(model, [random_ids(30)], stride)


def test_perplexity_of_little_and_of_much():
    assert perplexity(-5.0, 0) is None
    assert perplexity(-1e9, 1) == math.inf
    assert perplexity(-2 * math.log(7), 2) == pytest.approx(7)


PAIRS = [("She was here.", "She were here."), ("They were.", "They was.")]
JSON_PAIRS = [{"sentence_good": good, "sentence_bad": bad, "UID": "x"} for good, bad in PAIRS]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "".join(f"{good}\t{bad}\n" for good, bad in PAIRS)),
        ("a.tsv", "".join(f"{good}\t{bad}\r\n" for good, bad in [("good", "bad"), *PAIRS])),
        ("a.txt", "".join(f"{good}\t{bad}\n" for good, bad in [("sentence_good", "sentence_bad"), *PAIRS])),
        ("a.jsonl", "".join(f"{json.dumps(row)}\n" for row in JSON_PAIRS)),
    ],
    ids=["plain", "heading", "BLiMP's heading", "BLiMP"],
)
def test_minimal_pairs_are_read(tmp_path, name, text):
    (tmp_path / name).write_bytes(text.encode())
    assert read_pairs(tmp_path / name) == PAIRS


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "a\tb\nonly one\n", "line 2: a good sentence and a bad one were expected"),
        ("a.tsv", "a\tb\tc\n", "line 1"),
        ("a.tsv", "a\t \n", "line 1"),
        ("a.tsv", "good\tbad\n", "holds no pair"),
        ("a.jsonl", '{"sentence_good": "a"}\n', "line 1: there is no 'sentence_bad'"),
        ("a.jsonl", "[1]\n", "line 1"),
        ("a.jsonl", "{\n", "line 1"),
    ],
)
def test_what_is_no_pair_is_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_pairs(tmp_path / name)


def test_empty_lines_are_named(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    with pytest.raises(ValueError, match="line 2: the line is empty"):
        read_lines(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ValueError, match="the file is empty"):
        read_lines(tmp_path / "a.txt")


def test_perplexity_by_command(hf_gpt, tiny_checkpoint, tmp_path):
    """Per token and per word, of several texts together; a text longer than the context by a plain loop."""
    texts = {"a.txt": "The door was open.\nShe ran. " * 20, "b.txt": "He   slept."}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    output = tmp_path / "out" / "perplexity.json"
    flags = ("--model_name_or_path", tiny_checkpoint, "--file", tmp_path, "--stride", 20, "--output_file", output)
    status, printed, errors = hf_gpt("perplexity", *flags)
    assert status == 0, errors
    record = json.loads(output.read_text())
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint).eval()
    parts = [plain_sliding_window(model, tokenizer(text)["input_ids"], 64, 20) for text in texts.values()]
    total, tokens = (sum(column) for column in zip(*parts, strict=True))
    assert (record["predicted_tokens"], record["words"], record["stride"]) == (tokens, 122, 20)
    assert record["perplexity_per_token"] == pytest.approx(math.exp(total / tokens), rel=1e-6)
    assert record["perplexity_per_word"] == pytest.approx(math.exp(total / 122), rel=1e-5)
    assert f"perplexity per token: {record['perplexity_per_token']:.4f}" in printed
    assert [each["words"] for each in record["texts"]] == [120, 2]
    assert record["texts"][1]["perplexity_per_token"] == pytest.approx(math.exp(parts[1][0] / parts[1][1]), rel=1e-6)
    status, _, errors = hf_gpt("perplexity", *flags)
    assert status == 2
    assert "already exists" in errors
    assert hf_gpt("perplexity", *flags, "--overwrite")[0] == 0


def test_last_words(hf_gpt, tiny_checkpoint, tmp_path):
    """LAMBADA's measure, against logits of each passage alone; what is longer than the context loses its beginning."""
    passages = ["She opened the door and ran.", "He was afraid of spiders\nextemporize", "one two " * 60 + "three"]
    (tmp_path / "one.jsonl").write_text("".join(json.dumps({"passage": text}) + "\n" for text in passages[:2]))
    (tmp_path / "two.txt").write_text(f"{passages[2]}\n")
    model, tokenizer = (auto.from_pretrained(tiny_checkpoint) for auto in (AutoModelForCausalLM, AutoTokenizer))
    wanted = []
    for text in passages:
        ids = tokenizer(text.replace("\n", " "))["input_ids"][-model.config.n_positions :]
        new = tokenizer(text.split()[-1])["input_ids"]
        assert ids[-len(new) :] == new
        with torch.no_grad():
            scores = model(torch.tensor([ids])).logits[0, -len(new) - 1 : -1].log_softmax(-1)
        wanted.append((scores[range(len(new)), new].sum().item(), scores.argmax(-1).tolist() == new))
    flags = ["--model_name_or_path", tiny_checkpoint, "--file", tmp_path / "one.jsonl", tmp_path / "two.txt"]
    flags += ["--text_column", "passage", "--last_word", "--batch_size", 2, "--output_file", tmp_path / "o.json"]
    status, printed, errors = hf_gpt("perplexity", *flags)
    assert status == 0, errors
    record = json.loads((tmp_path / "o.json").read_text())
    assert [text["word"] for text in record["texts"]] == ["ran.", "extemporize", "three"]
    assert [text["log_probability"] for text in record["texts"]] == pytest.approx(
        [total for total, _ in wanted], rel=1e-5
    )
    assert record["accuracy"] == sum(right for _, right in wanted) / 3
    mean = sum(total for total, _ in wanted) / 3
    assert record["perplexity_per_word"] == pytest.approx(math.exp(-mean), rel=1e-5)
    assert "accuracy of the last word: " in printed
    (tmp_path / "two.txt").write_text("a b\nalone\n")
    status, _, errors = hf_gpt("perplexity", *flags, "--overwrite")
    assert status == 2
    assert "two.txt, line 2: there is no last word after others" in errors


def test_the_likeliest_last_word_is_right(tiny_model):
    """A model that repeats: its output matrix is the embedding, and nothing else is in a state."""
    tokenizer = AutoTokenizer.from_pretrained(REPOSITORY / "model_cards/gpt-mini")
    model = tiny_model(GPTForCausalLM, vocab_size=len(tokenizer), n_embd=32)
    ids = tokenizer("door door")["input_ids"]
    with torch.no_grad():
        for block in model.transformer.h:
            for part in (block.attn.c_proj, block.mlp.c_proj):
                part.weight.zero_(), part.bias.zero_()
        model.transformer.embed_positions.weight.zero_()
        model.transformer.embed_tokens.weight[ids[0]] *= 10
    found = score_last_words(model, tokenizer, [("a", "the door door"), ("b", "the door window")])
    assert [each.is_likeliest for each in found] == [True, False]


def test_scores_by_command(hf_gpt, tiny_checkpoint, tmp_path):
    sentences = ["The door\twas open.", "She ran."]
    model = ("--model_name_or_path", tiny_checkpoint)
    status, printed, errors = hf_gpt("score", *model, "--text", *sentences)
    assert status == 0, errors
    rows = list(csv.DictReader(printed.splitlines(), delimiter="\t"))
    assert [row["text"] for row in rows] == sentences
    (tmp_path / "sentences.txt").write_text("\n".join(sentences))
    for name in ("scores.jsonl", "scores.tsv"):
        flags = ("--file", tmp_path / "sentences.txt", "--output_file", tmp_path / name)
        assert hf_gpt("score", *model, *flags)[0] == 0
    read = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [{name: str(value) for name, value in row.items()} for row in read] == rows
    assert list(csv.DictReader((tmp_path / "scores.tsv").open(), delimiter="\t")) == rows
    assert read[1]["perplexity"] == pytest.approx(math.exp(-read[1]["log_probability"] / read[1]["tokens"]))
    without = hf_gpt("score", *model, "--text", *sentences, "--beginning", "none")[1]
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    ids = [tokenizer(text)["input_ids"] for text in sentences]
    scores = score_texts(AutoModelForCausalLM.from_pretrained(tiny_checkpoint).eval(), ids)
    for row, score in zip(csv.DictReader(without.splitlines(), delimiter="\t"), scores, strict=True):
        assert float(row["log_probability"]) == pytest.approx(score.log_probability, rel=1e-5)


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_the_first_token_counts_after_the_end_of_a_paragraph(beginning):
    """Scores tell these apart by their first words; windows of a long text are as without a beginning."""
    source = open_source(str(REPOSITORY / "model_cards/gpt-mini"))
    model, tokenizer = source.model(GPTForCausalLM), source.tokenizer()
    given = beginning_ids(tokenizer, beginning)
    assert given == ([] if beginning == "none" else tokenizer.convert_tokens_to_ids([".</w>", "\n</w>"]))
    texts = [encode(tokenizer, text) for text in ("I eat hamburger .", "Jump hamburger I .", "I eat . " * 200)]
    good, bad, long = score_texts(model, texts, given=[given] * 3, batch_size=2)
    assert len(good.log_probs) == good.tokens - (not given)
    if given:
        assert good.log_probability > bad.log_probability
    with torch.no_grad():
        for ids, score in zip(texts, (good, bad, long), strict=True):
            row = torch.tensor([[*given, *ids][:512]])
            log_probs = model(row).logits[0, :-1].log_softmax(-1).gather(1, row[0, 1:, None])[:, 0]
            expected = log_probs[max(len(given) - 1, 0) :]
            torch.testing.assert_close(score.log_probs[: len(expected)], expected, atol=1e-4, rtol=1e-4)


def test_accuracy_of_minimal_pairs_by_command(hf_gpt, tiny_checkpoint, tmp_path):
    """What is right in one order is wrong in the other, and a pair of equals is a tie."""
    good, bad = "She was here.", "She were here."
    model = ("--model_name_or_path", tiny_checkpoint)
    (tmp_path / "one.tsv").write_text(f"{good}\t{bad}\n{bad}\t{good}\n{good}\t{good}\n")
    (tmp_path / "two.jsonl").write_text(json.dumps({"sentence_good": good, "sentence_bad": good}))
    files = (tmp_path / "one.tsv", tmp_path / "two.jsonl")
    status, printed, errors = hf_gpt("score", *model, "--pairs", *files, "--output_file", tmp_path / "out.jsonl")
    assert status == 0, errors
    assert printed.splitlines()[:3] == [
        f"accuracy: 0.3333 (3 pairs, 1 ties, {files[0]})",
        f"accuracy: 0.0000 (1 pairs, 1 ties, {files[1]})",
        "accuracy: 0.2500 (4 pairs, 2 ties, all files)",
    ]
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows[0]["good_log_probability"] == pytest.approx(rows[1]["bad_log_probability"], abs=1e-5)
    assert [row["correct"] for row in rows].count(True) == 1


def test_other_forms_of_a_model_give_its_scores(hf_gpt, tiny_checkpoint, tmp_path):
    """Stock openai-gpt, and a classifier, whose transformer is the language model's."""
    assert hf_gpt("convert", tiny_checkpoint, tmp_path / "stock", "--to", "openai-gpt")[0] == 0
    GPTForSequenceClassification.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path / "classifier")
    AutoTokenizer.from_pretrained(tiny_checkpoint, task_template=True).save_pretrained(tmp_path / "classifier")
    found = []
    for folder in (tiny_checkpoint, tmp_path / "stock", tmp_path / "classifier"):
        status, printed, errors = hf_gpt("score", "--model_name_or_path", folder, "--text", "She opened the door.")
        assert status == 0, errors
        (row,) = csv.DictReader(printed.splitlines(), delimiter="\t")
        found.append((int(row["tokens"]), float(row["log_probability"])))
    assert found == [(5, pytest.approx(found[0][1], abs=1e-5))] * 3


def test_a_masked_language_model_is_refused(hf_gpt, tiny_checkpoint, tmp_path):
    """It would be given the answers."""
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "masked")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"is_causal": False}))
    for name in ("score", "perplexity", "inspect", "generate"):
        status, _, errors = hf_gpt(name, "--model_name_or_path", folder, "--text", "She ran.")
        assert status == 2
        assert "is a masked language model" in errors.splitlines()[-1]


@pytest.mark.parametrize("content", ["{", "[]", '{"num_beams": [1]}'])
def test_a_damaged_generation_config_is_named(hf_gpt, tiny_checkpoint, tmp_path, content):
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "damaged")
    (folder / "generation_config.json").write_text(content)
    status, _, errors = hf_gpt("generate", "--model_name_or_path", folder, "--text", "She ran.")
    assert (status, "generation_config.json" in errors.splitlines()[-1]) == (2, True), errors


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("score",), "Give --text, --file or --pairs."),
        (("score", "--text", "a", "--file", "b"), "Give --text, --file or --pairs, not --text and --file together."),
        (("score", "--file", "no.txt"), "No such file or directory: 'no.txt'"),
        (("score", "--text", "a", "--output_file", "a.csv"), "name a file that ends in .jsonl or .tsv"),
        (("score", "--text", "a", " "), "One --text is empty"),
        (("score", "--text", "a", "--device", "warp:9"), "--device warp:9 cannot be used"),
        (("score", "--text", "a", "--batch_size", "0"), "--batch_size 0: the number must be at least 1"),
        (("perplexity", "--text", "a", "--stride", "33"), "--stride 33: at least 1 and at most 32"),
        (("perplexity", "--text", "she", "he"), "fewer than two tokens each"),
        (("perplexity", "--file", "no.txt"), "no.txt: no such file"),
        (("perplexity", "--text", "a", "--output_file", "a.txt"), "name a file that ends in .json"),
    ],
)
def test_mistakes_are_named(hf_gpt, tiny_checkpoint, flags, message):
    name, *rest = flags
    status, _, errors = hf_gpt(name, "--model_name_or_path", tiny_checkpoint, *rest)
    assert status == 2
    assert message in errors.splitlines()[-1]
