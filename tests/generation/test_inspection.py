"""What was expected at each position, against the model's own logits; the table, the JSON and the page."""

import json
import math
from html.parser import HTMLParser

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_gpt.generation.inspection import NextToken, Position, inspect, render_page
from hf_gpt.generation.scoring import score_texts

TEXT = "She opened the door and ran.\nHe slept."


@pytest.fixture(scope="module")
def model(tiny_checkpoint):
    return AutoModelForCausalLM.from_pretrained(tiny_checkpoint).eval()


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint):
    return AutoTokenizer.from_pretrained(tiny_checkpoint)


def test_positions_are_those_of_the_logits(model, tokenizer):
    ids = tokenizer(TEXT)["input_ids"]
    positions = inspect(model, tokenizer, ids, count=4)
    with torch.no_grad():
        probabilities = model(torch.tensor([ids])).logits[0].softmax(-1)
    assert len(positions) == len(ids) - 1
    for position, expected, token_id in zip(positions, probabilities, ids[1:], strict=False):
        order = expected.argsort(descending=True).tolist()
        assert position.rank == order.index(token_id) + 1
        assert position.token.probability == pytest.approx(expected[token_id].item(), rel=1e-4)
        assert position.surprisal == pytest.approx(-math.log2(expected[token_id].item()), abs=1e-4)
        found = [token.text + "</w>" * token.ends_word for token in position.likeliest]
        assert found == tokenizer.convert_ids_to_tokens(order[:4])
        assert [token.probability for token in position.likeliest] == pytest.approx(
            expected[order[:4]].tolist(), rel=1e-4
        )


def test_surprisals_of_a_long_text_add_up_to_its_score(model, tokenizer):
    ids = tokenizer(TEXT * 20)["input_ids"]
    assert len(ids) > 2 * model.config.n_positions
    positions = inspect(model, tokenizer, ids, count=1, stride=10)
    (score,) = score_texts(model, [ids], stride=10)
    assert sum(position.surprisal for position in positions) * math.log(2) == pytest.approx(-score.log_probability)
    with pytest.raises(ValueError, match="fewer than two tokens"):
        inspect(model, tokenizer, ids[:1])


class Page(HTMLParser):
    """Tags, and the text in them."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_the_page_escapes_everything_and_needs_nothing():
    evil = '"><script src="http://x.y/z">&'
    token = NextToken(evil, True, 0.5)
    page = Page(render_page(evil, token, [Position(token, 3, 1.0, (token,))]))
    assert {tag for tag, _ in page.tags} == {
        *("html", "head", "meta", "title", "style", "body", "main"),
        *("h1", "p", "span", "table", "tr", "th", "td", "small"),
    }
    assert not any(name in ("src", "href") or name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert page.text.count(evil) == 6
    assert [attrs["title"] for _, attrs in page.tags if "title" in attrs] == [f"{evil}: 1.00 bits, rank 3"]


def test_inspection_by_command(hf_gpt, model, tokenizer, tiny_checkpoint, tmp_path):
    positions = inspect(model, tokenizer, tokenizer(TEXT)["input_ids"], count=2)
    flags = ("inspect", "--model_name_or_path", tiny_checkpoint, "--top_tokens", 2)
    assert hf_gpt(*flags, "--text", TEXT)[1].splitlines()[1].split()[:2] == ["1", "she"]
    score = hf_gpt("score", "--model_name_or_path", tiny_checkpoint, "--text", "She ran.")[1].split()[-1]
    assert f"(perplexity {float(score):.2f})" in hf_gpt(*flags, "--text", "She ran.")[1]
    flags += ("--beginning", "none")
    status, printed, errors = hf_gpt(*flags, "--text", TEXT)
    assert status == 0, errors
    lines = printed.splitlines()
    assert lines[1].split() == ["1", "she"]
    assert lines[2].split()[:5] == [
        *("2", "opened", f"{positions[0].token.probability:.4f}"),
        *(str(positions[0].rank), f"{positions[0].surprisal:.2f}"),
    ]
    assert len(lines) == len(positions) + 3
    (tmp_path / "text.txt").write_text(TEXT)
    for name in ("out.json", "out.html"):
        status, printed, errors = hf_gpt(*flags, "--file", tmp_path / "text.txt", "--output_file", tmp_path / name)
        assert status == 0, errors
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["first"] == "she"
    assert [each["rank"] for each in record["positions"]] == [position.rank for position in positions]
    assert record["positions"][3]["likeliest"][1]["probability"] == pytest.approx(
        positions[3].likeliest[1].probability
    )
    page = Page((tmp_path / "out.html").read_text())
    assert "she opened the door and ran . \nhe slept . " in page.text
    status, _, errors = hf_gpt(*flags, "--text", "She")
    assert (status, "fewer than two tokens" in errors) == (2, True)
