r"""
Measure what pretraining and ways of training give on the tasks, as a table and, of the last three studies, a picture.

    python scripts/measure/tasks.py --data_dir path/to/data --output_dir outputs/measure
    python scripts/measure/tasks.py --tasks questions stories "stories, endings only" --output_dir outputs/measure
    python scripts/measure/tasks.py --study layers --tasks mnli questions codah --data_dir path/to/data \
        --output_dir outputs/layers

The columns of a study are fine-tuned alike from

    weights     the pretrained weights, the same without the auxiliary language model, and random weights
    models      the models that --models names
    together    the pretrained weights, on each task alone, and on all of them together with a head each
    rows        pretrained weights, the same frozen, and random weights; each task with several numbers of rows up to
                `--rows`, which may be more than a task has: all
    layers      the lowest 0, 1, 2, ... blocks of the pretrained weights, the rest drawn anew (figure 2 of the paper)
    adapters    the pretrained weights, by every way of training: whole, frozen (the features of the last layer or a
                mixture of all) and with adapters; with the trained parameters and the seconds

Each cell tries every learning rate with its first seed, and keeps the one that is best on the validation rows; the
other seeds train with that. Seconds are those of this process's processor for a whole run, with reading, features and
evaluation. Beside them stands a baseline without any transformer, a linear model of words or, for
tagging, the most frequent tag of each word (`benchmarking/baselines.py`). `--data_dir` holds the published files, a
folder for each set (`trec6/`, `sst2/`, ...); tasks whose folder is missing are left out, and named. A finished run is
not repeated, so the command goes on where it was stopped. With `--text_file` the perplexity of the language model in
each fine-tuned model is measured there, too: what fine-tuning made it forget. Writes `results.json` and `results.md`,
after every run, and `results.png`.
"""

import json
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarking import baselines
from benchmarking.report import spread
from tqdm import tqdm

from hf_gpt.adapters import METHODS as ADAPTERS
from hf_gpt.analysis.figures import check_libraries, new_figure, write_figure
from hf_gpt.commands import command, parse_arguments, perplexity
from hf_gpt.files import check_settings, flag, read_json, write_json, write_text
from hf_gpt.model.configuration_gpt import GPTConfig
from hf_gpt.tasks.catalogue import BUNDLED_DATA
from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments
from hf_gpt.training.finetune import run
from hf_gpt.training.rows import load_task_data

ENDINGS_ONLY = "stories, endings only"
# Task -> folder under --data_dir; None for data that the repository carries.
FOLDERS = {
    "questions": None,
    "stories": None,
    ENDINGS_ONLY: None,
    "trec": "trec6",
    "sst2": "sst2",
    "cola": "cola",
    "stsb": "stsb",
    "rte": "rte",
    "qnli": "qnli",
    "snli": "snli",
    "mnli": "mnli",
    "scitail": "scitail",
    "imdb": "imdb",
    "openbookqa": "openbookqa",
    "commonsenseqa": "commonsenseqa",
    "hellaswag": "hellaswag",
    "codah": "codah",
    "copa": "copa",
    "ud_pos": "ud_english_ewt",
}
STUDIES = ("weights", "models", "together", "rows", "layers", "adapters")
DRAWN = STUDIES[3:]
RANDOM, TOGETHER = "random weights", "together"
# What a finished run measured, written last; of the language model before any run.
RUN, PERPLEXITY, TOKEN = "run.json", "perplexity.json", "perplexity_per_token"
ADAPTED = "--adaptation"
FROZEN = [ADAPTED, "frozen"]
METHODS = {"full": [], "frozen": FROZEN, "frozen, mixed layers": [*FROZEN, "--layers", "mix"]}
METHODS |= {name: [ADAPTED, name] for name in ADAPTERS} | {"dora": [ADAPTED, "lora", "--use_dora", "true"]}
FEWER_ROWS = (50, 200, 800, 3200)
# The same for all.
COMMON = {
    "num_train_epochs": "3",
    "per_device_train_batch_size": "16",
    "save_strategy": "no",
    "eval_strategy": "no",
    "disable_tqdm": "true",
    "overwrite_output_dir": "true",
}
KINDS = (ModelArguments, DataArguments, FineTuningArguments)


