"""Documents -> packed rows: literal rows, nothing lost but the end, held-out documents, the cached data set."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_gpt import GPTTokenizer
from hf_gpt.training.language_model import perplexity
from hf_gpt.training.packing import HeldOut, encode_document, pack_documents, packed_dataset
from hf_gpt.training.text_files import iter_texts

documents = st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=6)

LETTERS = "abcdefghijklmnopqrstuvwxyz."
VOCAB = {piece: index for index, piece in enumerate(["<unk>", "\n</w>", *LETTERS, *(f"{x}</w>" for x in LETTERS)])}
NEWLINE = VOCAB["\n</w>"]


@pytest.fixture(scope="module")
def tokenizer():
    """The real tokenizer with a vocabulary of letters."""
    return GPTTokenizer(vocab=VOCAB, merges=[])


def counted(texts):
    """Documents with a number of words."""
    return ((text, 1) for text in texts)


def word(letters):
    return [VOCAB[letter] for letter in letters[:-1]] + [VOCAB[f"{letters[-1]}</w>"]]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([[1, 2, 3, 4]], [([1, 2, 3, 4], [0])]),
        ([[1, 2], [3, 4]], [([1, 2, 3, 4], [0, 2])]),
        ([[1, 2, 3], [4, 5, 6], [7, 8]], [([1, 2, 3, 4], [0, 3]), ([5, 6, 7, 8], [0, 2])]),
        ([[1, 2, 3, 4, 5, 6, 7, 8, 9]], [([1, 2, 3, 4], [0]), ([5, 6, 7, 8], [0])]),
        ([[], [1, 2, 3], [], [4]], [([1, 2, 3, 4], [0, 3])]),
        ([[1, 2, 3]], []),
        ([], []),
    ],
    ids=["one-row", "two-documents", "goes-on", "long", "empty-documents", "too-short", "nothing"],
)
def test_packed_rows(texts, expected):
    assert [(row["input_ids"], row["starts"]) for row in pack_documents(counted(texts), 4)] == expected


def test_words_of_a_row_are_its_share_of_each_document():
    rows = pack_documents([([1, 2, 3], 6), ([4, 5, 6, 7], 2), ([8], 9)], 4)
    assert [row["words"] for row in rows] == [6 + 2 / 4, 2 * 3 / 4 + 9]


@given(documents, st.integers(1, 9))
def test_rows_hold_the_documents_in_order(texts, row_length):
    rows = list(pack_documents(counted(texts), row_length))
    tokens = [token for text in texts for token in text]
    assert len(rows) == len(tokens) // row_length
    assert [token for row in rows for token in row["input_ids"]] == tokens[: len(rows) * row_length]
    assert all(len(row["input_ids"]) == row_length for row in rows)


@given(documents, st.integers(1, 9))
def test_pieces_start_where_documents_and_rows_do(texts, row_length):
    begin, begins = 0, set()
    for text in texts:
        if text:
            begins.add(begin)
        begin += len(text)
    for number, row in enumerate(pack_documents(counted(texts), row_length)):
        start = number * row_length
        expected = {0} | {index for index in range(row_length) if start + index in begins}
        assert row["starts"] == sorted(expected)


def test_documents_are_read_as_rows_are_wanted():
    def endless():
        while True:
            yield [1, 2, 3]

    rows = pack_documents(counted(endless()), 4)
    assert next(rows)["input_ids"] == [1, 2, 3, 1]
    assert next(rows)["input_ids"] == [2, 3, 1, 2]


def test_paragraphs_are_parted_by_newlines(tokenizer):
    ids = encode_document("ab c\n\n  \nday.", tokenizer)
    assert ids == [*word("ab"), *word("c"), NEWLINE, *word("day"), *word(".")]
    assert encode_document(" \n ", tokenizer) == []


def test_articles_of_wikitext(tokenizer, tmp_path):
    """Each is a document, of whose words all are counted, and its unknown words are one token."""
    first = "= A <unk> = \n \n a @-@ b <unk>c . \n \n = = d = = \n \n e \n = f = \n "
    file = tmp_path / "wiki.train.tokens"
    file.write_text(f" \n {first}\n = G = \n \n gh \n", encoding="utf-8")
    found = list(packed_dataset([str(file)], tokenizer, 3, wikitext=True, cache_dir=str(tmp_path / "cache")))
    unknown, is_mark = [tokenizer.unk_token_id], word("=") if "=</w>" in VOCAB else [tokenizer.unk_token_id]
    title = [*is_mark, *word("a"), *unknown, *is_mark]
    body = [*tokenizer("a-b")["input_ids"], *unknown, *word("c"), *word(".")]
    rest = [*is_mark * 2, *word("d"), *is_mark * 2, NEWLINE, *word("e"), NEWLINE, *is_mark, *word("f"), *is_mark]
    articles = [
        ([*title, NEWLINE, *body, NEWLINE, *rest], 18),
        ([*is_mark, *word("g"), *is_mark, NEWLINE, *word("gh")], 4),
    ]
    assert found == list(pack_documents(articles, 3))


@pytest.mark.parametrize("count", [50, 74, 76, 2000])
def test_held_out_share(count):
    texts = [f"document {number}" for number in range(count)]
    held_out = HeldOut.of(texts, 50)
    chosen = [text for text in texts if held_out.divide(text) == ([], [text])]
    assert len(chosen) == held_out.chosen == round(count / 50)
    # Neither order nor copies change it.
    assert HeldOut.of(reversed([*texts, *texts]), 50) == held_out


@pytest.mark.parametrize(("loss", "value"), [(0.0, 1.0), (1.0, math.e), (709.0, math.exp(709)), (710.0, math.inf)])
def test_perplexity(loss, value):
    assert perplexity(loss) == value


@pytest.fixture
def books(tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    for number in range(6):
        letter = LETTERS[number]
        (folder / f"{number}.txt").write_text(f"{letter * 4}\n{letter * 4}\n\n{letter * 3}\n")
    return folder


def read(folder, tokenizer, tmp_path, **kwargs):
    arguments = {"row_length": 5, "cache_dir": str(tmp_path / "cache"), **kwargs}
    return packed_dataset([str(folder)], tokenizer, **arguments)


def test_rows_of_files(books, tokenizer, tmp_path):
    found = read(books, tokenizer, tmp_path)
    texts = [([*word(x * 4), *word(x * 4), NEWLINE, *word(x * 3)], 3) for x in LETTERS[:6]]
    assert list(found) == list(pack_documents(texts, 5))
    assert found.column_names == ["input_ids", "starts", "words"]


def test_held_out_files(books, tokenizer, tmp_path):
    def letters(folder):
        held_out = HeldOut.of((text for _, text in iter_texts(folder)), 3)
        assert str(held_out) == "2 of 6 documents, chosen by their texts"
        parts = [read(folder, tokenizer, tmp_path, held_out=held_out, validation=part) for part in (False, True)]
        return [{token for row in part for token in row["input_ids"]} - {NEWLINE} for part in parts]

    training, validation = letters(books)
    assert len(validation) == 2 * 2
    assert not training & validation
    # Names do not matter.
    for number in range(6):
        (books / f"{number}.txt").rename(books / f"renamed_{5 - number}.txt")
    assert letters(books) == [training, validation]


@pytest.mark.parametrize("gap", ["\n\n", "\n", " ", ""], ids=["paragraphs", "lines", "words", "one word"])
def test_the_middle_of_a_few_documents_is_held_out(gap):
    text = gap.join(f"{number:05d}" for number in range(2000))
    held_out = HeldOut.of([text, text, "another"], 50)
    assert str(held_out) == "the middle 1/50 of each document (2 in all, too few to hold out whole ones)"
    (before, after), (middle,) = held_out.divide(text)
    assert before + middle + after == text
    assert abs(len(middle) - len(text) / 50) < 20
    assert abs(len(before) - len(after)) < 200
    assert not gap or (before.endswith(gap) and middle.endswith(gap))


@given(st.text(alphabet="ab \n", max_size=200), st.integers(2, 60))
def test_no_text_is_lost_or_in_both_parts(text, every):
    (before, after), (middle,) = HeldOut(every, 1).divide(text)
    assert before + middle + after == text


def test_rows_are_cached_until_a_file_changes(books, tokenizer, tmp_path):
    file = books / "0.txt"
    first = packed_dataset([str(file)], tokenizer, 5, cache_dir=str(tmp_path / "cache"))
    again = packed_dataset([str(file)], tokenizer, 5, cache_dir=str(tmp_path / "cache"))
    assert first.cache_files == again.cache_files
    file.write_text("zzzz zzzz zzzz\n")
    changed = packed_dataset([str(file)], tokenizer, 5, cache_dir=str(tmp_path / "cache"))
    assert changed.cache_files != first.cache_files
    assert changed[0]["input_ids"] == [*word("zzzz"), VOCAB["z"]]


def test_missing_file(books, tokenizer, tmp_path):
    missing = tmp_path / "nothing.txt"
    with pytest.raises(FileNotFoundError, match=r"nothing\.txt does not exist"):
        packed_dataset([str(books), str(missing)], tokenizer, 5)


def write_latin1_first(folder):
    (folder / "0.txt").write_bytes("caf\xe9".encode("latin-1"))
    return r"0\.txt: byte 0xe9 at offset 3 is not valid utf-8"


def write_latin1_last(folder):
    (folder / "0.txt").write_text("enough text for a row " * 5)
    (folder / "5.txt").write_bytes("caf\xe9".encode("latin-1"))
    return r"5\.txt: byte 0xe9 at offset 3 is not valid utf-8"


def write_broken_archive(folder):
    for file in folder.iterdir():
        file.unlink()
    (folder / "books.zip").write_bytes(b"PK broken")
    return r"books\.zip: this is not a readable archive"


def write_little(folder):
    for file in folder.iterdir():
        file.write_text("a")
    return r"books: less text than one row of 50 tokens"


def write_nothing(folder):
    for file in folder.iterdir():
        file.unlink()
    return r"books: holds no \.txt file"


@pytest.mark.parametrize(
    "damage", [write_latin1_first, write_latin1_last, write_broken_archive, write_little, write_nothing]
)
def test_unusable_files(books, tokenizer, tmp_path, damage):
    message = damage(books)
    with pytest.raises(ValueError, match=message):
        read(books, tokenizer, tmp_path, row_length=50)
