"""
Measure what pretraining gives gpt-mini, and what the carried data give away: the figures of README and card.

    python scripts/measure_gpt_mini.py --output_dir outputs/measure --trec_dir path/to/trec

Each line is `scripts/finetune.py` run with several seeds from the pretrained and from random weights, with the same
settings. A run whose `metrics.json` is there is not repeated, so the command goes on where it was stopped. Writes
`results.json` and prints the table.
"""

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm
from transformers import HfArgumentParser

REPOSITORY = Path(__file__).resolve().parents[1]
SETTINGS = {
    "questions": ["--config", "scripts/configs/questions.yaml"],
    "trec": ["--config", "scripts/configs/trec.yaml"],
    "stories": ["--config", "scripts/configs/stories.yaml"],
    "stories, endings only": ["--config", "scripts/configs/stories.yaml", "--task", "custom"],
}


@dataclass
class MeasureArguments:
    """What to run."""

    output_dir: str = field(metadata={"help": "Folder of the runs and of results.json."})
    model: str = field(default="model_cards/gpt-mini", metadata={"help": "The pretrained model."})
    trec_dir: str | None = field(default=None, metadata={"help": "Folder of TREC's two files; left out without it."})
    seeds: int = field(default=3, metadata={"help": "Runs of each setting."})
    tasks: list[str] | None = field(default=None, metadata={"help": "Measure these lines only."})


def endings_only(folder: Path) -> list[str]:
    """Flags of a custom task whose context says nothing: the two endings of each story stand alone."""
    rows = [json.loads(line) for line in (REPOSITORY / "scripts/data/stories.jsonl").read_text().splitlines()]
    flags = ["--task_family", "multiple-choice", "--context_column", "context"]
    flags += ["--choice_columns", "ending1", "ending2"]
    for split in ("train", "validation", "test"):
        file = folder / f"endings_{split}.jsonl"
        kept = [{**row, "context": "."} for row in rows if row["split"] == split]
        file.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        flags += [f"--{split}_file", str(file)]
    return flags


def run(output: Path, flags: list[str]) -> dict:
    """One fine-tuning run, or what it measured earlier."""
    if not (output / "metrics.json").is_file():
        command = [sys.executable, "scripts/finetune.py", *flags, "--output_dir", str(output)]
        command += ["--overwrite_output_dir", "true", "--disable_tqdm", "true"]
        environment = {"HF_HUB_OFFLINE": "1", **os.environ}
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads((output / "metrics.json").read_text(encoding="utf-8"))


def main() -> None:
    """Run what is missing, then print the table."""
    (args,) = HfArgumentParser(MeasureArguments).parse_args_into_dataclasses()
    folder = Path(args.output_dir).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    model = str(Path(args.model).resolve())
    names = [name for name in SETTINGS if name != "trec" or args.trec_dir]
    names = [name for name in names if args.tasks is None or name in args.tasks]
    jobs = [
        (name, weights, seed)
        for name in names
        for weights in (("pretrained",) if "only" in name else ("pretrained", "random"))
        for seed in range(1, args.seeds + 1)
    ]
    scores: dict[str, dict[str, list[float]]] = {}
    for name, weights, seed in tqdm(jobs, desc="runs"):
        flags = [*SETTINGS[name], "--model_name_or_path", model, "--seed", str(seed)]
        flags += ["--random_weights", "true"] if weights == "random" else []
        flags += ["--data_dir", str(Path(args.trec_dir).resolve())] if name == "trec" else []
        flags += endings_only(folder) if "only" in name else []
        record = run(folder / f"{name.replace(', ', '_').replace(' ', '_')}-{weights}-{seed}", flags)
        scores.setdefault(name, {}).setdefault(weights, []).append(record["metrics"]["test"]["accuracy"])

    (folder / "results.json").write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    print("| task | weights | test accuracy, median | seeds |\n|---|---|---|---|")
    for name, by_weights in scores.items():
        for weights, values in by_weights.items():
            each = ", ".join(f"{value:.3f}" for value in values)
            print(f"| {name} | {weights} | {statistics.median(values):.3f} | {each} |")


if __name__ == "__main__":
    main()
