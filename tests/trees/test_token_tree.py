"""Token trees: literal layouts, and what must hold for the tree of any sequences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_gpt.trees.token_tree import TokenTree

from ..support.strategies import sequences, share_limits

# Few different tokens, so that random sequences often share beginnings, repeat and hold one another.
LAYOUTS = {
    "plain": (
        [[5, 6, 7]],
        None,
        {
            "input_ids": (5, 6, 7),
            "position_ids": (0, 1, 2),
            "subtree_end": (3, 3, 3),
            "parent_index": (0, 0, 1),
            "lm_weights": (0.0, 0.5, 0.5),
            "path_ends": (2,),
        },
    ),
    "shared-beginning": (
        [[1, 2, 3, 4], [1, 2, 5]],
        None,
        {
            "input_ids": (1, 2, 3, 4, 5),
            "position_ids": (0, 1, 2, 3, 2),
            "subtree_end": (5, 5, 4, 4, 5),
            "parent_index": (0, 0, 1, 2, 1),
            "lm_weights": (0.0, 1 / 6 + 1 / 4, 1 / 6, 1 / 6, 1 / 4),
            "path_ends": (3, 4),
        },
    ),
    "third-joins-the-first-branch": (
        [[1, 2, 3], [1, 4], [1, 2, 5]],
        None,
        {
            "input_ids": (1, 2, 3, 5, 4),
            "position_ids": (0, 1, 2, 2, 1),
            "subtree_end": (5, 4, 3, 4, 5),
            "parent_index": (0, 0, 1, 1, 0),
            "lm_weights": (0.0, 1 / 6 + 1 / 6, 1 / 6, 1 / 6, 1 / 3),
            "path_ends": (2, 4, 3),
        },
    ),
    "one-begins-the-other": (
        [[1, 2, 3], [1, 2]],
        None,
        {
            "input_ids": (1, 2, 3),
            "position_ids": (0, 1, 2),
            "subtree_end": (3, 3, 3),
            "parent_index": (0, 0, 1),
            "lm_weights": (0.0, 1 / 4 + 1 / 2, 1 / 4),
            "path_ends": (2, 1),
        },
    ),
    "equal": (
        [[1, 2], [1, 2]],
        None,
        {
            "input_ids": (1, 2),
            "position_ids": (0, 1),
            "subtree_end": (2, 2),
            "parent_index": (0, 0),
            "lm_weights": (0.0, 1.0),
            "path_ends": (1, 1),
        },
    ),
    "one-is-empty": (
        [[], [1, 2]],
        None,
        {
            "input_ids": (1, 2),
            "position_ids": (0, 1),
            "subtree_end": (2, 2),
            "parent_index": (0, 0),
            "lm_weights": (0.0, 1.0),
            "path_ends": (-1, 1),
        },
    ),
    "single-token": (
        [[7], [8, 9]],
        None,
        {
            "input_ids": (7, 8, 9),
            "position_ids": (0, 0, 1),
            "subtree_end": (1, 3, 3),
            "parent_index": (0, 1, 1),
            "lm_weights": (0.0, 0.0, 0.5),
            "path_ends": (0, 2),
        },
    ),
    "several-roots": (
        [[1, 2], [3, 2], [1, 4]],
        None,
        {
            "input_ids": (1, 2, 4, 3, 2),
            "position_ids": (0, 1, 1, 0, 1),
            "subtree_end": (3, 2, 3, 5, 5),
            "parent_index": (0, 0, 0, 3, 3),
            "lm_weights": (0.0, 1 / 3, 1 / 3, 0.0, 1 / 3),
            "path_ends": (1, 4, 2),
        },
    ),
    "share-limit-0": (
        [[1, 2], [1, 2]],
        0,
        {
            "input_ids": (1, 2, 1, 2),
            "position_ids": (0, 1, 0, 1),
            "subtree_end": (2, 2, 4, 4),
            "parent_index": (0, 0, 2, 2),
            "lm_weights": (0.0, 0.5, 0.0, 0.5),
            "path_ends": (1, 3),
        },
    ),
    "share-limit-1": (
        [[1, 2, 3], [1, 2, 4]],
        1,
        {
            "input_ids": (1, 2, 3, 2, 4),
            "position_ids": (0, 1, 2, 1, 2),
            "subtree_end": (5, 3, 3, 5, 5),
            "parent_index": (0, 0, 1, 0, 3),
            "lm_weights": (0.0, 0.25, 0.25, 0.25, 0.25),
            "path_ends": (2, 4),
        },
    ),
    "nothing": (
        [[]],
        None,
        {
            "input_ids": (),
            "position_ids": (),
            "subtree_end": (),
            "parent_index": (),
            "lm_weights": (),
            "path_ends": (-1,),
        },
    ),
}


@pytest.mark.parametrize(("paths", "share_limit", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_layout(paths, share_limit, expected):
    tree = TokenTree.from_paths(paths, share_limit=share_limit)
    for name, values in expected.items():
        found = getattr(tree, name)
        assert found == (pytest.approx(values, abs=1e-12) if name == "lm_weights" else values), name
    assert len(tree) == len(expected["input_ids"])


@pytest.mark.parametrize(
    ("paths", "share_limit", "expected"),
    [
        ([[1, 2, 3]], None, True),
        ([[1]], None, True),
        ([[1, 2, 3], [1, 2]], None, True),
        ([[1, 2], []], None, True),
        ([[1, 2], [1, 3]], None, False),
        ([[1], [2]], None, False),
        ([[1, 2], [1, 2]], 0, False),
    ],
    ids=["plain", "one-token", "one-begins-the-other", "with-empty", "branches", "two-roots", "not-shared"],
)
def test_is_chain(paths, share_limit, expected):
    assert TokenTree.from_paths(paths, share_limit=share_limit).is_chain is expected


@given(sequences, share_limits)
def test_sequences_can_be_read_back(paths, share_limit):
    tree = TokenTree.from_paths(paths, share_limit=share_limit)
    assert len(tree.path_ends) == len(paths)
    for number, path in enumerate(paths):
        indices = tree.path(number)
        assert [tree.input_ids[index] for index in indices] == path
        assert [tree.position_ids[index] for index in indices] == list(range(len(path)))


def check_structure(tree):
    length = len(tree)
    for index in range(length):
        parent, end = tree.parent_index[index], tree.subtree_end[index]
        assert index < end <= length
        if parent == index:
            assert tree.position_ids[index] == 0
            assert tree.lm_weights[index] == 0
        else:
            assert parent < index < end <= tree.subtree_end[parent]
            assert tree.position_ids[index] == tree.position_ids[parent] + 1
        # Preorder: descendants, and nothing else, stand between a token and the end of its subtree.
        for other in range(length):
            assert (index in ancestors(tree, other)) == (index <= other < end)


def ancestors(tree, index):
    """A token and those before it on its path."""
    found = {index}
    while tree.parent_index[index] != index:
        index = tree.parent_index[index]
        found.add(index)
    return found


@given(sequences, share_limits)
def test_structure(paths, share_limit):
    check_structure(TokenTree.from_paths(paths, share_limit=share_limit))


@given(sequences)
def test_what_is_shared_stands_once(paths):
    beginnings = {tuple(path[:depth]) for path in paths for depth in range(1, len(path) + 1)}
    assert len(TokenTree.from_paths(paths)) == len(beginnings)


@given(sequences, st.integers(0, 7))
def test_share_limit_counts_leading_tokens(paths, limit):
    shared = {tuple(path[:depth]) for path in paths for depth in range(1, min(len(path), limit) + 1)}
    own = sum(max(len(path) - limit, 0) for path in paths)
    assert len(TokenTree.from_paths(paths, share_limit=limit)) == len(shared) + own


@given(sequences, share_limits)
def test_weights_follow_the_formula(paths, share_limit):
    tree = TokenTree.from_paths(paths, share_limit=share_limit)
    present = sum(bool(path) for path in paths)
    expected = [0.0] * len(tree)
    for number, path in enumerate(paths):
        for index in tree.path(number)[1:]:
            expected[index] += 1 / (present * (len(path) - 1))
    assert tree.lm_weights == pytest.approx(expected, abs=1e-12)
    predicting = sum(len(path) > 1 for path in paths)
    assert sum(tree.lm_weights) == pytest.approx(predicting / present if present else 0)


@given(sequences, share_limits)
def test_is_chain_means_everything_before_is_seen(paths, share_limit):
    tree = TokenTree.from_paths(paths, share_limit=share_limit)
    assert tree.is_chain == all(ancestors(tree, index) == set(range(index + 1)) for index in range(len(tree)))
