"""Rows of token ids -> padded tensors; and which rows stand in a batch together."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from ..model.tokenization_gpt import END_OF_WORD, GPTTokenizer
from .token_tree import TokenTree

# The label that no loss reads.
IGNORED_LABEL = -100


@dataclass
class TokenTreeCollator:
    """
    Pads token trees to the longest of a batch.

    A padding token is a root of its own: it sees itself and nothing sees it. Where every tree of a batch is a plain
    sequence, `subtree_end` and `parent_index` are left out: causal attention hides the padding on the right, so that
    the backend's causal fast path can be used. Of a model that is not causal (`is_causal`, see `GPTConfig`), padding
    would be seen, and `subtree_end` is always there.
    """

    pad_token_id: int
    is_causal: bool = True

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """
        The batch of rows with the fields of a `TokenTree` and, optionally, a `label` (a number, or a list of numbers,
        one for each label of a multi-label task or for each word); other columns are left alone.

        Returns:
            `dict[str, torch.Tensor]`: `input_ids`, `position_ids`, `lm_weights` and, where a tree branches,
            `subtree_end` and `parent_index`, all `(batch, length)`; `classify_index` `(batch, paths)`, -1 where a
            row has fewer paths than others; `labels`.
        """
        trees = [TokenTree.from_row(feature) for feature in features]
        batch = collate_trees(trees, self.pad_token_id, self.is_causal)
        if "label" in features[0]:
            batch["labels"] = collate_labels([feature["label"] for feature in features])
        return batch


def collate_labels(labels: Sequence[float] | Sequence[Sequence[float]]) -> torch.Tensor:
    """The labels of a batch as `(batch,)`, or padded with `IGNORED_LABEL` as `(batch, longest)`."""
    if not isinstance(labels[0], list):
        return torch.tensor(labels)
    return _padded(labels, max(map(len, labels)), IGNORED_LABEL)


def collate_trees(trees: Sequence[TokenTree], pad_token_id: int, is_causal: bool = True) -> dict[str, torch.Tensor]:
    """Tensors of a batch of trees, one a row; see `TokenTreeCollator`."""
    length = max(len(tree) for tree in trees)
    paths = max(len(tree.path_ends) for tree in trees)
    batch = {
        "input_ids": _padded([tree.input_ids for tree in trees], length, pad_token_id),
        "position_ids": _padded([tree.position_ids for tree in trees], length, 0),
        "lm_weights": _padded([tree.lm_weights for tree in trees], length, 0.0),
        "classify_index": _padded([tree.path_ends for tree in trees], paths, -1),
    }
    own = torch.arange(length)
    if is_causal and all(tree.is_chain for tree in trees):
        # Padding counts on: transformers would take a position of 0 for the start of a packed sequence.
        batch["position_ids"] = own.repeat(len(trees), 1)
    else:
        batch["subtree_end"] = torch.stack([_filled(tree.subtree_end, own + 1) for tree in trees])
        batch["parent_index"] = torch.stack([_filled(tree.parent_index, own) for tree in trees])
    return batch


def _padded(rows: Sequence[Sequence[float]], length: int, value: float) -> torch.Tensor:
    return torch.tensor([[*row, *[value] * (length - len(row))] for row in rows])


def _filled(row: Sequence[int], defaults: torch.Tensor) -> torch.Tensor:
    filled = defaults.clone()
    filled[: len(row)] = torch.tensor(row)
    return filled


@dataclass
class PackedRowCollator:
    """
    Tensors of packed language-model rows of one length (see `hf_gpt.training.packing.pack_documents`).

    Every token but the first of a document piece is predicted from the one before it, with weight 1; of rows with
    `labels` (see `MaskedRows`) what these say, at its own place.
    """

    def __call__(self, features: Sequence[dict[str, Sequence[int]]]) -> dict[str, torch.Tensor]:
        """
        Rows with `input_ids` and `starts`, the indices where pieces begin, and `labels` or none, as `input_ids`,
        `labels` (else -100 where a piece begins), `position_ids`, `lm_weights` and, where a row holds several pieces,
        `subtree_end`, all `(batch, length)`.
        """
        input_ids = torch.tensor([feature["input_ids"] for feature in features])
        length = input_ids.shape[1]
        is_start = torch.zeros_like(input_ids, dtype=torch.bool)
        position_ids, subtree_end = torch.empty_like(input_ids), torch.empty_like(input_ids)
        for row, feature in enumerate(features):
            starts = list(feature["starts"])
            is_start[row, starts] = True
            for start, stop in zip(starts, [*starts[1:], length], strict=True):
                position_ids[row, start:stop] = torch.arange(stop - start)
                subtree_end[row, start:stop] = stop
        batch = {
            "input_ids": input_ids,
            "position_ids": position_ids,
            "labels": input_ids.masked_fill(is_start, -100),
            "lm_weights": (~is_start).float(),
        }
        if "labels" in features[0]:
            batch["labels"] = torch.tensor([feature["labels"] for feature in features])
            batch["lm_weights"] = batch["labels"].ne(IGNORED_LABEL).float()
        if is_start[:, 1:].any():
            batch["subtree_end"] = subtree_end
        return batch


class MaskedRows(torch.utils.data.Dataset):
    """
    Packed rows of which a share of the tokens is to be guessed (Devlin et al., 2019, section 3.1): whole words, as
    many tokens of every row, of which 80% become the mask, 10% another token, and 10% stay.

    Which ones follows from seed, epoch and row: they change from epoch to epoch (as in RoBERTa), are the same for any
    number of processes and after a resumption, and those of a data set whose epoch nobody sets never change.

    Args:
        rows (`datasets.Dataset`): with `input_ids` and `starts`.
        ends_word, starts_word (`np.ndarray` of shape `(vocabulary,)`): whether a token is the last one of a word, and
            whether it is the first one whatever stands before it (by default none).
        random_ids (`np.ndarray`): tokens that may stand for another one.
        mask_token_id (`int`), share (`float`), seed (`int`): the mask, the share of the tokens, and of the choice.
    """

    def __init__(
        self,
        rows: Any,
        ends_word: np.ndarray,
        random_ids: np.ndarray,
        mask_token_id: int,
        share: float = 0.15,
        seed: int = 0,
        starts_word: np.ndarray | None = None,
    ):
        self.rows, self.ends_word, self.random_ids = rows, ends_word, random_ids
        self.starts_word = np.zeros_like(ends_word) if starts_word is None else starts_word
        self.mask_token_id, self.share, self.seed = mask_token_id, share, seed
        self.epoch = 0

    @classmethod
    def of(cls, rows: Any, tokenizer: GPTTokenizer, **settings: Any) -> "MaskedRows":
        """Rows of a tokenizer that has a `mask_token`; `settings` are `share` and `seed`."""
        if tokenizer.mask_token is None:
            raise ValueError('The tokenizer has no mask: load it with mask_token="<mask>".')
        tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        specials = set(tokenizer.all_special_tokens)
        ordinary = np.array([index for index, token in enumerate(tokens) if token not in specials])
        if tokenizer.byte_level:
            # Without end marks: what is no letter or digit, such as the space before a word, parts words.
            texts = ["" if token in specials else tokenizer.convert_tokens_to_string([token]) for token in tokens]
            settings["starts_word"] = np.array([_parts_words(text[:1]) for text in texts])
            ends_word = np.array([_parts_words(text[-1:]) and text != " " for text in texts])
        else:
            ends_word = np.array([token in specials or token.endswith(END_OF_WORD) for token in tokens])
        return cls(rows, ends_word, ordinary, tokenizer.mask_token_id, **settings)

    def set_epoch(self, epoch: int) -> None:
        """Choose the tokens of an epoch (accelerate's data loaders call this)."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[int(index)]
        ids = np.asarray(row["input_ids"])
        random = np.random.default_rng([self.seed, self.epoch, int(index)])
        chosen = self._chosen(ids, row["starts"], random)
        labels = np.full_like(ids, IGNORED_LABEL)
        labels[chosen] = ids[chosen]
        fate = random.random(len(chosen))
        ids = ids.copy()
        ids[chosen[fate < 0.8]] = self.mask_token_id
        others = chosen[fate >= 0.9]
        ids[others] = random.choice(self.random_ids, len(others))
        return {"input_ids": ids.tolist(), "starts": row["starts"], "labels": labels.tolist()}

    def _chosen(self, ids: np.ndarray, starts: Sequence[int], random: np.random.Generator) -> np.ndarray:
        """Indices of the tokens to guess: words in a random order, as long as they fit."""
        left = max(1, round(self.share * len(ids)))
        begins = np.append(True, self.ends_word[ids[:-1]] | self.starts_word[ids[1:]])
        begins[list(starts)] = True
        first = np.append(np.flatnonzero(begins), len(ids))
        chosen: list[int] = []
        for word in random.permutation(len(first) - 1):
            if (size := first[word + 1] - first[word]) <= left:
                chosen += range(first[word], first[word + 1])
                left -= size
            if not left:
                break
        # Of a row that is one long word, its beginning.
        return np.array(sorted(chosen) or range(left))


def _parts_words(character: str) -> bool:
    """Whether a character, or none, stands between words; not a part of one, which is decoded as U+FFFD."""
    return unicodedata.category(character or " ")[0] not in "LMN" and character != "\ufffd"


class PaddedDataset(torch.utils.data.Dataset):
    """
    Rows of token trees with a `label`, followed by as many filler rows as make their number a multiple of `unit`.

    A filler is one root with the label -100 and no language-model weight: it adds nothing to any loss and to no
    count. With `unit` the rows of all ranks in a step, every rank gets as many batches as the others, and no row
    twice, as accelerate would otherwise have it.
    """

    def __init__(self, rows: Any, unit: int):
        self.rows = rows
        self.fillers = -len(rows) % unit
        label = rows[0]["label"]
        # Labels of words, which are whole numbers, may be any number.
        count = len(label) if isinstance(label, list) and isinstance(label[0], float) else 1
        ignored = [IGNORED_LABEL] * count if isinstance(label, list) else IGNORED_LABEL
        self.filler = {**asdict(TokenTree.from_paths([[0]])), "label": ignored}

    def __len__(self) -> int:
        return len(self.rows) + self.fillers

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        real = iter(self.rows.__getitems__([index for index in indices if index < len(self.rows)]))
        return [next(real) if index < len(self.rows) else self.filler for index in indices]


class LengthGroupedSampler(Sampler[int]):
    """
    A random order in which the rows of a global batch have nearly the same length, so that padding is rare. Filler
    rows (see `PaddedDataset`) come last.

    Rows are shuffled, cut into pools of many batches, sorted by length within a pool, cut into batches, and the
    batches are shuffled. The order follows from seed and epoch alone (that of transformers' own sampler of this name
    does not), and batches are those of all ranks and accumulation steps together: it is the same for one process and
    several, and after a resumption.

    Args:
        lengths (`Sequence[int]`): length of each row; all the same for an order that is random throughout.
        batch_size (`int`): rows of a global batch.
        seed (`int`, *optional*, defaults to 0): of the order.
        batches_per_pool (`int`, *optional*, defaults to 50): the larger, the less padding and the less chance.
        fillers (`int`, *optional*, defaults to 0): rows beyond `lengths`.
    """

    def __init__(
        self, lengths: Sequence[int], batch_size: int, seed: int = 0, batches_per_pool: int = 50, fillers: int = 0
    ):
        if batch_size < 1 or batches_per_pool < 1:
            raise ValueError(f"batch_size and batches_per_pool must be at least 1: {batch_size}, {batches_per_pool}.")
        self.lengths = np.asarray(lengths)
        self.batch_size = batch_size
        self.seed = seed
        self.pool_size = batch_size * batches_per_pool
        self.fillers = fillers
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch (accelerate's data loaders call this)."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths) + self.fillers

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng([self.seed, self.epoch])
        order = random.permutation(len(self.lengths))
        for start in range(0, len(order), self.pool_size):
            pool = order[start : start + self.pool_size]
            order[start : start + self.pool_size] = pool[np.argsort(self.lengths[pool], kind="stable")]
        # Only the last batch may be incomplete: the loader cuts the flat order into batches again.
        full, rest = np.split(order, [len(order) // self.batch_size * self.batch_size])
        yield from random.permutation(full.reshape(-1, self.batch_size)).ravel().tolist()
        yield from rest.tolist()
        yield from range(len(self.lengths), len(self))


def length_sorted_batches(lengths: np.ndarray, tokens_per_batch: int) -> Iterator[np.ndarray]:
    """
    Rows of like length, the longest first, at most `tokens_per_batch` tokens with padding or else one row.

    Rows without tokens are left out.
    """
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 0]
    start = 0
    while start < len(order):
        count = max(1, tokens_per_batch // int(lengths[order[start]]))
        yield order[start : start + count]
        start += count
