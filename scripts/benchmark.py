"""
Time this project and its peers on the same work, in one run, and print ratios.

    python scripts/benchmark.py --suites multiple-choice classification --output_dir outputs/benchmark
    python scripts/benchmark.py --suites multiple-choice --size mini --output_dir outputs/quick

Contenders take turns, so that whatever else the machine does falls on all of them; figures are medians. Peers are
transformers' own `openai-gpt` and `gpt2` two-headed models at the same size, padded to the longest sequence of the
batch, and our model with every sequence laid out on its own. Each step is forward and backward of the joint loss in
fp32 with dropout. Writes `results.json` and `results.md`.
"""

import gc
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import (
    GPT2Config,
    GPT2DoubleHeadsModel,
    HfArgumentParser,
    OpenAIGPTConfig,
    OpenAIGPTDoubleHeadsModel,
)

from hf_gpt import GPTConfig, GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.data_collator import collate_trees
from hf_gpt.token_tree import TokenTree

VOCABULARY = 40478
START, DELIMITER, CLASSIFY, PAD = range(VOCABULARY, VOCABULARY + 4)
SIZES = {
    "gpt1": {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 512},
    "mini": {"n_embd": 192, "n_layer": 4, "n_head": 3, "n_positions": 512},
}


@dataclass(frozen=True)
class Shape:
    """Lengths of a task's items: choices, and (shortest, longest) of context and choice in tokens."""

    choices: int
    context: tuple[int, int]
    choice: tuple[int, int]
    items: int


# Multiple choice: the lengths of RACE and ROCStories. Classification: what the release's tokenizer makes of TREC's
# questions, SNLI's pairs and the beginnings of IMDb's reviews; a classification item has no choices of its own.
SUITES: dict[str, dict[str, Shape]] = {
    "multiple-choice": {
        "RACE-shaped": Shape(4, (250, 420), (3, 12), 2),
        "ROCStories-shaped": Shape(2, (38, 56), (7, 13), 8),
    },
    "classification": {
        "TREC-shaped": Shape(1, (5, 22), (0, 0), 32),
        "SNLI-shaped": Shape(1, (10, 40), (4, 14), 16),
    },
    "choices": {
        "RACE-shaped, 2 choices": Shape(2, (250, 420), (3, 12), 2),
        "RACE-shaped, 4 choices": Shape(4, (250, 420), (3, 12), 2),
        "RACE-shaped, 8 choices": Shape(8, (250, 420), (3, 12), 2),
    },
}


@dataclass
class BenchmarkArguments:
    """What to time."""

    output_dir: str = field(metadata={"help": "Folder of results.json and results.md."})
    suites: list[str] = field(default_factory=lambda: ["multiple-choice"], metadata={"help": ", ".join(SUITES)})
    size: str = field(default="gpt1", metadata={"help": "Size of all models.", "choices": list(SIZES)})
    rounds: int = field(default=3, metadata={"help": "Timed steps of each contender."})
    seed: int = field(default=0, metadata={"help": "Of lengths, tokens and weights."})
    memory: bool = field(default=True, metadata={"help": "Measure peak memory, each contender in its own process."})


def make_items(shape: Shape, seed: int) -> list[list[list[int]]]:
    """Token paths of a batch: one list of sequences per item."""
    random = np.random.default_rng(seed)
    items = []
    for _ in range(shape.items):
        context = random.integers(0, VOCABULARY, random.integers(shape.context[0], shape.context[1] + 1)).tolist()
        paths = []
        for _ in range(shape.choices):
            choice = random.integers(0, VOCABULARY, random.integers(shape.choice[0], shape.choice[1] + 1)).tolist()
            behind = [DELIMITER, *choice] if choice else []
            paths.append([START, *context, *behind, CLASSIFY])
        items.append(paths)
    return items


def ours(items: list, shape: Shape, size: dict, share: bool) -> Callable[[], torch.Tensor]:
    """A step of our model on token trees, or on sequences laid out one by one."""
    config = GPTConfig(**size)
    config._attn_implementation = "sdpa"
    model_class = GPTForMultipleChoice if shape.choices > 1 else GPTForSequenceClassification
    model = model_class(config).train()
    trees = [TokenTree.from_paths(paths, None if share else 0) for paths in items]
    batch = collate_trees(trees, PAD)
    batch["labels"] = torch.zeros(len(items), dtype=torch.long)

    def step() -> torch.Tensor:
        model.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        return loss

    return step


def peer(items: list, shape: Shape, size: dict, name: str) -> Callable[[], torch.Tensor]:
    """A step of a two-headed model of transformers on padded sequences; its two losses are added by hand."""
    vocabulary = VOCABULARY + 4
    if name == "openai-gpt":
        model = OpenAIGPTDoubleHeadsModel(OpenAIGPTConfig(vocab_size=vocabulary, **size)).train()
    else:
        model = GPT2DoubleHeadsModel(GPT2Config(vocab_size=vocabulary, **size)).train()
    length = max(len(path) for paths in items for path in paths)
    input_ids = torch.full((len(items), shape.choices, length), PAD)
    mask = torch.zeros_like(input_ids)
    last = torch.zeros(len(items), shape.choices, dtype=torch.long)
    for row, paths in enumerate(items):
        for column, path in enumerate(paths):
            input_ids[row, column, : len(path)] = torch.tensor(path)
            mask[row, column, : len(path)] = 1
            last[row, column] = len(path) - 1
    inputs = {
        "input_ids": input_ids,
        "attention_mask": mask.view(-1, length),
        "mc_token_ids": last,
        "labels": input_ids.masked_fill(mask == 0, -100),
        "mc_labels": torch.zeros(len(items), dtype=torch.long),
    }

    def step() -> torch.Tensor:
        model.zero_grad()
        outputs = model(**inputs)
        loss = outputs.mc_loss + 0.5 * outputs.loss
        loss.backward()
        return loss

    return step


