"""The tokenizer against the release's recorded results, and as a fast tokenizer among others."""

import copy
import functools
import json
import pickle
import string
from pathlib import Path

import datasets
import ftfy
import pytest
import torch
from datasets import Dataset
from datasets.fingerprint import Hasher
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer, TextIteratorStreamer, TextStreamer, pipeline

from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.model.tokenization_gpt import GPTTokenizer, english_rules, word_splitter

from ..support.texts import ALL_GOLDEN, CARRIED_GOLDEN, MERGES, RELEASE, read_golden, write_release

REPOSITORY = Path(__file__).resolve().parents[2]

needs_release = pytest.mark.skipif(not RELEASE.is_dir(), reason=f"the release's vocabulary is not in {RELEASE}")


@pytest.fixture(scope="module")
def tiny_release(tmp_path_factory):
    directory = tmp_path_factory.mktemp("release")
    write_release(directory)
    return directory


@pytest.fixture
def tokenizer(tiny_release):
    return release_tokenizer(tiny_release)


@pytest.fixture
def task_tokenizer(tiny_release):
    return release_tokenizer(tiny_release, task_template=True)


@pytest.fixture(scope="module")
def published():
    return release_tokenizer(RELEASE)


@needs_release
class TestRelease:
    @pytest.mark.parametrize("path", [CARRIED_GOLDEN, ALL_GOLDEN], ids=["bundled", "all"])
    def test_ids(self, published, path):
        if not path.is_file():
            pytest.skip(f"{path} is not there")
        rows = read_golden(path)
        encoded = published([row["text"] for row in rows])["input_ids"]
        assert [row["text"] for row, ids in zip(rows, encoded, strict=True) if ids != row["ids"]] == []

    def test_sizes_and_special_tokens(self, published):
        assert published.vocab_size == 40478
        assert len(published) == 40482
        names = ["_start_", "_delimiter_", "_classify_", "<pad>", "<unk>", "\n</w>"]
        assert published.convert_tokens_to_ids(names) == [40478, 40479, 40480, 40481, 0, 40477]


