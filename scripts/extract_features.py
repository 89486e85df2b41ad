"""
Write the hidden states of texts to files: of any layers, per text, word or token.

    accelerate launch scripts/extract_features.py --model_name_or_path model_cards/gpt-mini \
        --input_files scripts/data/questions.jsonl --keep_columns id label --layers 0 5 --pooling mean \
        --output_dir outputs/features
    accelerate launch scripts/extract_features.py --model_name_or_path outputs/questions \
        --input_files scripts/data/questions.jsonl --pooling classify --format npy --output_dir outputs/classify_states

`--config` gives defaults that flags override. Rows are cut into shards of equal size, which processes share; the same
command goes on after a stop, and every shard that was finished is kept. The output folder holds the shards (`data`), a
card (README.md) that says what was extracted and how to read it, and `features.json`, which is there when all is done.
"""

import sys

from hf_gpt.feature_shards import FeatureArguments, extract
from hf_gpt.training_args import check_launch, parse_arguments


def main() -> None:
    """Parse arguments and run; wrong input ends with one line and exit status 2."""
    try:
        check_launch()
        (args,) = parse_arguments((FeatureArguments,), sys.argv[1:])
        extract(args)
    except (ValueError, OSError) as error:
        print(f"extract_features.py: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
