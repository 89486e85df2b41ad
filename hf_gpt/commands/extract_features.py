r"""
Write the hidden states of texts to files: of any layers, per text, word or token.

    hf-gpt extract-features --model_name_or_path gpt-mini --keep_columns id label --layers 0 4 \
        --input_files texts.jsonl --pooling mean --output_dir outputs/features

Rows are divided into shards of equal size, which processes share; the same command resumes after an interruption. The
output folder holds the shards (`data`), a card (README.md) that says what was extracted and how to read it, and
`features.json`, which is there when all is done.
"""

from ..features.shards import FeatureArguments, extract
from ..training.arguments import check_launch
from . import command

main = command(__doc__, FeatureArguments, resume="The same command resumes it.", check=check_launch)(extract)
