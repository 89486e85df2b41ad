"""
Generated text against human text (Holtzman et al., 2020, table 1): each measure a function of the token ids of several
texts.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.stats import linregress

Texts = Sequence[Sequence[int]]
# Ranks that Zipf's coefficient is fitted to, as in the paper's code.
_RANKS = 5000
# What a precision without a match has in its numerator (smoothing method 1 of Chen and Cherry, 2014).
_SMOOTHING = 0.1


def ngrams(ids: Sequence[int], n: int) -> list[tuple[int, ...]]:
    """All runs of n tokens, in order."""
    return [tuple(ids[start : start + n]) for start in range(len(ids) - n + 1)]


def distinct(texts: Texts, n: int) -> float:
    """Share of the n-grams of all texts that are different (Li et al., 2016); 0 where there are none."""
    grams = [gram for ids in texts for gram in ngrams(ids, n)]
    return len(set(grams)) / len(grams) if grams else 0.0


def repetition(ids: Sequence[int], n: int = 4) -> float:
    """Share of a text's n-grams that stood in it before."""
    return 1 - distinct([ids], n) if len(ids) >= n else 0.0


def self_bleu(texts: Texts, order: int = 4) -> float:
    """
    Mean BLEU of each of two texts or more against all others (Zhu et al., 2018), of n-grams up to `order`, all lengths
    weighted alike, from 0 to 1; the lower, the more diverse.
    """
    counts = [Counter(gram for n in range(1, order + 1) for gram in ngrams(ids, n)) for ids in texts]
    largest, second = Counter(), Counter()  # of each n-gram, over the texts
    for own in counts:
        for gram, count in own.items():
            second[gram] = max(second[gram], min(count, largest[gram]))
            largest[gram] = max(largest[gram], count)
    scores = []
    for number, (ids, own) in enumerate(zip(texts, counts, strict=True)):
        matches = Counter()
        for gram, count in own.items():
            # At most what any other text has.
            matches[len(gram)] += min(count, (second if count == largest[gram] else largest)[gram])
        precisions = [(matches[n] or _SMOOTHING) / max(len(ids) - n + 1, 1) for n in range(1, order + 1)]
        lengths = [len(other) for index, other in enumerate(texts) if index != number]
        reference = min(lengths, key=lambda length: (abs(length - len(ids)), length))
        brevity = min(0.0, 1 - reference / max(len(ids), 1))
        scores.append(math.exp(sum(map(math.log, precisions)) / order + brevity))
    return sum(scores) / len(scores)


def zipf_coefficient(texts: Texts) -> float:
    """
    Minus the slope of a line through log frequency over log rank of all texts' tokens, two different ones or more;
    about 1 in human language.
    """
    frequencies = [count for _, count in Counter(token for ids in texts for token in ids).most_common(_RANKS)]
    return -float(linregress(np.log(np.arange(1, len(frequencies) + 1)), np.log(frequencies)).slope)


def ends_in_loop(ids: Sequence[int]) -> bool:
    """Whether a text ends with a phrase of two tokens or more that stands there three times in a row."""
    ids = list(ids)
    return any(ids[-n:] == ids[-2 * n : -n] == ids[-3 * n : -2 * n] for n in range(2, len(ids) // 3 + 1))


def compare(texts: Texts) -> dict[str, float | None]:
    """All measures that need no model; `None` where there are too few texts or tokens for one."""
    return {
        "distinct_1": distinct(texts, 1),
        "distinct_2": distinct(texts, 2),
        "self_bleu_4": self_bleu(texts) if len(texts) > 1 else None,
        "zipf": zipf_coefficient(texts) if len({token for ids in texts for token in ids}) > 1 else None,
        "looping": sum(map(ends_in_loop, texts)) / len(texts),
    }


def passages(ids: Sequence[int], count: int, given: int, length: int) -> list[tuple[list[int], list[int]]]:
    """
    So many passages of a human text, spread evenly over it, that do not overlap: the `given` tokens before each, and
    its `length` tokens. A `ValueError` if the text is too short.
    """
    size = given + length
    if len(ids) < count * size:
        raise ValueError(f"the human text has {len(ids):,} tokens, and {count} passages of {size} are needed.")
    begins = [number * (len(ids) // count) for number in range(count)]
    return [(list(ids[begin : begin + given]), list(ids[begin + given : begin + size])) for begin in begins]
