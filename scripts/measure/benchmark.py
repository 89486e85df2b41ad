"""
Time this project and its peers on the same work, in one run, and print ratios.

    python scripts/measure/benchmark.py --suites multiple-choice features generate --output_dir outputs/bench
    python scripts/measure/benchmark.py --suites classification --data_dir DATA --output_dir outputs/bench_files

Contenders take turns, so that whatever else the machine does falls on all of them; figures are medians, on a CPU of
processor time, all threads together (`OMP_NUM_THREADS=1` for one). Peers are transformers' own `openai-gpt` and `gpt2`
at the same size, on random batches padded to the longest sequence; ours are batches of rows of like length, as in
fine-tuning; one more contender is our model with every sequence laid out on its own. Training is forward and backward
of the joint loss with dropout, in float32 on a CPU and bfloat16 autocast on a GPU, or as `--dtype` says; `generate`
stays in float32. Where `hf_gpt.use_fast_float32` finds oneDNN's float32 products as exact and faster, ours use them,
as our commands do, and peers take two turns: with torch's default, as users run them, and with the same products.

Writes `results.json`, `results.md` and a figure of the suites `choices` and `context`; the same command resumes a run
that was stopped.

`--data_dir` holds the published files (`openbookqa/`, `commonsenseqa/`, `hellaswag/`, `trec6/`, `snli/`, `imdb/`) and
the release's vocabulary (`gpt_bpe/`); only `multiple-choice-files` and `classification` need it.
"""

import gc
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from contenders import NEW_TOKENS, OURS, PEERS, UNSHARED, build, contenders, logits_difference
from tables import markdown
from tqdm import tqdm
from workloads import SUITES, Files, Workload, make_workload, padding_share, useful_flops

from hf_gpt import use_fast_float32
from hf_gpt.analysis.figures import check_libraries, new_figure
from hf_gpt.commands import command, parse_arguments
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.files import check_settings, flag, read_json, write_json, write_text
from hf_gpt.trees.token_tree import TokenTree

SIZES = {
    "gpt1": {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 512},
    "mini": {"n_embd": 192, "n_layer": 5, "n_head": 3, "n_positions": 512},
    "tiny": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512},
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# What the figure shows, by suite.
SWEEPS = {"choices": "choices of a row", "context": "tokens of context that 4 choices share"}
HEADER = [
    "work",
    OURS,
    *PEERS,
    "nothing shared",
    "memory",
    "padding, ours and theirs",
    "product rate",
    "logits differ",
]


@dataclass
class BenchmarkArguments:
    """What to time."""

    output_dir: str = flag(help="Folder of results.json and results.md.")
    suites: list[str] = flag(["multiple-choice"], ", ".join(SUITES))
    data_dir: str | None = flag(None, "Folder of the data sets' folders.")
    size: str = flag("gpt1", "Size of all models.", SIZES)
    rounds: int = flag(3, "Timed turns of each contender.")
    seed: int = flag(0, "Of rows and weights.")
    memory: bool = flag(True, "Measure peak memory, each contender in its own process.")
    device: str = flag("cuda" if torch.cuda.is_available() else "cpu", "Where to run: cpu or cuda.")
    dtype: str | None = flag(None, "Of products: float32, or bfloat16 by autocast (by default on a GPU).", DTYPES)

    def __post_init__(self) -> None:
        self.dtype = self.dtype or ("bfloat16" if self.device == "cuda" else "float32")
        unknown = [suite for suite in self.suites if suite not in SUITES]
        if unknown:
            raise ValueError(f"unknown suite {unknown[0]}; choose of {', '.join(SUITES)}.")
        if self.rounds < 1:
            raise ValueError(f"--rounds must be at least 1, not {self.rounds}.")
        sources = [source for suite in self.suites for source in SUITES[suite].values() if isinstance(source, Files)]
        for folder in [*(source.folder for source in sources), "gpt_bpe"] if sources else []:
            if self.data_dir is None:
                raise ValueError(f"{folder} is read from files: give the folder it is in with --data_dir.")
            if not (Path(self.data_dir) / folder).is_dir():
                raise ValueError(f"{self.data_dir} has no folder {folder}.")
        if {*SWEEPS} & set(self.suites):
            check_libraries()


