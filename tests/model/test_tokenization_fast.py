"""The tokenizer exported for transformers alone: how far it agrees, and that it needs nothing but its own file."""

import json
import shutil
import string
import subprocess
import sys
import textwrap

import pytest
from tokenizers import Tokenizer, normalizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_gpt import GPTConfig
from hf_gpt.conversion import fast_tokenizer as exporting
from hf_gpt.conversion.fast_tokenizer import (
    build_charsmap,
    build_normalizer,
    build_pre_tokenizer,
    disagreement,
    fast_tokenizer,
)
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.model.tokenization_gpt import GPTTokenizer, english_rules, word_splitter

from ..support.texts import ALL_GOLDEN, CARRIED_GOLDEN, as_backend_text, read_golden, write_release


def fast_words(text):
    normalized = build_normalizer().normalize_str(text)
    return [word for word, _ in build_pre_tokenizer().pre_tokenize_str(normalized)]


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


class TestWords:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("Don't stop.", "do n't stop ."),
            ("I couldn't've; you'll, we've, cannot", "i could n't 've ; you 'll , we 've , can not"),
            ("the U.S. way at 5 p.m.", "the u.s. way at 5 p.m."),
            ("NASA. Then I. then he.", "nasa . then i. then he ."),
            ("Mr. O'Neil, Ph.D.", "mr. o'neil , ph.d."),
            ("'don't' and ''so'' nothin' 'em", "' do n't ' and '' so '' nothin' 'em"),
            ("James's dogs' $5.20 10km", "james 's dogs ' $ 5.20 10 km"),
            ("one.Two x:y a...b .. ...", "one . two x : y a ... b .. ..."),
            ("me@example.Com www.example.com", "me@example . com www.example.com"),
            ("wait—what…", "wait - what ..."),
            ("it´s “so”", 'it \'s " so "'),
            ("a!!!b -- c---d //e", "a ! ! ! b -- c --- d // e"),
            ("snake_case back\\slash/slash", "snake _ case back\\slash / slash"),
            ("&lt;b&gt; &amp;amp; &#39;", "< b > & '"),
            ("<b> &amp;", "< b > & amp ;"),
            ("ﬁne ＡＢ e\u0301 \x1b[0mred\x07", "fine ab é red"),
            ("'d. 'em. 'em", "' d. 'em . 'em"),
            ("donâ€™t", "do n't"),
        ],
        ids=repr,
    )
    def test_literal(self, text, words):
        assert fast_words(text) == words.split(" ")
        assert word_splitter(english_rules())(text) == words

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("one\r\n \t\ntwo", ["one", "\n", "two"]),
            (" \n lone \n ", ["lone"]),
            ("a \t\xa0 b", ["a", "b"]),
            ("", []),
            (" \n\t ", []),
        ],
        ids=repr,
    )
    def test_white_space(self, text, words):
        assert fast_words(text) == words

    # What is carried was written by hand to be difficult.
    @pytest.mark.parametrize(("path", "least"), [(CARRIED_GOLDEN, 0.99), (ALL_GOLDEN, 0.998)], ids=["bundled", "all"])
    def test_agreement_with_the_release(self, path, least):
        if not path.is_file():
            pytest.skip(f"{path} is not there")
        rows = read_golden(path)
        for corrupted, floor in ((False, least), (True, 0.97)):
            chosen = [row for row in rows if row["source"].startswith("corrupted_") is corrupted]
            same = [" ".join(fast_words(row["text"])) == as_backend_text(row["words"]) for row in chosen]
            assert sum(same) >= floor * len(same)

    def test_every_special_case_of_spacy(self):
        cases = [case for case in word_splitter(english_rules()).cases if case.isascii() and not case.isspace()]
        different = [case for case in cases if fast_words(case) != word_splitter(english_rules())(case).split(" ")]
        assert different == []

    @pytest.mark.parametrize(
        "text",
        ["a" + ":" * 5000 + "b", "'" * 5000, "a:@" * 3000, "a." * 5000, "-" * 9000, "&" + "amp;" * 5000, "1km" * 3000],
        ids=lambda text: text[:5],
    )
    def test_long_chunks_are_no_trouble(self, text):
        assert "".join(fast_words(text)).startswith(text[0])

    def test_map_of_characters(self):
        mapping = {"é": "e", "ﬁ": "fi", "\t": " ", "e\u0301": "é", "ན": "n", "བ": "b"}
        mapped = normalizers.Precompiled(build_charsmap(mapping))
        assert mapped.normalize_str("é ﬁx\té e\u0301 ནབམ") == "e fix e é nbམ"


