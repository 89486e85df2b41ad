"""Measures of several texts, on examples that are counted by hand."""

import math

import pytest

from hf_gpt.generation import comparison
from hf_gpt.generation.comparison import compare, distinct, passages, repetition, self_bleu, zipf_coefficient


def bleu(precisions: list[float], brevity: float = 0.0) -> float:
    return math.exp(sum(map(math.log, precisions)) / 4 + brevity)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (distinct([[1, 2, 1, 2], [1, 2, 3]], 1), 3 / 7),
        (distinct([[1, 2, 1, 2], [1, 2, 3]], 2), 3 / 5),
        (distinct([[1]], 2), 0),
        (repetition([1, 2, 3, 4, 5]), 0),
        (repetition([1, 2, 3, 4, 1, 2, 3, 4]), 1 / 5),
        (repetition([7] * 10), 6 / 7),
        (self_bleu([[1, 2, 3, 4, 5]] * 3), 1),
        # Nothing in common: every precision is smoothed, 0.1 of 5, 4, 3 and 2 n-grams.
        (self_bleu([list(range(start, start + 5)) for start in (0, 10, 20)]), bleu([0.1 / n for n in (5, 4, 3, 2)])),
        # Counts clipped to the most that another text has (the second 1 has no partner), and brevity.
        (
            3 * self_bleu([[1, 1, 2, 3, 4], [1, 2, 3, 4], [9] * 6]),
            bleu([4 / 5, 3 / 4, 2 / 3, 1 / 2]) + bleu([1] * 4, 1 - 5 / 4) + bleu([0.1 / n for n in (6, 5, 4, 3)]),
        ),
        (zipf_coefficient([[token] * round(10_000 / (token + 1)) for token in range(50)]), 1),
        (zipf_coefficient([[1, 2, 3, 4]]), 0),
    ],
)
def test_measures_by_hand(found, expected):
    assert found == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("text", [[5, 1, 2, 1, 2, 1, 2], [1, 2, 3, 1, 2, 3, 1, 2, 3], [4, *[7] * 6]])
def test_loops(text):
    assert comparison.ends_in_loop(text)
    assert not comparison.ends_in_loop([*text, 99])


def test_all_measures_and_too_little_for_one():
    measures = compare([[1, 2, 1, 2, 1, 2], [1, 2, 3, 4]])
    assert (measures["distinct_1"], measures["looping"]) == (pytest.approx(0.4), 0.5)
    alone = compare([[1, 1, 1]])
    assert (alone["self_bleu_4"], alone["zipf"]) == (None, None)


def test_passages_are_spread_and_do_not_overlap():
    found = passages(list(range(100)), count=3, given=4, length=10)
    assert [given[0] for given, _ in found] == [0, 33, 66]
    assert all(given + new == list(range(given[0], given[0] + 14)) and len(given) == 4 for given, new in found)
    with pytest.raises(ValueError, match=r"has 100 tokens, and 8 passages of 14 are needed"):
        passages(list(range(100)), count=8, given=4, length=10)
