"""Turns, the machine's own rate, and memory."""

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from hf_gpt.trees.token_tree import TokenTree

from .contenders import build, contenders, logits_difference
from .workloads import Workload, padding_share, useful_flops

SIZES = {
    "gpt1": {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 512},
    "mini": {"n_embd": 192, "n_layer": 5, "n_head": 3, "n_positions": 512},
    "tiny": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512},
}
# Dense bfloat16 operations per second, from the makers' data sheets.
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L4": 121e12, "L40S": 362e12}


def timed(turn: Callable[..., object], device: torch.device, *arguments: object) -> float:
    """Seconds of a turn: on a GPU as they pass, on a CPU those of this process's threads, whatever else runs there."""
    if device.type == "cpu":
        start = time.process_time()
        turn(*arguments)
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    turn(*arguments)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def in_turns(
    turns: Mapping[Any, Callable[[], object]], rounds: int, device: torch.device, name: str
) -> tuple[dict[Any, list[float]], dict[Any, float]]:
    """Seconds of every turn, one behind the other `rounds` times after one that warms up, and their medians."""
    seconds: dict[Any, list[float]] = {key: [] for key in turns}
    with tqdm(total=(rounds + 1) * len(turns), desc=name, unit="turn") as bar:
        for number in range(rounds + 1):
            for key, turn in turns.items():
                spent = timed(turn, device)
                if number > 0:
                    seconds[key].append(spent)
                bar.update()
    return seconds, {key: statistics.median(values) for key, values in seconds.items()}


def product_rate(workload: Workload, size: dict, device: torch.device) -> float:
    """
    Floating-point operations per second of the model's own matrix products and nothing else: forward and both
    gradients of a block's four layers at the tokens of a batch, repeated for about as many operations as a block
    does in a turn.
    """
    width = size["n_embd"]
    tokens = max(sum(len(TokenTree.from_paths(row)) for row in batch) for batch in workload.grouped)
    layers = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    seconds = operations = 0.0
    for inputs, outputs in layers:
        states = torch.randn(tokens, inputs, device=device, dtype=workload.dtype)
        weight = torch.randn(outputs, inputs, device=device, dtype=workload.dtype)
        gradient = torch.randn(tokens, outputs, device=device, dtype=workload.dtype)

        def products(states=states, weight=weight, gradient=gradient) -> None:
            torch.mm(states, weight.t())
            torch.mm(gradient, weight)
            torch.mm(gradient.t(), states)

        products()
        seconds += sum(timed(products, device) for _ in range(4))
        operations += 4 * 3 * 2 * tokens * inputs * outputs
    return operations / seconds


def rise_of_memory(turn: Callable[[], object], device: torch.device) -> int:
    """By how much a turn raises the peak memory of this process (bytes)."""
    gc.collect()
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        turn()
        return torch.cuda.max_memory_allocated() - before
    before = _resident("VmRSS")
    turn()
    return _resident("VmHWM") - before


def peak_memory(name: str, workload: Workload, size: dict, device: torch.device) -> int:
    """`rise_of_memory` of the first turn of a contender."""
    return rise_of_memory(build(name, workload, size, device), device)


def _resident(entry: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(entry):
            return int(line.split()[1]) * 1024
    return 0


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a module returns in a new process, where nothing has used memory yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # torch is imported once for all
    with ProcessPoolExecutor(1, context) as own_process:
        return own_process.submit(function, *arguments).result()


def measure(workload: Workload, size_name: str, rounds: int, memory: bool, device: torch.device) -> dict:
    """Times of every contender in turns, with the machine's rate and what else tables say of a workload."""
    size = SIZES[size_name]
    names = contenders(workload)
    torch.manual_seed(0)
    turns = {name: build(name, workload, size, device) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    rates = []
    with tqdm(total=(rounds + 1) * len(names), desc=workload.name, unit="turn") as bar:
        for number in range(rounds + 1):
            for name, turn in turns.items():
                if number == 0:  # warms up, with one batch
                    timed(turn, device, 1)
                else:
                    times[name].append(timed(turn, device))
                bar.update()
            rates.append(product_rate(workload, size, device))
    turns.clear()
    gc.collect()
    medians = {name: statistics.median(values) for name, values in times.items()}
    trains = workload.suite not in ("features", "generate")
    flops = useful_flops(workload.rows, size, predicts=trains, passes=3 if trains else 1)
    result = {
        "suite": workload.suite,
        "seconds": times,
        "median_seconds": medians,
        "rows": len(workload.rows),
        "tokens": sum(len(TokenTree.from_paths(row)) for row in workload.rows),
        "ratio": {name: value / medians["hf_gpt"] for name, value in medians.items()},
        "padding": {
            "hf_gpt": padding_share(workload.grouped, as_trees=True),
            "peers": padding_share(workload.shuffled, as_trees=False),
        },
    }
    if workload.suite != "generate":  # there, products of single tokens say little
        result["useful_flops"] = flops
        result["product_rate"] = statistics.median(rates)
        result["share_of_product_rate"] = flops / medians["hf_gpt"] / result["product_rate"]
        peak = next((rate for card, rate in PEAKS.items() if card in _card(device)), None)
        if peak is not None:
            result["model_flops_utilisation"] = flops / medians["hf_gpt"] / peak
    if trains and workload.suite != "pretrain":
        result["logits_difference"] = logits_difference(workload, size)
    if memory:
        result["peak_memory"] = {name: in_own_process(peak_memory, name, workload, size, device) for name in names}
    return result


def _card(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""
