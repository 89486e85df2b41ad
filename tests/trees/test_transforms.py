"""Rows of token ids -> token trees: literal layouts of each family, and what truncation may and may not do."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_gpt.trees.transforms import (
    FAMILIES,
    TRUNCATION_RULES,
    WINDOWED,
    InputTransform,
    SpecialIds,
    fit_half,
    fit_longest_first,
)

S, D, C = 100, 101, 102
SPECIAL = SpecialIds(start=S, delimiter=D, classify=C)

texts = st.lists(st.integers(0, 3), max_size=14)
lengths = st.integers(8, 24)
rules = st.sampled_from(sorted(TRUNCATION_RULES))
ROWS = {
    "classification": st.fixed_dictionaries({"text": texts}),
    "entailment": st.fixed_dictionaries({"premise": texts, "hypothesis": texts}),
    "similarity": st.fixed_dictionaries({"premise": texts, "hypothesis": texts}),
    "multiple-choice": st.fixed_dictionaries(
        {"context": texts, "question": texts, "choices": st.lists(texts, min_size=1, max_size=4)}
    ),
}
# Those whose path ends are classify tokens.
by_family = pytest.mark.parametrize("family", sorted(FAMILIES.keys() - set(WINDOWED)))


def transform(family, max_length=64, rule="longest_first", **kwargs):
    return InputTransform(family, SPECIAL, max_length, rule, **kwargs)


def paths_of(tree):
    return [[tree.input_ids[index] for index in tree.path(number)] for number in range(len(tree.path_ends))]


def expected_paths(family, row):
    """The sequences of a row that is not cut."""
    if family == "classification":
        return [[S, *row["text"], C]]
    if family == "multiple-choice":
        return [[S, *row["context"], *row["question"], D, *choice, C] for choice in row["choices"]]
    orders = [(row["premise"], row["hypothesis"]), (row["hypothesis"], row["premise"])]
    return [[S, *first, D, *second, C] for first, second in orders[: 2 if family == "similarity" else 1]]


@pytest.mark.parametrize(
    ("family", "row", "ids", "positions", "ends"),
    [
        ("classification", {"text": [1, 2]}, (S, 1, 2, C), (0, 1, 2, 3), (3,)),
        ("classification", {"text": []}, (S, C), (0, 1), (1,)),
        ("entailment", {"premise": [1, 2], "hypothesis": [3]}, (S, 1, 2, D, 3, C), (0, 1, 2, 3, 4, 5), (5,)),
        (
            "similarity",
            {"premise": [1, 2], "hypothesis": [3]},
            (S, 1, 2, D, 3, C, 3, D, 1, 2, C),
            (0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5),
            (5, 10),
        ),
        (
            "multiple-choice",
            {"context": [1], "question": [2], "choices": [[3, 4], [3, 5], [6]]},
            (S, 1, 2, D, 3, 4, C, 5, C, 6, C),
            (0, 1, 2, 3, 4, 5, 6, 5, 6, 4, 5),
            (6, 8, 10),
        ),
        (
            "multiple-choice",
            {"context": [1], "question": [], "choices": [[], [2]]},
            (S, 1, D, C, 2, C),
            (0, 1, 2, 3, 3, 4),
            (3, 5),
        ),
    ],
    ids=["classification", "empty-text", "entailment", "similarity", "multiple-choice", "empty-choice"],
)
def test_layout(family, row, ids, positions, ends):
    tree = transform(family)(row)
    assert tree.input_ids == ids
    assert tree.position_ids == positions
    assert tree.path_ends == ends


def test_layout_of_words():
    """One sequence whose path ends are the words' last tokens; a word without tokens is read at the one before it."""
    tree = transform("tagging")({"words": [[], [1, 2], [3], []]})
    assert tree.input_ids == (S, 1, 2, 3, C)
    assert tree.path_ends == (0, 2, 3, 3)
    assert tree.lm_weights == (0.0, 1.0, 1.0, 1.0, 1.0)  # 4 words
    assert tree.is_chain


def test_layout_of_words_in_windows():
    tree, cut = transform("tagging", 8).fit({"words": [[1, 2], [3, 4, 5], [6], [7], [8], [9, 10]]})
    windows = [(S, 1, 2, 3, 4, 5, 6, C), (S, 4, 5, 6, 7, 8, 9, C), (S, 7, 8, 9, 10, C)]
    assert tree.input_ids == tuple(itertools.chain(*windows))
    assert tree.position_ids == (*range(8), *range(8), *range(6))
    assert tree.subtree_end == (8,) * 8 + (16,) * 8 + (22,) * 6
    assert tree.path_ends == (2, 5, 6, 12, 13, 20)
    assert sum(tree.lm_weights) == pytest.approx(6)
    assert cut == 0


