"""Where the time of a training step goes: operators by their share of it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from .contenders import build
from .workloads import Workload

STEPS = 3
# Operators of torch -> what they do for the model; others are named as they are.
KINDS = {
    "aten::mm": "matrix products",
    "aten::addmm": "matrix products",
    "aten::addmm_": "matrix products",
    "aten::bmm": "matrix products",
    "aten::baddbmm": "matrix products",
    "aten::gelu": "GELU",
    "aten::gelu_backward": "GELU",
    "aten::copy_": "copies",
    "aten::mul": "multiplications",
    "aten::mul_": "multiplications",
    "aten::add": "additions",
    "aten::add_": "additions",
    "aten::sub_": "additions",
    "aten::fill_": "filling with zeros",
    "aten::zero_": "filling with zeros",
    "aten::random_": "dropout's random numbers",
    "aten::native_layer_norm": "LayerNorm",
    "aten::native_layer_norm_backward": "LayerNorm",
    "aten::_softmax": "softmax",
    "aten::_softmax_backward_data": "softmax",
    "aten::exp": "exponentials",
    "aten::exp_": "exponentials",
    "aten::sum": "sums",
    "aten::embedding_dense_backward": "gradient of the embedding",
}


def step_profile(workload: Workload, size: dict, device: torch.device) -> dict[str, Any]:
    """
    Shares of the time that operators spend themselves over `STEPS` turns of our model.

    Returns:
        `dict`: `suite`, the number of `steps`, and `shares`, the largest first.
    """
    turn = build("hf_gpt", workload, size, device)
    turn()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as recorded:
        for _ in range(STEPS):
            turn()
    field = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    times: Counter[str] = Counter()
    for event in recorded.key_averages():
        times[KINDS.get(event.key, event.key.removeprefix("aten::"))] += getattr(event, field)
    total = sum(times.values())
    shares = {name: value / total for name, value in times.most_common()}
    return {"suite": "profile", "steps": STEPS, "shares": shares}


def profile_table(result: Mapping[str, Any], least: float = 0.01) -> str:
    """A Markdown table of the shares of at least `least`."""
    shown = {kind: share for kind, share in result["shares"].items() if share >= least}
    shown["all else"] = 1 - sum(shown.values())
    return "\n".join(
        ["| profile | share |", "|---|---|", *(f"| {kind} | {share:.1%} |" for kind, share in shown.items())]
    )
