"""Rows of a task -> rows of token trees; spans of a passage, from characters to tokens and back."""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value
from scipy.special import log_softmax

from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import IGNORED_LABEL
from ..trees.token_tree import TokenTree
from ..trees.transforms import InputTransform

TREE_FEATURES = {
    field.name: List(Value("float32" if field.name == "lm_weights" else "int32")) for field in fields(TokenTree)
}
EMPTY = "is_empty"  # whether a row has no token but special ones: it is predicted as empty
OFFSETS = "offsets"  # where each token of the passage begins and ends, in characters
KEPT_COLUMNS = ("id", "words", "passage", "answers", "kept")  # next to the trees
LONGEST_ANSWER = 30  # tokens, as in transformers' and BERT's own scripts


def encode_rows(
    rows: dict[str, list[Any]], columns: Sequence[str], tokenizer: GPTTokenizer, transform: InputTransform
) -> dict[str, list[Any]]:
    """
    Token trees of a batch of rows, whose `columns` hold texts, or lists of them: columns of `TREE_FEATURES`, `length`,
    `truncated_tokens`, `is_empty` and `label`; of a passage also `OFFSETS`, and the label is a span of tokens.
    """
    encoded: dict[str, list[Any]] = {"label": rows["label"]}
    joined = transform.joined if {"context", "label"} & {*columns} else ()
    ids = {}
    for name in columns:
        texts = rows[name]
        if name == "words":  # behind each other
            texts = [[*words[:1], *_spaced(words[1:])] for words in texts]
        if name == "passage":  # the same one, of several questions, is read once
            number = {passage: index for index, passage in enumerate(dict.fromkeys(texts))}
            found = tokenizer([*number], add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            ids[name] = [found["input_ids"][number[text]] for text in texts]
            encoded[OFFSETS] = [found["offset_mapping"][number[text]] for text in texts]
            encoded["label"] = [*map(token_span, rows["label"], encoded[OFFSETS])]
        else:
            ids[name] = _tokenized(_spaced(texts) if name in joined else texts, tokenizer)
    of_rows = [dict(zip(ids, values, strict=True)) for values in zip(*ids.values(), strict=True)]
    trees, truncated = zip(*map(transform.fit, of_rows), strict=True) if of_rows else ((), ())
    encoded |= {name: [getattr(tree, name) for tree in trees] for name in TREE_FEATURES}
    encoded[EMPTY] = [not any(part != [] for texts in row.values() for part in texts) for row in of_rows]
    return encoded | {"length": list(map(len, trees)), "truncated_tokens": list(truncated)}


def _spaced(texts: list[str] | list[list[str]]) -> list[Any]:
    """Texts with a space before them, which GPT-2's tokens hold."""
    return [_spaced(text) if isinstance(text, list) else f" {text}" if text else text for text in texts]


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
) -> Dataset:
    """Token trees of a split's normalised rows (see `hf_gpt.tasks.spec`), with their `KEPT_COLUMNS`."""
    kept = {name: dataset.features[name] for name in KEPT_COLUMNS if name in dataset.column_names}
    counts = {"length": Value("int32"), "truncated_tokens": Value("int32"), EMPTY: Value("bool")}
    places = {OFFSETS: List(List(Value("int32")))} if "passage" in columns else {}
    return dataset.map(
        partial(encode_rows, columns=tuple(columns), tokenizer=tokenizer, transform=transform),
        batched=True,
        remove_columns=[name for name in dataset.column_names if name not in kept],
        features=Features({**kept, **TREE_FEATURES, **counts, **places, "label": dataset.features["label"]}),
        num_proc=num_proc,
        desc=desc,
    )


def describe_encoded(encoded: Dataset) -> str:
    """What tokenization made of a split, in one line."""
    columns = encoded.with_format("numpy")
    lengths, truncated = columns["length"][:], columns["truncated_tokens"][:]
    mean, longest = lengths.sum() / max(1, len(encoded)), lengths.max(initial=0)
    lost = f"; {(truncated > 0).sum():,} rows were truncated by {truncated.sum():,} tokens in all"
    return f"{len(encoded):,} rows, {mean:.1f} tokens a row, the longest {longest}" + lost * bool(truncated.any())


def token_span(label: Sequence[int], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """First and last token of the characters from `label[0]` to `label[1]`; -100 twice where there is no answer."""
    begin, end = label
    if begin < 0:
        return [IGNORED_LABEL] * 2
    first = bisect_right(offsets, begin, key=itemgetter(1))
    return [first, max(first, bisect_left(offsets, end, key=itemgetter(0)) - 1)]


def best_answers(rows: Dataset, logits: np.ndarray) -> Iterator[tuple[str, float]]:
    """
    By row, the likeliest span of its passage, of `LONGEST_ANSWER` tokens at most, and its probability; `logits`, of
    beginnings and ends, have the shape `(rows, tokens, 2)`.
    """
    for row, scores in zip(rows.select_columns(["passage", OFFSETS]), logits, strict=True):
        offsets, count = row[OFFSETS], len(row[OFFSETS])
        starts, ends = log_softmax(scores[:count].astype(np.float64), axis=0).T
        spans = [starts[: count - more] + ends[more:] for more in range(min(LONGEST_ANSWER, count))]
        more = max(range(len(spans)), key=lambda length: spans[length].max())
        first = int(spans[more].argmax())
        text = row["passage"][offsets[first][0] : offsets[first + more][1]]
        yield text.strip(), float(np.exp(spans[more][first]))