class TestTokenizer:
    def test_same_ids_as_exact(self, release, tokenizer):
        exact = release_tokenizer(release)
        texts = ["The CAT sat.\nDogs 日", "“Don't,” he said…", ""]
        assert tokenizer(texts)["input_ids"] == exact(texts)["input_ids"]
        assert disagreement(exact, tokenizer, texts) == 0
        assert disagreement(exact, tokenizer, [*texts, "cafÃ©"]) == 1

    def test_offsets(self, tokenizer):
        text = "The “cat”\n\n sat—dog…"
        encoded = tokenizer(text, return_offsets_mapping=True)
        spans = [text[start:end] for start, end in encoded["offset_mapping"]]
        assert [span.strip("\n ") for span in spans] == ["The", "“", "cat", "”", "", "sat", "—", "dog", *"………"]
        assert "\n" in spans[4]
        assert encoded.char_to_token(0) == 0
        assert encoded.word_ids()[:3] == [0, 1, 2]

    @pytest.mark.parametrize("text", ["<pad>", "<unk>", "_start_", "a _delimiter_ b", "x<pad>y_start_"])
    def test_text_never_becomes_special(self, saved, text):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(saved)
        assert not set(tokenizer.all_special_ids) & set(tokenizer(text, add_special_tokens=False)["input_ids"])

    def test_template(self, saved):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(saved)
        assert tokenizer("the cat").tokens() == ["_start_", "the</w>", "cat</w>", "_classify_"]
        assert tokenizer("the", "cat").sequence_ids() == [None, 0, None, 1, None]

    def test_settings_are_kept(self, release):
        exact = release_tokenizer(release, model_max_length=77, padding_side="left", truncation_side="left")
        fast = fast_tokenizer(exact)
        for name in ("model_max_length", "padding_side", "truncation_side", "special_tokens_map", "all_special_ids"):
            assert getattr(fast, name) == getattr(exact, name), name
        assert fast.get_vocab() == exact.get_vocab()
        assert exact("The cat").tokens() == ["the</w>", "cat</w>"]

    def test_given_words(self, tokenizer):
        encoded = tokenizer(["The", "didn't", ""], is_split_into_words=True, return_offsets_mapping=True)
        assert encoded.tokens() == ["the</w>", "d", "i", "d</w>", "n'", "t</w>"]
        assert encoded.word_ids() == [0, 1, 1, 1, 1, 1]
        assert encoded["offset_mapping"] == [(0, 3), (0, 1), (1, 2), (2, 3), (3, 5), (5, 6)]

    def test_offsets_point_into_the_text(self, tokenizer):
        for row in read_golden(CARRIED_GOLDEN)[:150]:
            for start, end in tokenizer(row["text"], return_offsets_mapping=True)["offset_mapping"]:
                assert 0 <= start <= end <= len(row["text"])

    def test_plain_text_has_exact_offsets(self, tokenizer):
        text = string.ascii_letters + string.punctuation.replace("&", " ") + " don't U.S. the cat."
        encoded = tokenizer(text, return_offsets_mapping=True)
        for token, (start, end) in zip(encoded.tokens(), encoded["offset_mapping"], strict=True):
            piece = token.removesuffix("</w>")
            assert text[start:end].isspace() if piece == "\n" else text[start:end].lower() == piece


class TestSaving:
    def test_round_trip(self, saved, tmp_path, monkeypatch):
        # What is loaded is complete.
        monkeypatch.setattr(exporting, "build_normalizer", None)
        loaded = AutoTokenizer.from_pretrained(saved)
        assert type(loaded) is PreTrainedTokenizerFast
        loaded.save_pretrained(tmp_path)
        assert (tmp_path / "tokenizer.json").read_bytes() == (saved / "tokenizer.json").read_bytes()

    def test_what_the_first_version_saved(self, release, saved, tmp_path):
        # hf_gpt 0.1 had it as a mode of its own class.
        shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
        settings = json.loads((saved / "tokenizer_config.json").read_text())
        settings |= {"mode": "fast", "task_template": True, "tokenizer_class": "GPTTokenizer"}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        loaded = AutoTokenizer.from_pretrained(tmp_path, config=GPTConfig())
        assert type(loaded) is GPTTokenizer
        exact = release_tokenizer(release, task_template=True)
        texts = ["The CAT m. sat.\nDogs 日", "“Don’t,” he said…", "cafÃ©", ""]
        assert loaded(texts)["input_ids"] == exact(texts)["input_ids"]
        again = PreTrainedTokenizerFast.from_pretrained(tmp_path)
        assert again(texts)["input_ids"] == PreTrainedTokenizerFast.from_pretrained(saved)(texts)["input_ids"]
        loaded.save_pretrained(tmp_path)
        assert "mode" not in json.loads((tmp_path / "tokenizer_config.json").read_text())

    @pytest.mark.whole
    def test_without_spacy_and_ftfy(self, saved):
        text = "“Don't,” said the U.S. cat…\nsat"
        script = f"""
            import sys
            for name in ("spacy", "ftfy", "hf_gpt"):
                sys.modules[name] = None
            from tokenizers import Tokenizer
            from transformers import PreTrainedTokenizerFast
            print(Tokenizer.from_file({str(saved / "tokenizer.json")!r}).encode({text!r}).ids)
            print(PreTrainedTokenizerFast.from_pretrained({str(saved)!r})({text!r})["input_ids"])
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        expected = PreTrainedTokenizerFast.from_pretrained(saved)(text)["input_ids"]
        assert [json.loads(line) for line in done.stdout.splitlines()] == [expected] * 2

    def test_backend_file_takes_any_text(self, saved):
        backend = Tokenizer.from_file(str(saved / "tokenizer.json"))
        assert backend.encode("The CAT", add_special_tokens=False).tokens == ["the</w>", "cat</w>"]