def settings(args: BenchmarkArguments) -> dict[str, Any]:
    """What must be the same for results to stand in one file."""
    return {
        "size": args.size,
        "rounds": args.rounds,
        "seed": args.seed,
        "device": torch.cuda.get_device_name() if args.device == "cuda" else torch.cpu.get_capabilities()["cpu_name"],
        "dtype": args.dtype,
        "clock": "wall" if args.device == "cuda" else "processor",
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


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


def product_rate(workload: Workload, width: int, device: torch.device, dtype: torch.dtype) -> float:
    """
    Floating-point operations per second of the model's own matrix products and nothing else: forward and both
    gradients of a block's four layers at the tokens of a batch, repeated for about as many operations as a block
    does in a turn.
    """
    tokens = max(sum(len(TokenTree.from_paths(row)) for row in batch) for batch in workload.grouped)
    seconds = operations = 0.0
    for inputs, outputs in [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]:
        states = torch.randn(tokens, inputs, device=device, dtype=dtype)
        weight = torch.randn(outputs, inputs, device=device, dtype=dtype)
        gradient = torch.randn(tokens, outputs, device=device, dtype=dtype)

        def products(states=states, weight=weight, gradient=gradient) -> None:
            torch.mm(states, weight.t())
            torch.mm(gradient, weight)
            torch.mm(gradient.t(), states)

        products()
        seconds += sum(timed(products, device) for _ in range(4))
        operations += 4 * 3 * 2 * tokens * inputs * outputs
    return operations / seconds


def peak_memory(name: str, workload: Workload, size: dict, device: torch.device, dtype: torch.dtype) -> int:
    """By how much the first turn of a contender raises the peak memory of this process (bytes)."""
    turn = build(name, workload, size, device, dtype)
    gc.collect()
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        turn()
        return torch.cuda.max_memory_allocated() - before
    before = _resident("VmRSS")
    turn()
    return _resident("VmHWM") - before


def _resident(entry: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(entry))


def take_turns(
    workload: Workload, args: BenchmarkArguments, names: Sequence[str], fast: bool
) -> tuple[dict[str, list[float]], dict[str, list[float]], list[float]]:
    """
    Seconds of every contender's turns as it is used; of peers' turns with fast products, where ours have them; and the
    machine's rate of products, the better one of a round.
    """
    size, device, dtype = SIZES[args.size], torch.device(args.device), DTYPES[args.dtype]
    torch.manual_seed(0)
    turns = {name: build(name, workload, size, device, dtype) for name in names}
    times, fast_times, rates = {name: [] for name in names}, {name: [] for name in PEERS if fast}, []
    for number in tqdm(range(args.rounds + 1), desc=workload.name, unit="round"):
        for name, turn in turns.items():
            for is_fast in [False, True] if name in fast_times else [fast]:
                use_fast_float32(is_fast)
                if number == 0:  # warms up, with one batch
                    timed(turn, device, 1)
                else:
                    (fast_times if is_fast and name in PEERS else times)[name].append(timed(turn, device))
        found = []
        for is_fast in {False, fast}:
            use_fast_float32(is_fast)
            found.append(product_rate(workload, size["n_embd"], device, dtype))
        rates.append(max(found))
    return times, fast_times, rates


def measure(workload: Workload, args: BenchmarkArguments) -> dict[str, Any]:
    """Times of every contender in turns, with the machine's rate and what else tables say of a workload."""
    size, device, dtype = SIZES[args.size], torch.device(args.device), DTYPES[args.dtype]
    names = contenders(workload, device.type)
    # Decoding has packed models for it.
    fast = device.type == "cpu" and workload.suite != "generate" and use_fast_float32()
    times, fast_times, rates = take_turns(workload, args, names, fast)
    medians = {name: statistics.median(values) for name, values in times.items()}
    trains = workload.suite not in ("features", "generate")
    result = {
        "suite": workload.suite,
        "seconds": times,
        "median_seconds": medians,
        "rows": len(workload.rows),
        "tokens": sum(len(TokenTree.from_paths(row)) for row in workload.rows),
        "ratio": {name: value / medians[OURS] for name, value in medians.items()},
        "fast_float32": fast,
        "seconds_fast": fast_times,
        "ratio_fast": {name: statistics.median(each) / medians[OURS] for name, each in fast_times.items()},
        "padding": {
            "hf_gpt": padding_share(workload.grouped, as_trees=True),
            "peers": padding_share(workload.shuffled, as_trees=False),
        },
    }
    if workload.suite != "generate":  # there, products of single tokens say little
        flops = useful_flops(workload.rows, size, predicts=trains, passes=3 if trains else 1)
        result |= {"useful_flops": flops, "product_rate": statistics.median(rates)}
        result["share_of_product_rate"] = flops / medians[OURS] / result["product_rate"]
    if trains and workload.suite != "pretrain":
        result["logits_difference"] = logits_difference(workload, size)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["contenders"])  # torch is imported once for all
    for name in names if args.memory else ():  # each in a new process, where nothing has used memory yet
        with ProcessPoolExecutor(1, context) as own_process:
            peak = own_process.submit(peak_memory, name, workload, size, device, dtype).result()
        result.setdefault("peak_memory", {})[name] = peak
    return result


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """
    A Markdown table, one workload a row: our median time of a turn, how many times as long the others took (as they
    are used, and with fast products like ours), our peak memory as a share of openai-gpt's, and our share of the rate
    of the model's own matrix products; of decoding its own table.
    """
    decoded = {name: result for name, result in results.items() if result["suite"] == "generate"}
    rows = []
    for name, result in results.items():
        if name in decoded:
            continue
        kinds = (result["ratio"], result.get("ratio_fast", {}))
        ratios = [", ".join(f"{kind[who]:.2f} x" for kind in kinds if who in kind) for who in (*PEERS, UNSHARED)]
        memory, rate = result.get("peak_memory"), result.get("share_of_product_rate")
        rows.append([name, f"{result['median_seconds'][OURS]:.2f} s", *(ratio or "-" for ratio in ratios)])
        rows[-1].append(f"{memory[OURS] / memory['openai-gpt']:.2f}" if memory else "-")
        rows[-1].append("{hf_gpt:.1%}, {peers:.1%}".format(**result["padding"]))
        rows[-1].append("-" if rate is None else f"{rate:.0%}")
        rows[-1].append(f"{result['logits_difference']:.0e}" if "logits_difference" in result else "-")
    tables = ([markdown(HEADER, rows)] if rows else []) + ([decoding_table(decoded)] if decoded else [])
    return "\n\n".join(tables)


