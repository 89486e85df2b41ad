"""Measures of several texts, on examples that are counted by hand."""

import math

import pytest

from hf_gpt.generation.comparison import (
    compare,
    distinct,
    ends_in_loop,
    passages,
    repetition,
    self_bleu,
    zipf_coefficient,
)


def test_distinct():
    texts = [[1, 2, 1, 2], [1, 2, 3]]
    assert distinct(texts, 1) == pytest.approx(3 / 7)
    assert distinct(texts, 2) == pytest.approx(3 / 5)
    assert distinct([[1]], 2) == 0


def test_repetition():
    assert repetition([1, 2, 3, 4, 5]) == 0
    assert repetition([1, 2, 3, 4, 1, 2, 3, 4]) == pytest.approx(1 / 5)
    assert repetition([7] * 10) == pytest.approx(6 / 7)
    assert repetition([1, 2, 3]) == 0


def test_self_bleu_of_equal_and_of_different_texts():
    assert self_bleu([[1, 2, 3, 4, 5]] * 3) == pytest.approx(1)
    # Nothing in common: every precision is smoothed, 0.1 of 5, 4, 3 and 2 n-grams.
    different = [list(range(start, start + 5)) for start in (0, 10, 20)]
    assert self_bleu(different) == pytest.approx((0.1**4 / (5 * 4 * 3 * 2)) ** 0.25)
    with pytest.raises(ValueError, match="two or more"):
        self_bleu([[1, 2]])


def test_self_bleu_by_hand():
    """Clipped counts against the most that another text has, and the brevity of the shorter one."""
    first, second, third = [1, 1, 2, 3, 4], [1, 2, 3, 4], [9, 9, 9, 9, 9, 9]

    def bleu(precisions, brevity=0.0):
        return math.exp(sum(map(math.log, precisions)) / 4 + brevity)

    expected = [
        bleu([4 / 5, 3 / 4, 2 / 3, 1 / 2]),  # the second 1 has no partner; the nearest text has 4 tokens
        bleu([4 / 4, 3 / 3, 2 / 2, 1 / 1], 1 - 5 / 4),
        bleu([0.1 / 6, 0.1 / 5, 0.1 / 4, 0.1 / 3]),
    ]
    assert self_bleu([first, second, third]) == pytest.approx(sum(expected) / 3)


def test_zipf_of_a_power_law():
    texts = [[token] * round(10_000 / (token + 1)) for token in range(50)]
    assert zipf_coefficient(texts) == pytest.approx(1, abs=1e-3)
    assert zipf_coefficient([[1, 2, 3, 4]]) == pytest.approx(0)
    with pytest.raises(ValueError, match="two different tokens"):
        zipf_coefficient([[1, 1]])


def test_loops():
    assert ends_in_loop([5, 1, 2, 1, 2, 1, 2])
    assert ends_in_loop([1, 2, 3, 1, 2, 3, 1, 2, 3])
    assert ends_in_loop([4, *[7] * 6])
    assert not ends_in_loop([4, *[7] * 5])
    assert not ends_in_loop([1, 2, 1, 2, 1, 2, 5])
    assert not ends_in_loop([1, 2, 1, 2])


def test_all_measures_together():
    measures = compare([[1, 2, 1, 2, 1, 2], [1, 2, 3, 4]])
    assert measures.keys() == {"distinct_1", "distinct_2", "self_bleu_4", "zipf", "looping"}
    assert (measures["distinct_1"], measures["looping"]) == (pytest.approx(0.4), 0.5)
    alone = compare([[1, 1, 1]])
    assert (alone["self_bleu_4"], alone["zipf"]) == (None, None)


def test_passages_are_spread_and_do_not_overlap():
    ids = list(range(100))
    found = passages(ids, count=3, given=4, length=10)
    assert [given[0] for given, _ in found] == [0, 33, 66]
    assert all(given + new == list(range(given[0], given[0] + 14)) and len(given) == 4 for given, new in found)
    with pytest.raises(ValueError, match=r"has 100 tokens, and 8 passages of 14 are needed"):
        passages(ids, count=8, given=4, length=10)
