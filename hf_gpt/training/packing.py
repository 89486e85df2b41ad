"""Documents -> rows of token ids of one length, without padding; and which part of the texts is held out."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value, load_dataset
from datasets.fingerprint import Hasher

from ..files import flag, reading
from ..files.ranges import check_ranges
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks.load import cached_rows
from .text_files import WIKITEXT_SPLIT, WIKITEXT_UNKNOWN, iter_texts, text_of, unwrap_paragraphs, wikitext_articles

_FEATURES = Features({"input_ids": List(Value("int32")), "starts": List(Value("int32")), "words": Value("float64")})
_PARAGRAPHS = 1_000  # of one call of the tokenizer
# How far behind its place a text may be divided, so as to be divided between paragraphs, lines or words.
_NEAR = 2_000

# A file or folder; or the arguments of `datasets.load_dataset`.
TextSource = str | dict[str, Any]


@dataclass
class TextArguments:
    """What to read."""

    text_files: list[str] | None = flag(None, "Text, JSONL or Parquet files, or folders of these.")
    dataset_name: str | None = flag(None, "Instead: id of a data set on the Hub, or a folder that datasets reads.")
    dataset_config: str | None = flag(None, "Its configuration, if it has several.")
    dataset_split: str = flag("train", "The part of it to train on.")
    validation_files: list[str] | None = flag(None, "What to evaluate, instead of a held-out part of the texts.")
    text_column: str = flag("text", "Column of the text in JSONL, Parquet and data sets.")
    tokenizer: str | None = flag(None, "Folder or Hub id of a GPTTokenizer; by default that of --model_name_or_path.")
    unwrap: bool = flag(True, "Join the hard-wrapped lines of a paragraph.")
    wikitext: bool = flag(False, "WikiText's files: articles are documents, <unk> is unknown, 1 @,@ 000 is 1,000.")
    hold_out_every: int = flag(50, "Hold out one document in so many, or of fewer the middle of each. 0: nothing.")
    validation_rows: int = flag(200, "Held-out rows to evaluate, spread over them all.")
    row_length: int | None = flag(None, "Tokens of a row, at most the model's context, which is the default.")
    num_proc: int | None = flag(None, "Processes that tokenize.")

    def __post_init__(self) -> None:
        check_ranges(self)
        if (self.text_files is None) == (self.dataset_name is None):
            raise ValueError("Name what to train on: either --text_files or --dataset_name.")


def _load(source: dict[str, Any]) -> Dataset:
    with reading(f"--dataset_name {source['path']}"):
        return load_dataset(**source)


def documents_of(sources: Iterable[TextSource], text_column: str = "text", wikitext: bool = False) -> Iterator[str]:
    """The documents of all sources: their texts, or with `wikitext` the articles of these."""
    for source in sources:
        if isinstance(source, dict):
            rows = enumerate(_load(source), 1)
            texts = (text_of(f"{source['path']}, row {number}", fields, text_column) for number, fields in rows)
        else:
            texts = (text for _, text in iter_texts(source, text_column))
        for text in texts:
            yield from wikitext_articles(text) if wikitext else [text]


def pack_documents(documents: Iterable[tuple[Sequence[int], int]], row_length: int) -> Iterator[dict[str, Any]]:
    """
    Pack documents, token ids and number of words of each, into rows without padding, but for the incomplete last one:
    `input_ids` of `row_length` tokens; `starts`, the indices (the first is 0) where a document begins, or continues
    from the row before, whose tokens see only their own piece; and `words`, spread evenly over a document's tokens.
    """
    row, starts, words = [], [], 0.0
    for document, document_words in documents:
        taken = 0
        while taken < len(document):
            starts.append(len(row))
            piece = document[taken : taken + row_length - len(row)]
            row.extend(piece)
            taken += len(piece)
            words += document_words * len(piece) / len(document)
            if len(row) == row_length:
                yield {"input_ids": row, "starts": starts, "words": words}
                row, starts, words = [], [], 0.0


def encode_document(text: str, tokenizer: GPTTokenizer, unknown: str | None = None) -> list[int]:
    """Token ids of a text, the newline token between paragraphs; for `unknown` the tokenizer's unknown token."""
    ids: list[int] = []
    paragraphs = [paragraph for paragraph in text.split("\n") if paragraph.strip()]
    for start in range(0, len(paragraphs), _PARAGRAPHS):
        some = paragraphs[start : start + _PARAGRAPHS]
        pieces = [paragraph.split(unknown) if unknown else [paragraph] for paragraph in some]
        flat = [piece for parts in pieces for piece in parts]
        rows = iter(tokenizer(flat, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"])
        for parts in pieces:
            encoded = [*next(rows)]
            for _ in parts[1:]:
                encoded += [tokenizer.unk_token_id, *next(rows)]
            ids += [tokenizer.newline_id, *encoded] if ids and encoded else encoded
    return ids


@dataclass(frozen=True)
class HeldOut:
    """One in `every` documents, those with a checksum of at most `highest`; where that is None, the middle of each."""

    every: int
    highest: int | None
    description: str

    @classmethod
    def of(cls, documents: Iterable[str], every: int) -> "HeldOut":
        """The held-out part of some documents, of which equal ones count once."""
        found = sorted({zlib.crc32(text.encode()) for text in documents})
        if len(found) < every:
            few = f"{len(found):,} in all, too few to hold out whole ones"
            return cls(every, None, f"the middle 1/{every} of each document ({few})")
        chosen = round(len(found) / every)
        return cls(every, found[chosen - 1], f"{chosen:,} of {len(found):,} documents, chosen by their texts")

    def divide(self, text: str) -> tuple[list[str], list[str]]:
        """A document in pieces: those to train on, and those that are held out."""
        if self.highest is not None:
            return ([], [text]) if zlib.crc32(text.encode()) <= self.highest else ([text], [])
        length = len(text) // self.every
        start = _boundary(text, (len(text) - length) // 2, length)
        stop = _boundary(text, start + length, length)
        return [text[:start], text[stop:]], [text[start:stop]]


def _boundary(text: str, place: int, within: int) -> int:
    """Where a paragraph, line or word begins at or behind a place."""
    for gap in ("\n\n", "\n", " "):
        found = text.find(gap, place, place + min(within, _NEAR))
        if found >= 0:
            return found + len(gap)
    return place


def packed_rows(
    sources: Iterable[TextSource],
    tokenizer: GPTTokenizer,
    row_length: int,
    text_column: str = "text",
    unwrap: bool = True,
    wikitext: bool = False,
    held_out: HeldOut | None = None,
    validation: bool = False,
) -> Iterator[dict[str, Any]]:
    """
    Rows of the documents of sources, as `pack_documents` gives them; without the part that is held out, or with
    `validation` of that part alone. For the other arguments see `TextArguments`.
    """
    change, unknown = unwrap_paragraphs if unwrap else str, None
    if wikitext:
        change, unknown = partial(WIKITEXT_SPLIT.sub, r"\1"), WIKITEXT_UNKNOWN
    texts = documents_of(sources, text_column, wikitext)
    if held_out is not None:
        texts = (piece for text in texts for piece in held_out.divide(text)[validation])
    documents = ((encode_document(change(text), tokenizer, unknown), len(text.split())) for text in texts)
    return pack_documents(documents, row_length)


def packed_dataset(
    sources: Sequence[TextSource], tokenizer: GPTTokenizer, row_length: int, num_proc: int | None = None, **how: Any
) -> Dataset:
    """
    `packed_rows` in the cache of `datasets`, made once, by `num_proc` processes that divide the sources among them. A
    `ValueError` for sources that cannot be read, or with less text than one row.
    """
    arguments = {"sources": list(sources), "tokenizer": tokenizer, "row_length": row_length, **how}
    if next(packed_rows(**arguments), None) is None:
        part = "held-out" if how.get("validation") else "training"
        problem = f"There is less {part} text than one row of {row_length} tokens"
        raise ValueError(f"{problem}: give more, or change --row_length or --hold_out_every (0 holds out nothing).")
    # By these the cache knows fresh rows from stale ones.
    stamps = [_load(source)._fingerprint for source in sources if isinstance(source, dict)]
    for path in [Path(source) for source in sources if isinstance(source, str)]:
        found = sorted([path, *path.rglob("*")])
        stamps += [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in found]
    settings = {"features": _FEATURES, "num_proc": num_proc, "gen_kwargs": arguments}
    return cached_rows(packed_rows, Hasher.hash((arguments, stamps)), **settings)


def packed_parts(
    texts: TextArguments, tokenizer: GPTTokenizer, row_length: int
) -> tuple[Dataset, Dataset | None, str | None]:
    """Training rows, held-out ones that are evaluated, and what these are."""
    how = {"text_column": texts.text_column, "wikitext": texts.wikitext}
    hub = {"path": texts.dataset_name, "name": texts.dataset_config, "split": texts.dataset_split}
    sources, held_out, own = texts.text_files or [hub], None, texts.validation_files or []
    if texts.hold_out_every and not own:
        held_out = HeldOut.of(documents_of(sources, **how), texts.hold_out_every)
    how |= {"tokenizer": tokenizer, "row_length": row_length, "unwrap": texts.unwrap, "num_proc": texts.num_proc}
    train = packed_dataset(sources, held_out=held_out, **how)
    if not own and held_out is None:
        return train, None, None
    rows = packed_dataset(own or sources, held_out=held_out, validation=not own, **how)
    step = max(1.0, len(rows) / texts.validation_rows)
    rows = rows.select([int(number * step) for number in range(min(len(rows), texts.validation_rows))])
    return train, rows, ", ".join(own) or held_out.description
