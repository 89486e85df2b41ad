"""Rows of a task -> rows of token trees, tokenized once and kept in the cache of `datasets`."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from datasets import Dataset, Features, List, Value

from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import IGNORED_LABEL
from ..trees.token_tree import TokenTree
from ..trees.transforms import InputTransform
from .spec import UNLABELLED

TREE_FEATURES = {
    field.name: List(Value("float32" if field.name == "lm_weights" else "int32")) for field in fields(TokenTree)
}
_COUNTS = ("length", "unshared_length", "cut_tokens")


@dataclass(frozen=True)
class EncodingStatistics:
    """
    What tokenization made of a split: `tokens` of the laid out rows (what sequences share counts once) and
    `unshared_tokens` of the same sequences one by one; those of the `longest` row; rows that were truncated, and the
    tokens that this took away.
    """

    rows: int
    tokens: int
    unshared_tokens: int
    longest: int
    cut_rows: int
    cut_tokens: int

    def __str__(self) -> str:
        text = f"{self.rows:,} rows, {self.tokens / max(1, self.rows):.1f} tokens a row, the longest {self.longest}"
        if self.unshared_tokens > self.tokens:
            text += f"; shared beginnings save {1 - self.tokens / self.unshared_tokens:.0%} of the tokens"
        if self.cut_rows:
            text += f"; {self.cut_rows:,} rows were truncated by {self.cut_tokens:,} tokens in all"
        return text


def encode_rows(
    rows: dict[str, list[Any]], columns: Sequence[str], tokenizer: GPTTokenizer, transform: InputTransform
) -> dict[str, list[Any]]:
    """
    Token trees of a batch of rows, whose `columns` hold texts (lists of texts in `choices` and `words`; of words, each
    is tokenized as a text of its own). No special token is added here.

    Returns:
        `dict[str, list]`: the columns of `TREE_FEATURES`, `length`, `unshared_length`, `cut_tokens`, and `label` with
            -100 for rows without a gold class or choice.
    """
    if "words" in columns:  # behind each other
        rows = {**rows, "words": [[*words[:1], *_spaced(words[1:])] for words in rows["words"]]}
    ids = {
        name: _tokenized(_spaced(rows[name]) if name in transform.joined else rows[name], tokenizer)
        for name in columns
    }
    encoded: dict[str, list[Any]] = {name: [] for name in (*TREE_FEATURES, *_COUNTS)}
    for index in range(len(rows[columns[0]])):
        tree, cut = transform.fit({name: values[index] for name, values in ids.items()})
        unshared = sum(tree.position_ids[end] + 1 for end in tree.path_ends) if "words" not in ids else len(tree)
        counts = dict(zip(_COUNTS, (len(tree), unshared, cut), strict=True))
        for name, values in encoded.items():
            values.append(counts[name] if name in counts else getattr(tree, name))
    encoded["label"] = [_read_label(label) for label in rows["label"]]
    return encoded


def _spaced(texts: list[str] | list[list[str]]) -> list[Any]:
    """Texts with a space before them, which GPT-2's tokens hold."""
    return [_spaced(text) if isinstance(text, list) else f" {text}" if text else text for text in texts]


def _read_label(label: Any) -> Any:
    if isinstance(label, list):
        return [_read_label(part) for part in label]
    # A score may be -1; one that is not known is NaN.
    return IGNORED_LABEL if label == UNLABELLED and isinstance(label, int) else label


def _tokenized(texts: list[str] | list[list[str]], tokenizer: GPTTokenizer) -> list[Any]:
    if not texts:
        return []
    if isinstance(texts[0], str):
        return tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]
    flat = iter(_tokenized([text for group in texts for text in group], tokenizer))
    return [list(itertools.islice(flat, len(group))) for group in texts]


def encode_split(
    dataset: Dataset,
    columns: Sequence[str],
    tokenizer: GPTTokenizer,
    transform: InputTransform,
    num_proc: int | None = None,
    desc: str = "tokenizing",
) -> tuple[Dataset, EncodingStatistics]:
    """
    Token trees of a split's normalised rows (see `hf_gpt.tasks.spec`), with their `id` (and `words`), and statistics.
    """
    kept = {name: dataset.features[name] for name in ("id", "words") if name in dataset.column_names}
    features = Features(
        {
            **kept,
            **TREE_FEATURES,
            **dict.fromkeys(_COUNTS, Value("int32")),
            "label": dataset.features["label"],
        }
    )
    encoded = dataset.map(
        partial(encode_rows, columns=tuple(columns), tokenizer=tokenizer, transform=transform),
        batched=True,
        remove_columns=[name for name in dataset.column_names if name not in kept],
        features=features,
        num_proc=num_proc,
        desc=desc,
    )
    lengths, unshared, cut = (encoded.with_format("numpy")[name][:] for name in _COUNTS)
    statistics = EncodingStatistics(
        rows=len(encoded),
        tokens=int(lengths.sum()),
        unshared_tokens=int(unshared.sum()),
        longest=int(lengths.max(initial=0)),
        cut_rows=int((cut > 0).sum()),
        cut_tokens=int(cut.sum()),
    )
    return encoded, statistics