@given(st.lists(st.lists(st.integers(0, 3), max_size=20), min_size=1, max_size=9), lengths)
def test_every_word_is_read_at_its_last_token(words, max_length):
    numbers = itertools.count()
    words = [[next(numbers) for _ in word] for word in words]
    tree = InputTransform("tagging", SpecialIds(-1, -2, -3), max_length)({"words": words})
    before = -1
    for word, end in zip(words, tree.path_ends, strict=True):
        before = word[-1] if word else before
        assert tree.input_ids[end] == before
        # With as much before it as the windows leave, and never less than half of one.
        assert tree.position_ids[end] >= min(before + 1, (max_length - 2) // 2)
    assert max(tree.position_ids) < max_length


def test_layout_of_a_passage_in_windows():
    """The question stands before the passage, once; of each token of the passage the place in its first window."""
    row = {"question": [1, 2, 3], "passage": [4, 5, 6, 7, 8]}
    tree, cut = transform("question-answering", 10).fit(row)
    assert tree.input_ids == (S, 1, 2, 3, D, 4, 5, 6, 7, C, 6, 7, 8, C)
    assert tree.position_ids == (*range(10), *range(5, 9))
    assert tree.subtree_end == (14,) * 5 + (10,) * 5 + (14,) * 4
    assert tree.path_ends == (5, 6, 7, 8, 12)
    assert sum(tree.lm_weights) == pytest.approx(1)
    assert cut == 0
    apart, cut = transform("question-answering", 8, share_prefix=False).fit(row)
    windows = [(S, 1, 2, D, 4, 5, 6, C), (S, 1, 2, D, 5, 6, 7, C), (S, 1, 2, D, 6, 7, 8, C)]
    assert apart.input_ids == tuple(itertools.chain(*windows))
    assert (apart.path_ends, cut) == ((4, 5, 6, 14, 22), 1)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 90), lengths, st.booleans())
