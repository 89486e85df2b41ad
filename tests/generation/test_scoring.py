"""Log-probabilities of tokens against plain loops and the model's own logits; what the commands print and write."""

import csv
import json
import math
import shutil

import pytest
import torch

from hf_gpt import GPTForCausalLM
from hf_gpt.generation.scoring import read_lines, read_pairs, score_last_words, score_texts

from ..support.tiny import MULTIPLIES

CONTEXT = 24
TEXT = "She opened the door and ran.\nHe slept."


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model(GPTForCausalLM, n_positions=CONTEXT, untrained_token_ids=[16, 17])


def random_ids(length: int, seed: int = 0) -> list[int]:
    return torch.randint(16, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@torch.no_grad()
def plain(model, ids: list[int], context: int, stride: int) -> list[float]:
    """Log-probability of each token but the first, by the loop of transformers' documentation, of trained tokens."""
    found, begin = [], 0
    while len(found) < len(ids) - 1:
        row = torch.tensor(ids[begin : begin + context])
        logits = model(row[None]).logits[0, :-1]
        logits[:, sorted(model.excluded_token_ids)] = -math.inf
        log_probs = logits.log_softmax(-1).gather(1, row[1:, None])[:, 0].tolist()
        found += log_probs[len(found) - begin :]
        begin += stride
    return found


@pytest.mark.parametrize("stride", [1, 5, CONTEXT // 2])
@pytest.mark.parametrize("length", [4, CONTEXT, CONTEXT + 1, 100])
@pytest.mark.parametrize("given", [0, 1, 3])
def test_tokens_are_those_of_a_plain_loop(model, length, stride, given):
    ids = random_ids(length)
    (score,) = score_texts(model, [ids[given:]], stride, batch_size=3, given=[ids[:given]], likeliest=1)
    counted = plain(model, ids, CONTEXT, stride)[max(given - 1, 0) :]
    assert score.log_probs.tolist() == pytest.approx(counted, abs=1e-5)
    assert score.tokens == length - given
    assert ((score.likeliest_log_probs[:, 0] == score.log_probs) == (score.ranks == 1)).all()


@pytest.mark.parametrize("batch_size", [1, 3, 50])
@pytest.mark.parametrize("given", [None, (3, 5)])
def test_what_texts_share_is_read_once_for_the_same_numbers(model, batch_size, given, monkeypatch):
    """Of neighbours, equals, beginnings of one another, texts of one token, and texts longer than the context."""
    begin, shapes = random_ids(9), [(9, 4), (5, 5)] * 4
    texts = [[*begin[:shared], *random_ids(length, seed)] for seed, (shared, length) in enumerate(shapes)]
    texts += [begin, begin, begin[:4], begin[:1], [3, 4], *[[*begin, *random_ids(60)]] * 2]
    read, forward = [], model.transformer.forward

    def counted(input_ids, **rest):
        read.append(input_ids.numel())
        return forward(input_ids, **rest)

    monkeypatch.setattr(model.transformer, "forward", counted)
    settings = {"batch_size": batch_size, "given": given and [given] * len(texts)}
    shared, tokens = score_texts(model, texts, **settings), sum(read)
    for text, score in zip(texts, shared, strict=True):
        (alone,) = score_texts(model, [text], given=given and [given])
        torch.testing.assert_close(score.log_probs, alone.log_probs, atol=1e-4, rtol=0)
    # Padding is part of them, and most of a batch of everything.
    assert batch_size == 50 or tokens <= (1.0 if batch_size == 1 else 0.9) * (sum(read) - tokens)


PAIRS = [("She was here.", "She were here."), ("They were.", "They was.")]
JSON_LINES = "".join(json.dumps({"sentence_good": good, "sentence_bad": bad}) + "\n" for good, bad in PAIRS)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.jsonl", JSON_LINES.replace("\n", "\r\n"), [(*pair, "a") for pair in PAIRS]),
        ("a.jsonl", "", "a.jsonl"),
        ("a.jsonl", '{"sentence_good": "a"}\n', "a.jsonl, line 1"),
        ("a.jsonl", "[1]\n", "a.jsonl, line 1"),
        ("lines.txt", "One.\nTwo.", ["One.", "Two."]),
        ("lines.txt", "", "lines.txt, line 1"),
        ("lines.txt", "One.\n\n", "lines.txt, line 2"),
    ],
)
def test_files_of_sentences(tmp_path, name, text, expected):
    (tmp_path / name).write_bytes(text.encode())
    read = read_lines if name == "lines.txt" else read_pairs
    if isinstance(expected, list):
        assert read(tmp_path / name) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            read(tmp_path / name)


def test_perplexity_by_command(read, loaded, tmp_path):
    texts = {"a.txt": "She opened the door and ran. " * 20, "b.txt": "He slept."}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    output = tmp_path / "out" / "perplexity.json"
    flags = ("--file", tmp_path, "--stride", 20, "--output_file", output)
    printed, _ = read("perplexity", *flags)
    record, (model, tokenizer) = json.loads(output.read_text()), loaded
    parts = [plain(model, tokenizer(text)["input_ids"], 64, 20) for text in texts.values()]
    total, tokens = sum(map(sum, parts)), sum(map(len, parts))
    assert (record["predicted_tokens"], record["words"], record["stride"]) == (tokens, 122, 20)
    assert record["perplexity_per_token"] == pytest.approx(math.exp(-total / tokens), rel=1e-5)
    assert record["perplexity_per_word"] == pytest.approx(math.exp(-total / 122), rel=1e-5)
    sizes = {"character": sum(map(len, texts.values())), "byte": sum(len(text.encode()) for text in texts.values())}
    for unit, size in sizes.items():
        assert record[f"bits_per_{unit}"] == pytest.approx(-total / math.log(2) / size, rel=1e-5)
    assert f"perplexity per token: {record['perplexity_per_token']:.4f}" in printed
    assert [each["words"] for each in record["texts"]] == [120, 2]
    read("perplexity", *flags, "--overwrite", "--beginning", "paragraph", "--pack", "none")
    again = json.loads(output.read_text())
    assert (again["predicted_tokens"], again["pack"]) == (tokens + 2, "none")
    if not MULTIPLIES["bfloat16"]:
        pytest.skip("this CPU has no instructions for packed bfloat16")
    read("perplexity", *flags, "--overwrite", "--pack", "bfloat16")
    packed, per_token = json.loads(output.read_text()), record["perplexity_per_token"]
    assert packed["pack"] == "bfloat16"
    assert per_token != packed["perplexity_per_token"] == pytest.approx(per_token, rel=0.02)


def test_last_words(read, loaded, tmp_path):
    """LAMBADA's measure, against logits of each passage alone; what is longer than the context loses its beginning."""
    passages = ["She opened the door and ran.", "He was afraid of spiders\nextemporize", "one two " * 60 + "three"]
    (tmp_path / "one.jsonl").write_text("".join(json.dumps({"passage": text}) + "\n" for text in passages[:2]))
    (tmp_path / "two.txt").write_text(f"{passages[2]}\n")
    (model, tokenizer), wanted = loaded, []
    for text in passages:
        ids = tokenizer(text.replace("\n", " "))["input_ids"][-model.config.n_positions :]
        new = tokenizer(text.split()[-1])["input_ids"]
        with torch.no_grad():
            scores = model(torch.tensor([ids])).logits[0, -len(new) - 1 : -1].log_softmax(-1)
        wanted.append((scores[range(len(new)), new].sum().item(), scores.argmax(-1).tolist() == new))
    flags = ("--text_column", "passage", "--last_word", "--batch_size", 2, "--output_file", tmp_path / "o.json")
    read("perplexity", "--file", tmp_path / "one.jsonl", tmp_path / "two.txt", *flags)
    record = json.loads((tmp_path / "o.json").read_text())
    assert [text["word"] for text in record["texts"]] == ["ran.", "extemporize", "three"]
    for text, (log_probability, is_likeliest) in zip(record["texts"], wanted, strict=True):
        assert text["log_probability"] == pytest.approx(log_probability, abs=1e-4)
        assert text["is_likeliest"] == is_likeliest
    assert record["perplexity_per_word"] == pytest.approx(math.exp(-sum(each for each, _ in wanted) / 3), rel=1e-4)
    with pytest.raises(ValueError, match="a: there is no last word"):
        score_last_words(model, tokenizer, [("a", "alone")])


def test_scores_by_command(read, tmp_path):
    sentences = ["The door\twas open.", "She ran."]
    printed, _ = read("score", "--text", *sentences)
    rows = list(csv.DictReader(printed.splitlines(), delimiter="\t"))
    assert [row["text"] for row in rows] == sentences
    (tmp_path / "a.txt").write_text("\n".join(sentences))
    read("score", "--file", tmp_path / "a.txt", "--output_file", tmp_path / "scores.jsonl")
    read = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [{name: str(value) for name, value in row.items()} for row in read] == rows
    assert read[1]["perplexity"] == pytest.approx(math.exp(-read[1]["log_probability"] / read[1]["tokens"]))


def test_accuracy_of_minimal_pairs_by_command(read, tmp_path):
    """What is right in one order is wrong in the other, and a pair of equals is a tie."""
    good, bad = PAIRS[0]
    files = (tmp_path / "one.jsonl", tmp_path / "two.jsonl")
    for file, pairs in zip(files, ([(good, bad), (bad, good), (good, good)], [(good, good)]), strict=True):
        file.write_text("".join(json.dumps({"sentence_good": a, "sentence_bad": b}) + "\n" for a, b in pairs))
    printed, _ = read("score", "--pairs", *files, "--output_file", tmp_path / "out.jsonl")
    assert printed.splitlines()[:3] == [
        f"accuracy: 0.3333 (3 pairs, 1 ties, {files[0]})",
        f"accuracy: 0.0000 (1 pairs, 1 ties, {files[1]})",
        "accuracy: 0.2500 (4 pairs, 2 ties, all files)",
    ]
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows[0]["good_log_probability"] == pytest.approx(rows[1]["bad_log_probability"], abs=1e-5)
    assert [row["correct"] for row in rows].count(True) == 1


@pytest.mark.parametrize("command", ["score", "generate"])
@pytest.mark.parametrize(
    ("name", "settings"),
    # A masked model would be given the answers.
    [("config.json", {"is_causal": False}), ("generation_config.json", {"max_new_tokens": 0})],
)
def test_models_that_are_refused(hf_gpt, tiny_checkpoint, tmp_path, command, name, settings):
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "model")
    (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | settings))
    status, _, errors = hf_gpt(command, "--model_name_or_path", folder, "--text", "She ran.")
    assert (status, str(folder) in errors.splitlines()[-1]) == (2, True), errors


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("score", "Give one of --text, --file, --pairs"),
        ("score --text a --file b", "Give one of --text, --file, --pairs"),
        ("score --file no.txt", "no.txt"),
        ("score --text a --output_file a.csv", "--output_file a.csv"),
        ("score --text a --output_file there.jsonl", "already exists"),
        ("score --text a --device warp:9", "--device warp:9"),
        ("score --text a --batch_size 0", "--batch_size 0"),
        ("perplexity --text a --stride 33", "--stride 33"),
        ("perplexity --text she he", "fewer than two tokens"),
        ("surprisal --text She --beginning none", "fewer than two tokens"),
        ("surprisal --text \u00a0", "fewer than two tokens"),
        ("surprisal --text a --text_files b.txt", "Give one of --text, --text_files"),
        ("surprisal --text a --output_file a.xlsx", "--output_file a.xlsx"),
        ("surprisal --text a --context 64", "--context 64"),
        ("surprisal --text a --context_words 0", "--context_words 0"),
        ("surprisal --text a --context 40 --context_words 3", "--context"),
        ("generate", "Give one of --text, --file"),
        ("generate --text she --top_p 2", "top-p 2.0"),
        ("generate --compare human.txt --passages 5000", "5000 passages"),
        ("generate --compare no.txt", "no.txt"),
        ("generate --text \u00a0", "no token"),
    ],
)
def test_mistakes_are_named(hf_gpt, tiny_checkpoint, tmp_path, monkeypatch, command, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.jsonl").touch()
    (tmp_path / "human.txt").write_text("The door was open, and she ran. " * 60)
    status, _, errors = hf_gpt(*command.split(" "), "--model_name_or_path", tiny_checkpoint)
    assert (status, message in errors.splitlines()[-1]) == (2, True), errors
