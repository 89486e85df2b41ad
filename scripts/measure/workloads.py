"""What is timed: rows of given shape, or from data sets' own files, and how many of them stand in a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hf_gpt import GPTTokenizer, token_trees
from hf_gpt.tasks import load_task
from hf_gpt.trees.collators import LengthGroupedSampler
from hf_gpt.trees.token_tree import TokenTree

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
        choice (`tuple[int, int]`): fewest and most tokens of each after the delimiter; none where both are 0.
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

        def tokens(lengths: tuple[int, int]) -> list[int]:
            return random.integers(0, VOCABULARY, random.integers(lengths[0], lengths[1] + 1)).tolist()

        rows = []
        for _ in range(number):
            context, parts = tokens(self.context), [tokens(self.choice) for _ in range(self.choices)]
            rows.append([[START, *context, *([DELIMITER, *part] if part else []), CLASSIFY] for part in parts])
        return rows


@dataclass(frozen=True)
class Files:
    """A workload of a data set's own training rows: the task, its folder under `--data_dir`, and batches."""

    task: str
    folder: str
    batch_size: int
    batches: int

    def rows(self, number: int, random: np.random.Generator, data_dir: Path, tokenizer: GPTTokenizer) -> list[Row]:
        """Rows drawn from the split, tokenized and truncated as in fine-tuning."""
        data = load_task(self.task, data_dir / self.folder)
        split = data.splits["train"]
        chosen = split.select(random.permutation(len(split))[:number])
        trees = token_trees(chosen, tokenizer, family=data.spec.family, max_length=512)
        found = (TokenTree(**{name: tree[name] for name in TokenTree.__dataclass_fields__}) for tree in trees)
        return [
            [[tree.input_ids[token] for token in tree.path(path)] for path in range(len(tree.path_ends))]
            for tree in found
        ]


# RACE: 4 choices after a passage and a question. ROCStories: 2 endings after four sentences.
SUITES: dict[str, dict[str, Shape | Files]] = {
    "multiple-choice": {
        "RACE-shaped": Shape(4, (250, 420), (3, 12), 2),
        "ROCStories-shaped": Shape(2, (38, 56), (7, 13), 8, 2),
    },
    "multiple-choice-files": {
        "OpenBookQA": Files("openbookqa", "openbookqa", 8, 2),
        "CommonsenseQA": Files("commonsenseqa", "commonsenseqa", 8, 2),
        "HellaSwag": Files("hellaswag", "hellaswag", 4, 2),
    },
    "classification": {
        "TREC": Files("trec", "trec6", 32, 6),
        "SNLI": Files("snli", "snli", 16, 6),
        "IMDb": Files("imdb", "imdb", 2, 3),
    },
    "pretrain": {"rows of 512 tokens": Shape(1, (510, 510), (0, 0), 2)},
    "features": {"sentences of 4 to 60 tokens": Shape(1, (2, 58), (0, 0), 16, 4)},
    "generate": {f"64 tokens behind 16, batch {size}": Shape(1, (14, 14), (0, 0), size, 1) for size in (1, 16)},
    "choices": {f"{number} choices": Shape(number, (335, 335), (8, 8), 1) for number in (1, 2, 4, 8)},
    "context": {f"context of {length}": Shape(4, (length, length), (8, 8), 1) for length in (50, 100, 200, 400)},
}


@dataclass(frozen=True)
class Workload:
    """
    The rows of a turn in the batches of both sides.

    Args:
        name (`str`): for tables.
        suite (`str`): key of `SUITES`.
        grouped (`list[list[Row]]`): batches of rows of like length, as our sampler makes them.
        shuffled (`list[list[Row]]`): the same rows in random batches, as a Trainer's default makes them.
    """

    name: str
    suite: str
    grouped: list[list[Row]]
    shuffled: list[list[Row]]

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
    files = (data_dir, tokenizer) if isinstance(source, Files) else ()
    rows = source.rows(source.batch_size * POOL, random, *files)
    lengths = [len(TokenTree.from_paths(row)) for row in rows]
    batches = _batches(list(LengthGroupedSampler(lengths, source.batch_size, seed)), source.batch_size)
    batches = sorted(batches, key=lambda batch: max(lengths[row] for row in batch))
    batches = [batches[int((place + 0.5) / source.batches * len(batches))] for place in range(source.batches)]
    grouped = [[rows[index] for index in batch] for batch in batches]
    order = random.permutation([index for batch in batches for index in batch])
    return Workload(name, suite, grouped, _batches([rows[index] for index in order], source.batch_size))


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