class TestEncoding:
    def test_literal_ids(self, tokenizer):
        encoded = tokenizer("The CAT sat.\nDogs 日")
        assert encoded.tokens() == ["the</w>", "cat</w>", "sat</w>", ".</w>", "\n</w>", "do", "g", "s</w>", "<unk>"]
        assert encoded["input_ids"][-1] == 0
        assert encoded.word_ids() == [0, 1, 2, 3, 4, 5, 5, 5, 6]
        assert list(encoded) == ["input_ids", "attention_mask"]

    def test_empty_text(self, tokenizer):
        assert tokenizer("")["input_ids"] == []
        assert tokenizer(["", "a"])["input_ids"][0] == []

    def test_special_token_roles(self, tokenizer):
        size = tokenizer.vocab_size
        assert len(tokenizer) == size + 4
        assert tokenizer.bos_token_id == size
        assert tokenizer.sep_token_id == size + 1
        assert tokenizer.cls_token_id == size + 2
        assert tokenizer.pad_token_id == size + 3
        assert tokenizer.unk_token_id == 0
        assert tokenizer.eos_token is None
        assert tokenizer.padding_side == "right"

    @pytest.mark.parametrize("text", ["<pad>", "<unk>", "_start_", "a _delimiter_ b", "_classify_", "x<pad>y_start_"])
    @pytest.mark.parametrize("arguments", [{}, {"split_special_tokens": False}], ids=["plain", "asked for"])
    def test_text_never_becomes_special(self, task_tokenizer, text, arguments):
        specials = set(task_tokenizer.all_special_ids)
        assert not specials & set(task_tokenizer(text, add_special_tokens=False, **arguments)["input_ids"])
        words = task_tokenizer(text.split(), is_split_into_words=True, add_special_tokens=False, **arguments)
        assert not specials & set(words["input_ids"])

    def test_template(self, task_tokenizer, tokenizer):
        single, pair = task_tokenizer("the cat"), task_tokenizer("the cat", "sat")
        assert single.tokens() == ["_start_", "the</w>", "cat</w>", "_classify_"]
        assert pair.tokens() == ["_start_", "the</w>", "cat</w>", "_delimiter_", "sat</w>", "_classify_"]
        assert pair.sequence_ids() == [None, 0, 0, None, 1, None]
        assert task_tokenizer("the cat", "").tokens() == ["_start_", "the</w>", "cat</w>", "_delimiter_", "_classify_"]
        assert task_tokenizer([("the", "cat")])["input_ids"] == task_tokenizer(["the"], ["cat"])["input_ids"]
        assert tokenizer("the cat", "sat").tokens() == ["the</w>", "cat</w>", "sat</w>"]
        assert task_tokenizer("the", return_special_tokens_mask=True)["special_tokens_mask"] == [1, 0, 1]

    @pytest.mark.parametrize("template", [False, True], ids=["language model", "task"])
    def test_template_is_the_same_everywhere(self, tokenizer, template):
        tokenizer.task_template = template
        first, second = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("the cat", "sat"))
        single, pair = tokenizer("the cat")["input_ids"], tokenizer("the cat", "sat")["input_ids"]
        assert tokenizer.num_special_tokens_to_add() == len(single) - len(first)
        assert tokenizer.num_special_tokens_to_add(pair=True) == len(pair) - len(first) - len(second)

    def test_padding_and_truncation(self, task_tokenizer):
        batch = task_tokenizer(["the cat sat", "dog"], padding=True, return_tensors="pt")
        pad = task_tokenizer.pad_token_id
        assert batch["input_ids"][1].tolist()[-2:] == [pad, pad]
        assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
        left = task_tokenizer(["the cat sat", "dog"], padding=True, padding_side="left")
        assert left["attention_mask"][1] == [0, 0, 1, 1, 1]
        cut = task_tokenizer("the cat sat", truncation=True, max_length=4)
        assert cut.tokens() == ["_start_", "the</w>", "cat</w>", "_classify_"]

    def test_overflow(self, task_tokenizer):
        parts = task_tokenizer(
            ["the cat sat. dog", "dog"],
            truncation=True,
            max_length=4,
            stride=1,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        assert parts["overflow_to_sample_mapping"] == [0, 0, 0, 0, 1]
        assert parts["offset_mapping"][:3] == [
            [(0, 0), (0, 3), (4, 7), (0, 0)],
            [(0, 0), (4, 7), (8, 11), (0, 0)],
            [(0, 0), (8, 11), (11, 12), (0, 0)],
        ]

    def test_one_by_one_equals_batch(self, tokenizer):
        texts = [row["text"] for row in read_golden(CARRIED_GOLDEN)[:100]]
        assert tokenizer(texts)["input_ids"] == [tokenizer(text)["input_ids"] for text in texts]

    def test_given_words(self, task_tokenizer):
        words = ["The", "cat", "\n", "didn't", ""]
        encoded = task_tokenizer(words, is_split_into_words=True, return_offsets_mapping=True)
        pieces = ["the</w>", "cat</w>", "\n</w>", "d", "i", "d</w>", "n'", "t</w>"]
        assert encoded.tokens() == ["_start_", *pieces, "_classify_"]
        assert encoded.word_ids() == [None, 0, 1, 2, 3, 3, 3, 3, 3, None]
        assert encoded["offset_mapping"][1:5] == [(0, 3), (0, 3), (0, 1), (0, 1)]
        assert encoded["offset_mapping"][-3:] == [(3, 5), (5, 6), (0, 0)]
        batch = task_tokenizer([["the", "cat"], ["dog"]], [["sat"], ["sat"]], is_split_into_words=True)
        assert batch.tokens(1) == ["_start_", "dog</w>", "_delimiter_", "sat</w>", "_classify_"]

    def test_invalid_input(self, tokenizer):
        with pytest.raises(ValueError, match="text input must be of type"):
            tokenizer(3)


class TestOffsets:
    @pytest.mark.parametrize(
        ("text", "spans"),
        [
            ("The  cat", ["The", "cat"]),
            ("sat—sat", ["sat", "—", "sat"]),
            ("cat…", ["cat", "…", "…", "…"]),
            ("the\n \n cat\n", ["the", "\n \n", "cat"]),
            ("“cat”", ["“", "cat", "”"]),
            ("the &amp; cat", ["the", "&", "cat"]),
            ("the catâ€”sat", ["the", "cat", "â€”", "sat"]),
            ("the e\u0301", ["the", "e\u0301"]),
            ("\ufeffthe cat", ["the", "cat"]),
        ],
        ids=repr,
    )
    def test_literal(self, tokenizer, text, spans):
        encoded = tokenizer(text, return_offsets_mapping=True)
        assert [text[start:end] for start, end in encoded["offset_mapping"]] == spans

    @given(st.text(alphabet=string.ascii_letters + string.punctuation.replace("&", "") + " \n\t", max_size=50))
    @settings(deadline=None)
    def test_pieces_stand_in_the_text(self, tiny_release, text):
        tokenizer = shared_tokenizer(tiny_release)
        encoded = tokenizer(text, return_offsets_mapping=True)
        for token, (start, end) in zip(encoded.tokens(), encoded["offset_mapping"], strict=True):
            piece = token.removesuffix("</w>")
            assert text[start:end].isspace() if piece == "\n" else text[start:end].lower() == piece

    def test_positions_of_the_batch_encoding(self, task_tokenizer):
        encoded = task_tokenizer("the—cat", "a  dog")
        assert encoded.char_to_token(3) == 2
        assert encoded.char_to_token(3, sequence_index=1) == 6
        assert encoded.char_to_token(1, sequence_index=1) is None
        assert tuple(encoded.token_to_chars(3)) == (4, 7)
        assert encoded.token_to_chars(0) is None
        assert tuple(encoded.word_to_chars(1, sequence_index=1)) == (3, 6)
        assert encoded.char_to_word(5) == 2
        assert encoded.encodings[0].ids == encoded["input_ids"]
        assert len(encoded[0]) == len(encoded["input_ids"])

    def test_as_tensors(self, tokenizer):
        encoded = tokenizer(["the cat", "dog"], padding=True, return_offsets_mapping=True, return_tensors="pt")
        assert encoded["offset_mapping"].tolist() == [[[0, 3], [4, 7]], [[0, 3], [0, 0]]]

    def test_survive_pickling(self, tokenizer):
        encoded = pickle.loads(pickle.dumps(tokenizer("sat—sat")))
        assert tuple(encoded.token_to_chars(2)) == (4, 7)


@functools.cache
def shared_tokenizer(directory):
    # hypothesis warns of fixtures made anew for each example.
    return release_tokenizer(directory)


class TestDecoding:
    def test_text(self, tokenizer):
        ids = tokenizer("The cat\n\nsat: don't!")["input_ids"]
        assert tokenizer.decode(ids) == "the cat\nsat : do n't !"
        assert tokenizer.batch_decode([ids, ids[:2]]) == ["the cat\nsat : do n't !", "the cat"]
        assert tokenizer.decode([]) == ""

    def test_special_tokens(self, task_tokenizer):
        ids = task_tokenizer("the cat", "sat", padding="max_length", max_length=7)["input_ids"]
        assert task_tokenizer.decode(ids) == "_start_ the cat _delimiter_ sat _classify_ <pad>"
        assert task_tokenizer.decode(ids, skip_special_tokens=True) == "the cat sat"

    def test_decoded_text_gives_the_same_text(self, tokenizer):
        for row in read_golden(CARRIED_GOLDEN)[-200:]:
            decoded = tokenizer.decode(tokenizer(row["text"])["input_ids"])
            if "<unk>" not in decoded and "'" not in decoded and "." not in decoded:
                assert tokenizer.decode(tokenizer(decoded)["input_ids"]) == decoded


class TestSaving:
    @pytest.mark.parametrize(
        "load", [GPTTokenizer.from_pretrained, AutoTokenizer.from_pretrained], ids=["own", "auto"]
    )
    def test_round_trip(self, tiny_release, tmp_path, load):
        tokenizer = release_tokenizer(tiny_release, task_template=True, model_max_length=12)
        tokenizer("the cat", truncation=True, max_length=3, padding="max_length")
        tokenizer.save_pretrained(tmp_path)
        config = json.loads((tmp_path / "tokenizer_config.json").read_text())
        assert config["tokenizer_class"] == "GPTTokenizer"
        assert config["task_template"] is True
        loaded = load(tmp_path)
        assert type(loaded) is GPTTokenizer
        assert loaded.model_max_length == 12
        assert loaded.task_template
        assert len(loaded) == len(tokenizer)
        assert loaded("The cat", "don't")["input_ids"] == tokenizer("The cat", "don't")["input_ids"]
        assert load(tmp_path, task_template=False)("the").tokens() == ["the</w>"]

    def test_backend_file(self, tokenizer, tmp_path):
        tokenizer("the cat", truncation=True, max_length=1)
        tokenizer.save_pretrained(tmp_path)
        backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        words = word_splitter(english_rules())("The cat\ndidn't sit.")
        assert backend.encode(words).ids == tokenizer("The cat\ndidn't sit.")["input_ids"]

    def test_added_tokens(self, tokenizer, tmp_path):
        tokenizer.add_tokens(["catdog"])
        tokenizer.save_pretrained(tmp_path)
        loaded = GPTTokenizer.from_pretrained(tmp_path)
        assert "catdog" in loaded("a catdog").tokens()
        assert len(loaded) == len(tokenizer)

    def test_added_special_tokens_are_taken_by_id(self, tokenizer):
        tokenizer.add_special_tokens({"additional_special_tokens": ["<CAT>"]})
        assert tokenizer.convert_tokens_to_ids("<CAT>") == len(tokenizer) - 1

    @pytest.mark.parametrize(
        "clone", [copy.deepcopy, lambda original: pickle.loads(pickle.dumps(original))], ids=["deepcopy", "pickle"]
    )
    def test_copies(self, task_tokenizer, clone):
        copied = clone(task_tokenizer)
        assert copied.task_template
        assert copied("the cat", "sat")["input_ids"] == task_tokenizer("the cat", "sat")["input_ids"]


class TestErrors:
    def test_no_vocabulary(self):
        with pytest.raises(ValueError, match="needs a vocabulary"):
            GPTTokenizer()

    def test_two_vocabularies(self, tmp_path):
        write_release(tmp_path, rows=1)
        write_release(tmp_path, rows=2, merges=MERGES[:2])
        with pytest.raises(ValueError, match=r"encoder_bpe_1.json, encoder_bpe_2.json; leave one there"):
            release_tokenizer(tmp_path)

    @pytest.mark.parametrize(
        ("vocab", "merges", "message"),
        [
            ("", None, r"encoder_bpe_27\.json is not valid JSON"),
            ("{", None, r"encoder_bpe_27\.json is not valid JSON .*line 1"),
            ("[1]", None, r"encoder_bpe_27\.json must hold one JSON object"),
            ("{}", None, r"the unknown token '<unk>' must have id 0, found None"),
            ('{"<unk>": "0"}', None, r"encoder_bpe_27\.json must hold one JSON object that maps"),
            (
                '{"<unk>": 0, "a": 2}',
                None,
                r"encoder_bpe_27\.json: ids must count from 0 .* 2 comes for 1",
            ),
            ('{"<unk>": 0, "a": 0}', None, r"encoder_bpe_27\.json: ids .* 0 comes for 1"),
            ('{"a": 0, "<unk>": 1}', None, r"the unknown token '<unk>' must have id 0, found 1"),
            ('{"a": 0}', None, r"the unknown token '<unk>' must have id 0, found None"),
            (None, "", r"vocab_27\.bpe, line 1: expected two pieces"),
            (None, "#version: 0.2\n", r"vocab_27\.bpe: holds no merges"),
            (None, "#version: 0.2\nt h\nth  e\n", r"vocab_27\.bpe, line 3: expected two pieces"),
            (None, "#version: 0.2\nt h\n\nc a\n", r"vocab_27\.bpe, line 3: expected two pieces"),
            (None, "#version: 0.2\nt h\nz q\n", r"vocab_27\.bpe, line 3: 'zq' is not in the vocabulary"),
            (None, "t h\né a\n", r"vocab_27\.bpe, line 2: 'é' is not in the vocabulary"),
        ],
        ids=lambda value: None if value is None else value[:12] or "empty",
    )
    def test_malformed_files(self, tmp_path, vocab, merges, message):
        write_release(tmp_path)
        if vocab is not None:
            (tmp_path / "encoder_bpe_27.json").write_text(vocab, encoding="utf-8")
        if merges is not None:
            (tmp_path / "vocab_27.bpe").write_text(merges, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            release_tokenizer(tmp_path)

    def test_special_token_in_the_vocabulary(self, tmp_path):
        vocab = write_release(tmp_path)
        write_release(tmp_path, vocab={**vocab, "<pad>": len(vocab)})
        with pytest.raises(ValueError, match="'<pad>' is a special token"):
            release_tokenizer(tmp_path)

    def test_not_utf8(self, tmp_path):
        write_release(tmp_path)
        (tmp_path / "vocab_27.bpe").write_bytes(b"t h\n\xff a\n")
        with pytest.raises(ValueError, match=r"vocab_27\.bpe: byte 0xff at offset 4 is not valid utf-8"):
            release_tokenizer(tmp_path)

    @pytest.mark.parametrize("name", ["encoder_bpe_27.json", "vocab_27.bpe"])
    def test_missing_files(self, tmp_path, name):
        write_release(tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(ValueError, match="found none"):
            release_tokenizer(tmp_path)
        with pytest.raises(ValueError, match=r"nowhere: .* found none"):
            release_tokenizer(tmp_path / "nowhere")


def test_tokens_around_each_text_as_transformers_asks_for_them(tokenizer):
    """`add_bos_token` and `add_eos_token`, off for a token that there is not."""
    tokenizer.add_special_tokens({"eos_token": "<end>"})
    tokenizer.add_bos_token = tokenizer.add_eos_token = True
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    one, two = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("the cat", "sat"))
    assert tokenizer("the cat")["input_ids"] == [bos, *one, eos]
    expected = [bos, *one, eos, bos, *two, eos]
    assert tokenizer("the cat", "sat")["input_ids"] == expected
    assert tokenizer("the cat", "sat", return_offsets_mapping=True)["input_ids"] == expected
    tokenizer.eos_token = None
    tokenizer.update_post_processor()
    assert not tokenizer.add_eos_token
    assert tokenizer("the cat")["input_ids"] == [bos, *one]


class TestGeneratedText:
    PROMPT = "She opened the door and"

    @pytest.fixture(scope="class")
    def generate(self, tiny_checkpoint):
        return pipeline("text-generation", model=str(tiny_checkpoint), max_new_tokens=12, do_sample=False)

    @pytest.mark.parametrize("prompt", [PROMPT, PROMPT + " ", PROMPT + "\n", PROMPT.replace("and", "an' ")])
    def test_pipeline_joins_words(self, generate, prompt):
        new = generate(prompt, return_full_text=False)[0]["generated_text"]
        assert new
        space = "" if prompt[-1].isspace() else " "
        assert generate([prompt, "It"])[0][0]["generated_text"] == prompt + space + new
        tokens = generate(prompt, return_tensors=True)[0]["generated_token_ids"]
        assert tokens[: -len(generate.tokenizer(new)["input_ids"])] == generate.tokenizer(prompt)["input_ids"]

    @pytest.mark.parametrize("skip_prompt", [False, True], ids=["whole", "new"])
    @pytest.mark.parametrize("streamer_class", [TextStreamer, TextIteratorStreamer])
    def test_streams_are_what_is_decoded(self, generate, streamer_class, skip_prompt, capsys):
        tokenizer = generate.tokenizer
        written = tokenizer("The cat sat.\nDogs didn't, and\n\nit rained")["input_ids"]
        prompt, new = torch.tensor([written[:4]]), written[4:]
        streamer = streamer_class(tokenizer, skip_prompt=skip_prompt)
        streamer.put(prompt)
        for token in new:
            streamer.put(torch.tensor([token]))
        streamer.end()
        shown = "".join(streamer) if streamer_class is TextIteratorStreamer else capsys.readouterr().out.rstrip("\n")
        assert shown == tokenizer.decode(new if skip_prompt else written)


class TestLazyPositions:
    def test_unchanged_by_what_happens_later(self, task_tokenizer):
        texts = ["the—cat", "dog"]
        encoded, again = (task_tokenizer(texts, padding=True, truncation=True, max_length=5) for _ in range(2))
        texts[0] = "changed"
        task_tokenizer.task_template = False
        assert encoded.is_fast
        assert encoded.tokens(0) == ["_start_", "the</w>", "-</w>", "cat</w>", "_classify_"]
        assert encoded.tokens(1)[-2:] == ["<pad>", "<pad>"]
        assert encoded[0].offsets[2] == (3, 4)
        copies = [copy.copy(again), copy.deepcopy(again), pickle.loads(pickle.dumps(again))]
        assert [copied[0].offsets for copied in copies] == [encoded[0].offsets] * 3

    def test_made_from_a_mapping(self, tokenizer):
        encoded = tokenizer(["the cat"])
        moved = type(encoded)(dict(encoded))
        assert moved["input_ids"] == encoded["input_ids"]
        assert not moved.is_fast


class TestDatasets:
    TEXTS = ["The CAT sat.\n\nDogs didn't 日", "", "say 'em.' twice :)", "“the—cat”…", "<unk> _start_ a<pad>"] * 2

    def test_calls_leave_no_trace(self, tokenizer):
        before = Hasher.hash(tokenizer)
        tokenizer(self.TEXTS)
        tokenizer(self.TEXTS, padding=True, truncation=True, max_length=3)
        assert Hasher.hash(tokenizer) == before

    @pytest.mark.parametrize("num_proc", [None, 2], ids=["one process", "two"])
    def test_map(self, task_tokenizer, num_proc):
        datasets.disable_progress_bars()
        rows = Dataset.from_dict({"text": self.TEXTS})
        encode = functools.partial(encode_texts, tokenizer=task_tokenizer)
        mapped = rows.map(encode, batched=True, batch_size=3, num_proc=num_proc)
        assert mapped["input_ids"][:] == task_tokenizer(self.TEXTS)["input_ids"]
        assert mapped.column_names == ["text", "input_ids", "attention_mask"]


def encode_texts(batch, tokenizer):
    return tokenizer(batch["text"])


def test_positions_in_a_long_run_that_ftfy_changes(tokenizer):
    encoded = tokenizer("a" + "&amp;" * 3000 + " a", return_offsets_mapping=True)
    assert encoded.offset_mapping[0][0] == 0
    assert encoded.offset_mapping[-1] == (15002, 15003)
    assert all(0 <= start < end <= 15001 for start, end in encoded.offset_mapping[:-1])


def test_surrogates(tokenizer):
    for text in ("a \ud800 b", "\ud83d", "\ude00\ud83d a", "a\ud83d\ud83d\ude00\ud83d", "\ud83d\ude00"):
        fixed = ftfy.fixes.fix_surrogates(text)
        assert tokenizer(text).input_ids == tokenizer(fixed).input_ids
        assert tokenizer([text], [text]).input_ids == tokenizer([fixed], [fixed]).input_ids
        assert tokenizer(text.split(), is_split_into_words=True).input_ids == tokenizer(text).input_ids


@pytest.mark.parametrize("arguments", [{}, {"return_tensors": "pt"}, {"padding": True}], ids=str)
def test_an_empty_batch(tokenizer, arguments):
    encoded = tokenizer([], **arguments)
    assert {name: len(values) for name, values in encoded.items()} == {"input_ids": 0, "attention_mask": 0}
