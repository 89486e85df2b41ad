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
    PaddedDataset,
    TokenTreeCollator,
    collate_packed_rows,
    collate_trees,
)
from hf_gpt.trees.token_tree import TokenTree

from ..support.strategies import sequences, share_limits

PAD = 9
BRANCHING, CHAIN = TokenTree.from_paths([[1, 2, 3], [1, 4]]), TokenTree.from_paths([[5, 6]])
LONGER_CHAIN = TokenTree.from_paths([[7, 8, 7, 8]])
CHAINS = {
    "input_ids": [[5, 6, PAD, PAD], [7, 8, 7, 8]],
    "position_ids": [[0, 1, 2, 3], [0, 1, 2, 3]],
    "lm_weights": [[0, 1, 0, 0], [0, 1 / 3, 1 / 3, 1 / 3]],
    "classify_index": [[1], [3]],
}
BATCHES = {
    "branches": (
        [BRANCHING, CHAIN],
        True,
        {
            "input_ids": [[1, 2, 3, 4], [5, 6, PAD, PAD]],
            "position_ids": [[0, 1, 2, 1], [0, 1, 0, 0]],
            "lm_weights": [[0, 0.25, 0.25, 0.5], [0, 1, 0, 0]],
            "classify_index": [[2, 3], [1, -1]],
            "subtree_end": [[4, 3, 3, 4], [2, 2, 3, 4]],
            "parent_index": [[0, 0, 1, 0], [0, 0, 2, 3]],
        },
    ),
    "plain": ([CHAIN, LONGER_CHAIN], True, CHAINS),
    "plain, not causal": (
        [CHAIN, LONGER_CHAIN],
        False,
        CHAINS
        | {
            "position_ids": [[0, 1, 0, 0], [0, 1, 2, 3]],
            "subtree_end": [[2, 2, 3, 4], [4, 4, 4, 4]],
            "parent_index": [[0, 0, 2, 3], [0, 0, 1, 2]],
        },
    ),
}


def assert_batch(batch, expected):
    kinds = {name: torch.float32 if name == "lm_weights" else torch.int64 for name in expected}
    expected = {name: torch.tensor(values, dtype=kinds[name]) for name, values in expected.items()}
    torch.testing.assert_close(dict(batch), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("trees", "is_causal", "expected"), BATCHES.values(), ids=BATCHES)
def test_trees_of_different_sizes(trees, is_causal, expected):
    assert_batch(collate_trees(trees, PAD, is_causal), expected)
    # Rows of a data set come as lists, with columns that are none of the collator's.
    rows = [{name: list(values) for name, values in asdict(tree).items()} | {"id": "row"} for tree in trees]
    assert_batch(TokenTreeCollator(PAD, is_causal)(rows), expected)
    assert TokenTreeCollator(PAD)([row | {"task": "cola"} for row in rows])["task"] == "cola"


def test_padded_plain_sequences_keep_the_causal_fast_path(tiny_model):
    batch, model, masks = collate_trees([CHAIN, LONGER_CHAIN], PAD), tiny_model(GPTModel, "sdpa"), []
    model.h[0].register_forward_pre_hook(lambda module, inputs: masks.append(inputs[1]))
    model(batch["input_ids"], position_ids=batch["position_ids"])
    assert masks == [None]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([1, 0], torch.tensor([1, 0])),
        ([2.5, 0.0], torch.tensor([2.5, 0.0])),
        ([[1.0, 0.0], [1.0, 1.0]], torch.tensor([[1.0, 0.0], [1.0, 1.0]])),
        ([[1, 0, 2], [1]], torch.tensor([[1, 0, 2], [1, -100, -100]])),
    ],
    ids=["classes", "numbers", "multi-label", "words"],
)
def test_labels(labels, expected):
    rows = [{**asdict(tree), "label": label} for tree, label in zip([BRANCHING, CHAIN], labels, strict=True)]
    found = TokenTreeCollator(PAD)(rows)["labels"]
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


