r"""
Evaluate a model on a split of a task: a fine-tuned one, or a language model without training.

    hf-gpt evaluate-task --model_name_or_path outputs/questions --task questions --output_dir outputs/questions_test
    hf-gpt evaluate-task --zero_shot --model_name_or_path model_cards/gpt-mini --task stories --output_dir outputs/zero
    hf-gpt evaluate-task --model_name_or_path outputs/tickets --task custom --test_file new.csv \
        --text_column message --output_dir outputs/new

The last predicts new rows without labels: where no training file is named, the classes are the model's. An adapter is
loaded on the base model that it names, or on `--base_model`.

With `--zero_shot` multiple choice is answered by the choice of the highest mean log-probability, sst2 and imdb by the
likelier of the words "positive" and "negative" behind "very"; other classification tasks take `--zero_shot_words`. The
output folder gets `metrics.json` and `predictions.tsv`.
"""

from ..evaluation import EvaluationArguments, evaluate
from ..training.arguments import DataArguments, ModelArguments, check_launch
from . import command, parse_arguments


@command()
def main() -> None:
    """Parse arguments and run."""
    check_launch()
    evaluate(*parse_arguments((ModelArguments, DataArguments, EvaluationArguments), description=__doc__))