def test_every_token_of_a_passage_is_read_behind_the_question(question, count, max_length, share_prefix):
    passage = list(range(10, 10 + count))
    layout = InputTransform("question-answering", SpecialIds(-1, -2, -3), max_length, share_prefix=share_prefix)
    tree, cut = layout.fit({"question": question, "passage": passage})
    assert [tree.input_ids[place] for place in tree.path_ends] == passage
    kept = question[: len(question) - cut]
    assert cut == 0 or len(kept) == max_length // 2 - 2
    before = len(kept) + 2
    for number, path in enumerate(paths_of(tree)):
        inside = path[before:]
        assert path[:before] == [-1, *kept, -2]
        assert inside == passage[number + 1 - len(inside) : number + 1]
        # With as much before it as the windows leave, and never less than half of one.
        assert len(inside) > min(number, (max_length - before - 1) // 2 - 1)
    assert max(tree.position_ids) < max_length


def test_layout_without_sharing():
    row = {"context": [1], "question": [2], "choices": [[3], [4]]}
    tree = transform("multiple-choice", share_prefix=False)(row)
    assert tree.input_ids == (S, 1, 2, D, 3, C, S, 1, 2, D, 4, C)
    assert tree.position_ids == (0, 1, 2, 3, 4, 5) * 2
    assert tree.subtree_end == (6,) * 6 + (12,) * 6


@pytest.mark.parametrize(
    ("first", "second", "tail", "max_length", "expected"),
    [
        ([1] * 9, [2] * 9, [], 12, ([1] * 4, [2] * 4)),
        ([1] * 9, [2] * 2, [], 12, ([1] * 4, [2] * 2)),
        ([1] * 3, [2] * 9, [], 13, ([1] * 3, [2] * 4)),
        ([1] * 9, [2] * 9, [3] * 3, 12, ([1, 3, 3, 3], [2] * 4)),
        ([1] * 9, [2] * 9, [3] * 4, 12, ([3] * 4, [2] * 4)),
        ([1] * 9, [2] * 9, [3] * 9, 12, ([3] * 4, [2] * 4)),
    ],
    ids=["both-cut", "first-cut", "odd-length", "question-kept", "question-fills", "question-cut"],
)
def test_half(first, second, tail, max_length, expected):
    kept, (kept_second,) = fit_half(first, [second], tail, max_length)
    assert (kept, kept_second) == expected


@pytest.mark.parametrize(
    ("first", "second", "tail", "expected"),
    [
        ([1] * 5, [2] * 4, [], ([1] * 5, [2] * 4)),
        ([1] * 9, [2] * 2, [], ([1] * 7, [2] * 2)),
        ([1] * 2, [2] * 9, [], ([1] * 2, [2] * 7)),
        ([1] * 9, [2] * 9, [], ([1] * 5, [2] * 4)),
        ([1] * 9, [2] * 3, [3] * 2, ([1, 1, 1, 1, 3, 3], [2] * 3)),
        ([1] * 9, [2] * 9, [3] * 2, ([1, 1, 1, 3, 3], [2] * 4)),
        ([1] * 9, [2] * 9, [3] * 9, ([3] * 5, [2] * 4)),
        ([], [2] * 20, [], ([], [2] * 9)),
        ([1] * 20, [], [], ([1] * 9, [])),
    ],
    ids=[
        "fits",
        "first-longer",
        "second-longer",
        "both-long",
        "question-kept",
        "question-kept-both-long",
        "question-cut",
        "only-second",
        "only-first",
    ],
)
def test_longest_first(first, second, tail, expected):
    kept, (kept_second,) = fit_longest_first(first, [second], tail, 12)
    assert (kept, kept_second) == expected


def test_longest_first_makes_room_for_the_longest_choice():
    kept, seconds = fit_longest_first([1] * 9, [[2], [3] * 3, [4] * 2], [], 12)
    assert kept == [1] * 6
    assert seconds == [[2], [3] * 3, [4] * 2]


@by_family
@given(data=st.data(), max_length=lengths, rule=rules, share=st.booleans())
def test_sequences_are_within_length_and_keep_their_specials(family, data, max_length, rule, share):
    row = data.draw(ROWS[family])
    tree = transform(family, max_length, rule, share_prefix=share)(row)
    paths = paths_of(tree)
    assert len(paths) == len(expected_paths(family, row))
    for path, whole in zip(paths, expected_paths(family, row), strict=True):
        assert len(path) <= max_length
        assert [token for token in path if token >= S] == [token for token in whole if token >= S]
        assert path[0] == S
        assert path[-1] == C


@by_family
@given(data=st.data(), max_length=lengths)
def test_nothing_is_cut_that_fits(family, data, max_length):
    row = data.draw(ROWS[family])
    whole = expected_paths(family, row)
    layout = transform(family, max_length)
    paths = paths_of(layout(row))
    if max(map(len, whole)) <= max_length:
        assert paths == whole
        assert layout.fit(row)[1] == 0
    else:
        # No more is cut than must be.
        assert max(map(len, paths)) == max_length
        assert layout.fit(row)[1] > 0


def sides(path):
    middle = path.index(D)
    return path[1:middle], path[middle + 1 : -1]


def is_beginning(part, whole):
    return whole[: len(part)] == part


@given(ROWS["entailment"], lengths, rules)
def test_sides_lose_only_their_ends(row, max_length, rule):
    (path,) = paths_of(transform("entailment", max_length, rule)(row))
    first, second = sides(path)
    assert is_beginning(first, row["premise"])
    assert is_beginning(second, row["hypothesis"])
    if rule == "half":
        half = max_length // 2 - 2
        assert (len(first), len(second)) == (min(len(row["premise"]), half), min(len(row["hypothesis"]), half))
    elif len(first) < len(row["premise"]) and len(second) < len(row["hypothesis"]):
        assert abs(len(first) - len(second)) <= 1


@given(ROWS["similarity"], lengths, rules)
def test_similarity_is_entailment_in_both_orders(row, max_length, rule):
    swapped = {"premise": row["hypothesis"], "hypothesis": row["premise"]}
    entailment = transform("entailment", max_length, rule)
    expected = paths_of(entailment(row)) + paths_of(entailment(swapped))
    assert paths_of(transform("similarity", max_length, rule)(row)) == expected


@given(ROWS["multiple-choice"], lengths, rules)
def test_choices_stand_behind_one_context_and_the_whole_question(row, max_length, rule):
    paths = paths_of(transform("multiple-choice", max_length, rule)(row))
    firsts, seconds = zip(*map(sides, paths), strict=True)
    assert all(first == firsts[0] for first in firsts)
    for second, choice in zip(seconds, row["choices"], strict=True):
        assert is_beginning(second, choice)
    first, question = firsts[0], row["question"]
    if len(question) <= max_length // 2 - 2 or len(first) >= len(question):
        # A side of a sequence is the question's own, whatever the choices need; the context loses its end for it.
        assert first[len(first) - len(question) :] == question
        assert is_beginning(first[: len(first) - len(question)], row["context"])
    else:
        assert is_beginning(first, question)


@by_family
@given(data=st.data(), max_length=lengths, rule=rules)
def test_cut_tokens_counts_what_is_missing(family, data, max_length, rule):
    row = data.draw(ROWS[family])
    layout = transform(family, max_length, rule)
    paths, whole = paths_of(layout(row)), expected_paths(family, row)
    missing = [len(complete) - len(path) for path, complete in zip(paths, whole, strict=True)]
    if family == "multiple-choice":
        of_first = len(sides(whole[0])[0]) - len(sides(paths[0])[0])
        of_choices = [lost - of_first for lost in missing]
        assert layout.fit(row)[1] == of_first + sum(of_choices)
    else:
        assert layout.fit(row)[1] == max(missing)


@by_family
@given(data=st.data(), max_length=lengths, rule=rules)
def test_sharing_changes_no_sequence(family, data, max_length, rule):
    row = data.draw(ROWS[family])
    shared = transform(family, max_length, rule)(row)
    unshared = transform(family, max_length, rule, share_prefix=False)(row)
    assert paths_of(shared) == paths_of(unshared)
    assert len(unshared) == sum(map(len, paths_of(unshared)))
    assert len(shared) <= len(unshared)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"family": "regression"}, "Unknown task family 'regression'.*classification"),
        ({"family": "entailment", "rule": "middle"}, "Unknown truncation rule 'middle'.*longest_first"),
        ({"family": "entailment", "max_length": 7}, "max_length is 7.*at least 8"),
    ],
    ids=["family", "rule", "max-length"],
)
def test_wrong_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        transform(**arguments)
