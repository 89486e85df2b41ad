"""Rows of token ids -> token trees: literal layouts of each family, and what truncation may and may not do."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_gpt.trees.transforms import FAMILIES, TRUNCATION_RULES, InputTransform

S, D, C = 100, 101, 102
SPECIAL = (S, D, C)

texts = st.lists(st.integers(0, 3), max_size=14)
lengths = st.integers(8, 24)
rules = st.sampled_from(sorted(TRUNCATION_RULES))
pairs = st.fixed_dictionaries({"premise": texts, "hypothesis": texts})
ROWS = {
    "classification": st.fixed_dictionaries({"text": texts}),
    "entailment": pairs,
    "similarity": pairs,
    "multiple-choice": st.fixed_dictionaries(
        {"context": texts, "question": texts, "choices": st.lists(texts, min_size=1, max_size=4)}
    ),
}
# Those whose path ends are classify tokens.
by_family = pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"tagging", "question-answering"}))


def transform(family, max_length=64, rule="longest_first", special=SPECIAL, **kwargs):
    return InputTransform(family, special, max_length, rule, **kwargs)


def paths_of(tree):
    return [[tree.input_ids[index] for index in tree.path(number)] for number in range(len(tree.path_ends))]


def whole_paths(family, row):
    """The sequences of a row that is not truncated."""
    if family == "classification":
        return [[S, *row["text"], C]]
    if family == "multiple-choice":
        return [[S, *row["context"], *row["question"], D, *choice, C] for choice in row["choices"]]
    orders = [(row["premise"], row["hypothesis"]), (row["hypothesis"], row["premise"])]
    return [[S, *first, D, *second, C] for first, second in orders[: 2 if family == "similarity" else 1]]


PAIR = {"premise": [1, 2], "hypothesis": [3]}
SIMILARITY = ((S, 1, 2, D, 3, C, 3, D, 1, 2, C), (0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5), (5, 10))
CHOICES = {"context": [1], "question": [2], "choices": [[3, 4], [3, 5], [6]]}
THREE = ((S, 1, 2, D, 3, 4, C, 5, C, 6, C), (0, 1, 2, 3, 4, 5, 6, 5, 6, 4, 5), (6, 8, 10))
EMPTY = {"context": [1], "question": [], "choices": [[], [2]]}


@pytest.mark.parametrize(
    ("family", "row", "ids", "positions", "ends"),
    [
        ("classification", {"text": [1, 2]}, (S, 1, 2, C), (0, 1, 2, 3), (3,)),
        ("classification", {"text": []}, (S, C), (0, 1), (1,)),
        ("entailment", PAIR, (S, 1, 2, D, 3, C), (0, 1, 2, 3, 4, 5), (5,)),
        ("similarity", PAIR, *SIMILARITY),
        ("multiple-choice", CHOICES, *THREE),
        ("multiple-choice", EMPTY, (S, 1, D, C, 2, C), (0, 1, 2, 3, 3, 4), (3, 5)),
        # Path ends are the words' last tokens; a word without tokens is read at the one before it.
        ("tagging", {"words": [[], [1, 2], [3], []]}, (S, 1, 2, 3, C), (0, 1, 2, 3, 4), (0, 2, 3, 3)),
    ],
    ids=["classification", "empty-text", "entailment", "similarity", "multiple-choice", "empty-choice", "tagging"],
)
def test_layout(family, row, ids, positions, ends):
    tree, truncated = transform(family).fit(row)
    assert (tree.input_ids, tree.position_ids, tree.path_ends, truncated) == (ids, positions, ends, 0)
    apart, _ = transform(family, share_prefix=False).fit(row)
    assert len(apart) == sum(map(len, paths_of(apart))) or family == "tagging"
    assert sum(tree.lm_weights) == pytest.approx(len(row.get("words", "1")))


def test_layout_of_words_in_windows():
    tree, truncated = transform("tagging", 8).fit({"words": [[1, 2], [3, 4, 5], [6], [7], [8], [9, 10]]})
    windows = [(S, 1, 2, 3, 4, 5, 6, C), (S, 4, 5, 6, 7, 8, 9, C), (S, 7, 8, 9, 10, C)]
    assert tree.input_ids == tuple(itertools.chain(*windows))
    assert tree.position_ids == (*range(8), *range(8), *range(6))
    assert tree.subtree_end == (8,) * 8 + (16,) * 8 + (22,) * 6
    assert (tree.path_ends, truncated) == ((2, 5, 6, 12, 13, 20), 0)
    assert sum(tree.lm_weights) == pytest.approx(6)


def test_layout_of_a_passage_in_windows():
    """The question stands before the passage, once; of each token of the passage the place in its first window."""
    row = {"question": [1, 2, 3], "passage": [4, 5, 6, 7, 8]}
    tree, truncated = transform("question-answering", 10).fit(row)
    assert tree.input_ids == (S, 1, 2, 3, D, 4, 5, 6, 7, C, 6, 7, 8, C)
    assert tree.position_ids == (*range(10), *range(5, 9))
    assert tree.subtree_end == (14,) * 5 + (10,) * 5 + (14,) * 4
    assert (tree.path_ends, truncated) == ((5, 6, 7, 8, 12), 0)
    apart, truncated = transform("question-answering", 8, share_prefix=False).fit(row)
    windows = [(S, 1, 2, D, 4, 5, 6, C), (S, 1, 2, D, 5, 6, 7, C), (S, 1, 2, D, 6, 7, 8, C)]
    assert apart.input_ids == tuple(itertools.chain(*windows))
    assert (apart.path_ends, truncated) == ((4, 5, 6, 14, 22), 1)


@given(st.lists(st.lists(st.integers(0, 3), max_size=20), min_size=1, max_size=9), lengths)
def test_every_word_is_read_at_its_last_token(words, max_length):
    numbers = itertools.count()
    words = [[next(numbers) for _ in word] for word in words]
    tree, _ = transform("tagging", max_length, special=(-1, -2, -3)).fit({"words": words})
    before = -1
    for word, end in zip(words, tree.path_ends, strict=True):
        before = word[-1] if word else before
        assert tree.input_ids[end] == before
        # With as much before it as the windows leave, and never less than half of one.
        assert tree.position_ids[end] >= min(before + 1, (max_length - 2) // 2)
    assert max(tree.position_ids) < max_length


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 90), lengths, st.booleans())
def test_every_token_of_a_passage_is_read_after_the_question(question, count, max_length, share_prefix):
    passage = list(range(10, 10 + count))
    layout = transform("question-answering", max_length, special=(-1, -2, -3), share_prefix=share_prefix)
    tree, truncated = layout.fit({"question": question, "passage": passage})
    assert [tree.input_ids[place] for place in tree.path_ends] == passage
    kept = question[: len(question) - truncated]
    assert truncated == 0 or len(kept) == max_length // 2 - 2
    before = len(kept) + 2
    for number, path in enumerate(paths_of(tree)):
        inside = path[before:]
        assert path[:before] == [-1, *kept, -2]
        assert inside == passage[number + 1 - len(inside) : number + 1]
        assert len(inside) > min(number, (max_length - before - 1) // 2 - 1)
    assert max(tree.position_ids) < max_length


@pytest.mark.parametrize(
    ("rule", "first", "seconds", "tail", "expected"),
    [
        ("half", [1] * 9, [[2] * 9], [], ([1] * 4, [[2] * 4])),
        ("half", [1] * 9, [[2] * 9], [3] * 3, ([1, 3, 3, 3], [[2] * 4])),
        ("half", [1] * 9, [[2] * 9], [3] * 9, ([3] * 4, [[2] * 4])),
        ("longest_first", [1] * 9, [[2] * 2], [], ([1] * 7, [[2] * 2])),
        ("longest_first", [1] * 9, [[2] * 9], [3] * 2, ([1, 1, 1, 3, 3], [[2] * 4])),
        ("longest_first", [1] * 9, [[2] * 9], [3] * 9, ([3] * 5, [[2] * 4])),
        ("longest_first", [], [[2] * 20], [], ([], [[2] * 9])),
        ("longest_first", [1] * 9, [[2], [3] * 3, [4] * 2], [], ([1] * 6, [[2], [3] * 3, [4] * 2])),
    ],
)
def test_truncation_rules(rule, first, seconds, tail, expected):
    assert TRUNCATION_RULES[rule](first, seconds, tail, 12) == expected


@by_family
@given(data=st.data(), max_length=lengths, rule=rules)
def test_truncation(family, data, max_length, rule):
    """Sequences fit, keep their special tokens, lose no more than they must; what they lose is counted."""
    row = data.draw(ROWS[family])
    layout = transform(family, max_length, rule)
    tree, truncated = layout.fit(row)
    paths, whole = paths_of(tree), whole_paths(family, row)
    for path, complete in zip(paths, whole, strict=True):
        assert len(path) <= max_length
        assert [token for token in path if token >= S] == [token for token in complete if token >= S]
        assert (path[0], path[-1]) == (S, C)
    if rule == "longest_first":
        fits = max(map(len, whole)) <= max_length
        assert (paths == whole) == (truncated == 0) == fits
        assert fits or max(map(len, paths)) == max_length
    missing = [len(complete) - len(path) for path, complete in zip(paths, whole, strict=True)]
    if family == "multiple-choice":
        of_first = whole[0].index(D) - paths[0].index(D)
        assert truncated == of_first + sum(lost - of_first for lost in missing)
    else:
        assert truncated == max(missing)
    # Sharing changes no sequence.
    apart, _ = transform(family, max_length, rule, share_prefix=False).fit(row)
    assert paths_of(apart) == paths
    assert len(tree) <= len(apart) == sum(map(len, paths))


def sides(path):
    middle = path.index(D)
    return path[1:middle], path[middle + 1 : -1]


def is_beginning(part, whole):
    return whole[: len(part)] == part


@given(pairs, lengths, rules)
def test_sides_lose_only_their_ends(row, max_length, rule):
    entailment = transform("entailment", max_length, rule)
    (path,) = paths_of(entailment.fit(row)[0])
    first, second = sides(path)
    assert is_beginning(first, row["premise"])
    assert is_beginning(second, row["hypothesis"])
    if len(first) < len(row["premise"]) and len(second) < len(row["hypothesis"]):
        assert abs(len(first) - len(second)) <= 1
    swapped = {"premise": row["hypothesis"], "hypothesis": row["premise"]}
    similar = transform("similarity", max_length, rule)
    assert paths_of(similar.fit(row)[0]) == [path, *paths_of(entailment.fit(swapped)[0])]


@given(ROWS["multiple-choice"], lengths, rules)
def test_choices_stand_after_one_context_and_the_whole_question(row, max_length, rule):
    paths = paths_of(transform("multiple-choice", max_length, rule).fit(row)[0])
    firsts, seconds = zip(*map(sides, paths), strict=True)
    assert all(first == firsts[0] for first in firsts)
    assert all(is_beginning(second, choice) for second, choice in zip(seconds, row["choices"], strict=True))
    first, question = firsts[0], row["question"]
    if len(question) <= max_length // 2 - 2 or len(first) >= len(question):
        # A side of a sequence is the question's own, whatever the choices need; the context loses its end for it.
        assert first[len(first) - len(question) :] == question
        assert is_beginning(first[: len(first) - len(question)], row["context"])
    else:
        assert is_beginning(first, question)


def test_wrong_settings():
    for message, wrong in {
        "Unknown task family 'regression'.*classification": {"family": "regression"},
        "max_length is 7.*at least 8": {"family": "entailment", "max_length": 7},
    }.items():
        with pytest.raises(ValueError, match=message):
            transform(**wrong)
