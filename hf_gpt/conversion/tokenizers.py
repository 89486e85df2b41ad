"""Tokenizers in the files of every format that `scripts/convert.py` knows, read and written."""

import json
from pathlib import Path

from transformers import GPT2Tokenizer, OpenAIGPTTokenizer

from ..model.configuration_gpt import GPTConfig
from ..model.tokenization_gpt import GPTTokenizer

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"),
    *("special_tokens_map.json", "added_tokens.json"),
)
SPECIAL_TOKENS = ("_start_", "_delimiter_", "_classify_", "<pad>")
_ADVICE = "; --tokenizer_source names another folder, --no_tokenizer does without"


def find_tokenizer(folder: Path, config: GPTConfig) -> GPTTokenizer:
    """
    The tokenizer of a folder, whatever format it is stored in.

    Args:
        folder (`Path`): with `tokenizer.json`, with `vocab.json` and `merges.txt`, or with the files of a release.
        config (`GPTConfig`): of the model it belongs to.

    Raises:
        ValueError: if there is none, it is damaged, or it belongs to another model.
    """
    try:
        tokenizer = _read(folder)
    except (ValueError, OSError) as error:
        raise ValueError(f"{error}{_ADVICE}") from error
    _check(tokenizer, config, folder)
    return tokenizer


def _read(folder: Path) -> GPTTokenizer:
    if (folder / "tokenizer.json").is_file() or (folder / "vocab.json").is_file():
        return GPTTokenizer.from_pretrained(folder)
    if (folder / "encoder.json").is_file():
        return GPTTokenizer(vocab_file=folder / "encoder.json", merges_file=folder / "vocab.bpe")
    return GPTTokenizer.from_release(folder)


def _check(tokenizer: GPTTokenizer, config: GPTConfig, folder: Path) -> None:
    """Weights and tokenizer number their tokens alike."""
    ids = [config.start_token_id, config.delimiter_token_id, config.classify_token_id, config.pad_token_id]
    found = tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS))
    if len(tokenizer) > config.vocab_size or ids != found:
        raise ValueError(
            f"The tokenizer in {folder} has {len(tokenizer):,} tokens with {', '.join(SPECIAL_TOKENS)} as {found}, "
            f"the weights have {config.vocab_size:,} rows with these as {ids}: they do not belong together{_ADVICE}."
        )


def read_vocabulary(folder: Path) -> int | None:
    """Number of tokens without the special ones, or `None` where the folder has no tokenizer."""
    names = ("tokenizer.json", "vocab.json")
    if any((folder / name).is_file() for name in names) or any(folder.glob("encoder_bpe_*.json")):
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
    a tokenizer that works on bytes, of a stock `gpt2`.

    Args:
        tokenizer (`GPTTokenizer`): whose vocabulary to write.
        folder (`Path`): to write to.
        special_tokens (`bool`): with `_start_`, `_delimiter_`, `_classify_` and `<pad>`.
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
