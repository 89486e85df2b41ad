"""Tokenizers in the files of every format that `scripts/convert.py` knows, read and written."""

import json
import os
from pathlib import Path
from typing import Any

from transformers import GPT2Tokenizer, OpenAIGPTTokenizer

from ..files import decoded, read_json
from ..model.configuration_gpt import GPTConfig
from ..model.tokenization_gpt import GPTTokenizer

SPECIAL_TOKENS = ("_start_", "_delimiter_", "_classify_", "<pad>")
_ADVICE = "; --tokenizer_source names another folder, --no_tokenizer does without"


def release_tokenizer(directory: str | os.PathLike, **settings: Any) -> GPTTokenizer:
    """
    The tokenizer of OpenAI's release, or of other files of the same format.

    Args:
        directory (`str` or `PathLike`): holds one `encoder_bpe_*.json` and one `vocab_*.bpe`.
        settings: arguments of `GPTTokenizer`, such as `task_template`.

    Raises:
        ValueError: if a file is missing, empty or malformed, ids have gaps, `<unk>` is not 0, or a merge does not fit
            the vocabulary. The message names the file and line.
    """
    path = _only_file(Path(directory), "encoder_bpe_*.json")
    vocabulary = _read_vocabulary(path)
    unknown = str(settings.get("unk_token", "<unk>"))
    if vocabulary.get(unknown) != 0:
        raise ValueError(f"{path}: the unknown token {unknown!r} must have id 0, found {vocabulary.get(unknown)}")
    for token in SPECIAL_TOKENS:
        if token in vocabulary:
            raise ValueError(f"{path}: {token!r} is a special token and gets its id behind the vocabulary")
    merges = _read_merges(_only_file(Path(directory), "vocab_*.bpe"), vocabulary)
    return GPTTokenizer(vocab=vocabulary, merges=merges, **settings)


def _only_file(directory: Path, pattern: str) -> Path:
    found = sorted(directory.glob(pattern))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ValueError(f"{directory}: expected one {pattern}, found {names}{'; leave one there' * (len(found) > 1)}")
    return found[0]


def _read_vocabulary(path: Path) -> dict[str, int]:
    vocabulary = read_json(path)
    if not all(type(index) is int for index in vocabulary.values()):
        raise ValueError(f"{path} must hold one JSON object that maps each piece to its id")
    for place, index in enumerate(sorted(vocabulary.values())):
        if index != place:
            raise ValueError(f"{path}: ids must count from 0 without gaps or repeats, and {index} comes for {place}")
    return vocabulary


def _read_merges(path: Path, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """The merges of a BPE, first learnt first."""
    merges = []
    lines = decoded(path.read_bytes(), path).removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if number == 1 and line.startswith("#version"):
            continue
        pieces = tuple(line.removesuffix("\r").split(" "))
        if len(pieces) != 2 or not all(pieces):
            raise ValueError(f"{path}, line {number}: expected two pieces separated by one space, found {line!r}")
        for piece in (*pieces, "".join(pieces)):
            if piece not in vocabulary:
                raise ValueError(
                    f"{path}, line {number}: {piece!r} is not in the vocabulary; do the files belong together?"
                )
        merges.append(pieces)
    if not merges:
        raise ValueError(f"{path}: holds no merges")
    return merges


def check_ids(config: GPTConfig, tokenizer: GPTTokenizer, name: str) -> None:
    """Raise a `ValueError` unless the model `name` and the tokenizer number their tokens alike."""
    wrong = []
    names = {"start": "bos", "delimiter": "sep", "classify": "cls", "pad": "pad", "mask": "mask"}
    for token, (ours, theirs) in zip((*SPECIAL_TOKENS, "<mask>"), names.items(), strict=True):
        ids = getattr(config, f"{ours}_token_id"), getattr(tokenizer, f"{theirs}_token_id")
        if ids[0] != ids[1]:
            wrong.append(f"{token} is {ids[0]} in the model and {ids[1]} in the tokenizer")
    if len(tokenizer) > config.vocab_size:
        wrong.append(f"the model has {config.vocab_size} rows and the tokenizer {len(tokenizer)} tokens")
    if wrong:
        raise ValueError(f"The tokenizer does not belong to {name}: {'; '.join(wrong)}.")


def find_tokenizer(folder: Path, config: GPTConfig) -> GPTTokenizer:
    """The tokenizer of a folder, in whatever format; a `ValueError` if there is none that belongs to such a model."""
    try:
        tokenizer = _read(folder)
        check_ids(config, tokenizer, f"the weights (it was read from {folder})")
    except (ValueError, OSError) as error:
        raise ValueError(f"{str(error).rstrip('.')}{_ADVICE}.") from error
    return tokenizer


def _read(folder: Path) -> GPTTokenizer:
    if (folder / "tokenizer.json").is_file() or (folder / "vocab.json").is_file():
        return GPTTokenizer.from_pretrained(folder)
    if (folder / "encoder.json").is_file():
        vocabulary = _read_vocabulary(folder / "encoder.json")
        return GPTTokenizer(vocab=vocabulary, merges=_read_merges(folder / "vocab.bpe", vocabulary))
    return release_tokenizer(folder)


def vocabulary_size(folder: Path) -> int | None:
    """Number of tokens without the special ones, or `None` where the folder has no tokenizer."""
    if any(any(folder.glob(name)) for name in ("tokenizer.json", "vocab.json", "encoder_bpe_*.json")):
        return len(vocabulary_of(_read(folder))[0])
    return None


def vocabulary_of(tokenizer: GPTTokenizer) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Ids of the tokens, in the order of the release's file (`<unk>`, GPT's 0, comes last), and the merges."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    last = None if tokenizer.byte_level else 0
    vocabulary = dict(sorted(model["vocab"].items(), key=lambda item: (item[1] == last, item[1])))
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    return vocabulary, merges


def write_vocabulary(tokenizer: GPTTokenizer, vocab_file: Path, merges_file: Path) -> None:
    """The vocabulary and the merges in the release's format, which is the stock one as well."""
    vocabulary, merges = vocabulary_of(tokenizer)
    vocab_file.write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(merge) for merge in merges), ""]
    merges_file.write_text("\n".join(lines), encoding="utf-8", newline="\n")


def write_stock_tokenizer(tokenizer: GPTTokenizer, folder: Path, special_tokens: bool) -> None:
    """
    `vocab.json`, `merges.txt` and `tokenizer.json` of a stock `openai-gpt`, which splits words in its own way, or, for
    a tokenizer that works on bytes, of a stock `gpt2`; with `_start_`, `_delimiter_`, `_classify_` and `<pad>` if
    `special_tokens` says so.
    """
    vocabulary, merges = vocabulary_of(tokenizer)
    stock_class = GPT2Tokenizer if tokenizer.byte_level else OpenAIGPTTokenizer
    settings = {"model_max_length": tokenizer.model_max_length}
    if tokenizer.byte_level:
        settings["add_prefix_space"] = tokenizer.backend_tokenizer.pre_tokenizer.add_prefix_space
    stock = stock_class(vocab=vocabulary, merges=merges, **settings)
    names = dict(zip(SPECIAL_TOKENS, ("bos_token", "sep_token", "cls_token", "pad_token"), strict=True))
    for _, token in sorted(tokenizer.added_tokens_decoder.items()):
        if str(token) in names and special_tokens:
            stock.add_special_tokens({names[str(token)]: str(token)})
        elif str(token) not in {*names, *stock.get_vocab()}:
            stock.add_tokens(token)
    stock.save_pretrained(folder)
    write_vocabulary(tokenizer, folder / "vocab.json", folder / "merges.txt")
