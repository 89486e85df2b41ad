"""GPT-2: its tokenizer, and the way back to its files; test_stock_checkpoints.py has its logits."""

import pytest
from transformers import AutoTokenizer, GPT2Tokenizer

from hf_gpt import GPTForSequenceClassification, GPTTokenizer
from hf_gpt.loading import open_source

from ..support.stock_models import save_gpt2

TEXTS = [
    "The cat  didn't sit.\n\n\tHe said: \u201cNo\u201d \u2014 d\u00e9j\u00e0 vu, \u65e5\u672c.",
    " two",
    "x <|endoftext|> _start_ y",
]


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    """Folder of a small stock `gpt2` with its tokenizer; tests only read it."""
    folder = tmp_path_factory.mktemp("gpt2") / "stock"
    save_gpt2(folder)
    return folder


def test_tokenizer(stock, tmp_path):
    theirs = AutoTokenizer.from_pretrained(stock)
    ours = open_source(stock).tokenizer()
    assert type(theirs) is GPT2Tokenizer
    assert type(ours) is GPTTokenizer
    assert ours.byte_level
    for text in TEXTS:
        encoded, expected = (
            tokenizer(text, return_offsets_mapping=True, split_special_tokens=True) for tokenizer in (ours, theirs)
        )
        assert encoded == expected
        assert encoded.word_ids() == expected.word_ids()
        assert ours.decode(encoded["input_ids"]) == text
    first = len(theirs)
    specials = [ours.bos_token_id, ours.sep_token_id, ours.cls_token_id, ours.pad_token_id]
    assert specials == [first, first + 1, first + 2, first + 3]
    assert ours.eos_token_id == first - 1
    ours.task_template = True
    ours.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert type(again) is GPTTokenizer
    assert again.get_vocab() == ours.get_vocab()
    pair = [first, *theirs("a cat").input_ids, first + 1, *theirs("a dog").input_ids, first + 2]
    assert again("a cat", "a dog").input_ids == ours("a cat", "a dog").input_ids == pair
    assert again("a", "").input_ids == [first, *theirs("a").input_ids, first + 1, first + 2]


def test_given_words(stock):
    """All but the first get the space that they have in a text; offsets are those within the words."""
    ours = GPTTokenizer.from_pretrained(stock)
    words = ["He", "didn't", "", "go"]
    encoded = ours(words, is_split_into_words=True, return_offsets_mapping=True)
    assert encoded["input_ids"] == ours("He didn't  go").input_ids
    for word, (start, end), token in zip(encoded.word_ids(), encoded["offset_mapping"], encoded.tokens(), strict=True):
        assert words[word][start:end] == token.removeprefix("\u0120")
    batch = ours([words, ["He"]], is_split_into_words=True, padding=True, return_tensors="pt")
    assert batch["input_ids"].shape == (2, len(encoded["input_ids"]))


def test_converted_and_back(stock, tmp_path, converted):
    printed = converted(stock, tmp_path / "ours", "--head", "sequence-classification")
    assert "Newly initialized: rows of _start_, _delimiter_, _classify_, <pad>" in printed
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert type(tokenizer) is GPTTokenizer
    assert tokenizer.task_template
    assert open_source(stock).new_rows == ", with new rows of _start_, _delimiter_, _classify_, <pad>"
    assert open_source(tmp_path / "ours").new_rows == ""
    model = GPTForSequenceClassification.from_pretrained(tmp_path / "ours")
    assert model.config.untrained_token_ids == [tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id]
    converted(tmp_path / "ours", tmp_path / "stock", "--head", "causal-lm", "--to", "gpt2")
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        assert (tmp_path / "stock" / name).read_bytes() == (stock / name).read_bytes(), name
