"""Tasks of words: parts of speech (Universal Dependencies) and named entities (CoNLL-2003)."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from .families import PARQUET_COPY, files, hub, tagging_task
from .readers import read_sentences

TREEBANK_COLUMNS = ("index", "form", "lemma", "upos", "xpos", "features", "head", "relation", "enhanced", "other")
read_treebank = partial(read_sentences, names=TREEBANK_COLUMNS, delimiter="\t")


def treebank_words(fields: dict[str, Any]) -> dict[str, list[str]]:
    """Columns without the ranges (2-3), which are several words as they are written, and words not written (2.1)."""
    kept = [number for number, index in enumerate(fields["index"]) if index.isdecimal()]
    return {name: [fields[name][number] for number in kept] for name in TREEBANK_COLUMNS}


def _words_of_treebank(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    columns = treebank_words(fields)
    yield {**fields, "words": columns["form"], "tags": columns["upos"]}


def _tagged_words(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The Hub's copy, where ranges have the tag _."""
    pairs = [pair for pair in zip(fields["tokens"], fields["upos"], strict=True) if pair[1] != "_"]
    yield {**fields, "tokens": [word for word, _ in pairs], "upos": [tag for _, tag in pairs]}


def _entities(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A sentence with B- before every entity; the publisher has it only where two of a kind meet."""
    if fields["word"] == ["-DOCSTART-"]:
        return
    tags, before = [], "O"
    for tag in fields["entity"]:
        begins = tag.startswith("I-") and before[1:] != tag[1:]
        tags.append(f"B-{tag[2:]}" if begins else tag)
        before = tag
    yield {**fields, "entity": tags}


# fmt: off
UNIVERSAL_TAGS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ",
    "SYM", "VERB", "X",
)
# fmt: on
ENTITIES = {"words": "word", "label": "entity"}
ENTITY_FILES: dict[str, Any] = {
    "read": partial(read_sentences, names=("word", "part of speech", "chunk", "entity")),
    "prepare": _entities,
}
TAGGING_TASKS = (
    tagging_task(
        "ud_pos",
        "What part of speech each word is, in the seventeen of Universal Dependencies",
        UNIVERSAL_TAGS,
        files(
            "*-ud-{}.conllu",
            {"id": "sent_id", "words": "words", "label": "tags"},
            read=read_treebank,
            prepare=_words_of_treebank,
        ),
        hub=hub(
            "universal-dependencies/universal_dependencies",
            {"id": "idx", "words": "tokens", "label": "upos"},
            revision=PARQUET_COPY,
            data_dir="en_ewt",
            prepare=_tagged_words,
        ),
        licence="that of the treebank (English EWT: CC BY-SA 4.0)",
        source="https://universaldependencies.org, a treebank's folder such as UD_English-EWT",
    ),
    tagging_task(
        "conll2003",
        "Which words of the news name persons, organisations, places and others",
        ("O", *(f"{part}-{kind}" for kind in ("PER", "ORG", "LOC", "MISC") for part in "BI")),
        files("eng.{}", ENTITIES, ("train", "testa", "testb"), **ENTITY_FILES),
        files("{}.txt", ENTITIES, ("train", "valid", "test"), **ENTITY_FILES),
        hub=hub("eriktks/conll2003", {"id": "id", "words": "tokens", "label": "ner_tags"}, revision=PARQUET_COPY),
        licence="Reuters corpus, research use",
        source="https://www.clips.uantwerpen.be/conll2003/ner/",
    ),
)
