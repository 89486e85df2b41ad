r"""
Measure what pretraining and ways of training give on the tasks, as a table and, of the last three studies, a figure.

    python scripts/measure/tasks.py --data_dir path/to/data --output_dir outputs/measure
    python scripts/measure/tasks.py --study layers --tasks mnli questions codah --data_dir path/to/data \
        --output_dir outputs/layers

The columns of a study (`studies.yaml`) are fine-tuned alike from

    weights     the pretrained weights, the same without the auxiliary language model, and random weights
    models      the models that --models names
    together    the pretrained weights, on each task alone, and on all of them together with a head each
    rows        pretrained weights, the same frozen, and random weights; with several numbers of rows up to `--rows`
    layers      the lowest 0, 1, 2, ... pretrained blocks, the rest newly initialized (figure 2 of the paper)
    adapters    the pretrained weights, by every way of training: whole, frozen (the features of the last layer or a
                mixture of all), with adapters and by gradual unfreezing; with the trained parameters and the seconds

Each cell tries every learning rate with its first seed, and keeps the one that is best on the validation rows; the
other seeds train with that. Seconds are those of this process's processor for a whole run, with reading, features and
evaluation. The baseline has no transformer (`baselines.py`). `--data_dir` holds the published files, a folder for each
set (`trec6/`, `sst2/`, ...); tasks whose folder is missing are left out, and named. A finished run is not repeated, so
the same command resumes a stopped study. With `--text_file` the perplexity of the language model in each fine-tuned
model is measured there, too: what fine-tuning made it forget. Writes `results.json` and `results.md`, after every run,
and `results.png`.
"""

import itertools
import re
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import baselines
import harness
import numpy as np
from harness import markdown, spread
from tqdm import tqdm

from hf_gpt.analysis.figures import check_libraries, new_figure, write_figure
from hf_gpt.commands import command, parse_arguments, perplexity
from hf_gpt.files import flag, read_json, read_yaml, write_json
from hf_gpt.model.configuration_gpt import GPTConfig
from hf_gpt.tasks import get_task, load_task
from hf_gpt.training.finetune import run

CASES = read_yaml(Path(__file__).with_name("studies.yaml"))
TASKS, COMMON, STUDIES = CASES["tasks"], CASES["common"], CASES["studies"]
# The studies with a figure, and what lies along it.
AXES = {"rows": "rows trained on", "layers": "blocks transferred", "adapters": "trained parameters"}
RANDOM, TOGETHER = "random weights", "together"
# What a finished run measured, written last; of the language model before any run.
RUN, PERPLEXITY, TOKEN = "run.json", "perplexity.json", "perplexity_per_token"
FEWER_ROWS = (50, 200, 800, 3200)


@dataclass
class MeasureArguments:
    """What to run."""

    output_dir: str = flag(help="Folder of the runs, results.json and results.md.")
    study: str = flag("weights", "What the columns are.", STUDIES)
    model: str = flag("model_cards/gpt-mini", "The pretrained model.")
    models: list[str] | None = flag(None, "NAME=FOLDER of each column of `models`.")
    columns: list[str] | None = flag(None, "These columns of the study only.")
    data_dir: str = flag(".", "Folder of the data sets' folders.")
    tasks: list[str] = flag(TASKS, "These only.", TASKS)
    seeds: int = flag(3, "Runs of each cell.")
    learning_rates: list[float] = flag([5e-4, 1e-3, 2e-3], "Rates of which a cell keeps one.")
    frozen_rates: list[float] = flag([3e-3, 1e-2, 3e-2], "The same where a head or an adapter is trained alone.")
    rows: int = flag(2000, "Rows that are trained on at most.")
    eval_rows: int = flag(1000, "Rows of a split that are evaluated on at most.")
    max_length: int = flag(256, "Tokens of a sequence at most.")
    text_file: str | None = flag(None, "Text on which the language models are measured before and after.")
    bf16: bool = flag(False, "Train under bfloat16 autocast.")

    def folder(self, task: str) -> str | None:
        """Where the published files of a task are; `None` of bundled ones."""
        return None if get_task(task).default_dir else str(Path(self.data_dir, harness.FOLDERS.get(task, task)))


class Cell(NamedTuple):
    """A cell of the table: `line` is its line's name, `settings` are those of fine-tuning, `rates` are to be tried."""

    line: str
    task: str
    column: str
    settings: dict[str, Any]
    rates: list[float]


