"""
Fine-tune a GPT on a task, with the language model as auxiliary objective (Radford et al., 2018).

    accelerate launch scripts/finetune.py --config scripts/configs/questions.yaml --output_dir outputs/questions
    accelerate launch scripts/finetune.py --task trec --data_dir path/to/trec \
        --model_name_or_path model_cards/gpt-mini --output_dir outputs/trec
    accelerate launch scripts/finetune.py --config scripts/configs/experiments/multi_task.yaml \
        --output_dir outputs/multi_task
    python scripts/finetune.py --list_tasks

`--config` gives defaults that flags override. The output folder holds the best model with its tokenizer, its card
(README.md), `metrics.json` and, where the task has a test split, `predictions.tsv`. A run that was stopped goes on
with `--resume_from_checkpoint last`. With `--seeds 5` there are five runs in folders of their own, and `results.json`
and `results.png` with their median and range; the same command goes on after a stop. With `--tasks questions stories`
one transformer is trained on several tasks, and each has a folder of its own in the output folder.
"""

import sys

from hf_gpt.fine_tuning import format_task_table, run
from hf_gpt.multi_task import run_tasks
from hf_gpt.seeds import run_seeds
from hf_gpt.training_args import (
    CustomTaskArguments,
    DataArguments,
    FineTuningArguments,
    ModelArguments,
    check_launch,
    parse_arguments,
)


def main() -> None:
    """Parse arguments and run; wrong input ends with one line and exit status 2."""
    if "--list_tasks" in sys.argv[1:]:
        print(format_task_table())
        return
    try:
        check_launch()
        arguments = (ModelArguments, DataArguments, CustomTaskArguments, FineTuningArguments)
        parsed = parse_arguments(arguments, sys.argv[1:])
        _, data, _, training = parsed
        if data.tasks is not None:
            run_tasks(*parsed)
        else:
            (run if training.seeds is None else run_seeds)(*parsed)
    except (ValueError, OSError) as error:
        print(f"finetune.py: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
