"""Documents -> packed rows of token ids for language-model pretraining."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from datasets import Dataset, Features, Value
from datasets import Sequence as SequenceFeature
from datasets.exceptions import DatasetGenerationError

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
        rows = tokenizer(paragraphs[start:stop], add_special_tokens=False, return_attention_mask=False, verbose=False)
        for encoded in rows["input_ids"]:
            ids += [newline, *encoded] if ids and encoded else encoded
        start = stop
    return ids


def is_held_out(name: str, hold_out_every: int) -> bool:
    """Whether a document belongs to the held-out part: about one in `hold_out_every`, told by its file's name."""
    return hold_out_every > 0 and zlib.crc32(Path(name).name.encode()) % hold_out_every == 0


def packed_rows(
    files: Sequence[str],
    stamps: Sequence[tuple[int, int]],
    tokenizer: GPTTokenizer,
    row_length: int,
    unwrap: bool,
    held_out: bool,
    hold_out_every: int,
) -> Iterator[dict[str, list[int]]]:
    """Rows of the documents of text files; `stamps` (size, time of change) only tell `datasets` fresh from stale."""
    texts = (text for name, text in iter_texts(files) if is_held_out(name, hold_out_every) == held_out)
    documents = (encode_document(unwrap_paragraphs(text) if unwrap else text, tokenizer) for text in texts)
    yield from pack_documents(documents, row_length)


def packed_dataset(
    files: Sequence[str],
    tokenizer: GPTTokenizer,
    row_length: int,
    unwrap: bool = True,
    held_out: bool = False,
    hold_out_every: int = 0,
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
        held_out (`bool`, *optional*, defaults to `False`): take the held-out documents instead of the others.
        hold_out_every (`int`, *optional*, defaults to 0): about one document in so many is held out; 0 holds out none.
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
    arguments = {
        "files": list(files),
        "stamps": stamps,
        "tokenizer": tokenizer,
        "row_length": row_length,
        "unwrap": unwrap,
        "held_out": held_out,
        "hold_out_every": hold_out_every,
    }
    if next(packed_rows(**arguments), None) is None:
        part = "held-out text" if held_out else "text"
        raise ValueError(f"{', '.join(map(str, files))}: less {part} than one row of {row_length} tokens.")
    try:
        return Dataset.from_generator(
            packed_rows,
            features=ROW_FEATURES,
            cache_dir=cache_dir,
            gen_kwargs=arguments,
            num_proc=min(num_proc, len(files)) if num_proc and len(files) > 1 else None,
        )
    except DatasetGenerationError as error:
        # The reader's own error names the file.
        raise ValueError(str(error.__cause__ or error)) from error
