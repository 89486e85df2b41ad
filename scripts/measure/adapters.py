r"""
Compare ways of adapting a model to a task: the metric against trained parameters, time and bytes on disk.

    python scripts/measure/adapters.py --task questions --output_dir outputs/adapters
    python scripts/measure/adapters.py --task trec stories --data_dir trec=path/to/trec --methods full lora prefix \
        --learning_rate lora=1e-3 --output_dir outputs/adapters

Every method trains with the same seeds, rows and steps, and with a learning rate of its own (`LEARNING_RATES`, for
gpt-mini; `--learning_rate` overrides). A finished run is not repeated, so the command goes on where it was stopped,
and more seeds, methods and tasks may join later. Writes `results.json`, `results.md` and `results.png` after every
run.

The bytes are those that a task adds to the base model: an adapter's files with the head of the task; for `full` the
whole model; for `frozen-*` the trained parameters alone, although their runs save a whole model. Whole models are
deleted once they are measured, adapters are kept. Seconds are given twice: those of training, and those of the whole
run with reading, tokenizing and evaluation, where `frozen-*` runs the model once to compute its features.
"""

import copy
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from benchmarking.report import spread
from tqdm import tqdm

from hf_gpt.adapters import METHODS as ADAPTERS
from hf_gpt.adapters import adapter_config
from hf_gpt.analysis.pictures import check_matplotlib, new_figure, write_picture
from hf_gpt.commands import command, parse_arguments
from hf_gpt.files import check_empty, check_settings, write_json, write_text
from hf_gpt.files.flags import flag
from hf_gpt.files.reading import read_json
from hf_gpt.loading import load_tokenizer, open_source
from hf_gpt.model.configuration_gpt import GPTConfig
from hf_gpt.tasks.spec import TaskSpec
from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments
from hf_gpt.training.fine_tuning import run
from hf_gpt.training.loading import head_class
from hf_gpt.training.output import ADAPTER_FILES, MODEL_FILES
from hf_gpt.training.rows import input_transform, load_task_data

METHODS = {
    "full": ["--adaptation", "full"],
    "frozen-last": ["--adaptation", "frozen", "--layers", "last"],
    "frozen-mix": ["--adaptation", "frozen", "--layers", "mix"],
    "lora": ["--adaptation", "lora"],
    "dora": ["--adaptation", "lora", "--use_dora", "true"],
} | {name: ["--adaptation", name] for name in ADAPTERS if name != "lora"}
LEARNING_RATES = {
    "full": 5e-4,
    "frozen-last": 1e-2,
    "frozen-mix": 1e-2,
    "lora": 3e-3,
    "dora": 3e-3,
    "ia3": 1e-2,
    "prefix": 1e-2,
    "prompt": 3e-2,
    "houlsby": 3e-3,
    "bitfit": 1e-2,
    "ln": 1e-2,
}
# The same for all. Nothing is saved or evaluated on the way, so that the seconds are those of training alone.
COMMON = {
    "per_device_train_batch_size": 16,
    "save_strategy": "no",
    "eval_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "overwrite_output_dir": True,
}
SETTINGS, RUN = "settings.json", "run.json"
ARGUMENTS = (ModelArguments, DataArguments, FineTuningArguments)


@dataclass
class SweepArguments:
    """What to compare."""

    task: list[str] = flag(help="One task or several, each with a table of its own.")
    output_dir: str = flag(help="Folder of the runs and the results.")
    model: str = flag("model_cards/gpt-mini", "The pretrained model: folder or Hub id.")
    data_dir: list[str] | None = flag(None, "Folder of the published files; of several tasks, TASK=FOLDER for each.")
    methods: list[str] = flag(list(METHODS), f"These only; of: {', '.join(METHODS)}.")
    seeds: int = flag(3, "Runs of each method.")
    epochs: float = flag(3.0, "Passes over the training rows.")
    rows: int | None = flag(None, "Rows that are trained on at most, and evaluated on.")
    max_length: int = flag(256, "Tokens of a sequence at most.")
    learning_rate: list[str] | None = flag(None, "METHOD=RATE for each method whose learning rate is to be another.")


