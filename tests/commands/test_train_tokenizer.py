"""`train_tokenizer`: the files that it writes, and what it refuses."""

import json
import string

import pytest
from transformers import AutoTokenizer

from hf_gpt.commands import parse_arguments, train_tokenizer

STORY = "The cat sat on the mat.\nThe dog didn't sit; the dog ran — and the cat sang!\n\n" * 30


@pytest.fixture
def run(tmp_path):
    (tmp_path / "texts.txt").write_text(STORY, encoding="utf-8")

    def trained(name, *flags):
        defaults = ["--text_files", tmp_path / "texts.txt", "--output_dir", tmp_path / name, "--vocab_size", 155]
        flags = [str(flag) for flag in (*defaults, *flags)]
        train_tokenizer.train(*parse_arguments((train_tokenizer.TrainTokenizerArguments,), flags))
        return tmp_path / name

    return trained


def test_layout(run, tmp_path):
    output = run("out")
    vocab = json.loads((output / "encoder_bpe_155.json").read_text(encoding="utf-8"))
    pieces = sorted(vocab, key=vocab.get)
    version, *merges, last = (output / "vocab_155.bpe").read_text(encoding="utf-8").split("\n")
    assert (len(pieces), pieces[0], pieces[-1], version, last) == (155, "<unk>", "\n</w>", "#version: 0.2", "")
    characters = [piece for piece in pieces if len(piece) == 1]
    assert pieces[1 : 2 * len(characters) + 1] == [*characters, *(character + "</w>" for character in characters)]
    assert set(string.ascii_lowercase + string.digits + string.punctuation) <= set(characters)
    assert ["".join(merge.split(" ")) for merge in merges] == pieces[2 * len(characters) + 1 : -1]
    loaded = AutoTokenizer.from_pretrained(output)
    assert loaded.vocab_size == 155
    assert loaded("the cat").tokens() == ["the</w>", "cat</w>"]
    text = "the dog did n't sit ; the cat sang !"
    assert loaded.decode(loaded(text)["input_ids"]) == text
    # Another run gives the same.
    for name in ("encoder_bpe_155.json", "vocab_155.bpe", "tokenizer.json", "tokenizer_config.json"):
        assert (output / name).read_bytes() == (run("out", "--overwrite_output_dir") / name).read_bytes()
    with pytest.raises(ValueError, match=r"is not empty\. Name another --output_dir"):
        run("out")
    run("out", "--overwrite_output_dir", "--vocab_size", 150)
    names = {"encoder_bpe_150.json", "vocab_150.bpe", "words.json", "tokenization_gpt.py"}
    assert {path.name for path in output.iterdir()} == names | {"tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in tmp_path.iterdir()} == {"out", "texts.txt"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--vocab_size", 50], "too small for merges: 68 characters"),
        (["--vocab_size", 5000], "at most .* rows; give more text or lower --vocab_size 5000"),
        (["--min_texts", 2], "no words seen in 2 or more texts"),
        (["--text_files", "no.txt"], "no.txt"),
    ],
    ids=["too small", "too large", "no words", "no file"],
)
def test_refused(run, tmp_path, flags, message):
    with pytest.raises(ValueError, match=message):
        run("out", *flags)
    assert not (tmp_path / "out").exists()


def test_rare_characters_become_unknown():
    counts = {"naïve": 3, "café": 200, "the": 500, "then": 400}
    vocab, merges = train_tokenizer.learn_vocab(counts, vocab_size=145, min_character_count=100)
    assert ("é</w>" in vocab, "ï" in vocab, len(vocab)) == (True, False, 145)
    assert all("".join(merge) in vocab for merge in merges)