def decoding_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table of decoding: tokens a second of every contender, and how many times those of gpt2 that is."""
    names, rows = [*dict.fromkeys(name for result in results.values() for name in result["median_seconds"])], []
    for work, result in results.items():
        rates = {name: result["rows"] * NEW_TOKENS / seconds for name, seconds in result["median_seconds"].items()}
        rows.append([work, *(f"{rates[name]:.1f} ({rates[name] / rates['gpt2']:.2f} x)" for name in names)])
    return markdown(["tokens a second (of gpt2's)", *names], rows)


def plot_sweeps(results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw cost against the number of choices and the length of the context, ours and the peers', as a PNG."""
    present = [suite for suite in SWEEPS if any(result["suite"] == suite for result in results.values())]
    figure = new_figure(5.5 * len(present), 4)
    for axes, suite in zip(figure.subplots(1, len(present), squeeze=False)[0], present, strict=True):
        swept = {name: result["median_seconds"] for name, result in results.items() if result["suite"] == suite}
        values = [int("".join(filter(str.isdigit, name))) for name in swept]
        for who in (OURS, *PEERS):
            axes.plot(values, [seconds[who] for seconds in swept.values()], marker="o", label=who)
        axes.set(xlabel=SWEEPS[suite], ylabel="seconds of a training step, one row", ylim=(0, None))
        axes.set_xticks(values)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


@command(resume="The same command resumes it.")
def main() -> None:
    """Run the suites, writing after each workload; results of other settings are not mixed with these."""
    (args,) = parse_arguments((BenchmarkArguments,), description=__doc__)
    folder, record = Path(args.output_dir), settings(args)
    found = read_json(folder / "results.json") if (folder / "results.json").is_file() else record | {"results": {}}
    results = found.pop("results")
    check_settings(folder, found, record)
    folder.mkdir(parents=True, exist_ok=True)
    data_dir = Path(args.data_dir) if args.data_dir else None
    tokenizer = release_tokenizer(data_dir / "gpt_bpe") if data_dir else None
    for name, suite in [(name, asked) for asked in args.suites for name in SUITES[asked]]:
        if name not in results:
            results[name] = measure(make_workload(name, suite, args.seed, data_dir, tokenizer), args)
            write_json(folder / "results.json", {**record, "results": results})
            write_text(folder / "results.md", table(results) + "\n")
    print(table(results))
    if {*SWEEPS} & {result["suite"] for result in results.values()}:
        plot_sweeps(results, folder / "sweeps.png")


if __name__ == "__main__":
    main()
