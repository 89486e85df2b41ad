"""Surprisal of words: against plain loops over the model's own logits, and the sums of other commands."""

import json
import math
import re

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, OpenAIGPTTokenizer

from hf_gpt import GPT_MINI, GPTForCausalLM, GPTTokenizer
from hf_gpt.conversion.tokenizers import write_stock_tokenizer
from hf_gpt.generation.scoring import beginning_ids
from hf_gpt.generation.surprisal import render_page, word_surprisals

from ..support.runs import REPOSITORY

# Words of several tokens, quotation marks, what ftfy and the clean-up change, and white space of all kinds.
TEXT = "\n\"She didn't go,\"  he said;\tthe café's door was open.\n\nThey ran \u2014 Tom\u2019s dog, too\u2026 \n"
WORDS = ['"She', "didn't", 'go,"', "he", "said;", "the", "café's", "door", "was", "open.", "They", "ran", "\u2014"]
WORDS += ["Tom\u2019s", "dog,", "too\u2026"]
SIZES = [2, 2, 3, 1, 2, 1, None, 1, 1, 2, 2, 1, 1, 2, 2, None]


@torch.no_grad()
def distributions(model, ids: list[int]) -> torch.Tensor:
    """Log-probabilities of what comes after each token, in bits."""
    logits = model(torch.tensor([ids])).logits[0].double()
    logits[:, sorted(model.excluded_token_ids)] = -math.inf
    return logits.log_softmax(-1) / math.log(2)


@pytest.mark.parametrize("beginning", ["paragraph", "none"])
def test_rows_are_words_as_written(loaded, beginning):
    """A newline counts with the word after it, and entropy and rank are those of the word itself."""
    model, tokenizer = loaded
    rows = word_surprisals(model, tokenizer, [("a", TEXT), ("b", ""), ("c", "They ran")], beginning, likeliest=3)
    assert [row["word"] for row in rows] == [*WORDS, "They", "ran"]
    assert [row["word_number"] for row in rows] == [*range(1, len(WORDS) + 1), 1, 2]
    assert all(TEXT[row["start"] : row["end"]] == row["word"] for row in rows[: len(WORDS)])
    assert all(size in (None, row["tokens"]) for row, size in zip(rows, SIZES, strict=False))
    given = beginning_ids(tokenizer, beginning)
    assert given == ([] if beginning == "none" else tokenizer.convert_tokens_to_ids([".</w>", "\n</w>"]))
    ids = [*given, *tokenizer(TEXT)["input_ids"]]
    found, place = distributions(model, ids), len(given)
    for row in rows[: len(WORDS)]:
        own = range(place, place + row["tokens"])
        bits = [-found[at - 1, ids[at]].item() for at in own if at]
        assert row["surprisal"] == pytest.approx(sum(bits), abs=1e-4)
        head = place + (ids[place] == tokenizer.newline_id)
        if head:
            log_probs = found[head - 1]
            entropy = -(log_probs.exp2() * log_probs).nan_to_num().sum().item()
            assert row["entropy"] == pytest.approx(entropy, abs=1e-4)
            assert row["rank"] == (log_probs > log_probs[ids[head]]).sum().item() + 1
            expected = log_probs.exp2().topk(3).values.tolist()
            assert [share for _, share in row["likeliest"]] == pytest.approx(expected, rel=1e-4)
        else:
            assert (row["entropy"], row["rank"], row["likeliest"]) == (None, None, [])
        place += row["tokens"]
    assert place == len(ids)
    assert (rows[len(WORDS)]["surprisal"] is None) == (beginning == "none")


@pytest.mark.parametrize("count", [1, 4, 100])
def test_a_fixed_window_of_words(loaded, count):
    model, tokenizer = loaded
    rows = word_surprisals(model, tokenizer, [("a", TEXT)], context_words=count)
    ids, ends = tokenizer(TEXT)["input_ids"], [0]
    for number, row in enumerate(rows):
        ends.append(ends[-1] + row["tokens"])
        first = max(number - count, 0)
        window = [*(beginning_ids(tokenizer, "paragraph") if number <= count else []), *ids[ends[first] : ends[-1]]]
        found = distributions(model, window)
        bits = [-found[at - 1, window[at]].item() for at in range(len(window) - row["tokens"], len(window))]
        assert row["surprisal"] == pytest.approx(sum(bits), abs=1e-4)


