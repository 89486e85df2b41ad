"""Rows of several tasks in one training: global batches of one task each, and in which order they come."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from .collators import LengthGroupedSampler, PaddedDataset

# Besides seed and epoch, what a random order is for; the one of a task's rows (`LengthGroupedSampler`) has none.
_ORDER_OF_TASKS, _ROWS_OF_EPOCH = 1, 2


def _starts(counts: Sequence[int]) -> np.ndarray:
    """First index of each task, and one past the last: a task has its rows and one filler row."""
    return np.cumsum([0, *(count + 1 for count in counts)])


class MultiTaskRows(torch.utils.data.Dataset):
    """
    The encoded rows of several tasks one after the other, each task's followed by one filler row, which batches may
    repeat (see `PaddedDataset`). Every row also has a `task`.
    """

    def __init__(self, rows: Mapping[str, Any]):
        self.parts = {task: PaddedDataset(part, len(part) + 1) for task, part in rows.items()}
        self._tasks = list(rows)
        self._starts = _starts([len(part) for part in rows.values()])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Rows of one batch; a `ValueError` if they are of several tasks."""
        numbers = set((np.searchsorted(self._starts, indices, side="right") - 1).tolist())
        if len(numbers) > 1:
            names = ", ".join(self._tasks[number] for number in sorted(numbers))
            raise ValueError(f"A batch holds rows of one task, not of {names}: draw them with MultiTaskSampler.")
        (number,) = numbers
        task, start = self._tasks[number], int(self._starts[number])
        rows = self.parts[task].__getitems__([index - start for index in indices])
        return [{**row, "task": task} for row in rows]


class MultiTaskSampler(Sampler[int]):
    """
    A random order of the global batches of all tasks, in proportion to their rows (Liu et al., 2019, algorithm 1):
    every row of every task comes once an epoch. The batches of one task are those of `LengthGroupedSampler` in their
    order, the incomplete one with filler rows.

    Args:
        lengths (`Sequence[np.ndarray]`): length of each row, by task in the order of `MultiTaskRows`.
        batch_size, seed (`int`): see `LengthGroupedSampler`.
        rows_cap (`int`, *optional*): so many rows of a task an epoch at most; the next epochs have others.
    """

    def __init__(self, lengths: Sequence[np.ndarray], batch_size: int, seed: int = 0, rows_cap: int | None = None):
        if rows_cap is not None and rows_cap < 1:
            raise ValueError(f"rows_cap must be at least 1, not {rows_cap}.")
        self.lengths = [np.asarray(values) for values in lengths]
        self.batch_size, self.rows_cap = batch_size, rows_cap
        self.seed, self.epoch = seed, 0
        self._starts = _starts([len(values) for values in self.lengths])

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        self.epoch = epoch

    def batch_counts(self) -> list[int]:
        """Global batches of each task in an epoch."""
        rows = [min(len(values), self.rows_cap or len(values)) for values in self.lengths]
        return [-(-count // self.batch_size) for count in rows]

    def __len__(self) -> int:
        return sum(self.batch_counts()) * self.batch_size

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng([self.seed, self.epoch, _ORDER_OF_TASKS])
        counts = self.batch_counts()
        batches = [iter(start + self.batches_of(number)) for number, start in enumerate(self._starts[:-1])]
        for number in random.permutation(np.repeat(np.arange(len(counts)), counts)):
            yield from next(batches[number]).tolist()

    def batches_of(self, number: int) -> np.ndarray:
        """One task's global batches in this epoch, `(batches, batch_size)`, as indices of its rows and its filler."""
        lengths = self.lengths[number]
        rows = self._rows_of_epoch(len(lengths))
        fillers = -len(rows) % self.batch_size
        order = LengthGroupedSampler(lengths[rows], self.batch_size, self.seed, fillers=fillers)
        order.set_epoch(self.epoch)
        indices = np.append(rows, np.full(fillers, len(lengths)))
        return indices[np.fromiter(order, dtype=np.int64)].reshape(-1, self.batch_size)

    def _rows_of_epoch(self, count: int) -> np.ndarray:
        # All of them, or the next part of a random order of them.
        if self.rows_cap is None or self.rows_cap >= count:
            return np.arange(count)
        passes, part = divmod(self.epoch, count // self.rows_cap)
        order = np.random.default_rng([self.seed, passes, _ROWS_OF_EPOCH]).permutation(count)
        return np.sort(order[part * self.rows_cap :][: self.rows_cap])
