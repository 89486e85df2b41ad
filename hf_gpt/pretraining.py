"""Documents -> packed rows of token ids for language-model pretraining."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from datasets import Dataset, Features, Value
from datasets import Sequence as SequenceFeature

from .text_files import iter_texts, unwrap_paragraphs
from .tokenization_gpt import GPTTokenizer

ROW_FEATURES = Features({"input_ids": SequenceFeature(Value("int32")), "starts": SequenceFeature(Value("int32"))})

# Characters that one call of the tokenizer gets: long enough to batch, short enough for progress to show.
_CALL_CHARACTERS = 200_000


def pack_documents(documents: Iterable[Sequence[int]], row_length: int) -> Iterator[dict[str, list[int]]]:
    """
    Cut a stream of documents into rows of one length without padding.

    A row takes up where the row before stopped. Where a document begins, or goes on in the next row, a new piece
    starts: its tokens see only their own piece. The incomplete last row is left out.

    Args:
        documents (`Iterable[Sequence[int]]`): token ids of each document.
        row_length (`int`): tokens of a row.

    Yields:
        `dict[str, list[int]]`: `input_ids` of `row_length` tokens and `starts`, the indices where pieces begin
        (the first is 0).
    """
    row, starts = [], []
    for document in documents:
        taken = 0
        while taken < len(document):
            starts.append(len(row))
            piece = document[taken : taken + row_length - len(row)]
            row.extend(piece)
            taken += len(piece)
            if len(row) == row_length:
                yield {"input_ids": row, "starts": starts}
                row, starts = [], []


def encode_document(text: str, tokenizer: GPTTokenizer) -> list[int]:
    """Token ids of a long text, in calls of many paragraphs; paragraphs are parted by the newline token."""
    newline = tokenizer.convert_tokens_to_ids("\n</w>")
    ids: list[int] = []
    paragraphs = [paragraph for paragraph in text.split("\n") if paragraph.strip()]
    start = 0
    while start < len(paragraphs):
        stop, size = start, 0
        while stop < len(paragraphs) and size < _CALL_CHARACTERS:
            size += len(paragraphs[stop])
            stop += 1
        for encoded in tokenizer(paragraphs[start:stop], add_special_tokens=False, verbose=False)["input_ids"]:
            ids += [newline, *encoded] if ids and encoded else encoded
        start = stop
    return ids


def packed_rows(
    files: Sequence[str],
    stamps: Sequence[tuple[int, int]],
    tokenizer: GPTTokenizer,
    row_length: int,
    unwrap: bool,
) -> Iterator[dict[str, list[int]]]:
    """Rows of the documents of text files; `stamps` (size, time of change) only tell `datasets` fresh from stale."""
    texts = (text for _, text in iter_texts(files))
    documents = (encode_document(unwrap_paragraphs(text) if unwrap else text, tokenizer) for text in texts)
    yield from pack_documents(documents, row_length)


def packed_dataset(
    files: Sequence[str],
    tokenizer: GPTTokenizer,
    row_length: int,
    unwrap: bool = True,
    num_proc: int | None = None,
    cache_dir: str | None = None,
) -> Dataset:
    """
    Tokenize and pack text files once; later calls find the rows in the cache of `datasets`.

    Args:
        files (`Sequence[str]`): text files, folders or archives (see `iter_texts`).
        tokenizer (`GPTTokenizer`): adds no special tokens.
        row_length (`int`): tokens of a row.
        unwrap (`bool`, *optional*, defaults to `True`): join the hard-wrapped lines of a paragraph.
        num_proc (`int`, *optional*): processes; `files` are divided among them.
        cache_dir (`str`, *optional*): folder of the cache.

    Returns:
        `datasets.Dataset`: rows as `pack_documents` gives them.

    Raises:
        FileNotFoundError, ValueError: for files that are missing, unreadable or without enough text for one row.
    """
    for file in files:
        if not Path(file).exists():
            raise FileNotFoundError(f"{file} does not exist: name text files, folders of them, or archives.")
    stamps = [(Path(file).stat().st_size, Path(file).stat().st_mtime_ns) for file in files]
    dataset = Dataset.from_generator(
        packed_rows,
        features=ROW_FEATURES,
        cache_dir=cache_dir,
        gen_kwargs={
            "files": list(files),
            "stamps": stamps,
            "tokenizer": tokenizer,
            "row_length": row_length,
            "unwrap": unwrap,
        },
        num_proc=min(num_proc, len(files)) if num_proc and len(files) > 1 else None,
    )
    if not len(dataset):
        raise ValueError(f"{', '.join(map(str, files))}: less text than one row of {row_length} tokens.")
    return dataset