@dataclass
class MeasureArguments:
    """What to run."""

    output_dir: str = flag(help="Folder of the runs, results.json and results.md.")
    study: str = flag("weights", "What the columns are.", STUDIES)
    model: str = flag("model_cards/gpt-mini", "The pretrained model.")
    models: list[str] | None = flag(None, "NAME=FOLDER of each column of `models`.")
    data_dir: str | None = flag(None, "Folder of the data sets' folders.")
    tasks: list[str] | None = flag(None, f"These only; of: {', '.join(FOLDERS)}.")
    seeds: int = flag(3, "Runs of each cell.")
    learning_rates: list[float] = flag([5e-4, 1e-3, 2e-3], "Rates of which a cell keeps one.")
    frozen_rates: list[float] = flag([3e-3, 1e-2, 3e-2], "The same where a head or an adapter is trained alone.")
    rows: int = flag(2000, "Rows that are trained on at most.")
    eval_rows: int = flag(1000, "Rows of a split that are evaluated on at most.")
    max_length: int = flag(256, "Tokens of a sequence at most.")
    text_file: str | None = flag(None, "Text on which the language models are measured before and after.")
    bf16: bool = flag(False, "Train under bfloat16 autocast.")
    report_only: bool = flag(False, "Train nothing: the table of what is finished.")


@dataclass(frozen=True)
class Line:
    """One line of the table: a task, and how many of its rows are trained on."""

    task: str
    rows: int
    name: str


def columns(args: MeasureArguments) -> dict[str, list[str]]:
    """Flags of `finetune.py` for each column."""
    pretrained, random = ["--model_name_or_path", args.model], ["--random_weights", "true"]
    if args.study == "models":
        named = [text.partition("=") for text in args.models or ()]
        if not named or not all(name and folder for name, _, folder in named):
            raise ValueError("--study models wants its columns as --models NAME=FOLDER NAME=FOLDER.")
        return {name: ["--model_name_or_path", folder] for name, _, folder in named}
    if args.study == "layers":
        layers = range(GPTConfig.from_pretrained(args.model).n_layer + 1)
        return {f"blocks {kept}": [*pretrained, "--transfer_layers", str(kept)] for kept in layers}
    if args.study == "rows":
        return {"pretrained": pretrained, "frozen": [*pretrained, *FROZEN], RANDOM: [*pretrained, *random]}
    if args.study == "adapters":
        return {name: [*pretrained, *flags] for name, flags in METHODS.items()}
    if args.study == "together":
        return {"alone": pretrained, TOGETHER: pretrained}
    without = [*pretrained, "--lm_coef", "0"]
    return {"pretrained": pretrained, "no auxiliary loss": without, RANDOM: [*pretrained, *random]}


def lines(args: MeasureArguments) -> list[Line]:
    """The lines of the tasks whose data is there; stops at names that do not exist."""
    unknown = [name for name in args.tasks or () if name not in FOLDERS]
    if unknown:
        raise ValueError(f"unknown task {unknown[0]}; choose of {', '.join(FOLDERS)}.")
    if not (Path(args.model) / "config.json").is_file():
        raise ValueError(f"--model {args.model} is no model's folder.")
    found, missing = [], []
    for name in args.tasks or FOLDERS:
        folder = FOLDERS[name]
        there = folder is None or (args.data_dir is not None and (Path(args.data_dir) / folder).is_dir())
        (found if there else missing).append(name)
    if args.study == "together" and (len(found) < 2 or ENDINGS_ONLY in found):
        raise ValueError(f"--study together wants two tasks or more, and not the {ENDINGS_ONLY}.")
    if missing:
        print(f"No data for {', '.join(missing)}: left out.", file=sys.stderr)
    if args.study == "rows":
        numbers = [*(rows for rows in FEWER_ROWS if 2 * rows <= args.rows), args.rows]
        return [Line(name, rows, f"{name}, {rows} rows") for name in found for rows in numbers]
    return [Line(name, args.rows, name) for name in found]


