"""Texts of files and folders, packed rows of them, the held-out part; and which tokens masked rows hide."""

import gzip
import lzma

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from hf_gpt import GPTTokenizer
from hf_gpt.training.packing import HeldOut, encode_document, pack_documents, packed_dataset
from hf_gpt.training.text_files import iter_texts, unwrap_paragraphs
from hf_gpt.trees.collators import MaskedRows

from ..support.runs import REPOSITORY
from ..support.stock_models import gpt2_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz."
VOCAB = {piece: index for index, piece in enumerate(["<unk>", "\n</w>", *LETTERS, *(f"{x}</w>" for x in LETTERS)])}
NEWLINE = VOCAB["\n</w>"]


@pytest.fixture(scope="module")
def tokenizer():
    """The real tokenizer with a vocabulary of letters."""
    return GPTTokenizer(vocab=VOCAB, merges=[])


@pytest.fixture
def books(tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    for number, letter in enumerate(LETTERS[:6]):
        (folder / f"{number}.txt").write_text(f"{letter * 4}\n{letter * 4}\n\n{letter * 3}\n")
    return folder


@pytest.fixture
def read(tokenizer, own_datasets_cache):
    return lambda path, row_length=5, **how: packed_dataset([str(path)], tokenizer, row_length, **how)


def word(letters):
    return [VOCAB[letter] for letter in letters[:-1]] + [VOCAB[f"{letters[-1]}</w>"]]


def test_words_of_a_row_are_its_share_of_each_document():
    rows = pack_documents([([1, 2, 3], 6), ([4, 5, 6, 7], 2), ([8], 9)], 4)
    assert [row["words"] for row in rows] == [6 + 2 / 4, 2 * 3 / 4 + 9]


@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=6), st.integers(1, 9))
def test_rows_hold_the_documents_in_order(documents, row_length):
    begins, tokens = set(), []
    for document in filter(None, documents):
        begins.add(len(tokens))
        tokens += document
    rows = [*pack_documents(((document, 1) for document in documents), row_length)]
    assert [token for row in rows for token in row["input_ids"]] == tokens[: len(tokens) // row_length * row_length]
    for number, row in enumerate(rows):
        inside = {index for index in range(row_length) if number * row_length + index in begins}
        assert (len(row["input_ids"]), row["starts"]) == (row_length, sorted({0} | inside))


def test_newlines_stand_between_paragraphs(tokenizer):
    ids = encode_document("ab c\n\n  \nday.", tokenizer)
    assert ids == [*word("ab"), *word("c"), NEWLINE, *word("day"), *word(".")]
    assert encode_document(" \n ", tokenizer) == []
    many = encode_document("ab\n" * 1001, tokenizer)
    assert many == [*word("ab"), *[NEWLINE, *word("ab")] * 1000]


def test_articles_of_wikitext(tokenizer, tmp_path, read):
    """Each is a document, of whose words all are counted, and its unknown words are one token."""
    file = tmp_path / "wiki.train.tokens"
    first = "= A <unk> = \n \n a @-@ b <unk>c . \n \n = = d = = \n \n e \n = f = \n "
    file.write_text(f" \n {first}\n = G = \n \n gh \n", encoding="utf-8")
    unknown = mark = tokenizer.unk_token_id  # the vocabulary has no =
    body = [*tokenizer("a-b")["input_ids"], unknown, *word("c"), *word(".")]
    sections = [mark, mark, *word("d"), mark, mark, NEWLINE, *word("e"), NEWLINE, mark, *word("f"), mark]
    ids = [mark, *word("a"), unknown, mark, NEWLINE, *body, NEWLINE, *sections]
    articles = [(ids, 18), ([mark, *word("g"), mark, NEWLINE, *word("gh")], 4)]
    assert [*read(file, 3, wikitext=True)] == [*pack_documents(articles, 3)]


@pytest.mark.parametrize("count", [50, 74, 76, 2000])
def test_held_out_share(count):
    texts = [f"document {number}" for number in range(count)]
    held_out = HeldOut.of(texts, 50)
    chosen = [text for text in texts if held_out.divide(text) == ([], [text])]
    assert len(chosen) == round(count / 50)
    assert held_out.description == f"{len(chosen):,} of {count:,} documents, chosen by their texts"
    # Neither order nor copies change it.
    assert HeldOut.of(reversed([*texts, *texts]), 50) == held_out


@given(st.text(alphabet="ab \n", max_size=400), st.sampled_from(["\n\n", "\n", " ", ""]), st.integers(2, 60))
def test_the_middle_of_a_few_documents_is_held_out(text, gap, every):
    long = gap.join(f"{number:05d}" for number in range(2000))
    for each in (text, long):
        held_out = HeldOut.of([each, each], every)
        assert held_out.description.startswith(f"the middle 1/{every} of each document (1 in all")
        (before, after), (middle,) = held_out.divide(each)
        assert before + middle + after == each
    assert abs(len(middle) - len(long) / every) < 20
    assert abs(len(before) - len(after)) < 40
    assert not gap or (before.endswith(gap) and middle.endswith(gap))


def test_held_out_files(books, read):
    held_out = HeldOut.of((text for _, text in iter_texts(books)), 3)
    parts = [read(books, held_out=held_out, validation=part) for part in (False, True)]
    training, validation = ({token for row in part for token in row["input_ids"]} - {NEWLINE} for part in parts)
    assert len(validation) == 2 * 2
    assert not training & validation


def test_rows_are_cached_until_a_file_changes(books, read):
    texts = [([*word(x * 4), *word(x * 4), NEWLINE, *word(x * 3)], 3) for x in LETTERS[:6]]
    first = read(books)
    assert [*first] == [*pack_documents(texts, 5)]
    assert first.cache_files == read(books).cache_files
    (books / "0.txt").write_text("zzzz zzzz zzzz\n")
    changed = read(books)
    assert changed.cache_files != first.cache_files
    assert changed[0]["input_ids"] == [*word("zzzz"), VOCAB["z"]]


def test_too_little_text(books, read):
    for file in books.iterdir():
        file.write_text("")
    (books / "1.txt").write_text("a few words")
    with pytest.raises(ValueError, match="There is less training text than one row of 50 tokens"):
        read(books, row_length=50)


def test_files_and_folders(tmp_path):
    folder = tmp_path / "books"
    for name in ("deep", "__MACOSX"):
        (folder / name).mkdir(parents=True)
    files = {"deep/b.txt": b"\xef\xbb\xbfbom", "a.txt": b"first", "table.csv": b"no"}
    files |= {"._a.txt": b"\xff", "__MACOSX/a.txt": b"\xff"}
    files |= {"c.txt.gz": gzip.compress(b"gz", mtime=0), "d.txt.xz": lzma.compress(b"xz")}
    files |= {"e.jsonl": b'{"text": "one", "n": 1}\n\n{"text": "two"}\n'}
    files |= {"f.jsonl.gz": gzip.compress(b'{"text": "three"}\n', mtime=0), "../README.md": b"named directly"}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    Dataset.from_dict({"text": ["four", "five"]}).to_parquet(folder / "g.parquet")
    expected = {"a.txt": "first", "c.txt.gz": "gz", "d.txt.xz": "xz", "deep/b.txt": "bom"}
    expected |= {"e.jsonl, line 1": "one", "e.jsonl, line 3": "two", "f.jsonl.gz, line 1": "three"}
    expected |= {"g.parquet, row 1": "four", "g.parquet, row 2": "five"}
    named = [(f"{folder}/{name}", text) for name, text in expected.items()]
    plain = tmp_path / "README.md"
    assert [*iter_texts([plain, folder])] == [(str(plain), "named directly"), *named]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        *((f"a.{kind}", b"\xff", rf"a\.{kind}: ") for kind in ("xz", "bz2", "zip")),
        *((f"a.{kind}", b"nothing", r"is an archive: unpack it") for kind in ("tar", "tar.xz", "tgz")),
        ("a.gz", gzip.compress(b"text" * 100, mtime=0)[:-20], r"a\.gz: "),
        ("latin.txt", "né".encode("latin-1"), r"latin\.txt: .* byte 0xe9 in position 1"),
        ("a.jsonl", b'{"text": "x"}\n{"body": "x"}', r"a\.jsonl, line 2: there is no column 'text'; .* are body"),
        ("a.jsonl", b'{"text": 3}', r"a\.jsonl, line 1: column 'text' holds 3, a text was expected"),
        ("a.jsonl", b"text", r"a\.jsonl, line 1: Expecting value"),
    ],
)
def test_damaged_files(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(iter_texts([tmp_path / name]))


def test_nothing_to_read(tmp_path):
    with pytest.raises(ValueError, match=r"holds no \.txt file"):
        list(iter_texts([tmp_path]))
    # Before anything is read.
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ValueError, match="nowhere: no such file or directory"):
        next(iter_texts([tmp_path / "a.txt", tmp_path / "nowhere"]))


