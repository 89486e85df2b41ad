"""The tokenizer's shortcuts give what the long way gives: words, ids, and what is asked of an encoding later."""

import copy
import functools
import itertools
import pickle
import random
import string

import datasets
import ftfy
import pytest
from datasets import Dataset
from datasets.fingerprint import Hasher
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import processors
from transformers import BatchEncoding
from transformers.tokenization_utils_base import PaddingStrategy, TruncationStrategy

from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.model import word_splitting
from hf_gpt.model.tokenization_gpt import GPTTokenizer
from hf_gpt.model.word_splitting import StringCache, WordSplitter, fix_text, word_splitter

from ..support.texts import CARRIED_GOLDEN, TRICKY, as_backend_text, read_golden, split_words, write_release

TEXTS = ["The CAT sat.\n\nDogs didn't 日", "", "say 'em.' twice :)", "“the—cat”…", "<unk> _start_ a<pad>"]


@functools.cache
def tokenizer_in(directory, task_template):
    return release_tokenizer(directory, task_template=task_template)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    directory = tmp_path_factory.mktemp("release")
    write_release(directory)
    return directory


@pytest.fixture
def tokenizer(release):
    return release_tokenizer(release)


@pytest.fixture
def task_tokenizer(release):
    return release_tokenizer(release, task_template=True)


@pytest.fixture
def only_ids(monkeypatch):
    """Lets no call take the long way."""

    def fail(*args, **kwargs):
        raise AssertionError("the long way was taken")

    monkeypatch.setattr(GPTTokenizer, "_encode_words", fail)


def plain_words(text):
    return as_backend_text(split_words(text))


class TestWords:
    @given(st.text(alphabet=string.ascii_letters, min_size=1, max_size=8), st.sampled_from(["", ".", "'s"]))
    @settings(deadline=None)
    def test_plain_parts(self, stem, end):
        assert word_splitter("en")(stem + end) == plain_words(stem + end)

    def test_plain_parts_that_look_like_others(self):
        cases = [case for case in word_splitter("en").spacy_tokenizer.rules if case.isascii() and case.isalpha()]
        stems = [*cases, *string.ascii_letters, "localhost", "http", "www", "km", "US", "USS", "uS", "Ph", "ima"]
        for stem, end in itertools.product(stems, ["", ".", "'s", "'S", "'", ".'", "'s."]):
            assert word_splitter("en")(stem + end) == plain_words(stem + end)

    def test_late_cases_beside_each_other(self):
        generator = random.Random(0)
        splitter = word_splitter("en")
        words = [word for case in splitter._looked_up_late for word in case]
        near = [*map("".join, splitter._late_cases), *words, "house", "a.", "x:", "-", "'", "."]
        for _ in range(2000):
            text = "".join(generator.choice(near) + generator.choice(["", " ", " "]) for _ in range(6))
            assert splitter(text) == plain_words(text)

    def test_long_runs_of_affixes(self):
        generator = random.Random(0)
        cases = sorted(case for case in word_splitter("en")._special_cases if not case.isspace())
        affixes = [
            *"'\"():;<>=$%#&…”’—°é日^.!",
            "..",
            "...",
            "'s",
            "US$",
            "km",
            "9",
            "9km",
            "10°C.",
            "AB.",
            "a",
            "Mr.",
        ]
        affixes += ["''", "o.O", "=D", "'em", "e.g.", "http://a.b", "x-y", "don't", "\ufffd", "\\n", " "]
        for _ in range(300):
            pool = [*generator.sample(affixes, generator.randint(1, 5)), generator.choice(cases)]
            runs = (generator.choice(pool) * generator.choice([1, 1, 2, 3, 10, 60]) for _ in range(40))
            text = "".join(runs)[: generator.choice([150, 300, 700])]
            assert word_splitter("en")(text) == plain_words(text)

    @pytest.mark.parametrize("affix", ["'", "(", "\ud800", "…", "'s", "$", "=D", "."], ids=ascii)
    def test_work_is_linear_in_a_run(self, affix, monkeypatch):
        # What is searched for affixes, all in all: with all that is left each time it would be 25 million characters.
        affix_length, seen = word_splitting._affix_length, []

        def counted(find, *arguments, **options):
            return affix_length(lambda window: seen.append(len(window)) or find(window), *arguments, **options)

        monkeypatch.setattr(word_splitting, "_affix_length", counted)
        WordSplitter()(affix * 10000)
        assert sum(seen) < 1_000_000

    def test_every_special_case_among_others(self):
        generator = random.Random(0)
        cases = [case for case in word_splitter("en").spacy_tokenizer.rules if not case.isspace()]
        for case in cases:
            around = generator.choice(["{}", "a {}.", "'{}'", "{}s", "x{}", "{0} {0}", "({}"])
            assert word_splitter("en")(around.format(case)) == plain_words(around.format(case))

    @given(st.text(alphabet="aé’‘“”–—…Ãâ€™ \u0160ñ£°ÀÿœŸ¿·\xa0\xad\xd7'\"<&;", max_size=12))
    @settings(deadline=None, max_examples=300)
    def test_latin_1_that_may_be_mojibake(self, text):
        assert fix_text(text) == ftfy.fix_text(text)

    def test_every_character_of_latin_1(self):
        for code in range(0x180):
            for text in (chr(code), f"a{chr(code)}’b", f"{chr(code)} {chr(code)}—", f"é{chr(code)}"):
                assert fix_text(text) == ftfy.fix_text(text)

    def test_ftfy_is_left_alone_with_accents(self, monkeypatch):
        monkeypatch.setattr(ftfy, "fix_text", None)
        assert fix_text("“Où est le café, señor?” £5 – déjà…") == '"Où est le café, señor?" £5 – déjà…'

    def test_cache(self):
        calls = []
        cache = StringCache(lambda text: calls.append(text) or len(text), limit=2)
        assert [cache[text] for text in ("a", "bb", "a", "ccc", "a", "d" * 100, "d" * 100)] == [
            1,
            2,
            1,
            3,
            1,
            100,
            100,
        ]
        assert calls == ["a", "bb", "ccc", "a", "d" * 100, "d" * 100]
        assert list(cache) == ["ccc", "a"]

    def test_store_of_strings_is_emptied(self):
        bounded = WordSplitter(max_strings=1)
        before = bounded.spacy_tokenizer
        assert bounded("plain words") == "plain words"
        assert bounded.spacy_tokenizer is before
        assert bounded("it'd 5km") == plain_words("it'd 5km")
        assert bounded.spacy_tokenizer is not before