def columns(args: MeasureArguments) -> dict[str, dict[str, Any]]:
    """Settings of fine-tuning for each column that is wanted."""
    found = STUDIES[args.study]
    if args.study == "models":
        named = [text.partition("=") for text in args.models or [""]]
        if not all(name and folder for name, _, folder in named):
            raise ValueError("--study models wants its columns as --models NAME=FOLDER NAME=FOLDER.")
        found = {name: {"model_name_or_path": folder} for name, _, folder in named}
    elif args.study == "layers":
        layers = GPTConfig.from_pretrained(args.model).n_layer
        found = {f"blocks {kept}": {"transfer_layers": kept} for kept in range(layers + 1)}
    wanted = args.columns or found
    return {name: {"model_name_or_path": args.model, **own} for name, own in found.items() if name in wanted}


def cells(args: MeasureArguments) -> list[Cell]:
    """Line by line the cells of the tasks whose data is there."""
    tasks = [name for name in args.tasks if args.folder(name) is None or Path(args.folder(name)).is_dir()]
    if args.study == TOGETHER and len(tasks) < 2:
        raise ValueError("--study together wants two tasks or more.")
    if missing := [name for name in args.tasks if name not in tasks]:
        print(f"No data for {', '.join(missing)}: left out.", file=sys.stderr)
    numbers = [*(rows for rows in FEWER_ROWS if 2 * rows <= args.rows and args.study == "rows"), args.rows]
    folders, found = {name: args.folder(name) for name in tasks}, []
    for task, rows, (column, own) in itertools.product(tasks, numbers, columns(args).items()):
        settings = COMMON | {"max_train_rows": rows, "max_eval_rows": args.eval_rows, "max_length": args.max_length}
        settings |= {"bf16": args.bf16, "task": task, "data_dir": folders[task], **own}
        if column == TOGETHER:
            given = [f"{name}={folder}" for name, folder in folders.items() if folder]
            settings |= {"task": None, "data_dir": None, "tasks": tasks, "data_dirs": given or None}
        line = f"{task}, {rows} rows" if args.study == "rows" else task
        rates = args.frozen_rates if "adaptation" in own else args.learning_rates
        found.append(Cell(line, task, column, settings, rates))
    return found


def one_run(cell: Cell, rate: float, seed: int, args: MeasureArguments) -> dict[str, Any]:
    """What one fine-tuning run measured of a cell's task, now or earlier; its weights are not kept."""
    name = f"{'' if cell.column == TOGETHER else cell.line} {cell.column} {rate:g} {seed}".strip()
    output = Path(args.output_dir) / re.sub(r"[ ,]+", "-", name)
    if not (output / RUN).is_file():
        start = time.process_time()
        own = {"learning_rate": rate, "seed": seed, "output_dir": output}
        record = run(*harness.finetune_arguments(cell.settings | own))
        record["seconds"] = time.process_time() - start
        if args.text_file and cell.column not in (RANDOM, TOGETHER):
            record[TOKEN] = token_perplexity(str(output), args.text_file)
        harness.remove_weights(output)
        write_json(output / RUN, record)
    record = read_json(output / RUN)
    return record["tasks"][cell.task] if cell.column == TOGETHER else record


def token_perplexity(model: str, file: str) -> float:
    """The perplexity a token of the language model in a folder, on a text."""
    return perplexity.measure(perplexity.PerplexityArguments(model_name_or_path=model, file=[file]))[TOKEN]


def new_line(cell: Cell, record: dict[str, Any], args: MeasureArguments) -> dict[str, Any]:
    """A line of the results without cells; `record` is that of one of its runs."""
    split = "test" if "test" in record["metrics"] else "validation"
    data, rows = load_task(cell.task, args.folder(cell.task)), cell.settings["max_train_rows"]
    line = {"task": cell.task, "metric": record["main_metric"], "chance": record["chance"], "rows": record["rows"]}
    line |= {"split": split, "baseline": baselines.score(data, split, rows, args.eval_rows), "cells": {}}
    if args.text_file:
        line["perplexity_before"] = read_json(Path(args.output_dir) / PERPLEXITY)[TOKEN]
    return line


def add_runs(results: dict[str, dict], cell: Cell, seed: int, args: MeasureArguments) -> None:
    """Put what the runs of a cell with one seed measured into the results; the first seed chooses the rate."""
    earlier = results.get(cell.line, {}).get("cells", {}).get(cell.column)
    records = {rate: one_run(cell, rate, seed, args) for rate in ([earlier["rate"]] if earlier else cell.rates)}
    chosen = {rate: record["metrics"]["validation"][record["main_metric"]] for rate, record in records.items()}
    rate = max(chosen, key=chosen.get)
    record = records[rate]
    if cell.line not in results:
        results[cell.line] = new_line(cell, record, args)
    line = results[cell.line]
    found = line["cells"].setdefault(cell.column, {"rate": rate, "validation": chosen, "scores": []})
    found["scores"].append(record["metrics"][line["split"]][line["metric"]])
    if TOKEN in record:
        found.setdefault("perplexities", []).append(record[TOKEN])
    if args.study == "adapters":
        found["trained_parameters"] = record["trained_parameters"]
        found.setdefault("seconds", []).append(record["seconds"])