def test_long_texts_have_the_context_that_was_asked_for(loaded):
    """Windows of 64 tokens that move by 4: after the first one, each token has 60 to 63 before it."""
    model, tokenizer = loaded
    text = "yes " * 150
    rows = word_surprisals(model, tokenizer, [("a", text)], "none", context=60, unit="nats")
    ids = tokenizer(text)["input_ids"]
    for at in (1, 63, 64, 66, 70, 149):
        begin = max(0, -(-(at - 63) // 4) * 4)
        found = distributions(model, ids[begin : at + 1])
        assert rows[at]["surprisal"] == pytest.approx(-found[-2, ids[at]].item() * math.log(2), abs=1e-4)


def test_the_end_of_a_word_is_charged_to_it(stock_gpt2, loaded):
    """By hand: all words but the first begin with white space, whose mass each hands to the one before it."""
    model, tokenizer = (kind.from_pretrained(stock_gpt2) for kind in (GPTForCausalLM, GPTTokenizer))
    text = "The door was open."
    plain, own = (word_surprisals(model, tokenizer, [("a", text)], end_of_word=each) for each in (False, True))
    ids = [*beginning_ids(tokenizer, "paragraph"), *tokenizer(text)["input_ids"]]
    white = [each for each in range(len(tokenizer)) if tokenizer.decode([each])[:1].isspace()]
    mass = distributions(model, ids)[:, [*white, tokenizer.eos_token_id]].exp2().sum(1).log2().tolist()
    place = len(ids) - sum(row["tokens"] for row in plain) - 1
    for number, (before, after) in enumerate(zip(plain, own, strict=True)):
        start, place = place, place + before["tokens"]
        expected = before["surprisal"] - mass[place] + (mass[start] if number else 0)
        assert after["surprisal"] == pytest.approx(expected, abs=1e-4)
    windows = word_surprisals(model, tokenizer, [("a", text)], end_of_word=True, context_words=9)
    assert [row["surprisal"] for row in windows] == pytest.approx([row["surprisal"] for row in own], abs=1e-4)
    # A vocabulary that marks where words end has nothing to correct.
    assert word_surprisals(*loaded, [("a", TEXT)], end_of_word=True) == word_surprisals(*loaded, [("a", TEXT)])


@pytest.mark.parametrize("beginning", ["paragraph", "none"])
def test_sums_are_those_of_perplexity(beginning, read, tmp_path):
    """In files of all formats, of texts longer than the context."""
    (tmp_path / "a.txt").write_text(TEXT * 8, encoding="utf-8")
    (tmp_path / "b.txt").write_text("He slept.", encoding="utf-8")
    flags, files = ("--beginning", beginning), (tmp_path / "a.txt", tmp_path / "b.txt")
    for ending in ("tsv", "csv", "parquet", "json", "html"):
        output = tmp_path / f"out.{ending}"
        printed, _ = read("surprisal", *flags, "--text_files", *files, "--unit", "nats", "--output_file", output)
        assert "nats, " in printed
    tables = [pd.read_csv(tmp_path / "out.tsv", sep="\t"), pd.read_csv(tmp_path / "out.csv")]
    tables += [pd.read_parquet(tmp_path / "out.parquet")]
    tables += [pd.DataFrame(json.loads((tmp_path / "out.json").read_text())["words"])]
    names = ["document", "word_number", "word", "start", "end", "tokens", "surprisal", "entropy", "rank"]
    for table in tables:
        assert list(table.columns) == names
        pd.testing.assert_frame_equal(table, tables[0], check_dtype=False)
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert page.count("café&#39;s</span>") == 8
    read("perplexity", *flags, "--file", *files, "--output_file", tmp_path / "perplexity.json")
    for file, each in zip(files, json.loads((tmp_path / "perplexity.json").read_text())["texts"], strict=True):
        own = tables[0][tables[0]["document"] == str(file)]
        assert own["surprisal"].sum() == pytest.approx(-each["log_probability"], abs=1e-4)
        assert len(own) == each["words"]


def test_the_page_escapes_everything():
    evil = '"><script\tsrc="http://x.y/z">&'
    row = {"word": evil, "word_number": 1, "start": 0, "end": len(evil), "surprisal": None, "entropy": 2.0, "rank": 3}
    page = render_page(evil, [(evil, evil)], [row | {"likeliest": [(evil, 0.5)]}] * 2, "bits")
    assert ("<script" in page, page.count("&lt;script")) == (False, 11)


def test_the_exact_tokenizer_is_worth_the_bits_that_the_page_says(tmp_path):
    model = AutoModelForCausalLM.from_pretrained(GPT_MINI, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(GPT_MINI)
    write_stock_tokenizer(tokenizer, tmp_path, special_tokens=False)
    before, text = beginning_ids(tokenizer, "paragraph"), "She didn't go."
    _, word, _ = word_surprisals(model, tokenizer, [("", text)])
    start, ids = len(before) + 1, [*before, *OpenAIGPTTokenizer.from_pretrained(tmp_path)("She didn't")["input_ids"]]
    bits = distributions(model, ids)
    stock = -sum(bits[index - 1, ids[index]].item() for index in range(start, len(ids)))
    page = (REPOSITORY / "docs/surprisal.md").read_text(encoding="utf-8")
    said = re.search(rf'In "{text}" it has (\S+) bits, and with the stock tokenizer .* (\S+) bits', page)
    assert [word["surprisal"], stock] == pytest.approx([*map(float, said.groups())], abs=0.1)
