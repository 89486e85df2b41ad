"""The tokenizer against the release's recorded results, and as a fast tokenizer among others."""

import copy
import functools
import json
import pickle
import string

import datasets
import ftfy
import pytest
import torch
from datasets import Dataset
from datasets.fingerprint import Hasher
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer, TextIteratorStreamer, TextStreamer, pipeline

from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.model.tokenization_gpt import GPTTokenizer, english_rules, word_splitter

from ..support.texts import ALL_GOLDEN, BUNDLED_GOLDEN, MERGES, RELEASE, read_golden, write_release

TEXTS = ["The CAT sat.\n\nDogs didn't 日", "", "say 'em.' twice :)", "“the—cat”…", "<unk> _start_ a<pad>"] * 2
CLONES = [copy.deepcopy, lambda original: pickle.loads(pickle.dumps(original))]


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


@pytest.mark.skipif(not RELEASE.is_dir(), reason=f"the release's vocabulary is not in {RELEASE}")
@pytest.mark.parametrize("path", [BUNDLED_GOLDEN, ALL_GOLDEN], ids=["bundled", "all"])
def test_ids_of_the_release(path):
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    published, rows = release_tokenizer(RELEASE), read_golden(path)
    encoded = published([row["text"] for row in rows])["input_ids"]
    assert [row["text"] for row, ids in zip(rows, encoded, strict=True) if ids != row["ids"]] == []
    assert (published.vocab_size, len(published)) == (40478, 40482)
    names = ["_start_", "_delimiter_", "_classify_", "<pad>", "<unk>", "\n</w>"]
    assert published.convert_tokens_to_ids(names) == [40478, 40479, 40480, 40481, 0, 40477]


def test_literal_tokens(tokenizer):
    encoded = tokenizer("The CAT sat.\nDogs 日")
    assert encoded.tokens() == ["the</w>", "cat</w>", "sat</w>", ".</w>", "\n</w>", "do", "g", "s</w>", "<unk>"]
    assert encoded.word_ids() == [0, 1, 2, 3, 4, 5, 5, 5, 6]
    assert list(encoded) == ["input_ids", "attention_mask"]
    texts = ["", *(row["text"] for row in read_golden(BUNDLED_GOLDEN)[:100])]
    assert tokenizer(texts)["input_ids"] == [[], *(tokenizer(text)["input_ids"] for text in texts[1:])]
    assert tokenizer([])["input_ids"] == tokenizer("")["input_ids"] == []


@pytest.mark.parametrize("text", ["<pad>", "<unk>", "_start_", "a _delimiter_ b", "_classify_", "x<pad>y_start_"])
def test_text_never_becomes_special(task_tokenizer, text):
    specials = set(task_tokenizer.all_special_ids)
    for arguments in ({}, {"split_special_tokens": False}):
        for given_text, words in ((text, False), (text.split(), True)):
            encoded = task_tokenizer(given_text, is_split_into_words=words, add_special_tokens=False, **arguments)
            assert not specials & set(encoded["input_ids"])


def test_template(task_tokenizer, tokenizer):
    single, pair = task_tokenizer("the cat"), task_tokenizer("the cat", "sat")
    assert single.tokens() == ["_start_", "the</w>", "cat</w>", "_classify_"]
    assert pair.tokens() == ["_start_", "the</w>", "cat</w>", "_delimiter_", "sat</w>", "_classify_"]
    assert pair.sequence_ids() == [None, 0, 0, None, 1, None]
    assert task_tokenizer("the cat", "").tokens() == ["_start_", "the</w>", "cat</w>", "_delimiter_", "_classify_"]
    assert tokenizer("the cat", "sat").tokens() == ["the</w>", "cat</w>", "sat</w>"]
    assert task_tokenizer("the", return_special_tokens_mask=True)["special_tokens_mask"] == [1, 0, 1]
    added = [each.num_special_tokens_to_add(pair) for each in (tokenizer, task_tokenizer) for pair in (False, True)]
    assert added == [0, 0, 2, 3]
    tokenizer.add_special_tokens({"eos_token": "<end>"})
    tokenizer.add_bos_token = tokenizer.add_eos_token = True
    assert tokenizer("the", "sat").tokens() == ["_start_", "the</w>", "<end>", "_start_", "sat</w>", "<end>"]


def test_parts_of_a_long_text(task_tokenizer):
    settings = {"truncation": True, "max_length": 4, "stride": 1, "return_overflowing_tokens": True}
    parts = task_tokenizer(["the cat sat. dog", "dog"], **settings, return_offsets_mapping=True)
    assert parts.tokens(0) == ["_start_", "the</w>", "cat</w>", "_classify_"]
    assert parts["overflow_to_sample_mapping"] == [0, 0, 0, 0, 1]
    assert parts["offset_mapping"][:2] == [[(0, 0), (0, 3), (4, 7), (0, 0)], [(0, 0), (4, 7), (8, 11), (0, 0)]]


