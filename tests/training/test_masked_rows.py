"""Rows of a masked language model: which tokens are hidden, and the mask in texts."""

import numpy as np
import pytest
from transformers import AutoTokenizer

from hf_gpt import GPTTokenizer
from hf_gpt.trees.collators import MaskedRows, PackedRowCollator

from ..support.runs import REPOSITORY
from ..support.stock_models import gpt2_tokenizer

MINI = REPOSITORY / "model_cards" / "gpt-mini"
MASK = 50
# Tokens 0 to 9 begin a word of several, 10 to 49 end one.
ENDS_WORD, ORDINARY = np.arange(51) >= 10, np.arange(50)
TEXTS = ["Mr. Darcy's <mask> didn't laugh.", "no mask here", "<mask><mask>, “<mask>”\nand <mask>ing", "_start_ <pad>"]


def rows_of(ids, starts=(0,), **settings):
    rows = [{"input_ids": list(row), "starts": list(starts)} for row in ids]
    return MaskedRows(rows, ENDS_WORD, ORDINARY, MASK, **settings)


def test_whole_words_and_as_many_tokens_of_every_row():
    ids, starts = np.random.default_rng(0).integers(0, 50, (400, 100)), (0, 33, 34)
    items = [*map(rows_of(ids, starts).__getitem__, range(400))]
    labels, after = (np.array([item[name] for item in items]) for name in ("labels", "input_ids"))
    hidden = labels != -100
    assert (hidden.sum(1) == 15).all()
    assert (labels == np.where(hidden, ids, -100)).all()
    assert (after == ids)[~hidden].all()
    inside = ~ENDS_WORD[ids[:, :-1]]  # the next token is of the same word
    inside[:, [start - 1 for start in starts[1:]]] = False
    assert (hidden[:, 1:] == hidden[:, :-1])[inside].all()
    shares = [(after == MASK)[hidden].mean(), (after == ids)[hidden].mean()]
    assert shares == pytest.approx([0.8, 0.1], abs=0.015)
    assert rows_of([[1] * 10])[0]["labels"] == [1, 1] + [-100] * 8  # one long word


def test_the_choice_follows_from_seed_epoch_and_row():
    ids = np.random.default_rng(2).integers(0, 50, (2, 100))
    first, again, other = rows_of(ids), rows_of(ids), rows_of(ids, seed=1)
    assert first[0] == again[0] == first[0]
    assert first[0]["labels"] != other[0]["labels"]
    again.set_epoch(1)
    assert first[0]["labels"] != again[0]["labels"]


def test_collated():
    batch = PackedRowCollator()([{"input_ids": [MASK, 3, 12, MASK], "starts": [0, 2], "labels": [11, -100, -100, 13]}])
    expected = {
        "input_ids": [[MASK, 3, 12, MASK]],
        "position_ids": [[0, 1, 0, 1]],
        "labels": [[11, -100, -100, 13]],
        "lm_weights": [[1.0, 0.0, 0.0, 1.0]],
        "subtree_end": [[2, 2, 4, 4]],
    }
    assert {name: values.tolist() for name, values in batch.items()} == expected


def test_the_mask_alone_stands_for_itself(tmp_path):
    plain = AutoTokenizer.from_pretrained(MINI)
    tokenizer = AutoTokenizer.from_pretrained(MINI, mask_token="<mask>")
    assert tokenizer.mask_token_id == len(plain) == len(tokenizer) - 1
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        encoded = tokenizer(text, return_offsets_mapping=True)
        spans = [text[start:end] for start, end in encoded["offset_mapping"]]
        assert [span == "<mask>" for span in spans] == [index == len(plain) for index in encoded["input_ids"]]
        assert spans.count("<mask>") == text.count("<mask>")
        # The rest is split as ever.
        rest = [index for index in encoded["input_ids"] if index != len(plain)]
        assert rest == plain(text.replace("<mask>", " "))["input_ids"]
        assert again(text)["input_ids"] == encoded["input_ids"]
        assert tokenizer([text, text])["input_ids"] == [encoded["input_ids"]] * 2
    given = tokenizer(["a", "<mask>", "door"], is_split_into_words=True)
    assert (given.word_ids()[:2], given["input_ids"][1]) == ([0, 1], len(plain))
    assert "<mask>" not in plain.get_vocab()
    with pytest.raises(ValueError, match='mask_token="<mask>"'):
        MaskedRows.of([], plain)


def test_words_of_a_vocabulary(tmp_path):
    gpt2_tokenizer(["the door", "Мастера"], size=300).save_pretrained(tmp_path)
    # GPT-2's has no end marks: what is no letter or digit parts words.
    byte_level = ["Three", " doors", ",", " 12b", " ", "(", "Мастера", ")", " don", "'", "t", "\n", " end"]
    for folder, expected in ((MINI, ["extemporize", "the", "door"]), (tmp_path, byte_level)):
        tokenizer = GPTTokenizer.from_pretrained(folder, mask_token="<mask>", task_template=False)
        text = "extemporize the door" if folder == MINI else "".join(byte_level)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        rows = MaskedRows.of([{"input_ids": ids, "starts": [0]}], tokenizer)
        assert not set(rows.random_ids) & set(tokenizer.all_special_ids)
        begins = np.flatnonzero([True, *(rows.ends_word[ids[:-1]] | rows.starts_word[ids[1:]])])
        assert [tokenizer.decode(word) for word in np.split(ids, begins[1:])] == expected
