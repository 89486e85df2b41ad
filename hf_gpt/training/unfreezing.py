"""
Which parameters are trained when, and how fast: the schedules of transfer learning.

Parameters belong to levels: 0 are the embeddings, 1 to `n_layer` the blocks from the bottom to the top (the norm after
the last block goes with it), `n_layer + 1` is the task head. Ruder et al. (2019), the tutorial "Transfer learning in
natural language processing" of NAACL, gives an overview.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn
from torch.optim import Optimizer
from transformers import TrainingArguments

KINDS = ("gradual", "head_first", "chain_thaw")
# Of head_first, where nothing else is said: the share of the updates that go to the head alone.
_HEAD_FIRST_SHARE = 0.1
_BLOCK = re.compile(r"(?:^|\.)h\.(\d+)\.")


def level_of(name: str, n_layer: int) -> int:
    """The level of a parameter of a task model, whose name is such as `transformer.h.0.attn.c_attn.weight`."""
    if "embed_tokens" in name or "embed_positions" in name:
        return 0
    block = _BLOCK.search(name)
    if block:
        return int(block[1]) + 1
    return n_layer if ".ln_f." in name else n_layer + 1


def unfreezing_stages(kind: str, n_layer: int) -> list[frozenset[int]]:
    """
    The levels that are trained in each stage; a `ValueError` for an unknown kind.

    `gradual`: the head, then one more block from the top in each stage, at last the embeddings (Howard and Ruder,
    2018, section 3.3). `head_first`: the head, then everything. `chain_thaw`: the head, then the embeddings and each
    block alone from the bottom up, then everything (Felbo et al., 2017).
    """
    head, everything = n_layer + 1, frozenset(range(n_layer + 2))
    if kind == "gradual":
        return [frozenset(range(lowest, head + 1)) for lowest in range(head, -1, -1)]
    if kind == "head_first":
        return [frozenset([head]), everything]
    if kind == "chain_thaw":
        return [frozenset([head]), *(frozenset([level]) for level in range(head)), everything]
    raise ValueError(f"Unknown unfreezing {kind!r}; choose one of {', '.join(KINDS)}.")


@dataclass(frozen=True)
class UnfreezingPlan:
    """
    What is trained in which update: levels stage after stage, each for so many `steps`, but the last, which lasts to
    the end of the training.
    """

    stages: tuple[frozenset[int], ...]
    steps: int
    n_layer: int
    updates: int

    def trained_at(self, step: int) -> frozenset[int]:
        """Levels that the update after `step` finished ones trains."""
        return self.stages[min(step // self.steps, len(self.stages) - 1)]

    def frozen_at(self, step: int, parameters: Iterable[tuple[str, nn.Parameter]]) -> list[nn.Parameter]:
        """Those of the named parameters that this update leaves alone."""
        trained = self.trained_at(step)
        return [value for name, value in parameters if level_of(name, self.n_layer) not in trained]

    def __str__(self) -> str:
        """One line for each stage, and one for the first that is never reached."""
        lines = []
        for number, levels in enumerate(self.stages):
            first = number * self.steps
            if first >= self.updates:
                lines.append(f"  never, as there are {self.updates:,} updates: {self._names(levels)}")
                break
            last = self.updates if number == len(self.stages) - 1 else min(self.updates, first + self.steps)
            lines.append(f"  updates {first + 1:,} to {last:,}: {self._names(levels)}")
        return "\n".join(lines)

    def _names(self, levels: frozenset[int]) -> str:
        if len(levels) == self.n_layer + 2:
            return "everything"
        blocks = sorted(level - 1 for level in levels if 0 < level <= self.n_layer)
        names = ["the embeddings"] if 0 in levels else []
        if blocks:
            names.append(f"block {blocks[0]}" if len(blocks) == 1 else f"blocks {blocks[0]} to {blocks[-1]}")
        return " and ".join([*names, "the head"] if self.n_layer + 1 in levels else names)


def planned_updates(rows: int, args: TrainingArguments) -> tuple[int, int]:
    """How many updates the Trainer will make on so many rows: in all, and in an epoch."""
    batches = math.ceil(rows / (args.train_batch_size * args.world_size))
    an_epoch = max(1, math.ceil(batches / args.gradient_accumulation_steps))
    return (args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * an_epoch)), an_epoch


def unfreezing_plan(
    kind: str, every: str | None, n_layer: int, updates: int, updates_per_epoch: int
) -> UnfreezingPlan:
    """
    The plan of a training, of which `updates` are made. A stage is as long as `every` says: `epoch`, a number of
    updates, or below 1 a share of all; by default all are equally long, but the first of `head_first`, a tenth. A
    `ValueError` for an unknown kind (see `unfreezing_stages`) or length, and if the second stage would never come.
    """
    stages = unfreezing_stages(kind, n_layer)
    if every is None:
        steps = max(1, round(_HEAD_FIRST_SHARE * updates) if kind == "head_first" else updates // len(stages))
    elif every == "epoch":
        steps = updates_per_epoch
    else:
        length = stage_length(every)
        steps = max(1, round(length * updates)) if length < 1 else int(length)
    if steps >= updates:
        problem = f"a stage is {steps:,} updates of {updates:,}, so nothing but the head would be trained"
        hint = "Train longer, make --unfreeze_every smaller, or take --adaptation frozen."
        raise ValueError(f"--unfreeze {kind}: {problem}. {hint}")
    return UnfreezingPlan(tuple(stages), steps, n_layer, updates)


def stage_length(every: str) -> float:
    """The number in `--unfreeze_every`; a `ValueError` unless it is a share below 1 or a whole number."""
    try:
        length = float(every)
    except ValueError:
        length = 0.0
    if not (0 < length < 1 or (length >= 1 and length.is_integer())):
        raise ValueError(f"--unfreeze_every {every}: give epoch, a whole number of updates, or a share below 1.")
    return length


def scale_by_level(optimizer: Optimizer, model: nn.Module, decay: float, n_layer: int) -> None:
    """
    Layer-wise learning rates of a new optimizer, in place: `lr * decay ** (n_layer + 1 - level)`, so that the head
    keeps the full rate and the embeddings have the lowest. Groups are split by level, those of the head first. Source:
    Howard and Ruder (2018), section 3.2, where decay is 1 / 2.6.
    """
    levels = {id(value): level_of(name, n_layer) for name, value in model.named_parameters()}
    groups = []
    for group in optimizer.param_groups:
        by_level: dict[int, list[nn.Parameter]] = {}
        for value in group["params"]:
            by_level.setdefault(levels[id(value)], []).append(value)
        for level, values in by_level.items():
            rate = group["lr"] * decay ** (n_layer + 1 - level)
            groups.append((level, {**group, "params": values, "lr": rate}))
    optimizer.param_groups[:] = [group for _, group in sorted(groups, key=lambda pair: -pair[0])]
