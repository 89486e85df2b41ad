r"""
Fine-tune a GPT on a task, with the language model as auxiliary objective (Radford et al., 2018).

    hf-gpt finetune --config questions --output_dir outputs/questions
    hf-gpt finetune --task custom --train_file rows.csv --text_column article --target_column summary \
        --model_name_or_path gpt-mini --output_dir outputs/summaries
    hf-gpt finetune --list_tasks

The output folder holds the best model with its tokenizer, its card (README.md), `metrics.json` and, where the task has
a test split, `predictions.tsv`; with `--seeds 5` those of five runs, and `results.json` with their median and range:
the same command resumes after a stop. With `--tasks questions stories` one transformer is trained on several tasks, a
folder for each; with `--target_column` the language model learns to write a text for a text behind a `--prompt`.
"""

import sys

from ..cards import learning_rate_advice
from ..tasks import task_table
from ..training.arguments import DataArguments, FineTuningArguments, ModelArguments, check_launch
from ..training.finetune import run, run_seeds
from . import RESUME, command, parse_arguments

# What `--help` shows.
COMMON = """model_name_or_path lm_coef adaptation task list_tasks tasks data_dir train_file validation_file
test_file text_column premise_column hypothesis_column context_column choice_columns label_column target_column
prompt metrics max_length max_train_rows output_dir learning_rate num_train_epochs per_device_train_batch_size seed
seeds resume_from_checkpoint overwrite_output_dir"""


@command(resume=RESUME)
def main() -> None:
    """Parse arguments and run."""
    if "--list_tasks" in sys.argv[1:]:
        print(task_table())
        return
    check_launch()
    kinds = (ModelArguments, DataArguments, FineTuningArguments)
    model, data, training = parse_arguments(kinds, doc=__doc__, common=COMMON)
    if model.adaptation == "full" and training.learning_rate == FineTuningArguments.learning_rate:
        advice = learning_rate_advice(model.model_name_or_path or "", training.learning_rate)
        if advice and training.process_index == 0:
            print(advice, flush=True)
    (run if training.seeds is None or data.tasks else run_seeds)(model, data, training)