CONTENDERS: dict[str, Callable] = {
    "hf_gpt": lambda items, shape, size: ours(items, shape, size, share=True),
    "hf_gpt, nothing shared": lambda items, shape, size: ours(items, shape, size, share=False),
    "openai-gpt": lambda items, shape, size: peer(items, shape, size, "openai-gpt"),
    "gpt2": lambda items, shape, size: peer(items, shape, size, "gpt2"),
}


def useful_flops(items: list, size: dict) -> float:
    """Floating-point operations that a step cannot do without: forward and backward over distinct tokens."""
    width, layers = size["n_embd"], size["n_layer"]
    total = 0.0
    for paths in items:
        tree = TokenTree.from_paths(paths)
        seen = sum(position + 1 for position in tree.position_ids)
        predicted = sum(weight > 0 for weight in tree.lm_weights)
        total += layers * (24 * width**2 * len(tree) + 4 * width * seen) + 2 * width * (VOCABULARY + 3) * predicted
    return 3 * total


def matmul_rate(width: int) -> float:
    """The machine's rate (FLOP/s) on a product of matrices as they stand in the model, best of a few."""
    left, right = torch.randn(1024, width), torch.randn(width, 4 * width)
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - start)
    return 2 * 1024 * width * 4 * width / best


def peak_memory(name: str, items: list, shape: Shape, size: dict, queue) -> None:
    """Report by how much the first step raises the peak resident memory of this process (bytes)."""
    step = CONTENDERS[name](items, shape, size)
    gc.collect()
    before = _resident("VmRSS")
    step()
    queue.put(_resident("VmHWM") - before)


def _resident(entry: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(entry):
            return int(line.split()[1]) * 1024
    return 0


def measured_memory(name: str, items: list, shape: Shape, size: dict) -> int:
    """`peak_memory` in a process of its own."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=peak_memory, args=(name, items, shape, size, queue))
    process.start()
    value = queue.get(timeout=600)
    process.join()
    return value


def measure(shape: Shape, args: BenchmarkArguments, bar: tqdm) -> dict:
    """Times and peak memory of every contender on one shape."""
    size = SIZES[args.size]
    items = make_items(shape, args.seed)
    torch.manual_seed(args.seed)
    steps = {name: build(items, shape, size) for name, build in CONTENDERS.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    rates = []
    for turn in range(args.rounds + 1):
        rates.append(matmul_rate(size["n_embd"]))
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if turn:  # the first turn warms up
                times[name].append(time.perf_counter() - start)
            bar.update()
    del steps
    gc.collect()
    medians = {name: statistics.median(values) for name, values in times.items()}
    lengths = [len(path) for paths in items for path in paths]
    trees = [len(TokenTree.from_paths(paths)) for paths in items]
    result = {
        "seconds": times,
        "median_seconds": medians,
        "speedup_of_hf_gpt": {name: value / medians["hf_gpt"] for name, value in medians.items()},
        "share_of_matmul_rate": useful_flops(items, size) / medians["hf_gpt"] / statistics.median(rates),
        "padding": {
            "hf_gpt": 1 - sum(trees) / (max(trees) * len(trees)),
            "peers": 1 - sum(lengths) / (max(lengths) * len(lengths)),
        },
    }
    if args.memory:
        result["peak_memory"] = {name: measured_memory(name, items, shape, size) for name in CONTENDERS}
    return result


def table(results: dict[str, dict]) -> str:
    """Ratios as a Markdown table."""
    columns = [
        "work",
        "hf_gpt",
        "vs openai-gpt",
        "vs gpt2",
        "vs nothing shared",
        "memory vs openai-gpt",
        "matmul rate",
    ]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, result in results.items():
        ratio = result["speedup_of_hf_gpt"]
        memory = result.get("peak_memory")
        cells = [name, f"{result['median_seconds']['hf_gpt']:.2f} s"]
        cells += [f"{ratio[peer_name]:.2f} x" for peer_name in ("openai-gpt", "gpt2", "hf_gpt, nothing shared")]
        cells.append(f"{memory['hf_gpt'] / memory['openai-gpt']:.2f}" if memory else "-")
        cells.append(f"{result['share_of_matmul_rate']:.0%}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the suites, writing after each shape."""
    (args,) = HfArgumentParser(BenchmarkArguments).parse_args_into_dataclasses()
    unknown = [suite for suite in args.suites if suite not in SUITES]
    if unknown:
        sys.exit(f"benchmark.py: unknown suite {unknown[0]}; choose of {', '.join(SUITES)}.")
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {name: shape for suite in args.suites for name, shape in SUITES[suite].items()}
    results: dict[str, dict] = {}
    with tqdm(total=len(shapes) * (args.rounds + 1) * len(CONTENDERS), desc="steps") as bar:
        for name, shape in shapes.items():
            results[name] = measure(shape, args, bar)
            record = {
                "size": args.size,
                "rounds": args.rounds,
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
                "cpus": os.cpu_count(),
                "results": results,
            }
            (folder / "results.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            (folder / "results.md").write_text(table(results) + "\n", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
