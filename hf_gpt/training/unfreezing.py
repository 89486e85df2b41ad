"""
Which parameters are trained when, and how fast. Parameters belong to levels: 0 are the embeddings, 1 to `n_layer` the
blocks from the bottom to the top (with the last one the norm after it), `n_layer + 1` is the task head.
"""

import re
from dataclasses import dataclass

from torch import nn
from torch.optim import Optimizer

KINDS = ("gradual", "head_first", "chain_thaw")


def level_of(name: str, n_layer: int) -> int:
    """The level of a parameter of a task model, whose name is such as `transformer.h.0.attn.c_attn.weight`."""
    if "embed_tokens" in name or "embed_positions" in name:
        return 0
    if block := re.search(r"(?:^|\.)h\.(\d+)\.", name):
        return int(block[1]) + 1
    return n_layer if ".ln_f." in name else n_layer + 1


@dataclass(frozen=True)
class UnfreezingPlan:
    """What is trained when: stage after stage, each of `steps` updates but the last."""

    stages: list[range]
    steps: int

    def trained_at(self, step: int) -> range:
        """Levels that the update after `step` finished ones trains."""
        return self.stages[min(step // self.steps, len(self.stages) - 1)]


def unfreezing_plan(
    kind: str, every: str | None, n_layer: int, updates: int, updates_per_epoch: int
) -> UnfreezingPlan:
    """
    The plan of a training of so many `updates`. `gradual`: the head, then one more level from the top (Howard and
    Ruder, 2018, section 3.3). `head_first`: the head, then everything. `chain_thaw`: the head, then each level alone
    from the bottom up, then everything (Felbo et al., 2017). A stage is as long as `every` says, `epoch` or a number
    of updates; by default all are equally long, but the first of `head_first`, a tenth. A `ValueError` for another
    length, and if the second stage would never come.
    """
    head, everything = range(n_layer + 1, n_layer + 2), range(n_layer + 2)
    stages = {
        "gradual": [range(lowest, n_layer + 2) for lowest in range(n_layer + 1, -1, -1)],
        "head_first": [head, everything],
        "chain_thaw": [head, *(range(level, level + 1) for level in range(n_layer + 1)), everything],
    }[kind]
    if every is None:
        steps = max(1, round(0.1 * updates) if kind == "head_first" else updates // len(stages))
    elif every == "epoch":
        steps = updates_per_epoch
    elif every.isdecimal() and int(every):
        steps = int(every)
    else:
        raise ValueError(f"--unfreeze_every {every}: give epoch, or a whole number of updates.")
    if steps >= updates:
        problem = f"a stage is {steps:,} updates of {updates:,}, so nothing but the head would be trained"
        raise ValueError(f"--unfreeze {kind}: {problem}: train longer, or make --unfreeze_every smaller.")
    return UnfreezingPlan(stages, steps)


def scale_by_level(optimizer: Optimizer, model: nn.Module, decay: float, n_layer: int) -> None:
    """
    Layer-wise learning rates of a new optimizer, in place: `lr * decay ** (n_layer + 1 - level)`. Groups are split by
    level, those of the head first. Source: Howard and Ruder (2018), section 3.2, where decay is 1 / 2.6.
    """
    levels = {value: level_of(name, n_layer) for name, value in model.named_parameters()}
    groups = []
    for level in range(n_layer + 1, -1, -1):
        for group in optimizer.param_groups:
            if values := [value for value in group["params"] if levels[value] == level]:
                groups.append({**group, "params": values, "lr": group["lr"] * decay ** (n_layer + 1 - level)})
    optimizer.param_groups[:] = groups
