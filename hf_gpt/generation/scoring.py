"""
Log-probability and perplexity of texts of any length.

A text longer than the context is read in windows that move by `stride` tokens, at most half the context; a token
counts in the first window that it stands in. So every token behind the first window is predicted with at least
`context - stride` tokens of context, which are at least `stride`. Texts that begin alike are read as one token tree,
which gives the same numbers for less work. The first token of a text has nothing to be predicted from and is not
counted. What has no probability in the model's language-model loss (padding, special tokens that no loss has trained)
has none here.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from operator import eq
from pathlib import Path

import torch
from tqdm import tqdm

from ..files import input_error, place, read_text_lines
from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import collate_trees
from ..trees.token_tree import TokenTree
from . import encode

# Tokens of a row at most in which several texts share what they begin with: a longer row is mostly mask.
_ROW_TOKENS = 128
# Vocabulary logits of this many states are held at a time.
_CHUNK = 512
_READ = ("input_ids", "position_ids", "subtree_end")
# Names that the columns of minimal pairs may have; BLiMP's are the first.
_PAIR_COLUMNS = (("sentence_good", "sentence_bad"), ("good", "bad"))


def checked_stride(stride: int | None, context: int) -> int:
    """How far windows over a long text move, by default half the context; a `ValueError` if it is more."""
    stride = context // 2 if stride is None else stride
    if not 1 <= stride <= context // 2:
        raise ValueError(
            f"--stride {stride}: at least 1 and at most {context // 2}, half the context, so that every token is "
            "predicted with at least so many before it."
        )
    return stride


def windows(length: int, context: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """
    The windows over a text of `length` tokens: begin and end, and the first token that counts in each; of
    `length - 1` tokens each counts once.
    """
    counted = 1
    for begin in range(0, length, stride):
        end = min(begin + context, length)
        if counted < end:
            yield begin, end, counted
        counted = end
        if end == length:
            return


@dataclass(frozen=True)
class TextScore:
    """A text's natural log-probability (all tokens but the first, given the first), and its number of tokens."""

    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float | None:
        """`float`: per predicted token; `None` where there is none."""
        return perplexity(self.log_probability, self.tokens - 1)


def perplexity(log_probability: float, units: int) -> float | None:
    """`exp(-log_probability / units)`; infinity where that is no number any more, `None` without units."""
    if units < 1:
        return None
    mean = -log_probability / units
    return math.exp(mean) if mean < 700 else math.inf


@torch.no_grad()
def score_texts(
    model: GPTForCausalLM,
    texts: Sequence[Sequence[int]],
    stride: int | None = None,
    batch_size: int = 8,
    share_prefix: bool = True,
) -> list[TextScore]:
    """
    The log-probability of each text, of token ids, by a model in evaluation mode. So many windows are read at once,
    rows of like length together, and with `share_prefix` what texts begin with alike only once.
    """
    context = model.config.n_positions
    stride = checked_stride(stride, context)
    parts = [
        _Window(number, tuple(ids[begin:end]), first - begin)
        for number, ids in enumerate(texts)
        for begin, end, first in windows(len(ids), context, stride)
    ]
    totals = [0.0] * len(texts)
    # Beside another bar it goes when it is full.
    with tqdm(total=len(parts), desc="scoring", unit="window", leave=None, disable=len(parts) <= batch_size) as bar:
        for rows in _batches(_rows(parts, batch_size if share_prefix else 1), batch_size):
            # No state of a last token is needed: nothing is predicted from it.
            trees = [TokenTree.from_paths([part.ids[:-1] for part in row]) for row in rows]
            batch = collate_trees(trees, model.config.pad_token_id or 0)
            batch = {name: batch[name].to(model.device) for name in _READ if name in batch}
            states = model.transformer(**batch, use_cache=False).last_hidden_state
            width, windows_read = states.shape[1], [part for row in rows for part in row]
            places = [
                [number * width + place for place in tree.path(path)[part.first - 1 :]]
                for number, (row, tree) in enumerate(zip(rows, trees, strict=True))
                for path, part in enumerate(row)
            ]
            targets = [part.ids[part.first :] for part in windows_read]
            found = _log_probs(model, states.flatten(0, 1), [*chain(*places)], [*chain(*targets)])
            for part, own in zip(windows_read, found.split([len(own) for own in targets]), strict=True):
                totals[part.text] += own.sum().item()
            bar.update(sum(map(len, rows)))
    return [TextScore(total, len(ids)) for total, ids in zip(totals, texts, strict=True)]


@dataclass(frozen=True)
class _Window:
    """Tokens of the text of a number, of which those from `first` on count."""

    text: int
    ids: tuple[int, ...]
    first: int


def _rows(parts: Sequence[_Window], most: int) -> list[list[_Window]]:
    """Windows that stand in a row together: beginnings of texts, neighbours in the order of their tokens."""
    rows: list[list[_Window]] = []
    used = 0
    for part in sorted(parts, key=lambda part: (part.first, part.ids)):
        before = rows[-1][-1].ids if rows else ()
        new = len(part.ids) - sum(takewhile(bool, map(eq, before, part.ids)))  # what both begin with is there
        # Windows of one text may begin alike and count from different tokens on.
        if not rows or part.first > 1 or len(rows[-1]) == most or used + new > _ROW_TOKENS:
            rows.append([])
            used, new = 0, len(part.ids)
        rows[-1].append(part)
        used += new
    return rows


