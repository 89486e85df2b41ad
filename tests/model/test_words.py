"""Words: ftfy, the release's clean-up and spaCy's rules as data, against the recorded words and spaCy itself."""

import json
import random
import sys

import ftfy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from hf_gpt import GPTTokenizer
from hf_gpt.conversion.word_rules import word_rules
from hf_gpt.model.tokenization_gpt import align, english_rules, fix_text, show_rules, word_splitter

from ..support.texts import (
    ALL_GOLDEN,
    BUNDLED_GOLDEN,
    FRAGMENTS,
    TRICKY,
    TYPOGRAPHY,
    as_backend_text,
    read_golden,
    split_words,
)

split = word_splitter(english_rules())
# Kafka, Tolstoi and Proust, with abbreviations, special cases with a space, and words that are not taken apart.
TEXTS = {
    "de": [
        "Als Gregor Samsa eines Morgens aus unruhigen Träumen erwachte, fand er sich in seinem Bett zu einem "
        "ungeheueren Ungeziefer verwandelt.",
        "»Was ist mit mir geschehen?« dachte er; das Bild, das er – z.B. vor kurzem – hatte: geht's d.h. um 4 Uhr?",
    ],
    "ru": [
        "В начале июля из своей каморки в С-м переулке, т.е. на улицу — «как бы в нерешимости».",
        "Мясо, рыба, в т.ч. красная, и др. продукты. Он жил в н.в. там.",
    ],
    "fr": [
        "Longtemps, je me suis couché de bonne heure; je n'avais pas le temps de me dire: «Je m'endors.»",
        "Aujourd'hui l'auto-école s'est arrêtée à Aix-en-Provence, rue Saint-Jean. Qu'est-ce que c'est?",
    ],
}


@pytest.mark.parametrize("path", [BUNDLED_GOLDEN, ALL_GOLDEN], ids=["bundled", "all"])
def test_words_of_the_release(path):
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    rows = read_golden(path)
    assert len(rows) >= 847
    assert [row["text"] for row in rows if split(row["text"]) != as_backend_text(row["words"])] == []


# Of more, one makes spaCy 3.8.18 free what is not its own, which ends the process.
@pytest.mark.parametrize("number", [1_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_random_texts_against_spacy(number):
    """Each special case in several surroundings, and random pieces of two kinds, some of them repeated."""
    generator, cases = random.Random(0), sorted(split.cases)
    web = ["http://", "www.", "a.com", "$", "€", "10", "km", "C++", "1,000.50", "%", "@", "#", "_", "p.m.", "..", "--"]
    affixes = [*"'\"():;<>=$%#&…”’—°é日^.,!-XY ", "''", "...", "'s", "US$", "9km", "10°C.", "AB.", "=D", "e.g.", "x-y"]
    blocks = [(0x20, 0x7F), (0xA0, 0x500), (0x2000, 0x2100), (0x20A0, 0x20D0), (0x1F300, 0x1F600), (0xFFFD, 0xFFFE)]
    others = [chr(code) for block in blocks for code in range(*block)]
    pools = [[*TYPOGRAPHY, *FRAGMENTS], cases, web, affixes, others]

    def random_text():
        kinds = generator.sample(pools, 2)
        pieces = [generator.choice(generator.choice(kinds)) for _ in range(generator.randrange(20))]
        return generator.choice(["", " "]).join(piece * generator.choice([1, 1, 1, 2, 10, 60]) for piece in pieces)

    around = ["{}", "a {}.", "'{}'", "{}s", "x{}", "{0} {0}", "({}"]
    texts = [generator.choice(around).format(case) for case in cases] + [random_text()[:700] for _ in range(number)]
    assert [text for text in texts if split(text) != split_words(text)] == []


@example("&amp; é\n<b> é\n&amp; é")  # entities stay after an angle bracket
@given(TRICKY | st.text(alphabet="aé’‘“”–—…Ãâ€™ \u0160ñ£°ÀÿœŸ¿·\xa0\xad\xd7'\"<&;", max_size=12))
def test_tricky_texts_against_spacy_and_ftfy(text):
    assert fix_text(text) == ftfy.fix_text(text)
    words = split(text)
    assert words == split_words(text)
    pairs = list(zip(words, align(text, words), strict=True))
    starts = [start for character, (start, _) in pairs if character != " "]
    assert starts == sorted(starts)
    assert all(0 <= start <= end <= len(text) for _, (start, end) in pairs)


def test_bundled_rules_are_those_of_the_version_they_name():
    spacy = pytest.importorskip("spacy")
    if json.loads(english_rules())["source"] != f"spaCy {spacy.__version__}":
        pytest.skip(f"the bundled rules are of another version than spaCy {spacy.__version__}")
    assert show_rules(word_rules("en")) == english_rules()


@pytest.mark.parametrize("affix", ["'", "(", "\ud800", "…", "'s", "$", "=D", "."], ids=ascii)
def test_long_runs_take_linear_time(affix):
    # By the square of its length each would take minutes.
    assert len(split(affix * 20_000).replace(" ", "")) >= 20_000


@pytest.mark.parametrize("language", TEXTS)
def test_other_languages(language, tmp_path, hf_gpt):
    pytest.importorskip("spacy")
    (tmp_path / "book.txt").write_text("\n\n".join(TEXTS[language] * 40), encoding="utf-8")
    flags = ["--text_files", tmp_path / "book.txt", "--language", language, "--vocab_size", 200]
    status, _, errors = hf_gpt("train_tokenizer", *flags, "--min_character_count", 1, "--output_dir", tmp_path / "out")
    assert status == 0, errors
    rules = (tmp_path / "out" / "words.json").read_text(encoding="utf-8")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.language == json.loads(rules)["language"] == language
    for text in (*TEXTS[language], "\n".join(TEXTS[language])):
        encoded = tokenizer(text, return_offsets_mapping=True)
        words = word_splitter(rules)(text)
        assert words == split_words(text, language)
        assert tokenizer.decode(encoded["input_ids"]) == words.replace(" \n ", "\n")
        pieces = [text[start:end].lower() for start, end in encoded["offset_mapping"]]
        assert "".join("".join(pieces).split()) == "".join(text.lower().split())
    tokenizer.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "words.json").read_text(encoding="utf-8") == rules


def test_without_spacy(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises((ValueError, ImportError), match=r"pip install 'hf-gpt\[languages\]'"):
        word_rules("de")


def test_folder_without_rules_is_english(tiny_checkpoint, tmp_path):
    GPTTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path)
    assert (tmp_path / "words.json").read_text(encoding="utf-8") == english_rules()
    (tmp_path / "words.json").unlink()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.language == "en"
    assert tokenizer.decode(tokenizer("don't")["input_ids"]) == "do n't"
    with pytest.raises(ValueError, match=r"words of 'de' need a words\.json of their own, found that of 'en'"):
        GPTTokenizer.from_pretrained(tiny_checkpoint, language="de")


@pytest.mark.parametrize("damaged", ["", "{", "[]", "{}", '{"cases": 3}', '{"cases": {}, "prefixes": ["("]}'])
def test_damaged_rules(damaged, tiny_checkpoint, tmp_path):
    GPTTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path)
    (tmp_path / "words.json").write_text(damaged, encoding="utf-8")
    with pytest.raises(ValueError, match=r"words\.json: no rules of words"):
        AutoTokenizer.from_pretrained(tmp_path)
