"""Words of other languages: German and Russian sentences from books in the public domain."""

import json
import pickle

import pytest
from transformers import AutoTokenizer

from hf_gpt import GPTTokenizer
from hf_gpt.conversion.fast_tokenizer import fast_tokenizer
from hf_gpt.model.word_splitting import word_splitter

from ..support.texts import as_backend_text, split_words

# Kafka, Die Verwandlung (1915), and a line of abbreviations; Tolstoi, Anna Karenina (1878), and Dostoevskii.
TEXTS = {
    "de": [
        "Als Gregor Samsa eines Morgens aus unruhigen Träumen erwachte, fand er sich in seinem Bett zu einem "
        "ungeheueren Ungeziefer verwandelt.",
        "»Was ist mit mir geschehen?« dachte er. Es war kein Traum.",
        "Über dem Tisch hing das Bild, das er – z.B. vor kurzem – in einem hübschen, vergoldeten Rahmen untergebracht "
        "hatte; geht's d.h. um 4 Uhr?",
    ],
    "ru": [
        "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.",
        "Всё смешалось в доме Облонских.",
        "В начале июля, в чрезвычайно жаркое время, под вечер, один молодой человек вышел из своей каморки в С-м "
        "переулке, т.е. на улицу — «как бы в нерешимости».",
    ],
}
LANGUAGES = pytest.mark.parametrize("language", TEXTS)


@LANGUAGES
def test_words_are_spacys(language):
    for text in TEXTS[language]:
        assert word_splitter(language)(text) == as_backend_text(split_words(text, language))
    together = "\n".join(TEXTS[language])
    assert word_splitter(language)(together) == as_backend_text(split_words(together, language))


def test_rules_are_those_of_the_language():
    assert word_splitter("de")("Z.B. Hr. Meier d.h. ich").split() == ["z.b.", "hr.", "meier", "d.h.", "ich"]
    assert word_splitter("en")("Z.B. d.h. ich").split() != word_splitter("de")("Z.B. d.h. ich").split()
    assert word_splitter("ru")("т.е. в 1990 г. он").split() == ["т.е.", "в", "1990", "г.", "он"]


@LANGUAGES
def test_trained_by_command(language, tmp_path, hf_gpt):
    texts = TEXTS[language]
    (tmp_path / "book.txt").write_text("\n\n".join(texts * 40), encoding="utf-8")
    flags = ["--text_files", tmp_path / "book.txt", "--language", language, "--vocab_size", 270]
    status, _, errors = hf_gpt("train_tokenizer", *flags, "--min_character_count", 1, "--output_dir", tmp_path / "out")
    assert status == 0, errors
    assert json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())["language"] == language
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.language == language
    for text in texts:
        encoded = tokenizer(text, return_offsets_mapping=True)
        assert (
            encoded["input_ids"] == tokenizer(text).input_ids == pickle.loads(pickle.dumps(tokenizer))(text).input_ids
        )
        assert tokenizer.unk_token_id not in encoded["input_ids"]
        assert tokenizer.decode(encoded["input_ids"]) == word_splitter(language)(text)
        pieces = [text[start:end].lower() for start, end in encoded["offset_mapping"]]
        assert "".join(pieces) == "".join(text.lower().split())
    with pytest.raises(ValueError, match=f"those of '{language}'"):
        fast_tokenizer(tokenizer)


@pytest.mark.parametrize(("language", "message"), [("qq", "cannot split"), ("zh", "no rules for words"), (3, "code")])
def test_what_spacy_cannot_split(language, message, tiny_checkpoint, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        GPTTokenizer.from_pretrained(tmp_path, language=language)("ein Wort")


def test_other_formats_split_english(tiny_checkpoint, tmp_path, convert):
    folder = tmp_path / "german"
    GPTTokenizer.from_pretrained(tiny_checkpoint, language="de").save_pretrained(folder)
    status, printed = convert(tiny_checkpoint, tmp_path / "out", "--to", "openai-gpt", "--tokenizer_source", folder)
    assert status == 2
    assert "the tokenizer's of 'de'" in printed