def endings_only(folder: Path) -> list[str]:
    """Flags of a custom task whose context says nothing: the two endings of each story stand alone."""
    rows = [json.loads(line) for line in (BUNDLED_DATA / "stories.jsonl").read_text(encoding="utf-8").splitlines()]
    flags = ["--task", "custom", "--task_family", "multiple-choice", "--context_column", "context"]
    flags += ["--choice_columns", "ending1", "ending2"]
    for split in ("train", "validation", "test"):
        kept = [{**row, "context": "."} for row in rows if row["split"] == split]
        write_text(folder / f"endings_{split}.jsonl", "".join(json.dumps(row) + "\n" for row in kept))
        flags += [f"--{split}_file", str(folder / f"endings_{split}.jsonl")]
    return flags


def task_flags(line: Line, args: MeasureArguments) -> list[str]:
    """Flags of `finetune.py` that name a line's task and its data."""
    if line.task == ENDINGS_ONLY:
        return endings_only(Path(args.output_dir))
    folder = FOLDERS[line.task]
    return ["--task", line.task] + (["--data_dir", str(Path(args.data_dir) / folder)] if folder else [])


def flags_together(args: MeasureArguments) -> list[str]:
    """The same of all tasks together."""
    tasks = [line.task for line in lines(args)]
    folders = [f"{task}={Path(args.data_dir) / FOLDERS[task]}" for task in tasks if FOLDERS[task]]
    return ["--tasks", *tasks] + (["--data_dirs", *folders] if folders else [])


def flags_of(line: Line, args: MeasureArguments) -> list[str]:
    """Flags of `finetune.py` that a line's runs have in common, apart from their tasks."""
    flags = ["--max_train_rows", str(line.rows), "--max_eval_rows", str(args.eval_rows)]
    flags += ["--max_length", str(args.max_length), "--bf16", str(args.bf16).lower()]
    return flags + [part for name, value in COMMON.items() for part in (f"--{name}", value)]


def run_folder(line: Line, column: str, rate: float, seed: int, args: MeasureArguments) -> Path:
    """Where a run's results are."""
    tasks = "" if column == TOGETHER else f"{line.name} "
    return Path(args.output_dir) / re.sub(r"[ ,]+", "-", f"{tasks}{column} {rate:g} {seed}")


def one_run(line: Line, column: str, rate: float, seed: int, args: MeasureArguments) -> dict[str, Any] | None:
    """What one fine-tuning run measured of a task, now or earlier; `None` with `report_only`."""
    output = run_folder(line, column, rate, seed, args)
    if not (output / RUN).is_file():
        if args.report_only:
            return None
        own = ["--learning_rate", str(rate), "--seed", str(seed), "--output_dir", str(output)]
        write_json(output / RUN, train(line, column, own, args))
    record = read_json(output / RUN)
    return record["tasks"][line.task] if column == TOGETHER else record


def train(line: Line, column: str, own: list[str], args: MeasureArguments) -> dict[str, Any]:
    """Train and measure; the weights are not kept."""
    tasks = flags_together(args) if column == TOGETHER else task_flags(line, args)
    start = time.process_time()
    record = run(*parse_arguments(KINDS, [*tasks, *flags_of(line, args), *columns(args)[column], *own]))
    record["seconds"] = time.process_time() - start
    output = Path(own[-1])
    if args.text_file and column not in (RANDOM, TOGETHER):
        record[TOKEN] = token_perplexity(str(output), args.text_file)
    for file in output.rglob("model.safetensors"):
        file.unlink()
    return record


def token_perplexity(model: str, file: str) -> float:
    """The perplexity a token of the language model in a folder, on a text."""
    return perplexity.measure(perplexity.PerplexityArguments(model_name_or_path=model, file=[file]))[TOKEN]