ARGUMENTS = st.fixed_dictionaries(
    {
        "add_special_tokens": st.booleans(),
        "padding_strategy": st.sampled_from(
            [PaddingStrategy.DO_NOT_PAD, PaddingStrategy.LONGEST, PaddingStrategy.MAX_LENGTH]
        ),
        "truncation_strategy": st.sampled_from(list(TruncationStrategy)),
        "max_length": st.integers(4, 12),
        "pad_to_multiple_of": st.sampled_from([None, 1, 4]),
        "padding_side": st.sampled_from([None, "left", "right"]),
        "return_attention_mask": st.sampled_from([None, True, False]),
    }
)


def content(encoded):
    return {
        "data": dict(encoded.data),
        "sequences": encoded.n_sequences,
        "encodings": [
            (item.ids, item.tokens, item.word_ids, item.offsets, item.attention_mask, item.special_tokens_mask)
            for item in encoded.encodings
        ],
    }


class TestIds:
    @given(st.lists(TRICKY, min_size=1, max_size=4), ARGUMENTS, st.booleans(), st.sampled_from(["left", "right"]))
    @settings(deadline=None, max_examples=200)
    def test_short_way_is_the_long_way(self, release, texts, arguments, template, truncation_side):
        tokenizer = tokenizer_in(release, template)
        tokenizer.truncation_side = truncation_side
        if arguments["truncation_strategy"] == TruncationStrategy.ONLY_SECOND:
            return
        quick = tokenizer._encode_ids(texts, None, **arguments)
        if quick is None:
            assert arguments["truncation_strategy"] != TruncationStrategy.DO_NOT_TRUNCATE
        else:
            assert content(quick) == content(tokenizer._encode_words(texts, None, **arguments))

    @given(st.lists(st.tuples(TRICKY, TRICKY), min_size=1, max_size=3), ARGUMENTS, st.booleans())
    @settings(deadline=None, max_examples=200)
    def test_pairs(self, release, pairs, arguments, template):
        tokenizer = tokenizer_in(release, template)
        first, second = map(list, zip(*pairs, strict=True))
        quick = tokenizer._encode_ids(first, second, **arguments)
        if quick is None:
            assert arguments["truncation_strategy"] != TruncationStrategy.DO_NOT_TRUNCATE
        else:
            assert content(quick) == content(tokenizer._encode_words(first, second, **arguments))

    @given(TRICKY, st.none() | TRICKY, st.booleans())
    @settings(deadline=None)
    def test_single(self, release, text, pair, template):
        tokenizer = tokenizer_in(release, template)
        quick, slow = tokenizer._encode_ids(text, pair), tokenizer._encode_words(text, pair)
        assert content(quick) == content(slow)

    @pytest.mark.parametrize("tensors", [None, "np", "pt"], ids=str)
    @pytest.mark.parametrize("text", ["The cat", ["The cat", "the dog"]], ids=["single", "batch"])
    def test_tensors(self, task_tokenizer, only_ids, text, tensors):
        encoded = task_tokenizer(text, padding=True, return_tensors=tensors)
        ids = encoded["input_ids"] if tensors is None else encoded["input_ids"].tolist()
        the, cat, dog = task_tokenizer.convert_tokens_to_ids(["the</w>", "cat</w>", "dog</w>"])
        start, end = task_tokenizer.bos_token_id, task_tokenizer.cls_token_id
        rows = [[start, the, cat, end], [start, the, dog, end]]
        assert ids == (rows if isinstance(text, list) else rows[:1] if tensors else rows[0])

    @pytest.mark.parametrize(
        "arguments",
        [
            {},
            {"padding": True},
            {"padding": "max_length", "max_length": 30},
            {"truncation": True, "max_length": 5},
            {"verbose": False, "add_special_tokens": False},
        ],
        ids=str,
    )
    def test_usual_calls_take_the_short_way(self, task_tokenizer, only_ids, arguments):
        assert len(task_tokenizer(TEXTS, **arguments)["input_ids"]) == len(TEXTS)
        assert task_tokenizer.encode(TEXTS[0], **arguments)

    def test_golden_rows_in_one_text(self, tokenizer):
        text = "\n".join(row["text"] for row in read_golden(CARRIED_GOLDEN)[:200])
        assert tokenizer(text)["input_ids"] == tokenizer._encode_words(text)["input_ids"]

    def test_warning_of_long_texts(self, tokenizer, caplog):
        tokenizer.model_max_length = 2
        with caplog.at_level("WARNING", logger="transformers"):
            tokenizer("the cat sat")
        assert tokenizer.deprecation_warnings.get("sequence-length-is-longer-than-the-specified-maximum")

    def test_texts_of_a_kind_of_their_own(self, tokenizer):
        class Text(str):
            __slots__ = ()

        assert tokenizer(Text("the cat"))["input_ids"] == tokenizer("the cat")["input_ids"]
        assert tokenizer([("the", "cat")])["input_ids"] == tokenizer(["the"], ["cat"])["input_ids"]
        with pytest.raises(ValueError, match="batch length of `text`: 2 does not match"):
            tokenizer(["the", "cat"], ["sat"])