@given(st.lists(sequences.filter(any), min_size=1, max_size=4), share_limits)
def test_every_tree_is_kept(rows, share_limit):
    trees = [TokenTree.from_paths(paths, share_limit=share_limit) for paths in rows]
    batch, length = collate_trees(trees, PAD), max(map(len, trees))
    assert ("subtree_end" in batch) == ("parent_index" in batch) == (not all(tree.is_chain for tree in trees))
    for row, tree in enumerate(trees):
        own = len(tree)
        # Padding: roots of their own.
        padding = {"subtree_end": range(own + 1, length + 1), "parent_index": range(own, length)}
        padding |= {"input_ids": [PAD] * (length - own), "lm_weights": [0] * (length - own)}
        for name in batch.keys() & padding.keys():
            expected = [*getattr(tree, name), *padding[name]]
            assert batch[name][row].tolist() == pytest.approx(expected, abs=1e-6)
        assert batch["position_ids"][row, :own].tolist() == list(tree.position_ids)
        ends = batch["classify_index"][row].tolist()
        assert ends == [*tree.path_ends, *[-1] * (len(ends) - len(tree.path_ends))]


PIECES, WHOLE = {"input_ids": [1, 2, 3, 4, 5], "starts": [0, 2, 4]}, {"input_ids": [6, 7, 8, 9, 1], "starts": [0]}
PACKED = {
    "input_ids": [[1, 2, 3, 4, 5], [6, 7, 8, 9, 1]],
    "position_ids": [[0, 1, 0, 1, 0], [0, 1, 2, 3, 4]],
    "labels": [[-100, 2, -100, 4, -100], [-100, 7, 8, 9, 1]],
    "lm_weights": [[0, 1, 0, 1, 0], [0, 1, 1, 1, 1]],
    "subtree_end": [[2, 2, 4, 4, 5], [5, 5, 5, 5, 5]],
}


def test_packed_rows():
    """The tensors of a packed row are those of the token tree with one root per piece; one piece needs no mask."""
    batch = collate_packed_rows([PIECES, WHOLE])
    assert_batch(batch, PACKED)
    tree = TokenTree.from_paths([[1, 2], [3, 4], [5]], share_limit=0)
    for name in ("input_ids", "position_ids", "subtree_end"):
        assert batch[name][0].tolist() == list(getattr(tree, name))
    alone = {name: values[1:] for name, values in PACKED.items() if name != "subtree_end"}
    assert_batch(collate_packed_rows([WHOLE]), alone)


def test_length_grouped_sampler():
    """Every row once an epoch, in an order of seed and epoch alone, in batches of nearly the same length."""
    lengths = torch.randint(5, 60, (1003,)).tolist()
    sampler = LengthGroupedSampler(lengths, batch_size=10, seed=3)
    first = list(sampler)
    assert first == list(LengthGroupedSampler(lengths, batch_size=10, seed=3))
    sampler.set_epoch(1)
    second = list(sampler)
    assert second != first
    assert sorted(first) == sorted(second) == list(range(len(sampler)))
    batches = [[lengths[index] for index in first[start : start + 10]] for start in range(0, 1003, 10)]
    assert sum(lengths) / sum(max(batch) * len(batch) for batch in batches) > 0.97
    assert [sum(batch) for batch in batches] != sorted(sum(batch) for batch in batches)


def test_filler_rows_complete_the_batches_and_change_no_loss(tiny_model):
    trees = [TokenTree.from_paths([[20, token, 22]]) for token in range(5)]
    rows = Dataset.from_list([{**asdict(tree), "label": 1, "length": 3} for tree in trees])
    filled = PaddedDataset(rows, 4)
    assert len(filled) == 8
    assert [row["label"] for row in filled.__getitems__([1, 6, 4])] == [1, -100, 1]
    order = list(LengthGroupedSampler([3] * 5, batch_size=4, fillers=filled.fillers))
    assert sorted(order[:5]) == list(range(5))
    assert order[5:] == [5, 6, 7]
    model, collator = tiny_model(GPTForSequenceClassification, num_labels=3), TokenTreeCollator(23)

    def loss_of(*numbers):
        batch = collator([filled[number] for number in numbers])
        return model(**batch, return_lm_loss=True, num_items_in_batch=2).loss

    torch.testing.assert_close(loss_of(5, 0, 6, 1), loss_of(0, 1))
    fillers_only = loss_of(5)
    assert fillers_only.item() == 0
    fillers_only.backward()
    assert all((parameter.grad == 0).all() for parameter in model.parameters() if parameter.grad is not None)
