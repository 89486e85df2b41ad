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
ENDS_WORD = np.arange(51) >= 10
ORDINARY = np.arange(50)
TEXTS = ["Mr. Darcy's <mask> didn't laugh.", "no mask here", "<mask><mask>, “<mask>”\nand <mask>ing", "_start_ <pad>"]


def rows_of(*ids, starts=(0,), **settings):
    rows = [{"input_ids": list(row), "starts": list(starts)} for row in ids]
    return MaskedRows(rows, ENDS_WORD, ORDINARY, MASK, **settings)


def words(ids, starts=(0,)):
    """Indices of the tokens of each word."""
    found = []
    for index in range(len(ids)):
        if index in starts or ENDS_WORD[ids[index - 1]]:
            found.append([])
        found[-1].append(index)
    return found


def test_whole_words_and_as_many_tokens_of_every_row():
    random = np.random.default_rng(0)
    ids = random.integers(0, 50, (20, 100))
    rows = rows_of(*ids, starts=(0, 33, 34))
    for row, given in enumerate(ids):
        labels = np.array(rows[row]["labels"])
        assert (labels != -100).sum() == 15
        assert (labels[labels != -100] == given[labels != -100]).all()
        assert all(len({labels[index] != -100 for index in word}) == 1 for word in words(given, (0, 33, 34)))


def test_eighty_ten_ten():
    ids = np.random.default_rng(1).integers(10, 50, (400, 100))
    rows, fates = rows_of(*ids), {"mask": 0, "same": 0, "other": 0}
    for row, given in enumerate(ids):
        item = rows[row]
        for before, after, label in zip(given, item["input_ids"], item["labels"], strict=True):
            if label == -100:
                assert after == before
            else:
                fates["mask" if after == MASK else "same" if after == before else "other"] += 1
    shares = {name: count / 6000 for name, count in fates.items()}
    assert shares == pytest.approx({"mask": 0.8, "same": 0.1, "other": 0.1}, abs=0.015)


def test_the_choice_follows_from_seed_epoch_and_row():
    ids = np.random.default_rng(2).integers(0, 50, (2, 100))
    first, again, other = rows_of(*ids), rows_of(*ids), rows_of(*ids, seed=1)
    assert first[0] == again[0] == first[0]
    assert first[0]["labels"] != other[0]["labels"]
    again.set_epoch(1)
    assert first[0]["labels"] != again[0]["labels"]


def test_a_row_of_one_long_word():
    item = rows_of([1] * 10)[0]
    assert item["labels"] == [1, 1] + [-100] * 8


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
        assert again(text)["input_ids"] == tokenizer(text)["input_ids"] == encoded["input_ids"]
        assert tokenizer([text, text])["input_ids"] == [encoded["input_ids"]] * 2
    given = tokenizer(["a", "<mask>", "door"], is_split_into_words=True)
    assert given.word_ids()[:2] == [0, 1]
    assert given["input_ids"][1] == len(plain)
    assert "<mask>" not in plain.get_vocab()


def test_words_end_where_the_vocabulary_says_so():
    tokenizer = AutoTokenizer.from_pretrained(MINI, mask_token="<mask>")
    ids = tokenizer("extemporize the door", add_special_tokens=False)["input_ids"]
    rows = MaskedRows.of([{"input_ids": ids, "starts": [0]}], tokenizer)
    assert rows.ends_word[ids].tolist() == [*[False] * (len(ids) - 3), True, True, True]
    assert not set(rows.random_ids) & set(tokenizer.all_special_ids)
    with pytest.raises(ValueError, match='mask_token="<mask>"'):
        MaskedRows.of([], AutoTokenizer.from_pretrained(MINI))


def test_words_of_bytes_are_parted_by_what_is_no_letter(tmp_path):
    gpt2_tokenizer(["the door", "Мастера"], size=300).save_pretrained(tmp_path)
    tokenizer = GPTTokenizer.from_pretrained(tmp_path, mask_token="<mask>", task_template=False)
    text = "Three doors, 12b (Мастера) don't\n end"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.byte_level
    rows = MaskedRows.of([{"input_ids": ids, "starts": [0]}], tokenizer)
    assert not set(rows.random_ids) & set(tokenizer.all_special_ids)
    begins = [True, *(rows.ends_word[ids[:-1]] | rows.starts_word[ids[1:]])]
    found: list[list[int]] = []
    for token_id, begin in zip(ids, begins, strict=True):
        found = [*found, [token_id]] if begin else [*found[:-1], [*found[-1], token_id]]
    assert [tokenizer.decode(word) for word in found] == [
        *("Three", " doors", ",", " 12b", " ", "(", "Мастера", ")", " don", "'", "t", "\n", " end")
    ]
