"""
Measure what pretraining and the auxiliary loss give on every task: the table of results in README.

    python scripts/measure/tasks.py --data_dir path/to/data --output_dir outputs/measure
    python scripts/measure/tasks.py --tasks questions stories "stories, endings only" --output_dir outputs/measure

Each task is fine-tuned with several seeds from the pretrained weights, from the same without the auxiliary language
model, and from random weights, with the same settings. `--data_dir` holds the published files, a folder for each set
(`trec6/`, `sst2/`, ...); tasks whose folder is missing are left out, and named. A finished run is not repeated, so
the command goes on where it was stopped. Writes `results.json` and `results.md`, after every run.
"""

import json
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from hf_gpt.commands import command, parse_arguments
from hf_gpt.files import check_settings, write_json, write_text
from hf_gpt.files.reading import read_json
from hf_gpt.tasks.families import CARRIED_DATA
from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments
from hf_gpt.training.fine_tuning import run

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
SETTINGS = {
    "pretrained": [],
    "pretrained, no auxiliary loss": ["--lm_coef", "0"],
    "random weights": ["--random_weights", "true"],
}
# The same for all. A small model learns with a higher rate than the paper's.
COMMON = ["--learning_rate", "5e-4", "--num_train_epochs", "3", "--per_device_train_batch_size", "16"]
COMMON += [
    "--save_strategy",
    "no",
    "--eval_strategy",
    "no",
    "--disable_tqdm",
    "true",
    "--overwrite_output_dir",
    "true",
]


@dataclass
class MeasureArguments:
    """What to run."""

    output_dir: str = field(metadata={"help": "Folder of the runs, results.json and results.md."})
    model: str = field(default="model_cards/gpt-mini", metadata={"help": "The pretrained model."})
    data_dir: str | None = field(default=None, metadata={"help": "Folder of the data sets' folders."})
    tasks: list[str] | None = field(default=None, metadata={"help": f"These only; of: {', '.join(FOLDERS)}."})
    seeds: int = field(default=3, metadata={"help": "Runs of each setting."})
    rows: int = field(default=2000, metadata={"help": "Rows that are trained on at most."})
    eval_rows: int = field(default=1000, metadata={"help": "Rows of a split that are evaluated on at most."})
    max_length: int = field(default=256, metadata={"help": "Tokens of a sequence at most."})
    report_only: bool = field(default=False, metadata={"help": "Train nothing: the table of what is finished."})


def chosen_tasks(args: MeasureArguments) -> list[str]:
    """Tasks whose data is there; stops at names that do not exist."""
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
    if missing:
        print(f"No data for {', '.join(missing)}: left out.", file=sys.stderr)
    return found


def endings_only(folder: Path) -> list[str]:
    """Flags of a custom task whose context says nothing: the two endings of each story stand alone."""
    rows = [json.loads(line) for line in (CARRIED_DATA / "stories.jsonl").read_text(encoding="utf-8").splitlines()]
    flags = ["--task", "custom", "--task_family", "multiple-choice", "--context_column", "context"]
    flags += ["--choice_columns", "ending1", "ending2"]
    for split in ("train", "validation", "test"):
        file = folder / f"endings_{split}.jsonl"
        kept = [{**row, "context": "."} for row in rows if row["split"] == split]
        file.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        flags += [f"--{split}_file", str(file)]
    return flags


def measured(name: str, setting: str, seed: int, args: MeasureArguments) -> dict | None:
    """What one fine-tuning run measured, now or earlier; its weights are not kept. `None` with `report_only`."""
    folder = Path(args.output_dir)
    output = folder / f"{name} {setting} {seed}".replace(",", "").replace(" ", "-")
    if (output / "metrics.json").is_file():
        return json.loads((output / "metrics.json").read_text(encoding="utf-8"))
    if args.report_only:
        return None
    flags = endings_only(folder) if name == ENDINGS_ONLY else ["--task", name]
    if FOLDERS[name] is not None:
        flags += ["--data_dir", str(Path(args.data_dir) / FOLDERS[name])]
    flags += [
        "--model_name_or_path",
        args.model,
        "--max_train_rows",
        str(args.rows),
        "--max_eval_rows",
        str(args.eval_rows),
    ]
    flags += ["--max_length", str(args.max_length), "--seed", str(seed), "--output_dir", str(output)]
    classes = (ModelArguments, DataArguments, FineTuningArguments)
    record = run(*parse_arguments(classes, [*flags, *COMMON, *SETTINGS[setting]]))
    (output / "model.safetensors").unlink()
    return record


def table(results: dict[str, dict]) -> str:
    """Results as a Markdown table: the median over the finished seeds and, in brackets, lowest and highest."""
    columns = ["task", "metric", "chance", "rows trained on", "measured on", "seeds", *SETTINGS]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, result in results.items():
        cells = [name, result["metric"], f"{result['chance']:.3f}", f"{result['rows']['train']:,}"]
        cells.append(f"{result['split']}, {result['rows'][result['split']]:,}")
        cells.append(" / ".join(str(len(result["scores"].get(setting, ()))) for setting in SETTINGS))
        for setting in SETTINGS:
            values = result["scores"].get(setting)
            spread = f" ({min(values):.3f} to {max(values):.3f})" if values and len(values) > 1 else ""
            cells.append(f"{statistics.median(values):.3f}{spread}" if values else "-")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@command(resume="The same command goes on where it was stopped.")
def main() -> None:
    """Run what is missing, then print the table."""
    (args,) = parse_arguments((MeasureArguments,), description=__doc__)
    tasks = chosen_tasks(args)
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "model": args.model,
        "rows": args.rows,
        "eval_rows": args.eval_rows,
        "max_length": args.max_length,
        "common": COMMON,
    }
    file = folder / "settings.json"
    if file.is_file():
        check_settings(folder, read_json(file), settings)
    write_json(file, settings)
    results: dict[str, dict] = {}
    # All tasks with one seed first: a run that is stopped has seen every task.
    jobs = [(name, setting, seed) for seed in range(1, args.seeds + 1) for name in tasks for setting in SETTINGS]
    for name, setting, seed in tqdm(jobs, desc="runs"):
        if name == ENDINGS_ONLY and setting != "pretrained":
            continue
        record = measured(name, setting, seed, args)
        if record is None:
            continue
        # Nothing is chosen by the validation rows, so where no test rows have labels they are as good.
        split = "test" if "test" in record["metrics"] else "validation"
        summary = {"metric": record["main_metric"], "chance": record["chance"], "rows": record["rows"], "split": split}
        scores = results.setdefault(name, {**summary, "scores": {}})["scores"]
        scores.setdefault(setting, []).append(record["metrics"][split][record["main_metric"]])
        write_json(folder / "results.json", results)
        write_text(folder / "results.md", table(results) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
