r"""
Tables 2 to 5 of the GPT paper (Radford et al., 2018) next to the results of a model of your own.

    python scripts/measure/paper.py --model openai-community/openai-gpt --data_dir path/to/data \
        --output_dir outputs/paper
    python scripts/measure/paper.py --model gpt-mini --data_dir path/to/data --output_dir outputs/paper \
        --max_train_rows 300 --max_eval_rows 300 --learning_rate 5e-4

`--data_dir` holds the published files, a folder for each data set (`mnli/`, `sst2/`, ...). A task is fine-tuned by its
recipe in `scripts/configs`, the paper's, where no flag says otherwise; ours is measured on the rows of its test split
that have labels, or else of its validation split, the paper's are of the test sets. Tasks whose files are missing are
named in the tables. The same command resumes a study that was stopped. Weights are not kept. Writes `results.json` and
`results.md` after every task.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import keep_settings, markdown, spread
from tqdm import tqdm

from hf_gpt.commands import command, parse_arguments
from hf_gpt.files import flag, write_json, write_text
from hf_gpt.tasks import get_task, load_task
from hf_gpt.training.arguments import DataArguments, FineTuningArguments, ModelArguments
from hf_gpt.training.finetune import run_seeds

TABLES = {
    "Table 2, natural language inference": ("mnli", "mnli_mismatched", "snli", "scitail", "qnli", "rte"),
    "Table 3, question answering and commonsense reasoning": ("rocstories", "race_middle", "race_high", "race"),
    "Table 4, similarity and classification": ("cola", "sst2", "mrpc", "stsb", "qqp"),
}
# Table 5, in percent; its MNLI is the mean of both test sets.
ABLATED = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
ABLATIONS = {
    "as the paper": (45.4, 91.3, 82.3, 82.0, 70.3, 81.8, 88.1, 56.0),
    "no pretraining": (18.9, 84.0, 79.4, 30.9, 65.5, 75.7, 71.2, 53.8),
    "no auxiliary loss": (47.9, 92.0, 84.9, 83.2, 69.8, 81.1, 86.9, 54.4),
}
FLAGS = {"as the paper": [], "no pretraining": ["--random_weights", "true"], "no auxiliary loss": ["--lm_coef", "0"]}
# Tasks that share the files of another.
FOLDERS = {"mnli_mismatched": "mnli", "race_middle": "race", "race_high": "race"}
KINDS = (ModelArguments, DataArguments, FineTuningArguments)


@dataclass
class PaperArguments:
    """Which model and data, and what the recipes are to be overridden with."""

    model: str = flag(help="Folder or Hub id of the pretrained model, or gpt-mini.")
    data_dir: str = flag(help="Folder of the data sets' folders.")
    output_dir: str = flag(help="Folder of the runs, results.json and results.md.")
    tasks: list[str] | None = flag(None, "These tasks only.")
    seeds: int = flag(3, "Runs of each cell.")
    max_train_rows: int | None = flag(None, "Rows that are trained on at most.")
    max_eval_rows: int | None = flag(None, "Rows of a split that are evaluated on at most.")
    max_length: int | None = flag(None, "Tokens of a sequence at most.")
    learning_rate: float | None = flag(None, "By default the recipe's.")
    num_train_epochs: float | None = flag(None, "By default the recipe's.")
    bf16: bool = flag(False, "Train under bfloat16 autocast.")

    def __post_init__(self) -> None:
        for name in self.tasks or ():
            get_task(name)


def measure(task: str, variant: str, args: PaperArguments) -> dict[str, Any]:
    """What `run_seeds` gives of a cell, now or earlier, or why it is `missing`."""
    folder = Path(args.data_dir) / FOLDERS.get(task, task)
    if not folder.is_dir():
        return {"missing": f"no folder {folder.name}"}
    try:
        load_task(task, str(folder))
    except (OSError, ValueError) as error:
        return {"missing": str(error).splitlines()[0].partition(". Get ")[0]}
    output = Path(args.output_dir) / task / variant.replace(" ", "_")
    names = ("max_train_rows", "max_eval_rows", "max_length", "learning_rate", "num_train_epochs", "seeds")
    given = {name: getattr(args, name) for name in names} | {"bf16": args.bf16, "data_dir": folder}
    given |= {"model_name_or_path": args.model, "output_dir": output, "save_strategy": "no", "eval_strategy": "no"}
    flags = [f"--{name}={value}" for name, value in given.items() if value is not None]
    found = run_seeds(*parse_arguments(KINDS, ["--config", task, *flags, "--disable_tqdm=true", *FLAGS[variant]]))
    for file in output.rglob("model.safetensors"):
        file.unlink()
    return found


def ours(found: dict[str, Any]) -> tuple[str, str]:
    """The main metric in percent, its median and range over the seeds, and the rows that it was measured on."""
    if "missing" in found:
        return "-", f"missing: {found['missing']}"
    split = "test" if "test" in found["metrics"] else "validation"
    values = [100 * value for value in found["metrics"][split][found["main_metric"]]["values"]]
    return spread(values, 1), f"{split}, {found['rows'][split]:,} ({found['rows']['train']:,} for training)"


def tables(results: dict[str, dict[str, Any]]) -> list[str]:
    """Markdown tables of all tasks that were asked for, each below its name."""
    written = []
    for title, names in TABLES.items():
        rows = []
        for task in (name for name in names if name in results):
            metric, (score, where) = get_task(task).metrics[0], ours(results[task]["as the paper"])
            rows.append([task, metric, f"{get_task(task).paper_score:.1f}", score, where])
        if rows:
            written.append(f"{title}\n\n{markdown(['data set', 'metric', 'paper', 'ours', 'measured on'], rows)}")
    rows = []
    for task, *scores in zip(ABLATED, *ABLATIONS.values(), strict=True):
        if task in results:
            found = (ours(results[task][name])[0] for name in ABLATIONS)
            rows.append([task, *(cell for score in scores for cell in (f"{score:.1f}", next(found)))])
    if rows:
        header = ["data set", *(cell for name in ABLATIONS for cell in (f"{name}: paper", "ours"))]
        written.append(f"Table 5, ablations\n\n{markdown(header, rows)}")
    return written


@command(resume="The same command resumes where it was stopped.")
def main() -> None:
    """Fine-tune what is missing, task after task, and write the tables."""
    (args,) = parse_arguments((PaperArguments,), description=__doc__)
    output = Path(args.output_dir)
    free = ("output_dir", "data_dir", "tasks")
    settings = json.loads(json.dumps({name: value for name, value in vars(args).items() if name not in free}))
    keep_settings(output, settings)
    tasks = [task for names in TABLES.values() for task in names if task in (args.tasks or names)]
    results: dict[str, dict[str, Any]] = {}
    for task in tqdm(tasks, desc="tasks"):
        variants = ABLATIONS if task in ABLATED else ["as the paper"]
        results[task] = {variant: measure(task, variant, args) for variant in variants}
        write_json(output / "results.json", {"model": args.model, "settings": settings, "tasks": results})
        write_text(output / "results.md", "\n\n".join(tables(results)) + "\n")
    print("\n\n".join(tables(results)))


if __name__ == "__main__":
    main()