def test_given_words(task_tokenizer):
    words = ["The", "cat", "\n", "didn't", ""]
    encoded = task_tokenizer(words, is_split_into_words=True, return_offsets_mapping=True)
    pieces = ["the</w>", "cat</w>", "\n</w>", "d", "i", "d</w>", "n'", "t</w>"]
    assert encoded.tokens() == ["_start_", *pieces, "_classify_"]
    assert encoded.word_ids() == [None, 0, 1, 2, 3, 3, 3, 3, 3, None]
    assert encoded["offset_mapping"][1:5] == [(0, 3), (0, 3), (0, 1), (0, 1)]
    assert encoded["offset_mapping"][-3:] == [(3, 5), (5, 6), (0, 0)]
    batch = task_tokenizer([["the", "cat"], ["dog"]], [["sat"], ["sat"]], is_split_into_words=True)
    assert batch.tokens(1) == ["_start_", "dog</w>", "_delimiter_", "sat</w>", "_classify_"]


def test_surrogates(tokenizer):
    for text in ("a \ud800 b", "\ud83d", "\ude00\ud83d a", "a\ud83d\ud83d\ude00\ud83d", "\ud83d\ude00"):
        fixed = ftfy.fixes.fix_surrogates(text)
        assert tokenizer([text], [text]).input_ids == tokenizer([fixed], [fixed]).input_ids
        assert tokenizer(text.split(), is_split_into_words=True).input_ids == tokenizer(text).input_ids


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
def test_literal_offsets(tokenizer, text, spans):
    encoded = tokenizer(text, return_offsets_mapping=True)
    assert [text[start:end] for start, end in encoded["offset_mapping"]] == spans


def test_offsets_in_long_lines_that_ftfy_changes(tokenizer):
    encoded = tokenizer("a" + "&amp;" * 3000 + " a", return_offsets_mapping=True)
    assert encoded.offset_mapping[0][0] == 0
    assert encoded.offset_mapping[-1] == (15002, 15003)
    assert all(0 <= start < end <= 15001 for start, end in encoded.offset_mapping[:-1])
    words = "the cat " * 200 + "&amp; cat"
    encoded = tokenizer(words, return_offsets_mapping=True)
    assert [words[start:end] for start, end in encoded.offset_mapping] == [*["the", "cat"] * 200, "&", "cat"]


# hypothesis warns of fixtures made new for each example.
shared_tokenizer = functools.cache(release_tokenizer)


@given(st.text(alphabet=string.ascii_letters + string.punctuation.replace("&", "") + " \n\t", max_size=50))
def test_offsets_are_of_the_text_as_given(tiny_release, text):
    encoded = shared_tokenizer(tiny_release)(text, return_offsets_mapping=True)
    for token, (start, end) in zip(encoded.tokens(), encoded["offset_mapping"], strict=True):
        piece = token.removesuffix("</w>")
        assert text[start:end].isspace() if piece == "\n" else text[start:end].lower() == piece


def test_positions_of_the_batch_encoding(task_tokenizer):
    """They are computed when they are asked for, whatever has happened since, and in copies, too."""
    texts = ["the—cat", "a  dog"]
    encoded, again = (task_tokenizer(*texts) for _ in range(2))
    batch = task_tokenizer(texts, padding=True, return_offsets_mapping=True, return_tensors="pt")
    assert batch["offset_mapping"][0].tolist() == [[0, 0], [0, 3], [3, 4], [4, 7], [0, 0]]
    texts[0], task_tokenizer.task_template = "changed", False
    assert encoded.char_to_token(3) == 2
    assert encoded.char_to_token(1, sequence_index=1) is None
    assert tuple(encoded.word_to_chars(1, sequence_index=1)) == (3, 6)
    assert encoded[0].ids == encoded["input_ids"]
    for clone in (copy.copy, *CLONES):
        assert clone(again)[0].offsets == encoded[0].offsets
    assert not type(encoded)(dict(encoded)).is_fast


def test_decoding(tokenizer, task_tokenizer):
    ids = tokenizer("The cat\n\nsat: don't!")["input_ids"]
    assert tokenizer.batch_decode([ids, ids[:2], []]) == ["the cat\nsat : do n't !", "the cat", ""]
    ids = task_tokenizer("the cat", "sat", padding="max_length", max_length=7)["input_ids"]
    assert task_tokenizer.decode(ids) == "_start_ the cat _delimiter_ sat _classify_ <pad>"
    assert task_tokenizer.decode(ids, skip_special_tokens=True) == "the cat sat"
    for row in read_golden(BUNDLED_GOLDEN)[-200:]:
        decoded = tokenizer.decode(tokenizer(row["text"])["input_ids"])
        if not any(part in decoded for part in ("<unk>", "'", ".")):
            assert tokenizer.decode(tokenizer(decoded)["input_ids"]) == decoded


@pytest.fixture(scope="module")
def generate(tiny_checkpoint):
    return pipeline("text-generation", model=str(tiny_checkpoint), max_new_tokens=12, do_sample=False)


