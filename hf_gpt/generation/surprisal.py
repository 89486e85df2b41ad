"""
Surprisal of the words of a text, as studies of reading and of the brain use it: words are what white space separates.

A word's surprisal is that of all its tokens, of a paragraph's first word with the newline before it. Vocabularies that
mark where a word begins, as GPT-2's, count the end of a word in the next one; with `end_of_word` it counts where it
belongs: the probability is multiplied by that of white space after the word, and divided by that of the white space
that it begins with (Pimentel and Meister, 2024; Oh and Schuler, 2024). GPT's mark where a word ends, so that there is
nothing to correct.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ..files import templates
from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from . import token_text
from .scoring import TextScore, beginning_ids, score_texts

# What a nat is in each unit.
UNITS = {"bits": 1 / math.log(2), "nats": 1.0}
# Surprisal, in bits, from which a word of the page has the full colour.
_FULL_COLOUR = 20


def word_surprisals(
    model: GPTForCausalLM,
    tokenizer: GPTTokenizer,
    documents: Sequence[tuple[str, str]],
    beginning: str = "paragraph",
    context: int | None = None,
    context_words: int | None = None,
    unit: str = "bits",
    end_of_word: bool = False,
    batch_size: int = 8,
    likeliest: int = 0,
) -> list[dict[str, Any]]:
    """
    A row for each word of documents, given as name and text, of any length: `document`, `word_number` from 1, `word`,
    its `start` and `end` in the text, number of `tokens`, and `surprisal`; `entropy` of what may come next before its
    first token that is no white space, the `rank` of that one, from 1, and so many `likeliest` ones with their
    probabilities. What no token of the word was predicted for is `None`.

    A token of a long text has at least `context` tokens before it, by default half the model's context; with
    `context_words` each word is read after so many words alone, and `beginning` where these reach back to it. A
    `ValueError` if the context is longer than the model's, or no token is predicted.
    """
    longest = model.config.n_positions
    if context is not None and context >= longest:
        raise ValueError(f"--context {context}: at most {longest - 1}, as the model reads {longest} tokens.")
    stride = None if context is None else min(longest // 2, longest - context)
    before, parts = beginning_ids(tokenizer, beginning), []
    for name, text in tqdm(documents, desc="tokenizing", unit="text", disable=len(documents) < 2):
        parts += [(name, text, *part) for part in _parts(tokenizer, text, before, context_words)]
    white = []
    if end_of_word and tokenizer.byte_level:  # what ends a word: white space, and the end of the text
        white = [number for number in range(len(tokenizer)) if tokenizer.decode([number])[:1].isspace()]
        white += [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    # The token after the last word is not counted: only the probability of white space there is.
    ids = [[*own, *([tokenizer.newline_id] if white else [])] for *_, own in parts]
    settings = {"given": [given for *_, given, _ in parts], "likeliest": max(likeliest, 1), "among": white or None}
    scores, rows = score_texts(model, ids, stride, batch_size, **settings), []
    for (name, text, words, *_), own, score in zip(parts, ids, scores, strict=True):
        words[:, 3:] -= len(own) - len(score.log_probs)  # the first may not be predicted
        for number, start, end, first, last, head in words.tolist():
            place = {"document": name, "word_number": number, "word": text[start:end], "start": start, "end": end}
            values = _values(tokenizer, (first, last, head), own, score, white, likeliest)
            scaled = {key: values[key] and values[key] * UNITS[unit] for key in ("surprisal", "entropy")}
            rows.append(place | {"tokens": last - first} | values | scaled)
    if all(row["surprisal"] is None for row in rows):
        raise ValueError("The texts have fewer than two tokens each: nothing is predicted in them; give longer ones.")
    return rows


def _parts(
    tokenizer: GPTTokenizer, text: str, before: list[int], context_words: int | None
) -> Iterator[tuple[np.ndarray, list[int], list[int]]]:
    """
    Words that are read at once, all or each alone, the tokens before them, and their own. Of a word its number, first
    and end character, and among their own tokens the first, the end, and the first that is no white space.
    """
    read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids, offsets = read["input_ids"], np.array(read["offset_mapping"], int).reshape(-1, 2)
    spans = np.array([match.span() for match in re.finditer(r"\S+", text)], int).reshape(-1, 2)
    count = len(spans)
    # White space belongs to the word after it, at the end of a text to the last one.
    words = np.searchsorted(spans[:, 1], np.maximum.accumulate(offsets[:, 0]), "right").clip(0, max(count - 1, 0))
    bounds = np.searchsorted(words, np.arange(count + 1))
    heads = bounds[:-1].copy()
    for number, (first, end) in enumerate(pairwise(bounds)):
        visible = np.flatnonzero(offsets[first:end, 1] > spans[number, 0])
        heads[number] += visible[0] if len(visible) else 0
    table = np.column_stack([np.arange(1, count + 1), spans, bounds[:-1], bounds[1:], heads])
    size = count if context_words is None else 1
    for number in range(0, count, size or 1):
        start, first, end = number - (context_words or 0), *bounds[[number, number + size]]
        given = [*(before if start <= 0 else []), *ids[bounds[max(start, 0)] : first]]
        yield table[number : number + size] - [0, 0, 0, first, first, first], given, ids[first:end]


def _values(
    tokenizer: GPTTokenizer, places: Iterable[int], ids: list[int], score: TextScore, white: list[int], likeliest: int
) -> dict[str, Any]:
    """What was found of a word, in nats, by the places of its first token, end and head among the predicted ones."""
    first, end, head = places
    predicted = score.log_probs[max(first, 0) : max(end, 0)].double()
    surprisal = -predicted.sum().item() if len(predicted) else None
    if surprisal is not None and white:
        begins_with_white = first >= 0 and ids[first - len(score.log_probs)] in white
        surprisal -= score.masses[end].item() - (score.masses[first].item() if begins_with_white else 0)
    is_known = head >= 0 and end > head
    row = {"surprisal": surprisal, "entropy": score.entropies[head].item() if is_known else None}
    row["rank"] = int(score.ranks[head]) if is_known else None
    if likeliest:
        tokens, shares = (score.likeliest[head], score.likeliest_log_probs[head].exp()) if is_known else ([], [])
        names = [token_text(tokenizer, int(token)) for token in tokens]
        row["likeliest"] = list(zip(names, map(float, shares), strict=True))
    return row


def render_page(model: str, documents: Sequence[tuple[str, str]], rows: Sequence[dict[str, Any]], unit: str) -> str:
    """A self-contained HTML page: the documents coloured by surprisal, and a table of the words of each."""
    left, shown = iter(rows), []
    for name, text in documents:
        words, end = [], 0
        for row in islice(left, len(text.split())):
            bits = (row["surprisal"] or 0.0) / UNITS[unit] * UNITS["bits"]
            words.append((text[end : row["start"]], row, round(max(0.0, min(bits / _FULL_COLOUR, 1)), 2)))
            end = row["end"]
        shown.append((name, words))
    template = Path(__file__).parent / "templates" / "surprisal.html.jinja"
    return templates.render_page(template, f"What {model} expected", texts=shown, unit=unit)
