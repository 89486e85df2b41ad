r"""
Tables 2 to 5 of the GPT paper (Radford et al., 2018) next to the results of a model of your own.

    python scripts/measure/paper.py --model openai-community/openai-gpt --data_dir path/to/data \
        --output_dir outputs/paper
    python scripts/measure/paper.py --model gpt-mini --data_dir path/to/data --output_dir outputs/paper \
        --max_train_rows 300 --max_eval_rows 300 --learning_rate 5e-4

`--data_dir` holds the published files, a folder for each data set (`mnli/`, `sst2/`, ...). A task is fine-tuned by its
recipe in `scripts/configs`, the paper's, where no flag says otherwise; ours is measured on labelled test rows, or else
on validation rows, the paper's are of the test sets. Tasks whose files are missing are named in the tables. The same
command resumes a stopped study. Weights are not kept. Writes `results.json` and `results.md` after every task.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
from harness import markdown, spread
from tqdm import tqdm

from hf_gpt.commands import command, parse_arguments
from hf_gpt.files import flag, read_yaml
from hf_gpt.tasks import get_task, load_task
from hf_gpt.training.finetune import run_seeds

PUBLISHED = read_yaml(Path(__file__).with_name("published.yaml"))
TABLES, ABLATIONS = PUBLISHED["tables"], PUBLISHED["ablations"]
TASKS, ABLATED = [task for names in TABLES.values() for task in names], ABLATIONS["as the paper"]
SETTINGS = {"as the paper": {}, "no pretraining": {"random_weights": True}, "no auxiliary loss": {"lm_coef": 0}}
GIVEN = ("max_train_rows", "max_eval_rows", "max_length", "learning_rate", "num_train_epochs", "seeds", "bf16")


@dataclass
class PaperArguments:
    """Which model and data, and what the recipes are to be overridden with."""

    model: str = flag(help="Folder or Hub id of the pretrained model, or gpt-mini.")
    data_dir: str = flag(help="Folder of the data sets' folders.")
    output_dir: str = flag(help="Folder of the runs, results.json and results.md.")
    tasks: list[str] = flag(TASKS, "These tasks only.", TASKS)
    seeds: int = flag(3, "Runs of each cell.")
    max_train_rows: int | None = flag(None, "Rows that are trained on at most.")
    max_eval_rows: int | None = flag(None, "Rows of a split that are evaluated on at most.")
    max_length: int | None = flag(None, "Tokens of a sequence at most.")
    learning_rate: float | None = flag(None, "By default the recipe's.")
    num_train_epochs: float | None = flag(None, "By default the recipe's.")
    bf16: bool = flag(False, "Train under bfloat16 autocast.")


def measure(task: str, variant: str, args: PaperArguments) -> dict[str, Any]:
    """What `run_seeds` gives of a cell, now or earlier, or why it is `missing`."""
    folder = Path(args.data_dir) / harness.FOLDERS.get(task, task)
    if not folder.is_dir():
        return {"missing": f"no folder {folder.name}"}
    try:
        load_task(task, str(folder))
    except (OSError, ValueError) as error:
        return {"missing": str(error).splitlines()[0].partition(". Get ")[0]}
    output = Path(args.output_dir) / task / variant.replace(" ", "_")
    settings = {"config": task, "model_name_or_path": args.model, "data_dir": folder, "output_dir": output}
    settings |= {"save_strategy": "no", "eval_strategy": "no", "disable_tqdm": True, **SETTINGS[variant]}
    found = run_seeds(*harness.finetune_arguments(settings | {name: getattr(args, name) for name in GIVEN}))
    harness.remove_weights(output)
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
    for task in (name for name in ABLATED if name in results):
        cells = ((f"{scores[task]:.1f}", ours(results[task][name])[0]) for name, scores in ABLATIONS.items())
        rows.append([task, *itertools.chain(*cells)])
    if rows:
        header = ["data set", *(cell for name in ABLATIONS for cell in (f"{name}: paper", "ours"))]
        written.append(f"Table 5, ablations\n\n{markdown(header, rows)}")
    return written


@command(resume="The same command resumes where it was stopped.")
def main() -> None:
    """Fine-tune what is missing, task after task, and write the tables."""
    (args,) = parse_arguments((PaperArguments,), doc=__doc__)
    output = Path(args.output_dir)
    settings = {name: getattr(args, name) for name in ("model", *GIVEN)}
    harness.keep_settings(output, settings)
    results: dict[str, dict[str, Any]] = {}
    for task in tqdm([name for name in TASKS if name in args.tasks], desc="tasks"):
        variants = ABLATIONS if task in ABLATED else ["as the paper"]
        results[task] = {variant: measure(task, variant, args) for variant in variants}
        shown = "\n\n".join(tables(results))
        harness.write_results(output, {"model": args.model, "settings": settings, "tasks": results}, shown)
    print(shown)


if __name__ == "__main__":
    main()