def tables(results: dict[str, dict]) -> str:
    """Markdown tables, a line a task or a way of training; after the scores the learning rate that was chosen."""
    columns = list(dict.fromkeys(name for result in results.values() for name in result["cells"]))
    of_methods = any("seconds" in cell for result in results.values() for cell in result["cells"].values())
    header = ["task", "metric", "chance", "rows trained on", "measured on", "baseline", *columns]
    if of_methods:
        header = ["task", "metric", "measured on", "method", "score", "trained parameters", "seconds"]
    rows = []
    for result in results.values():
        cells, baseline = result["cells"], f"{result['baseline']:.3f}"
        about, on = [result["task"], result["metric"]], f"{result['split']}, {result['rows'][result['split']]:,}"
        scores = {name: f"{spread(cell['scores'])}; {cell['rate']:g}" for name, cell in cells.items()}
        if of_methods:
            rows.append([*about, on, "baseline", baseline, "-", "-"])
            for name, cell in cells.items():
                seconds = f"{statistics.median(cell['seconds']):.0f}"
                rows.append([*about, on, name, scores[name], f"{cell['trained_parameters']:,}", seconds])
        else:
            rows.append([*about, f"{result['chance']:.3f}", f"{result['rows']['train']:,}", on, baseline])
            rows[-1] += [scores.get(name, "-") for name in columns]
    made = [markdown(header, rows)]
    if any("perplexity_before" in result for result in results.values()):
        made.append(forgetting_table(results, [name for name in columns if name != RANDOM]))
    return "\n\n".join(made)


def forgetting_table(results: dict[str, dict], columns: list[str]) -> str:
    """Perplexities a token of the language models as a Markdown table."""
    rows = []
    for name, result in results.items():
        found = [result["cells"].get(column, {}).get("perplexities") for column in columns]
        after = [spread(values, 1) if values else "-" for values in found]
        rows.append([name, f"{result['perplexity_before']:.1f}", *after])
    return markdown(["fine-tuned on", "before", *columns], rows)


def draw(results: dict[str, dict], study: str, path: Path) -> None:
    """Medians and ranges over the rows, blocks or trained parameters; a panel a task, but for `layers`."""
    panels: dict[str, dict[str, list]] = {}
    for result in results.values():
        for column, cell in result["cells"].items():
            place = cell["trained_parameters"] if study == "adapters" else result["rows"]["train"]
            panel, curve = result["task"], column
            if study == "layers":
                panel, curve, place = "", result["task"], int(column.split()[-1])
            panels.setdefault(panel, {}).setdefault(curve, []).append((place, cell["scores"]))
    figure = new_figure(5 * len(panels), 4)
    for axes, (panel, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        axes.set(title=panel, xlabel=AXES[study], ylabel="metric", xscale="linear" if study == "layers" else "log")
        for curve, found in curves.items():
            x, scores = zip(*sorted(found), strict=True)
            low, middle, high = np.quantile(scores, (0, 0.5, 1), axis=1)
            axes.errorbar(x, middle, [middle - low, high - middle], marker="o", capsize=3, label=curve)
            if study == "adapters":
                axes.annotate(curve, (x[0], middle[0]), xytext=(5, 4), textcoords="offset points", fontsize="small")
        if study == "adapters":
            axes.margins(x=0.4)  # for the names
        else:
            axes.set_xticks(x, [f"{place:,}" for place in x])
            axes.minorticks_off()
            axes.legend()
    write_figure(path, figure, results)


@command(resume="The same command resumes where it was stopped.")
def main() -> None:
    """Run what is missing, all with the first seed first, so that a stopped study has seen every task."""
    (args,) = parse_arguments((MeasureArguments,), doc=__doc__)
    if args.study in AXES:
        check_libraries()
    planned, folder = cells(args), Path(args.output_dir)
    free = ("output_dir", "data_dir", "tasks", "columns", "seeds")
    settings = {name: value for name, value in vars(args).items() if name not in free}
    settings |= {"common": COMMON, "together": args.tasks if args.study == TOGETHER else None}
    harness.keep_settings(folder, settings)
    if args.text_file and not (folder / PERPLEXITY).is_file():
        write_json(folder / PERPLEXITY, {TOKEN: token_perplexity(args.model, args.text_file)})
    results: dict[str, dict] = {}
    for seed, cell in tqdm([*itertools.product(range(1, args.seeds + 1), planned)], desc="cells"):
        add_runs(results, cell, seed, args)
        harness.write_results(folder, results, tables(results))
    if args.study in AXES and results:
        draw(results, args.study, folder / "results.png")
    print(tables(results))


if __name__ == "__main__":
    main()
