r"""
Evaluate a model on a split of a task: a fine-tuned one, or a language model without training.

    hf-gpt evaluate-task --model_name_or_path outputs/questions --task questions --output_dir outputs/questions_test
    hf-gpt evaluate-task --zero_shot --model_name_or_path gpt-mini --task stories --output_dir outputs/zero
    hf-gpt evaluate-task --model_name_or_path outputs/tickets --task custom --test_file new.csv \
        --text_column message --output_dir outputs/new

The last predicts new rows without labels: where no training file is named, the classes are the model's; a model that
was trained with `--target_column` writes texts.

With `--zero_shot` multiple choice is answered by the choice of the highest mean log-probability, sst2 and imdb by the
likelier of the words "positive" and "negative" behind "very"; other classification tasks take `--zero_shot_words`.
`--zero_shot_score sum` is `acc` of lm-evaluation-harness. The output folder gets `metrics.json` and `predictions.tsv`.
"""

from ..evaluation import EvaluationArguments, evaluate
from ..training.arguments import DataArguments, ModelArguments, check_launch
from . import command

# What `--help` shows.
COMMON = """model_name_or_path task data_dir train_file test_file text_column premise_column hypothesis_column
context_column choice_columns label_column target_column max_new_tokens num_beams id_column keep_columns metrics
max_length max_eval_rows output_dir overwrite_output_dir base_model split zero_shot zero_shot_prompt zero_shot_words
zero_shot_score per_device_eval_batch_size"""

_KINDS = (ModelArguments, DataArguments, EvaluationArguments)
main = command(__doc__, *_KINDS, check=check_launch, common=COMMON)(evaluate)
