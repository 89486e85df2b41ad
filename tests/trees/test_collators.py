"""Collators: literal tensors, and that nothing of a row is lost or added."""

from dataclasses import asdict

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from hf_gpt import GPTForSequenceClassification, GPTModel
from hf_gpt.trees.collators import (
    LengthGroupedSampler,
    PackedRowCollator,
    PaddedDataset,
    TokenTreeCollator,
    collate_trees,
)
from hf_gpt.trees.token_tree import TokenTree

from ..support.strategies import sequences, share_limits

PAD = 9

BRANCHING = TokenTree.from_paths([[1, 2, 3], [1, 4]])
CHAIN = TokenTree.from_paths([[5, 6]])


def feature(tree, **columns):
    return {**asdict(tree), **columns}


def assert_batch(batch, expected):
    assert list(batch) == list(expected)
    for name, values in expected.items():
        kind = torch.float32 if name == "lm_weights" else torch.int64
        torch.testing.assert_close(batch[name], torch.tensor(values, dtype=kind), rtol=0, atol=1e-7)


def test_trees_of_different_sizes():
    assert_batch(
        collate_trees([BRANCHING, CHAIN], PAD),
        {
            "input_ids": [[1, 2, 3, 4], [5, 6, PAD, PAD]],
            "position_ids": [[0, 1, 2, 1], [0, 1, 0, 0]],
            "lm_weights": [[0, 0.25, 0.25, 0.5], [0, 1, 0, 0]],
            "classify_index": [[2, 3], [1, -1]],
            "subtree_end": [[4, 3, 3, 4], [2, 2, 3, 4]],
            "parent_index": [[0, 0, 1, 0], [0, 0, 2, 3]],
        },
    )


def test_plain_sequences_need_no_mask():
    assert_batch(
        collate_trees([CHAIN, TokenTree.from_paths([[7, 8, 7, 8]])], PAD),
        {
            "input_ids": [[5, 6, PAD, PAD], [7, 8, 7, 8]],
            "position_ids": [[0, 1, 2, 3], [0, 1, 2, 3]],
            "lm_weights": [[0, 1, 0, 0], [0, 1 / 3, 1 / 3, 1 / 3]],
            "classify_index": [[1], [3]],
        },
    )


def test_padded_plain_sequences_keep_the_causal_fast_path(tiny_model):
    batch = collate_trees([CHAIN, TokenTree.from_paths([[7, 8, 7, 8]])], PAD)
    model = tiny_model(GPTModel, "sdpa")
    masks = []
    model.h[0].register_forward_pre_hook(lambda module, inputs: masks.append(inputs[1]))
    model(batch["input_ids"], position_ids=batch["position_ids"])
    assert masks == [None]


def test_what_is_not_causal_is_told_its_padding():
    batch = collate_trees([CHAIN, TokenTree.from_paths([[7, 8, 7, 8]])], PAD, is_causal=False)
    assert batch["subtree_end"].tolist() == [[2, 2, 3, 4], [4, 4, 4, 4]]
    assert batch["position_ids"].tolist() == [[0, 1, 0, 0], [0, 1, 2, 3]]


def test_empty_sequences_keep_their_place():
    batch = collate_trees([TokenTree.from_paths([[], [1, 2]]), TokenTree.from_paths([[3], [4], [5]])], PAD)
    assert batch["classify_index"].tolist() == [[-1, 1, -1], [0, 1, 2]]
    assert batch["input_ids"].tolist() == [[1, 2, PAD], [3, 4, 5]]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([1, 0], torch.tensor([1, 0])),
        ([2.5, 0.0], torch.tensor([2.5, 0.0])),
        ([[1.0, 0.0], [1.0, 1.0]], torch.tensor([[1.0, 0.0], [1.0, 1.0]])),
    ],
    ids=["classes", "numbers", "multi-label"],
)
def test_labels(labels, expected):
    features = [feature(tree, label=label) for tree, label in zip([BRANCHING, CHAIN], labels, strict=True)]
    found = TokenTreeCollator(PAD)(features)["labels"]
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


def test_rows_of_a_dataset():
    """Rows come as lists, with columns that are none of the collator's."""
    features = [
        {name: list(values) for name, values in asdict(tree).items()} | {"id": "row", "length": len(tree)}
        for tree in (BRANCHING, CHAIN)
    ]
    assert_batch(
        TokenTreeCollator(PAD)(features),
        {name: value.tolist() for name, value in collate_trees([BRANCHING, CHAIN], PAD).items()},
    )


@given(st.lists(sequences.filter(any), min_size=1, max_size=4), share_limits)
def test_every_tree_is_kept(rows, share_limit):
    trees = [TokenTree.from_paths(paths, share_limit=share_limit) for paths in rows]
    batch = collate_trees(trees, PAD)
    length = max(map(len, trees))
    assert batch["input_ids"].shape == (len(trees), length)
    assert ("subtree_end" in batch) == ("parent_index" in batch) == (not all(tree.is_chain for tree in trees))
    for row, tree in enumerate(trees):
        own = len(tree)
        for name in ("input_ids", "position_ids", "subtree_end", "parent_index"):
            if name in batch:
                assert batch[name][row, :own].tolist() == list(getattr(tree, name))
        assert batch["lm_weights"][row, :own].tolist() == pytest.approx(tree.lm_weights, abs=1e-6)
        assert not batch["lm_weights"][row, own:].any()
        assert (batch["input_ids"][row, own:] == PAD).all()
        if "subtree_end" in batch:
            # Padding: roots of their own.
            assert batch["subtree_end"][row, own:].tolist() == list(range(own + 1, length + 1))
            assert batch["parent_index"][row, own:].tolist() == list(range(own, length))
        ends = batch["classify_index"][row].tolist()
        assert ends == [*tree.path_ends, *[-1] * (len(ends) - len(tree.path_ends))]