def baseline(line: Line, args: MeasureArguments) -> float:
    """What the baseline scores on the rows that the runs are measured on."""
    flags = [*task_flags(line, args), *flags_of(line, args), "--output_dir", args.output_dir]
    _, data, _ = parse_arguments(KINDS, flags)
    return baselines.score(load_task_data(data), line.rows, args.eval_rows)


def jobs(args: MeasureArguments) -> Iterator[tuple[Line, str, list[float], int]]:
    """Cells and what they are to run: all with the first seed first, so that a stopped study has seen every task."""
    for seed in range(1, args.seeds + 1):
        for line in lines(args):
            for column, flags in columns(args).items():
                if line.task != ENDINGS_ONLY or column == "pretrained":
                    rates = args.frozen_rates if ADAPTED in flags else args.learning_rates
                    yield line, column, rates, seed


def add_runs(
    results: dict[str, dict], line: Line, column: str, rates: list[float], seed: int, args: MeasureArguments
) -> None:
    """Put what the runs of a cell with one seed say into the results, where there are any."""
    cell = results.get(line.name, {}).get("cells", {}).get(column, {})
    tried = [cell["rate"]] if cell else rates
    records = {rate: one_run(line, column, rate, seed, args) for rate in tried}
    if None in records.values():
        return
    main_metric = next(iter(records.values()))["main_metric"]
    chosen = {rate: record["metrics"]["validation"][main_metric] for rate, record in records.items()}
    rate = max(chosen, key=chosen.get)
    record = records[rate]
    # Where no test rows have labels, the validation rows are measured on, too.
    split = "test" if "test" in record["metrics"] else "validation"
    if line.name not in results:
        summary = {
            "task": line.task,
            "metric": main_metric,
            "chance": record["chance"],
            "rows": record["rows"],
            "split": split,
        }
        results[line.name] = {**summary, "baseline": baseline(line, args), "cells": {}}
        if args.text_file:
            results[line.name]["perplexity_before"] = read_json(Path(args.output_dir) / PERPLEXITY)[TOKEN]
    cell = results[line.name]["cells"].setdefault(column, {"rate": rate, "validation": chosen, "scores": []})
    cell["scores"].append(record["metrics"][split][main_metric])
    if TOKEN in record:
        cell.setdefault("perplexities", []).append(record[TOKEN])
    if args.study == "adapters":
        cell["trained_parameters"] = record["trained_parameters"]
        cell.setdefault("seconds", []).append(record["seconds"])


def _scores(cell: dict) -> str:
    """Scores of a cell, and the learning rate that was chosen."""
    return f"{spread(cell['scores'])}; {cell['rate']:g}"


def _measured_on(result: dict) -> str:
    return f"{result['split']}, {result['rows'][result['split']]:,}"


def table(results: dict[str, dict]) -> str:
    """Results as a Markdown table; behind the scores the learning rate that was chosen."""
    names = list(dict.fromkeys(name for result in results.values() for name in result["cells"]))
    head = ["task", "metric", "chance", "rows trained on", "measured on", "baseline", *names]
    shown = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for result in results.values():
        cells = [result["task"], result["metric"], f"{result['chance']:.3f}"]
        cells += [f"{result['rows']['train']:,}", _measured_on(result), f"{result['baseline']:.3f}"]
        cells += [_scores(result["cells"][name]) if name in result["cells"] else "-" for name in names]
        shown.append(f"| {' | '.join(cells)} |")
    return "\n".join(shown)


def methods_table(results: dict[str, dict]) -> str:
    """A Markdown table with a line a way of training, behind the baseline of its task."""
    shown = ["| task | metric | measured on | method | score | trained parameters | seconds |", "|---" * 7 + "|"]
    for result in results.values():
        shared = f"| {result['task']} | {result['metric']} | {_measured_on(result)} |"
        shown.append(f"{shared} baseline | {result['baseline']:.3f} | - | - |")
        for name, cell in result["cells"].items():
            numbers = f"{cell['trained_parameters']:,} | {statistics.median(cell['seconds']):.0f}"
            shown.append(f"{shared} {name} | {_scores(cell)} | {numbers} |")
    return "\n".join(shown)


