"""`train_tokenizer`: the files that it writes, and what it refuses."""

import json
import string

import pytest
from transformers import AutoTokenizer

from hf_gpt.commands import parse_arguments, train_tokenizer

STORY = "The cat sat on the mat.\nThe dog didn't sit; the dog ran — and the cat sang!\n\n" * 30


def run(tmp_path, *arguments, name="out", vocab_size=155):
    texts = tmp_path / "texts.txt"
    if not texts.exists():
        texts.write_text(STORY, encoding="utf-8")
    output = tmp_path / name
    common = ["--text_files", str(texts), "--output_dir", str(output), "--vocab_size", str(vocab_size)]
    train_tokenizer.train(*parse_arguments((train_tokenizer.TrainTokenizerArguments,), [*common, *arguments]))
    return output


def test_layout(tmp_path):
    output = run(tmp_path)
    vocab = json.loads((output / "encoder_bpe_155.json").read_text(encoding="utf-8"))
    pieces = sorted(vocab, key=vocab.get)
    lines = (output / "vocab_155.bpe").read_text(encoding="utf-8").split("\n")
    assert len(pieces) == 155
    assert pieces[0] == "<unk>"
    assert pieces[-1] == "\n</w>"
    characters = [piece for piece in pieces if len(piece) == 1]
    assert pieces[1 : 2 * len(characters) + 1] == [*characters, *(character + "</w>" for character in characters)]
    assert set(string.ascii_lowercase + string.digits + string.punctuation) <= set(characters)
    assert lines[0] == "#version: 0.2"
    assert lines[-1] == ""
    assert ["".join(line.split(" ")) for line in lines[1:-1]] == pieces[2 * len(characters) + 1 : -1]
    loaded = AutoTokenizer.from_pretrained(output)
    assert loaded.vocab_size == 155
    assert loaded("the cat").tokens() == ["the</w>", "cat</w>"]
    text = "the dog did n't sit ; the cat sang !"
    assert loaded.decode(loaded(text)["input_ids"]) == text


def test_runs_give_the_same(tmp_path):
    first, second = (run(tmp_path, name=name) for name in ("first", "second"))
    for name in ("encoder_bpe_155.json", "vocab_155.bpe", "tokenizer.json", "tokenizer_config.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_output_directory_in_use(tmp_path):
    output = run(tmp_path)
    with pytest.raises(ValueError, match=r"is not empty\. Name another --output_dir"):
        run(tmp_path)
    run(tmp_path, "--overwrite_output_dir", vocab_size=150)
    assert sorted(path.name for path in output.iterdir()) == [
        "encoder_bpe_150.json",
        "tokenization_gpt.py",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab_150.bpe",
        "words.json",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "texts.txt"]


@pytest.mark.parametrize(
    ("arguments", "vocab_size", "message"),
    [
        ([], 50, "leaves no room for merges: 68 characters"),
        ([], 5000, "at most .* rows; give more text or lower --vocab_size 5000"),
        (["--min_texts", "2"], 155, "no words seen in 2 or more texts"),
    ],
    ids=["too small", "too large", "no words"],
)
def test_impossible_sizes(tmp_path, arguments, vocab_size, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, *arguments, vocab_size=vocab_size)
    assert not (tmp_path / "out").exists()


def test_missing_text(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.txt: no such file or directory"):
        run(tmp_path, "--text_files", str(tmp_path / "nowhere.txt"))


def test_rare_characters_become_unknown():
    counts = {"naïve": 3, "café": 200, "the": 500, "then": 400}
    vocab, merges = train_tokenizer.learn_vocab(counts, vocab_size=145, min_character_count=100)
    assert "é</w>" in vocab
    assert "ï" not in vocab
    assert len(vocab) == 145
    assert all("".join(merge) in vocab for merge in merges)