class TestChangedTokenizer:
    def test_added_tokens(self, tokenizer):
        assert "cat dog" not in tokenizer("the cat dog").tokens()
        tokenizer.add_tokens(["cat dog"])
        assert tokenizer("the cat dog").tokens() == ["the</w>", "cat dog"]
        assert tokenizer("the cat dog")["input_ids"][-1] == len(tokenizer) - 1

    def test_own_template(self, tokenizer):
        tokenizer("the")
        end = tokenizer.cls_token_id
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="$A _classify_", special_tokens=[("_classify_", end)]
        )
        assert tokenizer("the")["input_ids"][-1] == end

    def test_pieces_drawn_by_chance(self, tokenizer):
        whole = tokenizer("the cat")["input_ids"]
        tokenizer.backend_tokenizer.model.dropout = 1.0
        assert tokenizer("the cat")["input_ids"] != whole
        tokenizer.backend_tokenizer.model.dropout = None
        assert tokenizer("the cat")["input_ids"] == whole

    def test_another_backend(self, release, tokenizer, tmp_path):
        before = tokenizer("the cat")["input_ids"]
        write_release(tmp_path, merges=["t h"])
        tokenizer._tokenizer = release_tokenizer(tmp_path).backend_tokenizer
        assert tokenizer("the cat")["input_ids"] == tokenizer._encode_words("the cat")["input_ids"] != before

    def test_tokens_of_an_encoding_from_before(self, tokenizer):
        asked, unasked = tokenizer("the cat"), tokenizer("the cat")
        assert asked.tokens() == ["the</w>", "cat</w>"]
        tokenizer.task_template = True
        assert asked.tokens() == ["the</w>", "cat</w>"]
        with pytest.raises(ValueError, match="has been changed since this text was encoded: encode it again"):
            unasked.tokens()