def forgetting_table(results: dict[str, dict]) -> str:
    """Perplexities a token of the language models as a Markdown table; empty where none was measured."""
    measured = {name: result for name, result in results.items() if "perplexity_before" in result}
    names = list(dict.fromkeys(name for each in measured.values() for name in each["cells"] if name != RANDOM))
    shown = [f"| fine-tuned on | before | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for name, result in measured.items():
        cells = [result["cells"].get(column, {}).get("perplexities") for column in names]
        found = " | ".join(spread(cell, 1) if cell else "-" for cell in cells)
        shown.append(f"| {name} | {result['perplexity_before']:.1f} | {found} |")
    return "\n".join(shown) if measured else ""


def tables(results: dict[str, dict]) -> str:
    """The tables that there are."""
    of_methods = any("seconds" in cell for result in results.values() for cell in result["cells"].values())
    return "\n\n".join(filter(None, ((methods_table if of_methods else table)(results), forgetting_table(results))))


def draw(results: dict[str, dict], study: str, path: Path) -> None:
    """
    Medians and ranges: `layers` as a line a task over the number of blocks, `rows` as a panel a task with a line a
    column over the number of rows, `adapters` as a panel a task with a point a column over the trained parameters.
    """
    curves: dict[str, dict[str, list]] = {}
    for result in results.values():
        for column, cell in result["cells"].items():
            panel, label, x = result["task"], column, result["rows"]["train"]
            if study == "layers":
                panel, label, x = "", result["task"], int(column.split()[-1])
            if study == "adapters":
                x = cell["trained_parameters"]
            curves.setdefault(panel, {}).setdefault(label, []).append((x, cell["scores"]))
    figure = new_figure(5 * len(curves), 4)
    names = {"layers": "blocks transferred", "rows": "rows trained on", "adapters": "trained parameters"}
    for axes, (panel, labels) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
        for label, points in labels.items():
            x, scores = zip(*sorted(points), strict=True)
            middle, low, high = (list(map(one, scores)) for one in (statistics.median, min, max))
            if study == "adapters":
                axes.errorbar(x, middle, yerr=[[middle[0] - low[0]], [high[0] - middle[0]]], fmt="o", capsize=3)
                axes.annotate(label, (x[0], middle[0]), xytext=(5, 4), textcoords="offset points", fontsize="small")
            else:
                axes.plot(x, middle, marker="o", label=label)
                axes.fill_between(x, low, high, alpha=0.2)
        axes.set(title=panel, xlabel=names[study], ylabel="metric")
        if study != "layers":
            axes.set_xscale("log")
        if study != "adapters":
            ticks = sorted({x for points in labels.values() for x, _ in points})
            axes.minorticks_off()
            axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axes.legend()
    write_figure(path, figure, results)


@command(resume="The same command resumes where it was stopped.")
def main() -> None:
    """Run what is missing, then print the table."""
    (args,) = parse_arguments((MeasureArguments,), description=__doc__)
    planned = list(jobs(args))
    if args.study in DRAWN:
        check_libraries()
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    fixed = ("study", "model", "models", "learning_rates", "frozen_rates", "rows", "eval_rows", "max_length", "bf16")
    settings = {name: getattr(args, name) for name in (*fixed, "text_file")} | {"common": COMMON}
    settings["together"] = flags_together(args) if args.study == TOGETHER else None
    if (folder / "settings.json").is_file():
        check_settings(folder, read_json(folder / "settings.json"), settings)
    write_json(folder / "settings.json", settings)
    if args.text_file and not (folder / PERPLEXITY).is_file():
        write_json(folder / PERPLEXITY, {TOKEN: token_perplexity(args.model, args.text_file)})
    results: dict[str, dict] = {}
    for job in tqdm(planned, desc="cells"):
        add_runs(results, *job, args)
        write_json(folder / "results.json", results)
        write_text(folder / "results.md", tables(results) + "\n")
    if args.study in DRAWN and results:
        draw(results, args.study, folder / "results.png")
    print(tables(results))


if __name__ == "__main__":
    main()
