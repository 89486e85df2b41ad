"""Documents -> rows of token ids of one length, without padding; and which part of the texts is held out."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, IterableDataset, Value, load_dataset
from datasets import Sequence as SequenceFeature
from datasets.exceptions import DatasetGenerationError
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

from ..files import flag
from ..model.tokenization_gpt import GPTTokenizer
from .arguments import check_ranges
from .text_files import WIKITEXT_UNKNOWN, iter_texts, join_wikitext_cuts, unwrap_paragraphs, wikitext_articles

ROW_FEATURES = Features(
    {
        "input_ids": SequenceFeature(Value("int32")),
        "starts": SequenceFeature(Value("int32")),
        "words": Value("float64"),
    }
)
# Characters that one call of the tokenizer gets: long enough to batch, short enough for progress to show.
_CALL_CHARACTERS = 200_000
# How far behind its place a split may go, so as to fall between paragraphs, lines or words.
_CUT_CHARACTERS = 2_000
# Of a stream, rows that are shuffled at a time.
_SHUFFLED_ROWS = 1_000


@dataclass
class TextArguments:
    """What to read."""

    text_files: list[str] | None = flag(
        None, "Text files, JSONL or Parquet (a text a row), folders, or .zip/.tar.xz archives of .txt files."
    )
    dataset_name: str | None = flag(None, "Instead: id of a data set on the Hub, or a folder that datasets reads.")
    dataset_config: str | None = flag(None, "Its configuration, if it has several.")
    dataset_split: str = flag("train", "The part of it to train on.")
    dataset_revision: str = flag("main", "Its branch, tag or commit on the Hub.")
    streaming: bool = flag(
        False,
        "For what does not fit on the disk: read and pack while training, 1,000 rows shuffled at a time. Needs "
        "--max_steps.",
    )
    validation_files: list[str] | None = flag(None, "What to measure, instead of a held-out part of --text_files.")
    text_column: str = flag("text", "Column of the text in JSONL, Parquet and data sets.")
    tokenizer: str | None = flag(None, "Folder or Hub id of a GPTTokenizer; by default that of --model_name_or_path.")
    unwrap: bool = flag(True, "Join the hard-wrapped lines of a paragraph.")
    wikitext: bool = flag(
        False,
        "The files are WikiText's: each article is a document, <unk> the unknown token, and 1 @,@ 000 is 1,000. "
        "Words are counted as they are given.",
    )
    hold_out_every: int = flag(
        50,
        "Hold out one document in so many, chosen by its text; of fewer documents than that, the middle of each, one "
        "part in so many. 0: nothing.",
    )
    validation_rows: int = flag(200, "Held-out rows to measure, spread over them all.")
    row_length: int | None = flag(None, "Tokens of a row, at most the model's context, which is the default.")
    num_proc: int | None = flag(None, "Processes that tokenize.")

    def __post_init__(self) -> None:
        check_ranges(self)
        if (self.text_files is None) == (self.dataset_name is None):
            raise ValueError("Name what to train on: either --text_files or --dataset_name.")

    @cached_property
    def sources(self) -> "list[str | HubTexts]":
        """What to train on; of a data set on the Hub the commit that its revision is now."""
        if self.dataset_name is None:
            return self.text_files
        commit = None
        if not Path(self.dataset_name).is_dir():
            try:
                commit = HfApi().dataset_info(self.dataset_name, revision=self.dataset_revision).sha
            except (HfHubHTTPError, OSError) as error:
                problem = f"{self.dataset_name} is no folder, nor on the Hub: {error}"
                raise ValueError(f"--dataset_name {problem}") from error
        return [HubTexts(self.dataset_name, self.dataset_config, self.dataset_split, commit, self.streaming)]

    def describe(self) -> str:
        """What is trained on, for people."""
        if self.dataset_name is not None:
            return f"the data set {self.dataset_name} ({self.dataset_split})"
        return f"files of the user ({', '.join(Path(file).name for file in self.text_files)})"


@dataclass(frozen=True)
class HubTexts:
    """The texts of a data set: of its id on the Hub, at a commit, or of a folder; `streaming` stores nothing."""

    name: str
    config: str | None
    split: str
    commit: str | None
    streaming: bool

    def __str__(self) -> str:
        return self.name

    def texts(self, column: str) -> Iterator[str]:
        """One by one; a `ValueError` names the row that has none."""
        settings = {"split": self.split, "revision": self.commit, "streaming": self.streaming}
        try:
            rows = load_dataset(self.name, self.config, **settings)
        except (OSError, ValueError, DatasetGenerationError) as error:
            raise ValueError(f"--dataset_name {self.name}: {error}") from error
        for number, row in enumerate(rows, 1):
            if not isinstance(row.get(column), str):
                found = ", ".join(name for name, value in row.items() if isinstance(value, str)) or "none"
                raise ValueError(
                    f"{self.name}, row {number}: there is no text in {column!r}. Name the column with --text_column; "
                    f"texts stand in: {found}."
                )
            yield row[column]


def pack_documents(
    documents: Iterable[tuple[Sequence[int], int]], row_length: int
) -> Iterator[dict[str, list[int] | float]]:
    """
    Cut a stream of documents, token ids and number of words of each, into rows of one length without padding; a row
    takes up where the row before stopped. Where a document begins, or continues in a row, a new piece starts: its
    tokens see only their own piece. The incomplete last row is left out.

    Yields:
        `dict`: `input_ids` of `row_length` tokens; `starts`, the indices where pieces begin (the first is 0); and
            `words`, those of each document spread evenly over its tokens.
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
    """
    Token ids of a long text, in calls of many paragraphs; the newline token separates paragraphs. What is written
    for an unknown word (`unknown`) is the tokenizer's unknown token.
    """
    newline = tokenizer.newline_id
    ids: list[int] = []
    paragraphs = [paragraph for paragraph in text.split("\n") if paragraph.strip()]
    behind = accumulate(map(len, paragraphs))  # characters up to the end of each
    for _, call in groupby(zip(paragraphs, behind, strict=True), key=lambda each: each[1] // _CALL_CHARACTERS):
        pieces = [paragraph.split(unknown) if unknown else [paragraph] for paragraph, _ in call]
        flat = [piece for paragraph in pieces for piece in paragraph]
        rows = iter(tokenizer(flat, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"])
        for paragraph in pieces:
            encoded = [*next(rows)]
            for _ in paragraph[1:]:
                encoded += [tokenizer.unk_token_id, *next(rows)]
            ids += [newline, *encoded] if ids and encoded else encoded
    return ids


@dataclass(frozen=True)
class HeldOut:
    """
    Which part of the texts is held out: one in `every`. It follows from the texts alone, not from the names or the
    order of files. Of `documents` (equal ones count once) `chosen` are held out as a whole, those whose checksum is at
    most `highest`; if there are fewer than `every`, none is, and the middle of each is held out.
    """

    every: int
    documents: int
    chosen: int = 0
    highest: int = -1

    @classmethod
    def of(cls, texts: Iterable[str], every: int) -> "HeldOut":
        """The held-out part of some texts."""
        found = sorted({_checksum(text) for text in texts})
        if len(found) < every:
            return cls(every, len(found))
        chosen = round(len(found) / every)
        return cls(every, len(found), chosen, found[chosen - 1])

    @classmethod
    def uncounted(cls, every: int) -> "HeldOut":
        """About one document in so many, of documents that nobody counts."""
        return cls(every, 0, 1, 2**32 // every)

    def divide(self, text: str) -> tuple[list[str], list[str]]:
        """A document in pieces: those to train on, and those that are held out."""
        if self.chosen:
            return ([], [text]) if _checksum(text) <= self.highest else ([text], [])
        length = len(text) // self.every
        start = _cut(text, (len(text) - length) // 2, length)
        stop = _cut(text, start + length, length)
        return [text[:start], text[stop:]], [text[start:stop]]

    def __str__(self) -> str:
        if not self.documents:
            return f"about one document in {self.every}, chosen by its text"
        if self.chosen:
            return f"{self.chosen:,} of {self.documents:,} documents, chosen by their texts"
        found = f"{self.documents:,} in all, too few to hold out whole ones"
        return f"the middle 1/{self.every} of each document ({found})"


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode())


def _cut(text: str, place: int, within: int) -> int:
    """Where a paragraph, line or word begins at or behind a place."""
    for gap in ("\n\n", "\n", " "):
        found = text.find(gap, place, place + min(within, _CUT_CHARACTERS))
        if found >= 0:
            return found + len(gap)
    return place


def packed_rows(
    files: Sequence[str | HubTexts],
    tokenizer: GPTTokenizer,
    row_length: int,
    unwrap: bool = True,
    held_out: HeldOut | None = None,
    validation: bool = False,
    text_column: str = "text",
    wikitext: bool = False,
    stamps: Sequence[tuple[tuple[int, int], ...]] = (),
) -> Iterator[dict[str, list[int] | float]]:
    """
    Rows of the documents of text files, as `pack_documents` gives them.

    Args:
        files (`Sequence[str]`): text, JSONL or Parquet files, folders or archives (see `iter_texts`); or `[HubTexts]`.
        unwrap (`bool`, *optional*, defaults to `True`): join the hard-wrapped lines of a paragraph.
        held_out (`HeldOut`, *optional*): part of the texts that is left out; with `validation` that part alone is
            taken.
        wikitext (`bool`, *optional*, defaults to `False`): the files are WikiText's.
        stamps: sizes and times of change of the files, which only tell `datasets` fresh from stale.
    """
    texts = documents_of(files, text_column, wikitext)
    if held_out is not None:
        texts = (piece for text in texts for piece in held_out.divide(text)[validation])

    def ids(text: str) -> list[int]:
        if wikitext:
            return encode_document(join_wikitext_cuts(text), tokenizer, WIKITEXT_UNKNOWN)
        return encode_document(unwrap_paragraphs(text) if unwrap else text, tokenizer)

    yield from pack_documents(((ids(text), len(text.split())) for text in texts), row_length)


def documents_of(files: Sequence[str | HubTexts], text_column: str = "text", wikitext: bool = False) -> Iterator[str]:
    """The documents of files, or of one data set: their texts, or with `wikitext` the articles of these."""
    is_hub = any(isinstance(file, HubTexts) for file in files)
    for text in files[0].texts(text_column) if is_hub else (text for _, text in iter_texts(files, text_column)):
        yield from wikitext_articles(text) if wikitext else (text,)


def packed_dataset(
    files: Sequence[str | HubTexts],
    tokenizer: GPTTokenizer,
    row_length: int,
    num_proc: int | None = None,
    cache_dir: str | None = None,
    streaming: bool = False,
    **how: Any,
) -> Dataset | IterableDataset:
    """
    `packed_rows` as a data set, made once: later calls find the rows in the cache of `datasets`. `num_proc` processes
    divide the files among them; with `streaming` rows are packed as they are wanted, and nothing is cached. Files that
    are missing, unreadable or without enough text for one row are a `FileNotFoundError` or `ValueError`.
    """
    for file in files:
        if not isinstance(file, HubTexts) and not Path(file).exists():
            raise FileNotFoundError(f"{file} does not exist: name text files, folders of them, or archives.")
    arguments = {"files": list(files), "tokenizer": tokenizer, "row_length": row_length, **how}
    arguments["stamps"] = [_stamps(str(file)) for file in files]
    if next(packed_rows(**arguments), None) is None:
        part, hint = "text", "give more text, or make rows shorter (--row_length)"
        if (held_out := how.get("held_out")) is not None:
            part = "held-out text" if how.get("validation") else "training text"
            hint += f", change --hold_out_every ({held_out.every}), or hold out nothing with --hold_out_every 0"
        raise ValueError(f"{', '.join(map(str, files))}: less {part} than one row of {row_length} tokens; {hint}.")
    if streaming:
        return IterableDataset.from_generator(packed_rows, features=ROW_FEATURES, gen_kwargs=arguments)
    processes = min(num_proc, len(files)) if num_proc and len(files) > 1 else None
    settings = {"features": ROW_FEATURES, "gen_kwargs": arguments, "cache_dir": cache_dir, "num_proc": processes}
    try:
        return Dataset.from_generator(packed_rows, **settings)
    except DatasetGenerationError as error:
        # The reader's own error names the file.
        raise ValueError(str(error.__cause__ or error)) from error


def _stamps(place: str) -> tuple[tuple[int, int], ...]:
    """Sizes and times of change of a file, or of all in a folder; of what is on the Hub nothing."""
    paths = (path for path in (Path(place), *sorted(Path(place).rglob("*"))) if path.exists())
    return tuple((path.stat().st_size, path.stat().st_mtime_ns) for path in paths)


def packed_parts(
    texts: TextArguments, tokenizer: GPTTokenizer, row_length: int, seed: int = 0
) -> tuple[Dataset | IterableDataset, Dataset | None, str | None]:
    """Training rows (with `texts.streaming` shuffled by the seed), held-out ones that are measured, what these are."""
    validation_files, every, held_out = texts.validation_files or [], texts.hold_out_every, None
    settings = {"unwrap": texts.unwrap, "text_column": texts.text_column, "wikitext": texts.wikitext}
    arguments = (texts.sources, tokenizer, row_length)
    how = settings | {"num_proc": texts.num_proc, "streaming": texts.streaming}
    if every and not validation_files:
        found = documents_of(texts.sources, texts.text_column, texts.wikitext)
        held_out = HeldOut.uncounted(every) if texts.streaming else HeldOut.of(found, every)
    train = packed_dataset(*arguments, held_out=held_out, **how)
    if texts.streaming:
        # Without an end: of a stream that has one, nobody knows in which pass a run resumes.
        train = train.repeat(None).shuffle(seed=seed, buffer_size=_SHUFFLED_ROWS)
    if validation_files:
        rows = packed_dataset(validation_files, tokenizer, row_length, **settings)
        described = ", ".join(validation_files)
    elif held_out is None:
        return train, None, None
    else:
        rows, described = packed_dataset(*arguments, held_out=held_out, validation=True, **how), str(held_out)
        if texts.streaming:
            return train, Dataset.from_list([*rows.take(texts.validation_rows)], features=ROW_FEATURES), described
    step = max(1.0, len(rows) / texts.validation_rows)
    chosen = [int(number * step) for number in range(min(len(rows), texts.validation_rows))]
    return train, rows.select(chosen), described