def test_packed_rows():
    rows = [
        {"input_ids": [1, 2, 3, 4, 5], "starts": [0, 2, 4]},
        {"input_ids": [6, 7, 8, 9, 1], "starts": [0]},
    ]
    assert_batch(
        PackedRowCollator()(rows),
        {
            "input_ids": [[1, 2, 3, 4, 5], [6, 7, 8, 9, 1]],
            "position_ids": [[0, 1, 0, 1, 0], [0, 1, 2, 3, 4]],
            "labels": [[-100, 2, -100, 4, -100], [-100, 7, 8, 9, 1]],
            "lm_weights": [[0, 1, 0, 1, 0], [0, 1, 1, 1, 1]],
            "subtree_end": [[2, 2, 4, 4, 5], [5, 5, 5, 5, 5]],
        },
    )


def test_packed_rows_of_one_piece_need_no_mask():
    rows = [{"input_ids": [1, 2, 3], "starts": [0]}, {"input_ids": [4, 5, 6], "starts": [0]}]
    assert_batch(
        PackedRowCollator()(rows),
        {
            "input_ids": [[1, 2, 3], [4, 5, 6]],
            "position_ids": [[0, 1, 2], [0, 1, 2]],
            "labels": [[-100, 2, 3], [-100, 5, 6]],
            "lm_weights": [[0, 1, 1], [0, 1, 1]],
        },
    )


@given(
    st.integers(1, 8).flatmap(
        lambda length: st.lists(
            st.tuples(
                st.lists(st.integers(0, 8), min_size=length, max_size=length), st.sets(st.integers(0, length - 1))
            ),
            min_size=1,
            max_size=3,
        )
    )
)
def test_packed_rows_are_pieces_side_by_side(rows):
    """The tensors of a packed row are those of the token tree with one root per piece."""
    features = [{"input_ids": ids, "starts": sorted({0, *starts})} for ids, starts in rows]
    batch = PackedRowCollator()(features)
    for row, item in enumerate(features):
        ids, starts = item["input_ids"], item["starts"]
        pieces = [ids[start:stop] for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True)]
        tree = TokenTree.from_paths(pieces, share_limit=0)
        assert batch["input_ids"][row].tolist() == list(tree.input_ids)
        assert batch["position_ids"][row].tolist() == list(tree.position_ids)
        if "subtree_end" in batch:
            assert batch["subtree_end"][row].tolist() == list(tree.subtree_end)
        else:
            assert tree.is_chain
        is_root = [parent == index for index, parent in enumerate(tree.parent_index)]
        assert batch["lm_weights"][row].tolist() == [float(not root) for root in is_root]
        assert batch["labels"][row].tolist() == [
            -100 if root else token for root, token in zip(is_root, ids, strict=True)
        ]


def test_length_grouped_sampler_orders_every_row_once_per_epoch():
    lengths = [(7 * index) % 40 + 3 for index in range(103)]
    sampler = LengthGroupedSampler(lengths, batch_size=8, seed=3)
    first = list(sampler)
    assert sorted(first) == list(range(103))
    assert first == list(LengthGroupedSampler(lengths, batch_size=8, seed=3))
    sampler.set_epoch(1)
    second = list(sampler)
    assert sorted(second) == list(range(103))
    assert second != first
    assert len(sampler) == 103


def test_length_grouped_batches_are_nearly_even():
    lengths = torch.randint(5, 60, (1000,)).tolist()
    order = list(LengthGroupedSampler(lengths, batch_size=10))
    batches = [[lengths[index] for index in order[start : start + 10]] for start in range(0, 1000, 10)]
    padded = sum(max(batch) * len(batch) for batch in batches)
    assert sum(lengths) / padded > 0.97
    means = [sum(batch) for batch in batches]
    assert means != sorted(means)


def test_filler_rows_complete_the_batches_and_change_no_loss(tiny_model):
    trees = [TokenTree.from_paths([[20, token, 22]]) for token in range(5)]
    rows = Dataset.from_list([feature(tree, label=1, length=3) for tree in trees])
    filled = PaddedDataset(rows, 4)
    assert len(filled) == 8
    assert [row["label"] for row in filled.__getitems__([1, 6, 4])] == [1, -100, 1]
    order = list(LengthGroupedSampler([3] * 5, batch_size=4, fillers=filled.fillers))
    assert sorted(order[:5]) == list(range(5))
    assert order[5:] == [5, 6, 7]
    model = tiny_model(GPTForSequenceClassification, num_labels=3)
    collator = TokenTreeCollator(23)
    alone = model(**collator([filled[0], filled[1]]), return_lm_loss=True, num_items_in_batch=2)
    mixed = model(**collator([filled[5], filled[0], filled[6], filled[1]]), return_lm_loss=True, num_items_in_batch=2)
    torch.testing.assert_close(mixed.loss, alone.loss)
    fillers_only = model(**collator([filled[5]]), return_lm_loss=True, num_items_in_batch=2).loss
    assert fillers_only.item() == 0
    fillers_only.backward()
    assert all((parameter.grad == 0).all() for parameter in model.parameters() if parameter.grad is not None)