class TestLazyEncodings:
    def test_made_once_when_asked_for(self, task_tokenizer):
        texts = ["the—cat", "dog"]
        encoded = task_tokenizer(texts, padding=True, truncation=True, max_length=5)
        texts[0] = "changed"
        assert encoded.is_fast
        assert encoded._made_encodings is None
        assert encoded.tokens(0) == ["_start_", "the</w>", "-</w>", "cat</w>", "_classify_"]
        assert encoded.tokens(1)[-2:] == ["<pad>", "<pad>"]
        assert encoded[0].offsets[2] == (3, 4)
        assert encoded.encodings is encoded.encodings

    @pytest.mark.parametrize(
        "clone",
        [copy.copy, copy.deepcopy, lambda batch: pickle.loads(pickle.dumps(batch))],
        ids=["copy", "deep", "pickle"],
    )
    def test_copies(self, tokenizer, clone):
        copied = clone(tokenizer(["the cat", "sat"]))
        assert copied.tokens(0) == ["the</w>", "cat</w>"]
        assert copied["input_ids"] == tokenizer(["the cat", "sat"])["input_ids"]

    def test_made_from_a_mapping(self, tokenizer):
        encoded = tokenizer(["the cat"])
        moved = type(encoded)(dict(encoded))
        assert isinstance(moved, BatchEncoding)
        assert moved["input_ids"] == encoded["input_ids"]
        assert not moved.is_fast


class TestDatasets:
    def test_calls_leave_no_trace(self, tokenizer):
        before = Hasher.hash(tokenizer)
        tokenizer(TEXTS)
        tokenizer(TEXTS, padding=True, truncation=True, max_length=3)
        assert Hasher.hash(tokenizer) == before

    @pytest.mark.parametrize("num_proc", [None, 2], ids=["one process", "two"])
    def test_map(self, task_tokenizer, num_proc):
        datasets.disable_progress_bars()
        rows = Dataset.from_dict({"text": TEXTS * 2})
        encode = functools.partial(encode_texts, tokenizer=task_tokenizer)
        mapped = rows.map(encode, batched=True, batch_size=3, num_proc=num_proc)
        assert mapped["input_ids"][:] == task_tokenizer._encode_words(TEXTS * 2)["input_ids"]
        assert mapped.column_names == ["text", "input_ids", "attention_mask"]


def encode_texts(batch, tokenizer):
    return tokenizer(batch["text"])


def test_words_of_parts_are_shared():
    splitter = WordSplitter()
    assert splitter("House, house; (House) house.") == "house , house ; ( house ) house ."
    assert word_splitting._PLAIN_PART.fullmatch("House")
    assert {"House", "house", ","} <= set(splitter._parts)


def test_positions_in_a_long_run_that_ftfy_changes(tokenizer):
    encoded = tokenizer("a" + "&amp;" * 3000 + " a", return_offsets_mapping=True)
    assert encoded.offset_mapping[0][0] == 0
    assert encoded.offset_mapping[-1] == (15002, 15003)
    assert all(0 <= start < end <= 15001 for start, end in encoded.offset_mapping[:-1])


def test_surrogates(tokenizer):
    for text in ("a \ud800 b", "\ud83d", "\ude00\ud83d a", "a\ud83d\ud83d\ude00\ud83d", "\ud83d\ude00"):
        assert tokenizer(text).input_ids == tokenizer(ftfy.fixes.fix_surrogates(text)).input_ids
        assert (
            tokenizer([text], [text]).input_ids
            == tokenizer([ftfy.fixes.fix_surrogates(text)], [ftfy.fixes.fix_surrogates(text)]).input_ids
        )
        assert tokenizer(text.split(), is_split_into_words=True).input_ids == tokenizer(text).input_ids


@pytest.mark.parametrize("arguments", [{}, {"return_tensors": "pt"}, {"padding": True}], ids=str)
def test_an_empty_batch(tokenizer, arguments):
    encoded = tokenizer([], **arguments)
    assert {name: len(values) for name, values in encoded.items()} == {"input_ids": 0, "attention_mask": 0}
