"""What is timed: rows of given shape, or from data sets' own files, and how many of them stand in a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hf_gpt import GPTTokenizer
from hf_gpt.tasks import load_task
from hf_gpt.tasks.encode import encode_rows
from hf_gpt.trees.collators import LengthGroupedSampler
from hf_gpt.trees.token_tree import TokenTree
from hf_gpt.trees.transforms import InputTransform, SpecialIds

VOCABULARY = 40478
START, DELIMITER, CLASSIFY, PAD = range(VOCABULARY, VOCABULARY + 4)
POOL = 50  # batches among which rows of like length are sought, as in training

Row = list[list[int]]  # token ids of the sequences of one example


@dataclass(frozen=True)
class Shape:
    """
    A workload by lengths alone.

    Args:
        choices (`int`): sequences of a row.
        context (`tuple[int, int]`): fewest and most tokens that they have in common.
        choice (`tuple[int, int]`): fewest and most tokens of each behind the delimiter; none where both are 0.
        batch_size (`int`): rows of a batch.
        batches (`int`, *optional*, defaults to 1): batches of a turn.
    """

    choices: int
    context: tuple[int, int]
    choice: tuple[int, int]
    batch_size: int
    batches: int = 1

    def rows(self, number: int, random: np.random.Generator) -> list[Row]:
        """Random rows of this shape."""
        rows = []
        for _ in range(number):
            context = self._tokens(self.context, random)
            behind = [self._tokens(self.choice, random) for _ in range(self.choices)]
            rows.append([[START, *context, *([DELIMITER, *part] if part else []), CLASSIFY] for part in behind])
        return rows

    @staticmethod
    def _tokens(lengths: tuple[int, int], random: np.random.Generator) -> list[int]:
        return random.integers(0, VOCABULARY, random.integers(lengths[0], lengths[1] + 1)).tolist()


@dataclass(frozen=True)
class Files:
    """A workload of a data set's own rows: the task, its folder beside the others, the split, and batches."""

    task: str
    folder: str
    split: str
    batch_size: int
    batches: int

    def rows(self, number: int, random: np.random.Generator, data_dir: Path, tokenizer: GPTTokenizer) -> list[Row]:
        """Rows drawn from the split, tokenized and truncated as in fine-tuning."""
        data = load_task(self.task, data_dir / self.folder)
        split = data.splits[self.split]
        chosen = split.select(random.permutation(len(split))[:number])
        transform = InputTransform(data.spec.family, SpecialIds(START, DELIMITER, CLASSIFY), max_length=512)
        encoded = encode_rows(chosen[:], data.spec.text_columns, tokenizer, transform)
        return [self._paths(encoded, index) for index in range(len(chosen))]

    @staticmethod
    def _paths(encoded: dict, index: int) -> Row:
        tree = TokenTree(**{name: encoded[name][index] for name in TokenTree.__dataclass_fields__})
        return [[tree.input_ids[token] for token in tree.path(path)] for path in range(len(tree.path_ends))]


# RACE: 4 choices behind a passage and a question. ROCStories: 2 endings behind four sentences.
SUITES: dict[str, dict[str, Shape | Files]] = {
    "multiple-choice": {
        "RACE-shaped": Shape(4, (250, 420), (3, 12), 2),
        "ROCStories-shaped": Shape(2, (38, 56), (7, 13), 8, 2),
    },
    "multiple-choice-files": {
        "OpenBookQA": Files("openbookqa", "openbookqa", "train", 8, 2),
        "CommonsenseQA": Files("commonsenseqa", "commonsenseqa", "train", 8, 2),
        "HellaSwag": Files("hellaswag", "hellaswag", "train", 4, 2),
    },
    "classification": {
        "TREC": Files("trec", "trec6", "train", 32, 6),
        "SNLI": Files("snli", "snli", "train", 16, 6),
        "IMDb": Files("imdb", "imdb", "train", 2, 3),
    },
    "pretrain": {"rows of 512 tokens": Shape(1, (510, 510), (0, 0), 2)},
    "features": {"sentences of 4 to 60 tokens": Shape(1, (2, 58), (0, 0), 16, 4)},
    "generate": {"64 tokens behind 16": Shape(1, (14, 14), (0, 0), 4)},
    "choices": {f"{number} choices": Shape(number, (335, 335), (8, 8), 1) for number in (1, 2, 4, 8)},
    "context": {f"context of {length}": Shape(4, (length, length), (8, 8), 1) for length in (50, 100, 200, 400)},
}

# Nothing is timed here: how much of an epoch's batches of 32 rows is padding.
PADDING = {
    "TREC": Files("trec", "trec6", "train", 32, 0),
    "SST-2": Files("sst2", "sst2", "train", 32, 0),
    "SNLI": Files("snli", "snli", "train", 32, 0),
    "IMDb": Files("imdb", "imdb", "train", 32, 0),
    "COPA": Files("copa", "copa", "train", 32, 0),
    "OpenBookQA": Files("openbookqa", "openbookqa", "train", 32, 0),
    "CommonsenseQA": Files("commonsenseqa", "commonsenseqa", "train", 32, 0),
    "HellaSwag": Files("hellaswag", "hellaswag", "train", 32, 0),
}
PADDING_ROWS = 8000  # of a split at most