LONG = "a line much longer than any that was wrapped by hand, which therefore is taken for a whole paragraph, " * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\n\nthree\n", "one two\nthree"),
        ("one\r\ntwo\r\n\r\n  three  \r\n", "one two\nthree"),
        ("one\n \t \n\n\ntwo", "one\ntwo"),
        (f"{LONG}\n{LONG}\nshort", f"{LONG.strip()}\n{LONG.strip()}\nshort"),
        ("\n \n", ""),
    ],
    ids=["wrapped", "carriage returns", "blank lines", "a paragraph a line", "blank"],
)
def test_unwrap_paragraphs(text, expected):
    assert unwrap_paragraphs(text) == expected


MINI = REPOSITORY / "model_cards" / "gpt-mini"
MASK = 50
# Tokens 0 to 9 begin a word of several, 10 to 49 end one.
ENDS_WORD, ORDINARY = np.arange(51) >= 10, np.arange(50)
TEXTS = ["Mr. Darcy's <mask> didn't laugh.", "no mask here", "<mask><mask>, “<mask>”\nand <mask>ing", "_start_ <pad>"]


def rows_of(ids, starts=(0,), **settings):
    rows = [{"input_ids": list(row), "starts": list(starts)} for row in ids]
    return MaskedRows(rows, ENDS_WORD, np.zeros(51, bool), ORDINARY, MASK, **settings)


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
