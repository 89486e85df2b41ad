"""Tokenizers in the files of every format that `scripts/convert.py` knows, read and written."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from transformers import OpenAIGPTTokenizer

from ..files.reading import read_json
from ..model.configuration_gpt import GPTConfig
from ..model.tokenization_gpt import GPTTokenizer

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"),
    *("special_tokens_map.json", "added_tokens.json"),
)
SPECIAL_TOKENS = ("_start_", "_delimiter_", "_classify_", "<pad>")
_ADVICE = "; --tokenizer_source names another folder, --no_tokenizer does without"


def find_tokenizer(
    folder: Path, config: GPTConfig, kind: str, is_given: bool = False
) -> tuple[GPTTokenizer | None, list[Path]]:
    """
    The tokenizer of a folder: one of ours, whatever format it is stored in, or the files of GPT-2's.

    Args:
        folder (`Path`): with `tokenizer.json`, with `vocab.json` and `merges.txt`, or with the release's two files.
        config (`GPTConfig`): of the model it belongs to.
        kind (`str`): of the source, see `sources.KINDS`.
        is_given (`bool`, *optional*, defaults to `False`): the folder was named as that of the tokenizer.

    Raises:
        ValueError: if there is none, it is damaged, or it belongs to another model.
    """
    own = _class_in(folder) == GPTTokenizer.__name__ or any(folder.glob("encoder_bpe_*.json"))
    if not own and (kind == "gpt2" or (kind == "hf_gpt" and not is_given and _class_in(folder) is not None)):
        files = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
        if not files:
            raise ValueError(f"{folder} holds no tokenizer{_ADVICE}.")
        return None, files
    try:
        tokenizer = _read(folder)
    except (ValueError, OSError) as error:
        raise ValueError(f"{error}{_ADVICE}") from error
    _check(tokenizer, config, folder)
    return tokenizer, []


def _class_in(folder: Path) -> str | None:
    path = folder / "tokenizer_config.json"
    return read_json(path).get("tokenizer_class") if path.is_file() else None


def _read(folder: Path) -> GPTTokenizer:
    if (folder / "tokenizer.json").is_file() or (folder / "vocab.json").is_file():
        return GPTTokenizer.from_pretrained(folder)
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
    """Ids of the tokens, in the order of the release's file (`<unk>`, whose id is 0, comes last), and the merges."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    vocabulary = dict(sorted(model["vocab"].items(), key=lambda item: (item[1] == 0, item[1])))
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
    `vocab.json`, `merges.txt` and `tokenizer.json` of a stock `openai-gpt`, which splits words in its own way.

    Args:
        tokenizer (`GPTTokenizer`): whose vocabulary to write.
        folder (`Path`): to write to.
        special_tokens (`bool`): with `_start_`, `_delimiter_`, `_classify_` and `<pad>`.
    """
    vocabulary, merges = vocabulary_of(tokenizer)
    stock = OpenAIGPTTokenizer(vocab=vocabulary, merges=merges, model_max_length=tokenizer.model_max_length)
    if special_tokens:
        names = ("bos_token", "sep_token", "cls_token", "pad_token")
        for name, token in zip(names, SPECIAL_TOKENS, strict=True):
            stock.add_special_tokens({name: token})
    stock.save_pretrained(folder)
    write_vocabulary(tokenizer, folder / "vocab.json", folder / "merges.txt")


def copy_tokenizer(files: Sequence[Path], folder: Path) -> None:
    """Copy the files of GPT-2's tokenizer, and name its class in them, which old ones leave to the model's type."""
    for file in files:
        shutil.copyfile(file, folder / file.name)
    path = folder / "tokenizer_config.json"
    config = read_json(path) if path.is_file() else {}
    if "tokenizer_class" not in config:
        path.write_text(json.dumps(config | {"tokenizer_class": "GPT2Tokenizer"}, indent=2) + "\n", encoding="utf-8")
