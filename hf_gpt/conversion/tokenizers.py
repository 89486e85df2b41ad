"""Tokenizers in the files of every format that `scripts/convert.py` knows, read and written."""

import json
import os
from pathlib import Path
from typing import Any

from transformers import GPT2Tokenizer, OpenAIGPTTokenizer

from ..files import read_json, read_text_lines, reading
from ..model.configuration_gpt import GPTConfig
from ..model.tokenization_gpt import GPTTokenizer

SPECIAL_TOKENS = ("_start_", "_delimiter_", "_classify_", "<pad>")


def release_tokenizer(directory: str | os.PathLike, **settings: Any) -> GPTTokenizer:
    """
    The tokenizer of OpenAI's release, or of other files of the same format: a directory with one `encoder_bpe_*.json`
    and one `vocab_*.bpe`; `settings` are arguments of `GPTTokenizer`, such as `task_template`. A `ValueError` names
    file and line if one is missing or malformed, ids have gaps, `<unk>` is not 0, or a merge is of other pieces.
    """
    path = _only_file(Path(directory), "encoder_bpe_*.json")
    with reading(path):
        vocabulary = read_json(path)
        if not all(type(index) is int for index in vocabulary.values()):
            raise ValueError("it must hold one JSON object that maps each piece to its id")
        if sorted(vocabulary.values()) != list(range(len(vocabulary))):
            raise ValueError("ids must count from 0 without gaps or repeats")
        unknown = str(settings.get("unk_token", "<unk>"))
        if vocabulary.get(unknown) != 0:
            raise ValueError(f"the unknown token {unknown!r} must have id 0, found {vocabulary.get(unknown)}")
        if special := vocabulary.keys() & {*SPECIAL_TOKENS}:
            raise ValueError(f"{min(special)!r} is a special token and gets its id behind the vocabulary")
    path = _only_file(Path(directory), "vocab_*.bpe")
    merges = []
    for number, line in read_text_lines(path):
        if number == 1 and line.startswith("#version"):
            continue
        pieces = tuple(line.split(" "))
        if len(pieces) != 2 or not {*pieces, "".join(pieces)} <= vocabulary.keys():
            wanted = "two pieces, and their union, of the vocabulary, separated by one space"
            raise ValueError(f"{path}, line {number}: expected {wanted}, found {line!r}")
        merges.append(pieces)
    if not merges:
        raise ValueError(f"{path}: holds no merges")
    return GPTTokenizer(vocab=vocabulary, merges=merges, **settings)


def _only_file(directory: Path, pattern: str) -> Path:
    found = sorted(directory.glob(pattern))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ValueError(f"{directory}: expected one {pattern}, found {names}{'; leave one there' * (len(found) > 1)}")
    return found[0]


def check_ids(config: GPTConfig, tokenizer: GPTTokenizer, name: str) -> None:
    """Raise a `ValueError` unless the model `name` and the tokenizer number their tokens alike."""
    ours = (config.start_token_id, config.delimiter_token_id, config.classify_token_id)
    ours += (config.pad_token_id, config.mask_token_id)
    theirs = (getattr(tokenizer, f"{name}_token_id") for name in ("bos", "sep", "cls", "pad", "mask"))
    ids = zip((*SPECIAL_TOKENS, "<mask>"), ours, theirs, strict=True)
    wrong = [f"{token} is {a} in the model and {b} in the tokenizer" for token, a, b in ids if a != b]
    if len(tokenizer) > config.vocab_size:
        wrong.append(f"the model has {config.vocab_size} rows and the tokenizer {len(tokenizer)} tokens")
    if wrong:
        raise ValueError(f"The tokenizer does not belong to {name}: {'; '.join(wrong)}.")


def find_tokenizer(folder: Path, config: GPTConfig | None = None) -> GPTTokenizer:
    """The tokenizer of a folder, in whatever format; a `ValueError` if there is none that belongs to such a model."""
    try:
        is_saved = any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json"))
        tokenizer = GPTTokenizer.from_pretrained(folder) if is_saved else release_tokenizer(folder)
        if config is not None:
            check_ids(config, tokenizer, f"the weights (it was read from {folder})")
    except (ValueError, OSError) as error:
        advice = "--tokenizer_source names another folder, --no_tokenizer does without"
        raise ValueError(f"{str(error).rstrip('.')}; {advice}.") from error
    return tokenizer


def vocabulary_of(tokenizer: GPTTokenizer) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Ids of the tokens, in the order of the release's file (`<unk>`, GPT's 0, comes last), and the merges."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    last = None if tokenizer.byte_level else 0
    vocabulary = dict(sorted(model["vocab"].items(), key=lambda item: (item[1] == last, item[1])))
    return vocabulary, list(map(tuple, model["merges"]))


def write_vocabulary(tokenizer: GPTTokenizer, vocab_file: Path, merges_file: Path) -> None:
    """The vocabulary and the merges in the release's format, which is the stock one as well."""
    vocabulary, merges = vocabulary_of(tokenizer)
    vocab_file.write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(merge) for merge in merges), ""]
    merges_file.write_text("\n".join(lines), encoding="utf-8", newline="\n")


def write_stock_tokenizer(tokenizer: GPTTokenizer, folder: Path, special_tokens: bool) -> None:
    """The files of a stock `openai-gpt`'s tokenizer, for one of bytes of a `gpt2`'s; maybe with special tokens."""
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
