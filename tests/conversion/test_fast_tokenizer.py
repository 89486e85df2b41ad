"""The tokenizer exported for transformers alone: how far it agrees, and that it needs nothing but its own file."""

import json
import shutil

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_gpt import GPTConfig
from hf_gpt.conversion.fast_tokenizer import disagreement, fast_tokenizer
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.model.tokenization_gpt import GPTTokenizer, english_rules, word_splitter

from ..support.texts import ALL_GOLDEN, BUNDLED_GOLDEN, as_backend_text, read_golden, write_release

MIXED = ["The CAT m. sat.\nDogs 日", "“Don’t,” he said…", ""]


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    directory = tmp_path_factory.mktemp("release")
    write_release(directory)
    return directory


@pytest.fixture(scope="module")
def saved(release, tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved")
    fast_tokenizer(release_tokenizer(release, task_template=True)).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def tokenizer(release):
    return fast_tokenizer(release_tokenizer(release))


@pytest.fixture(scope="module")
def fast_words(tokenizer):
    backend = tokenizer.backend_tokenizer

    def words(text):
        return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))]

    return words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I couldn't've; you'll, we've, cannot", "i could n't 've ; you 'll , we 've , can not"),
        ("the U.S. way at 5 p.m.", "the u.s. way at 5 p.m."),
        ("'don't' and ''so'' nothin' 'em", "' do n't ' and '' so '' nothin' 'em"),
        ("one.Two x:y a...b .. ...", "one . two x : y a ... b .. ..."),
        ("me@example.Com www.example.com", "me@example . com www.example.com"),
        ("it´s “so”", 'it \'s " so "'),
        ("a!!!b -- c---d //e", "a ! ! ! b -- c --- d // e"),
        ("snake_case back\\slash/slash", "snake _ case back\\slash / slash"),
        ("&lt;b&gt; &amp;amp; &#39;", "< b > & '"),
        ("ﬁne e\u0301 \x1b[0mred\x07", "fine é red"),
        ("'d. 'em. 'em", "' d. 'em . 'em"),
        ("one\r\n \t\ntwo\n", "one \n two"),
        (" \n\t ", ""),
    ],
    ids=repr,
)
def test_words(text, words, fast_words):
    assert fast_words(text) == [word for word in words.split(" ") if word]
    assert word_splitter(english_rules())(text) == words


@pytest.mark.parametrize("path", [BUNDLED_GOLDEN, ALL_GOLDEN], ids=["bundled", "all"])
def test_agreement_with_the_release(path, fast_words):
    """What it differs on is written to be difficult: mojibake and full-width letters."""
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    rows = read_golden(path)
    different = [row for row in rows if " ".join(fast_words(row["text"])) != as_backend_text(row["words"])]
    assert len(different) <= (14 if path is BUNDLED_GOLDEN else 60)
    assert {row["source"] for row in different} <= {
        *("hand", "corrupted_mojibake", "corrupted_fullwidth", "spacy_examples_multilingual"),
    }


def test_every_special_case_of_spacy(fast_words):
    cases = [case for case in word_splitter(english_rules()).cases if case.isascii() and not case.isspace()]
    different = [case for case in cases if fast_words(case) != word_splitter(english_rules())(case).split(" ")]
    assert different == []


@pytest.mark.parametrize("text", ["a" + ":" * 5000 + "b", "'" * 5000, "a:@" * 3000, "a." * 5000, "&" + "amp;" * 5000])
def test_long_chunks_are_no_trouble(text, fast_words):
    assert "".join(fast_words(text)).startswith(text[0])


def test_same_ids_offsets_and_settings(release, tokenizer):
    exact = release_tokenizer(release, model_max_length=77, padding_side="left", truncation_side="left")
    assert disagreement(exact, tokenizer, MIXED) == 0
    assert disagreement(exact, tokenizer, [*MIXED, "cafÃ©"]) == 1
    fast = fast_tokenizer(exact)
    for name in ("model_max_length", "padding_side", "truncation_side", "special_tokens_map", "all_special_ids"):
        assert getattr(fast, name) == getattr(exact, name), name
    assert fast.get_vocab() == exact.get_vocab()
    text = "The “cat”\n\n sat—dog…"
    spans = [text[start:end] for start, end in fast(text, return_offsets_mapping=True)["offset_mapping"]]
    assert [span.strip("\n ") for span in spans] == ["The", "“", "cat", "”", "", "sat", "—", "dog", *"………"]
    encoded = tokenizer(["The", "didn't", ""], is_split_into_words=True)
    assert (encoded.tokens(), encoded.word_ids()) == (
        ["the</w>", "d", "i", "d</w>", "n'", "t</w>"],
        [0, 1, 1, 1, 1, 1],
    )


def test_saved_and_loaded(release, saved, tmp_path):
    loaded = AutoTokenizer.from_pretrained(saved)
    assert type(loaded) is PreTrainedTokenizerFast
    assert loaded("the cat").tokens() == ["_start_", "the</w>", "cat</w>", "_classify_"]
    assert loaded("the", "cat").sequence_ids() == [None, 0, None, 1, None]
    for text in ("<pad>", "<unk>", "_start_", "a _delimiter_ b", "x<pad>y_start_"):
        assert not set(loaded.all_special_ids) & set(loaded(text, add_special_tokens=False)["input_ids"])
    # hf_gpt 0.1 had it as a mode of its own class.
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    settings = json.loads((saved / "tokenizer_config.json").read_text())
    settings |= {"mode": "fast", "task_template": True, "tokenizer_class": "GPTTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    first = AutoTokenizer.from_pretrained(tmp_path, config=GPTConfig())
    assert type(first) is GPTTokenizer
    assert first(MIXED)["input_ids"] == release_tokenizer(release, task_template=True)(MIXED)["input_ids"]