def pairs(flag: str, values: list[str] | None, names: list[str], kind: str) -> dict[str, str]:
    """
    `NAME=VALUE` arguments as a dictionary.

    Raises:
        ValueError: for a value without a name, or a name that is not among `names`.
    """
    found = {}
    for value in values or ():
        name, separator, rest = value.partition("=")
        if not (separator and rest):
            raise ValueError(f"--{flag} {value}: write {kind.upper()}=VALUE.")
        if name not in names:
            raise ValueError(f"--{flag} {value}: {name!r} is no {kind} here; choose of {', '.join(names)}.")
        found[name] = rest
    return found


def chosen_rates(args: SweepArguments) -> dict[str, float]:
    """
    The learning rate of every method.

    Raises:
        ValueError: for an unknown method, or a rate that is no positive number.
    """
    rates = dict(LEARNING_RATES)
    for name, text in pairs("learning_rate", args.learning_rate, list(METHODS), "method").items():
        try:
            rates[name] = float(text)
        except ValueError:
            rates[name] = 0.0
        if not 0 < rates[name] < float("inf"):
            raise ValueError(f"--learning_rate {name}={text}: a learning rate is a positive number.")
    return rates


def chosen_folders(args: SweepArguments) -> dict[str, str]:
    """
    The data folder of every task that has one.

    Raises:
        ValueError: for a name that is no task of this sweep.
    """
    if args.data_dir and len(args.task) == len(args.data_dir) == 1 and "=" not in args.data_dir[0]:
        return {args.task[0]: args.data_dir[0]}
    return pairs("data_dir", args.data_dir, args.task, "task")


def check(args: SweepArguments) -> dict[str, int]:
    """
    Make sure that every run can start, as far as that can be told without training.

    Returns:
        `dict`: for every task, the number of parameters of the model with its head.

    Raises:
        ValueError, FileNotFoundError: for anything that is wrong.
    """
    for name, value in (("seeds", args.seeds), ("rows", args.rows), ("max_length", args.max_length)):
        if value is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, not {value}.")
    if args.epochs <= 0:
        raise ValueError(f"--epochs must be more than 0, not {args.epochs}.")
    unknown = [name for name in args.methods if name not in METHODS]
    if unknown:
        raise ValueError(f"Unknown method {unknown[0]!r}; choose of {', '.join(METHODS)}.")
    check_matplotlib()
    chosen_rates(args)
    folders = chosen_folders(args)
    config = model_config(args.model)
    load_tokenizer(ModelArguments(args.model))
    reserved = 0
    for name in set(args.methods) & set(ADAPTERS):
        reserved = max(reserved, getattr(adapter_config(name, config), "num_virtual_tokens", 0))
    sizes = {}
    for name in args.task:
        data = DataArguments(task=name, data_dir=folders.get(name), max_length=args.max_length)
        spec = load_task_data(data).spec
        input_transform(data, spec, config, reserved)
        sizes[name] = whole_size(config, spec)
    return sizes


def model_config(name: str) -> GPTConfig:
    """
    The configuration of the base model.

    Raises:
        ValueError: if there is no such model, or it is none of ours.
    """
    try:
        return open_source(name).config()
    except (OSError, ValueError) as error:
        raise ValueError(f"--model {name}: no model could be loaded ({error}).") from error


def whole_size(config: GPTConfig, spec: TaskSpec) -> int:
    """The number of parameters of a model with the head of a task."""
    config = copy.deepcopy(config)
    if spec.num_labels is not None:
        config.num_labels = spec.num_labels
    with torch.device("meta"):
        return head_class(spec)(config).num_parameters()


