"""
Time this project and its peers on the same work, in one run, and print ratios.

    python scripts/measure/benchmark.py --suites multiple-choice features generate --output_dir outputs/bench
    python scripts/measure/benchmark.py --suites classification --data_dir DATA --output_dir outputs/bench_files
    python scripts/measure/benchmark.py --suites multiple-choice --size mini --output_dir outputs/quick

Contenders take turns, so that whatever else the machine does falls on all of them; figures are medians, on a CPU of
processor time, all threads together (`OMP_NUM_THREADS=1` for one). Peers are
transformers' own `openai-gpt` and `gpt2` at the same size, on random batches padded to the longest sequence; ours are
batches of rows of like length, as in fine-tuning; one more contender is our model with every sequence laid out on its
own. Training is forward and backward of the joint loss with dropout, in float32 on a CPU and bfloat16 autocast on a
GPU, or as `--dtype` says; `generate` stays in float32.
Writes `results.json`, `results.md` and pictures of the suites `choices` and `context`; a run that was stopped is
resumed by the same command.

`--data_dir` holds the published files (`openbookqa/`, `commonsenseqa/`, `hellaswag/`, `trec6/`, `snli/`, `imdb/`), the
release's vocabulary (`gpt_bpe/`); only the suites that read files need it. `decoding` counts what of it are products.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import transformers
from benchmarking.decoding import decoding, decoding_table
from benchmarking.measure import SIZES, measure
from benchmarking.report import SWEEPS, padding_table, plot_sweeps, sweep_growth, table
from benchmarking.workloads import PADDING, SUITES, Files, epoch_padding, make_workload

from hf_gpt.analysis.figures import check_libraries
from hf_gpt.commands import command, parse_arguments
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.files import check_settings, flag, read_json, write_json, write_text

# Suites that are not shapes and files: what they need of --data_dir.
OTHER_SUITES = {
    "padding": [source.folder for source in PADDING.values()],
    "decoding": [],
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass
class BenchmarkArguments:
    """What to time."""

    output_dir: str = flag(help="Folder of results.json and results.md.")
    suites: list[str] = flag(["multiple-choice"], ", ".join([*SUITES, *OTHER_SUITES]))
    data_dir: str | None = flag(None, "Folder of the data sets' folders.")
    size: str = flag("gpt1", "Size of all models.", SIZES)
    rounds: int = flag(3, "Timed turns of each contender.")
    seed: int = flag(0, "Of rows and weights.")
    memory: bool = flag(True, "Measure peak memory, each contender in its own process.")
    device: str = flag("cuda" if torch.cuda.is_available() else "cpu", "Where to run: cpu or cuda.")
    dtype: str | None = flag(
        None, "Of matrix products: float32, or bfloat16 by autocast (by default on a GPU).", DTYPES
    )

    def __post_init__(self) -> None:
        self.dtype = self.dtype or ("bfloat16" if self.device == "cuda" else "float32")


def check(args: BenchmarkArguments) -> None:
    """Stop at wrong arguments before anything is timed."""
    known = [*SUITES, *OTHER_SUITES]
    unknown = [suite for suite in args.suites if suite not in known]
    if unknown:
        raise ValueError(f"unknown suite {unknown[0]}; choose of {', '.join(known)}.")
    if args.rounds < 1:
        raise ValueError(f"--rounds must be at least 1, not {args.rounds}.")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda, but torch sees no GPU.")
    if {*SWEEPS} & set(args.suites):
        check_libraries()
    sources = [source for suite in args.suites for source in SUITES.get(suite, {}).values()]
    folders = [source.folder for source in sources if isinstance(source, Files)]
    folders += [folder for suite in args.suites for folder in OTHER_SUITES.get(suite, ())]
    if folders and args.data_dir is None:
        raise ValueError(f"{folders[0]} is read from files: give the folder it is in with --data_dir.")
    for folder in [*folders, *(["gpt_bpe"] if folders else [])]:
        if not (Path(args.data_dir) / folder).is_dir():
            raise ValueError(f"{args.data_dir} has no folder {folder}.")


def settings(args: BenchmarkArguments) -> dict:
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


def earlier_results(path: Path, record: dict) -> dict:
    """Results of a run that was stopped; those of other settings are not mixed with these."""
    if not path.exists():
        return {}
    found = read_json(path)
    results = found.pop("results")
    check_settings(path.parent, found, record)
    return results


def tables(results: dict) -> list[str]:
    """The Markdown tables of what was measured."""
    decoded = decoding_table(results["decoding"]) if "decoding" in results else ""
    return [text for text in (table(results), padding_table(results), decoded) if text]


def write(folder: Path, record: dict, results: dict) -> None:
    """Replace results.json and results.md."""
    write_json(folder / "results.json", {**record, "results": results})
    write_text(folder / "results.md", "\n\n".join(tables(results)) + "\n")


@command(resume="The same command resumes it.")
def main() -> None:
    """Run the suites, writing after each workload."""
    (args,) = parse_arguments((BenchmarkArguments,), description=__doc__)
    check(args)
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    record = settings(args)
    results = earlier_results(folder / "results.json", record)
    data_dir = tokenizer = None
    if args.data_dir is not None:
        data_dir = Path(args.data_dir)
        tokenizer = release_tokenizer(data_dir / "gpt_bpe")
    device, size = torch.device(args.device), SIZES[args.size]
    for suite in args.suites:
        if suite == "decoding" and suite not in results:
            results[suite] = decoding(size, args.rounds, args.seed, device)
            write(folder, record, results)
        for name, source in PADDING.items() if suite == "padding" else ():
            key = f"{name}, padding"
            if key not in results:
                results[key] = epoch_padding(source, args.seed, data_dir, tokenizer)
                write(folder, record, results)
        for name in SUITES.get(suite, ()):
            if name not in results:
                workload = make_workload(name, suite, args.seed, data_dir, tokenizer)
                workload = replace(workload, dtype=DTYPES[args.dtype])
                results[name] = measure(workload, args.size, args.rounds, args.memory, device)
                write(folder, record, results)
    print((folder / "results.md").read_text(encoding="utf-8"))
    swept = {suite: lines for suite in SWEEPS if (lines := sweep_growth(results, suite))}
    for suite, lines in swept.items():
        print(f"\nCost of a step against that of the line before, {suite}:\n{lines}")
    if swept:
        plot_sweeps(results, folder / "sweeps.png")


if __name__ == "__main__":
    main()
