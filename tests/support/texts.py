"""The recorded results of the release's tokenizer, and a vocabulary small enough to read."""

import functools
import json
import os
import string
from pathlib import Path

import pytest
from hypothesis import strategies as st

from hf_gpt.model.tokenization_gpt import clean_up, fix_text

REPOSITORY = Path(__file__).resolve().parents[2]
RELEASE = Path(os.environ.get("HF_GPT_DATA", REPOSITORY.parent / "shared" / "data")) / "gpt_bpe"
ALL_GOLDEN = Path(os.environ.get("HF_GPT_GOLDEN", REPOSITORY.parent / "shared" / "golden")) / "tokenizer.jsonl"
BUNDLED_GOLDEN = REPOSITORY / "tests" / "data" / "tokenizer_hand.jsonl"
MERGES = ["t h", "th e</w>", "c a", "ca t</w>", "s a", "sa t</w>", "n '", "d o", "do g</w>"]
TYPOGRAPHY = "abcXYZ .,'\"-!?;:()<>/\n\t‘’“”–—…"
FRAGMENTS = (
    *("&amp;", "&lt;", "<", "\r", "\r\n", "\x0b", "\x0c", "\x1b[0m", "\x85", "\u2028", "\ufeff"),
    *("é", "e\u0301", "\xa0", "ﬁ", "İ", "ΑΣ", "â€™", "Ã©", "Ａ", "😀", "中", "don't", "U.S.", "'em.", ":)", "n't"),
)
TRICKY = st.one_of(
    st.text(max_size=40),
    st.text(alphabet=TYPOGRAPHY, max_size=60),
    st.lists(st.sampled_from([*TYPOGRAPHY, *FRAGMENTS]), max_size=30).map("".join),
)


def split_words(text, language="en"):
    """The release's words in the plain way: one pass of spaCy behind ftfy and the clean-up, with single spaces."""
    lines = (" ".join(clean_up(line).split()) for line in fix_text(text).split("\n"))
    standardized = " \n ".join(line for line in lines if line)
    return as_backend_text(token.text for token in spacy_tokenizer(language)(standardized))


@functools.cache
def spacy_tokenizer(language):
    spacy = pytest.importorskip("spacy", reason="needs spaCy: pip install 'hf-gpt[languages]'")
    return spacy.blank(language).tokenizer


def read_golden(path):
    # Not splitlines: the texts hold other line separators.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def write_release(directory, merges=MERGES, rows=27):
    characters = [*string.ascii_lowercase, *string.punctuation]
    pieces = ["<unk>", *characters, *(character + "</w>" for character in characters)]
    pieces += ["".join(merge.split(" ")) for merge in merges] + ["\n</w>"]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    (directory / f"encoder_bpe_{rows}.json").write_text(json.dumps(vocab), encoding="utf-8")
    (directory / f"vocab_{rows}.bpe").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")


def as_backend_text(words):
    return " ".join("\n" if word == "\n " else word.lower() for word in words)