def open_folder(args: SweepArguments) -> Path:
    """
    The output folder, made or found with runs of the same settings.

    Raises:
        ValueError: if it holds anything else.
    """
    folder = Path(args.output_dir)
    settings = {"model": args.model, "epochs": float(args.epochs), "rows": args.rows, "max_length": args.max_length}
    settings |= {"learning_rates": chosen_rates(args), "common": COMMON, "data_dirs": chosen_folders(args)}
    file = folder / SETTINGS
    if file.is_file():
        earlier = read_json(file)
        # Tasks may join.
        settings["data_dirs"] = earlier["data_dirs"] | settings["data_dirs"]
        joined = settings["data_dirs"].keys() - earlier["data_dirs"].keys()
        earlier["data_dirs"] |= {task: settings["data_dirs"][task] for task in joined}
        check_settings(folder, earlier, settings)
    else:
        check_empty(folder, remedy="It holds something else than runs of this script: name another --output_dir.")
    write_json(file, settings)
    return folder


def one_run(task: str, method: str, seed: int, args: SweepArguments, size: int) -> None:
    """Train once and write `run.json` last: where it is, the run is finished."""
    output = Path(args.output_dir) / f"{task}-{method}-{seed}"
    rate = chosen_rates(args)[method]
    flags = {
        "task": task,
        "data_dir": chosen_folders(args).get(task),
        "model_name_or_path": args.model,
        "max_train_rows": args.rows,
        "max_eval_rows": args.rows,
        "max_length": args.max_length,
        "num_train_epochs": args.epochs,
        "learning_rate": rate,
        "seed": seed,
        "output_dir": output,
    }
    given = {name: value for name, value in (flags | COMMON).items() if value is not None}
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    started = time.perf_counter()
    record = run(*parse_arguments(ARGUMENTS, [*words, *METHODS[method]]))
    seconds = time.perf_counter() - started
    metric = record["main_metric"]
    # Some sets are published without the labels of their test part.
    split = "test" if metric in record["metrics"].get("test", {}) else "validation"
    kept = {
        "task": task,
        "method": method,
        "seed": seed,
        "learning_rate": rate,
        "metric": metric,
        "split": split,
        "score": record["metrics"][split][metric],
        "chance": record["chance"],
        "rows": record["rows"],
        "trained_parameters": record["trained_parameters"],
        "share": record["trained_parameters"] / size,
        "train_seconds": record["train_seconds"],
        "run_seconds": seconds,
        "bytes": bytes_to_keep(method, output, record["trained_parameters"]),
    }
    (output / "model.safetensors").unlink(missing_ok=True)
    write_json(output / RUN, kept)


def bytes_to_keep(method: str, output: Path, trained_parameters: int) -> int:
    """What a task adds to the base model on disk; see the beginning of this file."""
    if method.startswith("frozen"):
        return 4 * trained_parameters
    names = MODEL_FILES if method == "full" else ADAPTER_FILES
    return sum((output / name).stat().st_size for name in names if (output / name).is_file())


def collect(folder: Path) -> dict[str, Any]:
    """
    Results of all finished runs in a folder.

    Returns:
        `dict`: for every task what its runs share, and under `methods` for every method the scores by seed, their
        median, lowest and highest, trained parameters, seconds and bytes.
    """
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"*/{RUN}"))]
    order = list(METHODS)
    results: dict[str, Any] = {}
    for each in sorted(runs, key=lambda each: (each["task"], order.index(each["method"]), each["seed"])):
        shared = {name: each[name] for name in ("metric", "split", "chance", "rows")}
        methods = results.setdefault(each["task"], shared | {"methods": {}})["methods"]
        own = {name: each[name] for name in ("learning_rate", "trained_parameters", "share", "bytes")}
        method = methods.setdefault(each["method"], own | {"scores": {}, "train_seconds": {}, "run_seconds": {}})
        method["scores"][str(each["seed"])] = each["score"]
        for name in ("train_seconds", "run_seconds"):
            method[name][str(each["seed"])] = each[name]
    for task in results.values():
        for method in task["methods"].values():
            scores = list(method["scores"].values())
            method |= {"median": statistics.median(scores), "lowest": min(scores), "highest": max(scores)}
            for name in ("train_seconds", "run_seconds"):
                method[f"median_{name}"] = statistics.median(method[name].values())
    return results


