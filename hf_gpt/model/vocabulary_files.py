"""The tokenizer's files: vocabulary and merges as the release and stock models have them, `tokenizer.json`."""

import json
from pathlib import Path

from tokenizers import Tokenizer, models


def read_vocabulary(path: Path) -> dict[str, int]:
    """The ids of a vocabulary's pieces, which count from 0; a `ValueError` names the file otherwise."""
    try:
        vocab = json.loads(_read_utf8(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON ({error.msg}); expected one object") from error
    if not isinstance(vocab, dict) or not all(type(index) is int for index in vocab.values()):
        raise ValueError(f"{path}: expected one JSON object that maps each piece to its id")
    if not vocab:
        raise ValueError(f"{path}: the vocabulary is empty")
    ids = sorted(vocab.values())
    if ids != list(range(len(ids))):
        wrong = next(index for index, found in enumerate(ids) if index != found)
        problem = "stands twice" if wrong and ids[wrong] == ids[wrong - 1] else "stands out of order"
        raise ValueError(
            f"{path}: ids must count from 0 to {len(ids) - 1} without gaps or repeats, but {ids[wrong]} {problem}"
        )
    return vocab


def read_merges(path: Path, vocab: dict[str, int]) -> list[tuple[str, str]]:
    """The merges of a BPE, first learnt first; a `ValueError` names the line that is none."""
    merges = []
    lines = _read_utf8(path).split("\n")
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\r")
        if (number == 1 and line.startswith("#version")) or (number == len(lines) and not line):
            continue
        pieces = tuple(line.split(" "))
        if len(pieces) != 2 or not all(pieces):
            raise ValueError(f"{path}, line {number}: expected two pieces parted by one space, found {line!r}")
        for piece in (*pieces, "".join(pieces)):
            if piece not in vocab:
                raise ValueError(
                    f"{path}, line {number}: {piece!r} is not in the vocabulary; do the files belong together?"
                )
        merges.append(pieces)
    if not merges:
        raise ValueError(f"{path}: holds no merges")
    return merges


def _read_utf8(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}") from error
    if not text.strip():
        raise ValueError(f"{path}: the file is empty")
    return text


def read_tokenizer(path: Path) -> Tokenizer:
    """A `tokenizer.json` of a BPE."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no other kind
        raise ValueError(f"{path}: not a tokenizer of the tokenizers library ({error})") from error
    if not isinstance(tokenizer.model, models.BPE):
        raise ValueError(f"{path}: expected a BPE, found {type(tokenizer.model).__name__}")
    return tokenizer


def _find_release_file(directory: Path, given: str | None, name: str, argument: str) -> Path:
    """
    A file of the release's format in a directory.

    Args:
        directory (`Path`): where to look.
        given (`str`, *optional*): its name, where the user says it.
        name (`str`): what the release calls it, with its number of merges, which another vocabulary has another of.
        argument (`str`): that names it, for the message.
    """
    if given is not None:
        return directory / given
    pattern = name.replace("40000", "*")
    if (directory / name).is_file():
        return directory / name
    found = sorted(directory.glob(pattern))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ValueError(
            f"{directory}: expected {name} or exactly one {pattern}, found {names}; name it by {argument}="
        )
    return found[0]


def read_release_files(
    directory: Path, vocab_file: str | None, merges_file: str | None, unk_token: str
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges in the release's format; see `GPTTokenizer.from_release`."""
    if not directory.is_dir():
        raise ValueError(f"{directory}: no such directory")
    vocab_path = _find_release_file(directory, vocab_file, "encoder_bpe_40000.json", "vocab_file")
    merges_path = _find_release_file(directory, merges_file, "vocab_40000.bpe", "merges_file")
    vocab = read_vocabulary(vocab_path)
    if vocab.get(unk_token) != 0:
        raise ValueError(f"{vocab_path}: the unknown token {unk_token!r} must have id 0, found {vocab.get(unk_token)}")
    for token in ("_start_", "_delimiter_", "_classify_", "<pad>"):
        if token in vocab:
            raise ValueError(f"{vocab_path}: {token!r} is a special token and gets its id behind the vocabulary")
    return vocab, read_merges(merges_path, vocab)
