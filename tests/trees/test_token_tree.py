"""Token trees: literal layouts, and what must hold for the tree of any sequences."""

import pytest
from hypothesis import given

from hf_gpt.trees.token_tree import TokenTree

from ..support.strategies import sequences, share_limits

# Sequences, how much they may share; tokens, positions, ends of subtrees, parents, weights, ends of paths.
LAYOUTS = {
    "shared-beginning": (
        *([[1, 2, 3, 4], [1, 2, 5]], None, (1, 2, 3, 4, 5), (0, 1, 2, 3, 2), (5, 5, 4, 4, 5), (0, 0, 1, 2, 1)),
        *((0, 1 / 6 + 1 / 4, 1 / 6, 1 / 6, 1 / 4), (3, 4)),
    ),
    "third-joins-the-first-branch": (
        *([[1, 2, 3], [1, 4], [1, 2, 5]], None, (1, 2, 3, 5, 4), (0, 1, 2, 2, 1), (5, 4, 3, 4, 5), (0, 0, 1, 1, 0)),
        *((0, 1 / 3, 1 / 6, 1 / 6, 1 / 3), (2, 4, 3)),
    ),
    "one-begins-the-other": (
        *([[1, 2, 3], [1, 2]], None, (1, 2, 3), (0, 1, 2), (3, 3, 3), (0, 0, 1), (0, 3 / 4, 1 / 4), (2, 1)),
    ),
    "one-is-empty": ([[], [1, 2]], None, (1, 2), (0, 1), (2, 2), (0, 0), (0, 1), (-1, 1)),
    "several-roots": (
        *([[1, 2], [3, 2], [1, 4]], None, (1, 2, 4, 3, 2), (0, 1, 1, 0, 1), (3, 2, 3, 5, 5), (0, 0, 0, 3, 3)),
        *((0, 1 / 3, 1 / 3, 0, 1 / 3), (1, 4, 2)),
    ),
    "share-limit-1": (
        *([[1, 2, 3], [1, 2, 4]], 1, (1, 2, 3, 2, 4), (0, 1, 2, 1, 2), (5, 3, 3, 5, 5), (0, 0, 1, 0, 3)),
        *((0, 1 / 4, 1 / 4, 1 / 4, 1 / 4), (2, 4)),
    ),
    "nothing": ([[]], None, (), (), (), (), (), (-1,)),
}


@pytest.mark.parametrize(
    ("paths", "share_limit", "ids", "positions", "subtree_end", "parents", "weights", "ends"),
    LAYOUTS.values(),
    ids=LAYOUTS,
)
def test_layout(paths, share_limit, ids, positions, subtree_end, parents, weights, ends):
    tree = TokenTree.from_paths(paths, share_limit=share_limit)
    assert (tree.input_ids, tree.position_ids, tree.subtree_end) == (ids, positions, subtree_end)
    assert (tree.parent_index, tree.path_ends, len(tree)) == (parents, ends, len(ids))
    assert tree.lm_weights == pytest.approx(weights, abs=1e-12)


def ancestors(tree, index):
    """A token and those before it on its path."""
    found = {index}
    while tree.parent_index[index] != index:
        index = tree.parent_index[index]
        found.add(index)
    return found


@given(sequences, share_limits)
def test_structure(paths, share_limit):
    tree = TokenTree.from_paths(paths, share_limit=share_limit)
    above = [ancestors(tree, index) for index in range(len(tree))]
    for index, (parent, end) in enumerate(zip(tree.parent_index, tree.subtree_end, strict=True)):
        if parent == index:
            assert (tree.position_ids[index], tree.lm_weights[index]) == (0, 0)
        else:
            assert parent < index < end <= tree.subtree_end[parent]
            assert tree.position_ids[index] == tree.position_ids[parent] + 1
        # Preorder: descendants, and nothing else, stand between a token and the end of its subtree.
        assert [index in above[other] for other in range(len(tree))] == [index <= o < end for o in range(len(tree))]
    # Sequences can be read back, and weights follow the formula.
    present, expected = sum(bool(path) for path in paths), [0.0] * len(tree)
    assert len(tree.path_ends) == len(paths)
    for number, path in enumerate(paths):
        indices = tree.path(number)
        assert [tree.input_ids[index] for index in indices] == path
        assert [tree.position_ids[index] for index in indices] == list(range(len(path)))
        for index in indices[1:]:
            expected[index] += 1 / (present * (len(path) - 1))
    assert tree.lm_weights == pytest.approx(expected, abs=1e-12)
    # What is shared stands once.
    limit = 99 if share_limit is None else share_limit
    shared = {tuple(path[:depth]) for path in paths for depth in range(1, min(len(path), limit) + 1)}
    own = sum(max(len(path) - limit, 0) for path in paths)
    assert len(tree) == len(shared) + own