def table(results: dict[str, Any]) -> str:
    """Results as one Markdown table per task."""
    blocks = []
    for task, result in results.items():
        split = result["split"]
        seeds = sorted({int(seed) for method in result["methods"].values() for seed in method["scores"]})
        lines = [
            f"{task}: {result['rows']['train']:,} training rows, {result['rows'][split]:,} {split} rows, "
            f"chance {result['chance']:.3f}, seeds {', '.join(map(str, seeds))}",
            "",
            f"| method | {split} {result['metric']}, median (lowest to highest) | trained parameters | share | "
            "seconds of training | of the run | bytes to keep | learning rate |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for name, method in result["methods"].items():
            score = spread(method["scores"].values())
            if len(method["scores"]) < len(seeds):
                score += f", {len(method['scores'])} of {len(seeds)} seeds"
            lines.append(
                f"| {name} | {score} | {method['trained_parameters']:,} | {method['share']:.2%} | "
                f"{method['median_train_seconds']:.0f} | {method['median_run_seconds']:.0f} | {method['bytes']:,} | "
                f"{method['learning_rate']:g} |"
            )
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def draw(results: dict[str, Any], path: Path) -> None:
    """The metric against trained parameters, a panel per task; bars reach from the lowest to the highest seed."""
    figure = new_figure(6 * len(results), 4.5)
    for axes, (task, result) in zip(figure.subplots(1, len(results), squeeze=False)[0], results.items(), strict=True):
        for name, method in result["methods"].items():
            below, above = method["median"] - method["lowest"], method["highest"] - method["median"]
            at = (method["trained_parameters"], method["median"])
            axes.errorbar(*at, yerr=[[below], [above]], fmt="o", capsize=3)
            axes.annotate(name, at, xytext=(5, 4), textcoords="offset points", fontsize="small")
        if result["chance"]:
            axes.axhline(result["chance"], linestyle="--", color="grey", label="chance")
            axes.legend(loc="best")
        axes.set_xscale("log")
        axes.margins(x=0.15)
        axes.set(xlabel="trained parameters", ylabel=f"{result['split']} {result['metric']}", title=task)
        axes.grid(alpha=0.3)
    write_picture(path, figure, results)


def write_results(folder: Path) -> str:
    """Write what all finished runs of a folder gave; returns the table."""
    results = collect(folder)
    text = table(results)
    write_text(folder / "results.md", text + "\n")
    draw(results, folder / "results.png")
    return text


@command(resume="The same command goes on where it was stopped.")
def main() -> None:
    """Run what is missing, then print the table."""
    (args,) = parse_arguments((SweepArguments,), description=__doc__)
    sizes = check(args)
    folder = open_folder(args)
    # All methods with one seed first: a sweep that is stopped has seen every method.
    jobs = [(task, method, seed) for seed in range(1, args.seeds + 1) for task in args.task for method in args.methods]
    missing = [job for job in jobs if not (folder / "-".join(map(str, job)) / RUN).is_file()]
    if len(missing) < len(jobs):
        print(f"{len(jobs) - len(missing)} of {len(jobs)} runs are finished.", flush=True)
    with tqdm(missing, desc="runs") as progress:
        for task, method, seed in progress:
            progress.set_postfix_str(f"{task} {method} {seed}")
            one_run(task, method, seed, args, sizes[task])
            write_results(folder)
    print(f"\n{write_results(folder)}\n\nresults.json, results.md and the runs are in {folder}")


if __name__ == "__main__":
    main()
