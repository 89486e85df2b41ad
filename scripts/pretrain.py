"""
Pretrain a GPT language model from random weights on text files.

    accelerate launch scripts/pretrain.py --text_files books/ --tokenizer my_tokenizer \
        --output_dir outputs/pretrained --n_layer 5 --n_embd 192 --n_head 3 --n_positions 512 --max_steps 4000

Texts are tokenized and packed into rows of `n_positions` tokens once; later runs find them in the cache of
`datasets`. About one document in `--hold_out_every` is held out, chosen by its text, or of a few documents the middle
of each. `--config` gives defaults that flags override. A run that was stopped goes on with `--resume_from_checkpoint
last`. The final folder holds the model, its tokenizer and `pretraining.json`: tokens seen, time and the perplexity on
the held-out rows.
"""

import sys

from hf_gpt.pretraining import PretrainingArguments, ShapeArguments, TextArguments, pretrain
from hf_gpt.training_args import check_launch, parse_arguments


def main() -> None:
    """Parse arguments and run; wrong input ends with one line and exit status 2."""
    try:
        check_launch()
        pretrain(*parse_arguments((TextArguments, ShapeArguments, PretrainingArguments), sys.argv[1:]))
    except (ValueError, OSError) as error:
        print(f"pretrain.py: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
