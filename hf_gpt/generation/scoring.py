"""
Log-probabilities of the tokens of texts of any length, of which scores, perplexity, surprisal and last words are made.

A text longer than the context is read in windows that move by `stride` tokens, at most half the context; a token
counts in the first window that it stands in, and so has at least `context - stride` tokens of context. Texts that
begin alike are read as one token tree, which gives the same numbers for less work. Padding and special tokens that no
loss has trained have no probability.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from ..files import read_text_lines, reading
from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import collate_trees
from ..trees.token_tree import TokenTree
from . import encode

# What may stand before a text, so that its first token is predicted, too.
BEGINNINGS = ("paragraph", "none")
# Tokens at most of a row in which several texts share what they begin with: a longer row is mostly mask.
_ROW_TOKENS = 128
# Vocabulary logits of this many tokens are held at a time.
_CHUNK = 512


def beginning_ids(tokenizer: GPTTokenizer, beginning: str) -> list[int]:
    """Token ids before a text: of `paragraph` the end of another, full stop and newline token; of `none` none."""
    return [] if beginning == "none" else [*encode(tokenizer, "."), tokenizer.newline_id]


@dataclass(frozen=True)
class TextScore:
    """
    What a model makes of a text: its number of `tokens`; the natural log-probability, `(predicted,)`, of each but the
    first where nothing is given before it; and, where likeliest tokens are asked for, the rank of each among all
    tokens, from 1, the entropy (natural) of what may stand there, ids and log-probabilities, `(predicted, count)`, of
    the likeliest ones, and, if asked for, the log-probability that one of several tokens (`among`) stands there.
    """

    tokens: int
    log_probs: torch.Tensor
    ranks: torch.Tensor | None = None
    entropies: torch.Tensor | None = None
    likeliest: torch.Tensor | None = None
    likeliest_log_probs: torch.Tensor | None = None
    masses: torch.Tensor | None = None

    @property
    def log_probability(self) -> float:
        """`float`: natural, of all tokens that are predicted."""
        return self.log_probs.double().sum().item()


class MinimalPair(NamedTuple):
    """A good and a bad sentence, and what they differ in."""

    good: str
    bad: str
    phenomenon: str


def perplexity(log_probability: float, units: int) -> float | None:
    """`exp(-log_probability / units)`; infinity where that is no number any more, `None` without units."""
    if units < 1:
        return None
    mean = -log_probability / units
    return math.exp(mean) if mean < 700 else math.inf


class _Window(NamedTuple):
    """Tokens of the text of a number from its token `begin` on, of which those from `first` on count."""

    text: int
    begin: int
    ids: tuple[int, ...]
    first: int


@torch.no_grad()
def score_texts(
    model: GPTForCausalLM,
    texts: Sequence[Sequence[int]],
    stride: int | None = None,
    batch_size: int = 8,
    given: Sequence[Sequence[int]] | None = None,
    likeliest: int = 0,
    among: Sequence[int] | None = None,
) -> list[TextScore]:
    """
    What a model in evaluation mode makes of each text, token ids; with `likeliest` ranks, entropies and so many
    likeliest tokens, too, and what `among` has together. `given` are of each text the tokens before it, which do not
    count; `batch_size` rows, of a long text or several short ones, are read at once.
    """
    context = model.config.n_positions
    stride = stride or context // 2
    if stride > context // 2:
        raise ValueError(f"--stride {stride}: at most {context // 2}, half the context.")
    windows: list[_Window] = []
    for number, (before, ids) in enumerate(zip(given or [()] * len(texts), texts, strict=True)):
        whole, counted = (*before, *ids), max(1, len(before))
        for begin in range(0, len(whole), stride):
            end = min(begin + context, len(whole))
            if counted < end:
                windows.append(_Window(number, begin, whole[begin:end], counted - begin))
                counted = end
    # Of like length, the longest first.
    rows = sorted(_rows(windows), key=lambda row: -sum(len(window.ids) for window in row))
    batches = [rows[begin : begin + batch_size] for begin in range(0, len(rows), batch_size)]
    found: dict[_Window, list[torch.Tensor]] = {}
    # Next to another bar it is removed when it is full.
    for batch in tqdm(batches, desc="scoring", unit="batch", leave=None, disable=len(batches) < 2):
        found |= zip(chain(*batch), _read(model, batch, likeliest, among), strict=True)
    parts: list[list[list[torch.Tensor]]] = [[] for _ in texts]
    for window in windows:
        parts[window.text].append(found[window])
    return [
        TextScore(len(ids), *map(torch.cat, zip(*own or [[torch.empty(0)]], strict=True)))
        for ids, own in zip(texts, parts, strict=True)
    ]


def _rows(windows: Sequence[_Window]) -> list[list[_Window]]:
    """Windows that stand in a row together: beginnings of texts, neighbours in the order of their tokens."""
    rows: list[list[_Window]] = []
    used = 0
    for window in sorted(windows, key=lambda window: (window.begin, window.ids)):
        before = rows[-1][-1].ids if rows else ()
        new = len(window.ids) - sum(takewhile(bool, map(eq, before, window.ids)))  # what both begin with is there
        # Windows of one text may begin alike and count from different tokens on.
        if not rows or window.begin or used + new > _ROW_TOKENS:
            rows.append([])
            used, new = 0, len(window.ids)
        rows[-1].append(window)
        used += new
    return rows


def _read(
    model: GPTForCausalLM, rows: Sequence[Sequence[_Window]], likeliest: int, among: Sequence[int] | None
) -> Iterator[list[torch.Tensor]]:
    """What `TextScore` holds, of the counted tokens of each window."""
    # No state of a last token is needed: nothing is predicted from it.
    trees = [TokenTree.from_paths([window.ids[:-1] for window in row]) for row in rows]
    batch = collate_trees(trees, model.config.pad_token_id or 0)
    wanted = ("input_ids", "position_ids", "subtree_end")
    batch = {name: value.to(model.device) for name, value in batch.items() if name in wanted}
    states = model.transformer(**batch, use_cache=False).last_hidden_state  # (rows, length, n_embd)
    pairs, counts = [], []  # where a state is, and the token after it
    for number, (row, tree) in enumerate(zip(rows, trees, strict=True)):
        for path, window in enumerate(row):
            places = [number * states.shape[1] + index for index in tree.path(path)[window.first - 1 :]]
            pairs += zip(places, window.ids[window.first :], strict=True)
            counts.append(len(places))
    # What texts share is predicted once, too.
    different, inverse = torch.tensor(pairs).unique(dim=0, return_inverse=True)
    found, flat = [], states.flatten(0, 1)
    for chunk in different.split(_CHUNK):
        places, targets = chunk.to(states.device).T
        logits = model.token_logits(flat[places]).float()
        total, chosen = logits.logsumexp(-1, keepdim=True), logits.gather(1, targets[:, None])
        values = [(chosen - total)[:, 0]]
        if likeliest:
            top = logits.topk(likeliest)
            entropy = torch.special.entr((logits - total).exp()).sum(1)
            values += [(logits > chosen).sum(1) + 1, entropy, top.indices, top.values - total]
        if among is not None:
            values.append(logits[:, among].logsumexp(1) - total[:, 0])
        found.append([value.cpu() for value in values])
    columns = [torch.cat(column)[inverse].split(counts) for column in zip(*found, strict=True)]
    return map(list, zip(*columns, strict=True))


def score_last_words(
    model: GPTForCausalLM, tokenizer: GPTTokenizer, passages: Sequence[tuple[str, str]], batch_size: int = 8
) -> list[dict[str, Any]]:
    """
    The last word of each passage, given as name and text (Paperno et al., 2016: LAMBADA); of one that is longer than
    the context the end is read. `name`, `word`, its natural `log_probability`, and whether each of its tokens
    `is_likeliest`. A `ValueError` names the passage if it has no word before the last one.
    """
    rows, texts, given, context = [], [], [], model.config.n_positions
    for name, text in passages:
        before, _, word = " ".join(text.split()).rpartition(" ")
        read, guessed = encode(tokenizer, before), encode(tokenizer, f" {word}")
        if not (read and 0 < len(guessed) < context):
            raise ValueError(f"{name}: there is no last word after others: take the passage out.")
        rows.append({"name": name, "word": word})
        texts.append(guessed)
        given.append(read[len(guessed) - context :])
    for row, score in zip(rows, score_texts(model, texts, None, batch_size, given, likeliest=1), strict=True):
        row |= {"log_probability": score.log_probability, "is_likeliest": bool((score.ranks == 1).all())}
    return rows


def read_lines(path: Path) -> list[str]:
    """The texts of a file, one a line; a `ValueError` names the line if one is empty, or the file if all it is."""
    lines = [line for _, line in read_text_lines(path)]
    for number, line in enumerate(lines or [""], 1):
        if not line.strip():
            raise ValueError(f"{path}, line {number}: it is empty: write one text a line.")
    return lines


def read_pairs(path: Path) -> list[MinimalPair]:
    """Minimal pairs of BLiMP's JSONL, by the file's name without a term; a `ValueError` names the line without one."""
    pairs, name = [], path.name.partition(".")[0]
    for number, line in read_text_lines(path):
        with reading(path, f"line {number}"):
            row = json.loads(line)
            good, bad = row["sentence_good"].strip(), row["sentence_bad"].strip()
            if not (good and bad):
                raise ValueError("a sentence is empty")
            pairs.append(MinimalPair(good, bad, str(row.get("linguistics_term", name)).replace("_", " ")))
    if not pairs:
        raise ValueError(f"{path}: the file holds no pair of sentences.")
    return pairs