def _batches(rows: list[list[_Window]], size: int) -> Iterator[list[list[_Window]]]:
    """Rows of like length, of at most `size` windows together."""
    batch: list[list[_Window]] = []
    # The longest first: what does not fit into memory shows at once.
    for row in sorted(rows, key=lambda row: -sum(len(part.ids) for part in row)):
        if batch and sum(map(len, batch)) + len(row) > size:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _log_probs(
    model: GPTForCausalLM, states: torch.Tensor, places: Sequence[int], targets: Sequence[int]
) -> torch.Tensor:
    """Log-probability, `(targets,)`, of each target given the state `(states, n_embd)` at its place."""
    # What several tokens come next to predicts them all at once.
    needed, state = torch.tensor(places).unique(return_inverse=True)
    target, found = torch.tensor(targets), torch.empty(len(targets))
    for start in range(0, len(needed), _CHUNK):
        own = ((state >= start) & (state < start + _CHUNK)).nonzero().squeeze(1)
        logits = model.token_logits(states[needed[start : start + _CHUNK].to(states.device)]).float()
        row = (state[own] - start).to(states.device)
        found[own] = (logits[row, target[own].to(states.device)] - logits.logsumexp(-1)[row]).cpu()
    return found


@dataclass(frozen=True)
class LastWord:
    """
    The last word of a passage, the natural logarithm of its probability behind the rest, and whether each of its
    tokens is the likeliest one.
    """

    word: str
    log_probability: float
    is_likeliest: bool


def score_last_words(
    model: GPTForCausalLM, tokenizer: GPTTokenizer, passages: Sequence[tuple[str, str]], batch_size: int = 8
) -> list[LastWord]:
    """
    The last word of each passage, given as name and text (Paperno et al., 2016: LAMBADA); of one that is longer than
    the context the end is read. A `ValueError` names the passage if it has no word before the last one.
    """
    rows, context = [], model.config.n_positions
    for name, text in passages:
        before, _, word = " ".join(text.split()).rpartition(" ")
        given, guessed = encode(tokenizer, before), encode(tokenizer, f" {word}")
        if not (given and 0 < len(guessed) < context):
            raise ValueError(f"{name}: there is no last word behind others: take the passage out.")
        rows.append((word, given[len(guessed) - context :], guessed))
    scores = score_continuations(model, [row for _, *row in rows], batch_size)
    return [LastWord(word, *score) for (word, *_), score in zip(rows, scores, strict=True)]


@torch.no_grad()
def score_continuations(
    model: GPTForCausalLM, rows: Sequence[tuple[Sequence[int], Sequence[int]]], batch_size: int = 8
) -> list[tuple[float, bool]]:
    """
    Of each row of tokens that are given and new ones, one or more each and together within the context, the natural
    logarithm of the probability of the new ones, and whether each of them is the likeliest one.
    """
    found, starts = [], range(0, len(rows), batch_size)
    for start in tqdm(starts, desc="scoring", unit="batch", disable=len(starts) < 2):
        part = rows[start : start + batch_size]
        trees = [TokenTree.from_paths([[*given, *new]]) for given, new in part]
        batch = collate_trees(trees, model.config.pad_token_id or 0)
        states = model.transformer(batch["input_ids"].to(model.device)).last_hidden_state  # (batch, length, n_embd)
        for of_row, (given, new) in zip(states, part, strict=True):
            scores = model.token_logits(of_row[len(given) - 1 :][: len(new)]).float().log_softmax(-1)
            targets = torch.tensor(new, device=scores.device)
            total = scores.gather(1, targets[:, None]).sum().item()
            found.append((total, bool((scores.argmax(-1) == targets).all())))
    return found


def read_lines(path: Path) -> list[str]:
    """
    The texts of a file, one a line.

    Raises:
        ValueError: naming the line, if one is empty; or if there is none.
    """
    _check_file(path)
    lines = []
    for number, line in read_text_lines(path):
        if not line.strip():
            raise input_error(place(path, number), "the line is empty.", "Take it out: there is one text a line.")
        lines.append(line)
    if not lines:
        raise input_error(path, "the file is empty.", "Write one text a line.")
    return lines


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """
    Minimal pairs, the good sentence first: a TSV of two columns (a first line `good` and `bad`, or BLiMP's names, is
    taken for a heading), or JSONL with `sentence_good` and `sentence_bad`, as BLiMP is published.

    Raises:
        ValueError: naming the line that holds no pair; or if there is none.
    """
    _check_file(path)
    is_json, pairs = path.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.xz")), []
    for number, line in read_text_lines(path):
        pair = _json_pair(line) if is_json else tuple(cell.strip() for cell in line.split("\t"))
        if number == 1 and pair in _PAIR_COLUMNS:
            continue
        if pair is None or len(pair) != 2 or not all(pair):
            wanted = "sentence_good and sentence_bad" if is_json else "a good sentence, a tab and a bad one"
            raise input_error(place(path, number), f"{wanted} were expected.", "Correct the line, or take it out.")
        pairs.append(pair)
    if not pairs:
        raise input_error(path, "the file holds no pair.", "Write a good sentence, a tab and a bad one on each line.")
    return pairs


def _json_pair(line: str) -> tuple[str, str] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    pairs = ((row.get(good), row.get(bad)) for good, bad in _PAIR_COLUMNS) if isinstance(row, dict) else ()
    return next((pair for pair in pairs if all(isinstance(text, str) and text.strip() for text in pair)), None)


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"{path} is a folder: name a file." if path.is_dir() else f"{path}: there is no such file.")