@dataclass(frozen=True)
class Workload:
    """
    The rows of a turn in the batches of both sides.

    Args:
        name (`str`): for tables.
        suite (`str`): key of `SUITES`.
        grouped (`list[list[Row]]`): batches of rows of like length, as our sampler makes them.
        shuffled (`list[list[Row]]`): the same rows in random batches, as a Trainer's default makes them.
        dtype (`torch.dtype`): of matrix products; `torch.bfloat16` is autocast.
    """

    name: str
    suite: str
    grouped: list[list[Row]]
    shuffled: list[list[Row]]
    dtype: torch.dtype = torch.float32

    def autocast(self, device: torch.device) -> torch.autocast:
        """The context in which contenders compute."""
        return torch.autocast(device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16)

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return [row for batch in self.grouped for row in batch]


def make_workload(
    name: str, suite: str, seed: int, data_dir: Path | None = None, tokenizer: GPTTokenizer | None = None
) -> Workload:
    """
    Draw rows, group them by length into batches, and shuffle the same rows into others.

    Rows are drawn from a pool of many batches, as in an epoch; of its batches those are timed that lie evenly over
    the lengths (of two, those at a quarter and at three quarters), so that either side meets long and short rows.
    """
    source, random = SUITES[suite][name], np.random.default_rng(seed)
    drawn = (data_dir, tokenizer) if isinstance(source, Files) else ()
    rows = source.rows(source.batch_size * POOL, random, *drawn)
    lengths = [len(TokenTree.from_paths(row)) for row in rows]
    batches = _batches(list(LengthGroupedSampler(lengths, source.batch_size, seed)), source.batch_size)
    batches = sorted(batches, key=lambda batch: max(lengths[row] for row in batch))
    batches = [batches[int((place + 0.5) / source.batches * len(batches))] for place in range(source.batches)]
    order = [index for batch in batches for index in batch]
    return Workload(
        name,
        suite,
        grouped=[[rows[index] for index in batch] for batch in batches],
        shuffled=_batches([rows[index] for index in random.permutation(order)], source.batch_size),
    )


def epoch_padding(source: Files, seed: int, data_dir: Path, tokenizer: GPTTokenizer) -> dict:
    """
    Shares of padding in an epoch of a data set: our batches of like length, in training and (sorted altogether) in
    evaluation, and random ones of single sequences.
    """
    random = np.random.default_rng(seed)
    rows = source.rows(PADDING_ROWS, random, data_dir, tokenizer)
    lengths = [len(TokenTree.from_paths(row)) for row in rows]
    order = list(LengthGroupedSampler(lengths, source.batch_size, seed))
    grouped, shuffled = [rows[index] for index in order], [rows[index] for index in random.permutation(order)]
    by_length = [rows[index] for index in np.argsort(lengths)[::-1]]
    return {
        "suite": "padding",
        "rows": len(rows),
        "tokens": sum(lengths),
        "padding": {
            "hf_gpt": padding_share(_batches(grouped, source.batch_size), as_trees=True),
            "evaluation": padding_share(_batches(by_length, source.batch_size), as_trees=True),
            "peers": padding_share(_batches(shuffled, source.batch_size), as_trees=False),
        },
    }


def _batches(rows: Sequence, size: int) -> list[list]:
    return [list(rows[start : start + size]) for start in range(0, len(rows), size)]


def padding_share(batches: Sequence[Sequence[Row]], as_trees: bool) -> float:
    """Share of the laid out tokens that are padding, batches padded to their longest row or sequence."""
    used = total = 0
    for batch in batches:
        if as_trees:
            lengths = [len(TokenTree.from_paths(row)) for row in batch]
        else:
            lengths = [len(sequence) for row in batch for sequence in row]
        used, total = used + sum(lengths), total + max(lengths) * len(lengths)
    return 1 - used / total


def useful_flops(rows: Sequence[Row], size: dict, predicts: bool = True, passes: int = 3) -> float:
    """
    Floating-point operations that a turn cannot do without: products over distinct tokens, attention over tokens
    that are seen, and the logits of distinct parents.

    Args:
        rows (`Sequence[Row]`): examples.
        size (`dict`): `n_embd` and `n_layer` of the model.
        predicts (`bool`, *optional*, defaults to `True`): whether there is a language-model loss.
        passes (`int`, *optional*, defaults to 3): 3 for forward and backward, 1 for forward.
    """
    width, layers = size["n_embd"], size["n_layer"]
    total = 0.0
    for row in rows:
        tree = TokenTree.from_paths(row)
        seen = sum(position + 1 for position in tree.position_ids)
        total += layers * (24 * width**2 * len(tree) + 4 * width * seen)
        if predicts:
            parents = {tree.parent_index[token] for token in range(len(tree)) if tree.lm_weights[token] > 0}
            total += 2 * width * (VOCABULARY + 3) * len(parents)
    return passes * total