@pytest.mark.parametrize("end", ["and", "and ", "and\n", "an' "])
def test_pipeline_joins_words(generate, end):
    prompt = f"She opened the door {end}"
    new = generate(prompt, return_full_text=False)[0]["generated_text"]
    assert new
    assert generate([prompt, "It"])[0][0]["generated_text"] == prompt + " " * (not prompt[-1].isspace()) + new


@pytest.mark.parametrize("skip_prompt", [False, True], ids=["whole", "new"])
@pytest.mark.parametrize("streamer_class", [TextStreamer, TextIteratorStreamer])
def test_streams_are_what_is_decoded(generate, streamer_class, skip_prompt, capsys):
    tokenizer = generate.tokenizer
    written = tokenizer("The cat sat.\nDogs didn't, and\n\nit rained")["input_ids"]
    streamer = streamer_class(tokenizer, skip_prompt=skip_prompt)
    for part in ([written[:4]], *([token] for token in written[4:])):
        streamer.put(torch.tensor(part))
    streamer.end()
    shown = "".join(streamer) if streamer_class is TextIteratorStreamer else capsys.readouterr().out.rstrip("\n")
    assert shown == tokenizer.decode(written[4:] if skip_prompt else written)


@pytest.mark.parametrize("load", [GPTTokenizer.from_pretrained, AutoTokenizer.from_pretrained], ids=["own", "auto"])
def test_saved_and_loaded(tiny_release, tmp_path, load):
    tokenizer = release_tokenizer(tiny_release, task_template=True, model_max_length=12)
    tokenizer.add_tokens(["catdog"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<CAT>"]})
    tokenizer("the cat", truncation=True, max_length=3, padding="max_length")
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (config["tokenizer_class"], config["task_template"]) == ("GPTTokenizer", True)
    loaded = load(tmp_path)
    assert type(loaded) is GPTTokenizer
    assert (loaded.model_max_length, loaded.task_template, len(loaded)) == (12, True, len(tokenizer))
    assert loaded.convert_tokens_to_ids("<CAT>") == len(tokenizer) - 1
    pair = ("The catdog", "don't")
    for other in (loaded, *(clone(loaded) for clone in CLONES)):
        assert other(*pair)["input_ids"] == tokenizer(*pair)["input_ids"]
    assert load(tmp_path, task_template=False)("the").tokens() == ["the</w>"]
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    words = word_splitter(english_rules())("The cat\ndidn't sit.")
    assert backend.encode(words).ids == tokenizer("The cat\ndidn't sit.")["input_ids"]


@pytest.mark.parametrize("num_proc", [None, 2], ids=["one process", "two"])
def test_calls_leave_no_trace_and_map_is_cached(task_tokenizer, num_proc):
    before = Hasher.hash(task_tokenizer)
    task_tokenizer(TEXTS, padding=True, truncation=True, max_length=3)
    assert Hasher.hash(task_tokenizer) == before
    datasets.disable_progress_bars()
    rows, settings = Dataset.from_dict({"text": TEXTS}), {"batched": True, "batch_size": 3, "num_proc": num_proc}
    mapped = rows.map(lambda batch: task_tokenizer(batch["text"]), **settings)
    assert mapped["input_ids"][:] == task_tokenizer(TEXTS)["input_ids"]
    assert mapped.column_names == ["text", "input_ids", "attention_mask"]


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="needs a vocabulary"):
        GPTTokenizer()
    with pytest.raises(ValueError, match=r"nowhere: .* found none"):
        release_tokenizer(tmp_path / "nowhere")
    for rows in (1, 2):
        write_release(tmp_path, rows=rows, merges=MERGES[:rows])
    with pytest.raises(ValueError, match=r"encoder_bpe_1.json, encoder_bpe_2.json; leave one there"):
        release_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("vocab", "merges", "message"),
    [
        ("{", None, r"encoder_bpe_27\.json is not valid JSON .*line 1"),
        ('{"<unk>": "0"}', None, r"encoder_bpe_27\.json: it must hold one JSON object that maps"),
        ('{"<unk>": 0, "a": 2}', None, r"encoder_bpe_27\.json: ids must count from 0"),
        ('{"a": 0, "<unk>": 1}', None, r"the unknown token '<unk>' must have id 0, found 1"),
        ('{"<unk>": 0, "<pad>": 1}', None, "'<pad>' is a special token"),
        (None, "", r"vocab_27\.bpe: holds no merges"),
        (None, "#version: 0.2\nt h\nth  e\n", r"vocab_27\.bpe, line 3: expected two pieces"),
        (None, "#version: 0.2\nt h\nz q\n", r"vocab_27\.bpe, line 3: expected two pieces"),
        (None, b"t h\n\xff a\n", r"vocab_27\.bpe: .* byte 0xff in position"),
    ],
    ids=lambda value: None if value is None else repr(value[:12]),
)
def test_malformed_files(tmp_path, vocab, merges, message):
    write_release(tmp_path)
    for name, content in (("encoder_bpe_27.json", vocab), ("vocab_27.bpe", merges)):
        if content is not None:
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        release_tokenizer(tmp_path)
