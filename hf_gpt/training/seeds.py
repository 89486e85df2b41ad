"""The same fine-tuning with several seeds, one after the other: median, range and a picture."""

import copy
import dataclasses
import importlib.util
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from ..cards.base import Card
from ..files import (
    FACTS,
    METRICS,
    OVERWRITE,
    atomic,
    check_empty,
    check_settings,
    in_output_folder,
    read_json,
    write_json,
)
from .arguments import DataArguments, FineTuningArguments, ModelArguments
from .fine_tuning import run

SETTINGS, RESULTS, PLOT = "settings.json", "results.json", "results.png"
# What may differ between two calls that belong to the same runs: where, how they are shown, and on what machine.
_FREE = {"output_dir", "seed", "seeds", "plot", "resume_from_checkpoint", "overwrite_output_dir", "disable_tqdm"}
_FREE |= {"logging_dir", "run_name", "report_to", "log_level", "log_level_replica", "dataloader_num_workers"}
_FREE |= {"metric_for_best_model", "greater_is_better", "local_rank", "num_proc", "logging_nan_inf_filter"}


@in_output_folder
def run_seeds(model_args: ModelArguments, data: DataArguments, args: FineTuningArguments) -> dict[str, Any]:
    """
    Fine-tune with `args.seeds` seeds, counted up from `args.seed`, each in a folder `seed-N` of `args.output_dir`;
    write and return what `results.json` holds (see `summarise`), and with `args.plot` draw `results.png`. The same
    call goes on where an earlier one was stopped: seeds that are finished are not repeated, one that was stopped
    resumes. Wrong input, a folder with runs of other settings, or matplotlib missing for the picture are a
    `ValueError` before anything is trained or overwritten.
    """
    if args.resume_from_checkpoint not in (None, "last"):
        raise ValueError("--seeds goes on by itself where it was stopped: leave out --resume_from_checkpoint.")
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        raise ValueError('results.png needs matplotlib: pip install "hf-gpt[analysis]", or give --plot false.')
    output = Path(args.output_dir)
    settings = _settings(model_args, data, args)
    with args.main_process_first(desc="checking the folder"):
        _check_folder(output, settings, args)
    records = {}
    for seed in range(args.seed, args.seed + args.seeds):
        folder = output / f"seed-{seed}"
        # The first process decides for all: another machine's may see another file system.
        finished = [read_json(folder / METRICS) if (folder / METRICS).is_file() else None]
        broadcast_object_list(finished)
        if finished[0] is not None:
            records[seed] = finished[0]
            continue
        if args.process_index == 0:
            print(f"Seed {seed} ({len(records) + 1} of {args.seeds})", flush=True)
        own = copy.deepcopy(args)
        own.output_dir, own.seed, own.overwrite_output_dir = str(folder), seed, False
        own.resume_from_checkpoint = "last"
        records[seed] = run(model_args, data, own)
    results = summarise(records)
    if args.process_index == 0:
        write_json(output / RESULTS, results)
        for folder in (output / f"seed-{seed}" for seed in records):
            if (folder / FACTS).is_file():  # runs of earlier versions have none
                card = Card.load(folder)
                card.seeds = results
                card.save(folder)
        if args.plot:
            draw(results, output / PLOT)
        print(format_results(results))
        print(f"{RESULTS}{f' and {PLOT}' if args.plot else ''} are in {output}")
    return results


def _settings(model_args: ModelArguments, data: DataArguments, args: FineTuningArguments) -> dict[str, Any]:
    """What has to be the same for runs that differ by their seed alone, as JSON has it."""
    values = dataclasses.asdict(model_args) | dataclasses.asdict(data) | args.to_dict()
    own = {name: value for name, value in values.items() if name not in _FREE}
    return json.loads(json.dumps(own, default=str))


def _check_folder(output: Path, settings: dict[str, Any], args: FineTuningArguments) -> None:
    """Make the folder new runs go into, or make sure that it holds runs of the same settings."""
    file = output / SETTINGS
    if file.is_file() and not args.overwrite_output_dir:
        check_settings(output, read_json(file), settings, OVERWRITE)
        return
    check_empty(output, args.overwrite_output_dir)
    if args.process_index == 0:
        for folder in output.glob("seed-*"):
            # Without this file the seed is not finished, however far the deletion comes.
            (folder / METRICS).unlink(missing_ok=True)
            shutil.rmtree(folder)
        for name in (RESULTS, PLOT):
            (output / name).unlink(missing_ok=True)
        write_json(file, settings)


def summarise(records: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """
    Median and range over seeds of what each run's `metrics.json` holds: `task`, `main_metric`, `chance`, `seeds`, and
    `metrics[split][metric]` with `values`, `median`, `lowest` and `highest`.
    """
    first = next(iter(records.values()))
    metrics: dict[str, dict[str, Any]] = {}
    for split, names in first["metrics"].items():
        for name in names:
            values = [record["metrics"][split][name] for record in records.values()]
            metrics.setdefault(split, {})[name] = {
                "values": values,
                "median": statistics.median(values),
                "lowest": min(values),
                "highest": max(values),
            }
    kept = {name: first[name] for name in ("task", "main_metric", "chance", "rows", "model", "random_weights")}
    return {**kept, "seeds": list(records), "metrics": metrics}


def format_results(results: dict[str, Any]) -> str:
    """Results as a table."""
    lines = [f"| {results['task']} | median | range | seeds {', '.join(map(str, results['seeds']))} |"]
    lines.append("|---|---|---|---|")
    for split, metrics in results["metrics"].items():
        for name, value in metrics.items():
            each = ", ".join(f"{number:.4f}" for number in value["values"])
            spread = f"{value['lowest']:.4f} to {value['highest']:.4f}"
            lines.append(f"| {split} {name} | {value['median']:.4f} | {spread} | {each} |")
    return "\n".join(lines)


def draw(results: dict[str, Any], path: Path) -> None:
    """A picture of the main metric: one point per seed and split, the median as a bar, chance as a dashed line."""
    # Figure alone needs no display and leaves pyplot's global state be.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 3.2), layout="constrained")
    axes = figure.subplots()
    name = results["main_metric"]
    splits = [split for split, metrics in results["metrics"].items() if name in metrics]
    for place, split in enumerate(splits):
        value = results["metrics"][split][name]
        count = len(value["values"])
        # Side by side, so that equal values do not hide each other.
        offsets = [0.3 * (index / (count - 1) - 0.5) if count > 1 else 0.0 for index in range(count)]
        axes.plot([place + offset for offset in offsets], value["values"], "o", alpha=0.7)
        axes.hlines(value["median"], place - 0.25, place + 0.25, colors="black")
        axes.annotate(f"{value['median']:.3f}", (place + 0.27, value["median"]), va="center")
    if results["chance"]:
        axes.axhline(results["chance"], linestyle="--", color="grey", label="chance")
        axes.legend(loc="best")
    axes.set_xticks(range(len(splits)), splits)
    axes.set_xlim(-0.6, len(splits) - 0.4)
    axes.set_ylabel(name)
    axes.set_title(f"{results['task']}, {len(results['seeds'])} seeds, median as a bar")
    with atomic(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
