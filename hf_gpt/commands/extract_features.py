r"""
Write the hidden states of texts to files: of any layers, per text, word or token.

    python scripts/extract_features.py --model_name_or_path model_cards/gpt-mini \
        --input_files hf_gpt/tasks/data/questions.jsonl --keep_columns id label --layers 0 4 --pooling mean \
        --output_dir outputs/features
    python scripts/extract_features.py --model_name_or_path outputs/questions \
        --input_files hf_gpt/tasks/data/questions.jsonl --pooling classify --format npy \
        --output_dir outputs/classify_states

`--config` gives defaults that flags override. Rows are divided into shards of equal size, which processes share; the
same command resumes after an interruption. The output folder holds the shards (`data`), a card (README.md) that says
what was extracted and how to read it, and `features.json`, which is there when all is done.
"""

from ..features.shards import FeatureArguments, extract
from ..training.arguments import check_launch
from . import command, parse_arguments


@command(resume="The same command resumes where it was stopped.")
def main() -> None:
    """Parse arguments and run."""
    check_launch()
    (args,) = parse_arguments((FeatureArguments,), description=__doc__)
    extract(args)
