"""How the cost of our training step grows with the choices of an item: one model, the workloads taking turns."""

from collections.abc import Mapping
from typing import Any

import torch

from hf_gpt import GPTForMultipleChoice

from .contenders import our_batches, our_model, training
from .measure import in_turns
from .workloads import SUITES, make_workload

TURNS = 5  # of every workload in a round: single steps are short


def growth(size: dict, rounds: int, seed: int, device: torch.device) -> dict[str, Any]:
    """
    Times of the suite `choices` with our model alone.

    Other contenders' turns lie minutes apart; here the workloads follow each other at once, so that what the machine
    does besides falls on all of them.
    """
    torch.manual_seed(seed)
    model = our_model(GPTForMultipleChoice, size).to(device).train()
    turns, tokens = {}, {}
    for name in SUITES["choices"]:
        workload = make_workload(name, "choices", seed)
        batches = our_batches(workload, True, device)
        turns[name] = training(workload, model, batches, lambda model, batch: model(**batch).loss)
        tokens[name] = int(sum((batch["classify_index"].max() + 1).item() for batch in batches))
    times, medians = in_turns(turns, rounds * TURNS, device, "growth")
    return {"suite": "growth", "seconds": times, "median_seconds": medians, "tokens": tokens}


def growth_table(result: Mapping[str, Any]) -> str:
    """A Markdown table of each workload's cost against that of the line before."""
    lines = ["| one RACE-shaped item | distinct tokens | step | against the line before |", "|---|---|---|---|"]
    before = None
    for name, seconds in result["median_seconds"].items():
        change = "-" if before is None else f"{seconds / before - 1:+.1%}"
        lines.append(f"| {name} | {result['tokens'][name]} | {seconds:.2f} s | {change} |")
        before = seconds
    return "\n".join(lines)
