r"""
Pretrain a GPT language model from random weights on text files.

    python scripts/pretrain.py --text_files books/ --tokenizer outputs/my_tokenizer \
        --output_dir outputs/pretrained --n_layer 5 --n_embd 192 --n_head 3 --n_positions 512 --max_steps 4000

Texts are tokenized and packed into rows of `n_positions` tokens once; later runs find them in the cache of
`datasets`. About one document in `--hold_out_every` is held out, chosen by its text, or of a few documents the middle
of each. `--config` gives defaults that flags override. A run that was stopped goes on with `--resume_from_checkpoint
last`. The final folder holds the model, its tokenizer and `pretraining.json`: tokens seen, time and the perplexity on
the held-out rows.
"""

from ..training.arguments import check_launch
from ..training.pretraining import PretrainingArguments, ShapeArguments, TextArguments, pretrain
from . import command, parse_arguments

FIRST = ["text_files", "tokenizer", "output_dir", "n_layer", "n_embd", "n_head", "n_positions"]
FIRST += ["learning_rate", "max_steps", "per_device_train_batch_size", "resume_from_checkpoint"]


@command(resume="The same command with --resume_from_checkpoint last goes on from the last checkpoint.")
def main() -> None:
    """Parse arguments and run."""
    check_launch()
    kinds = (TextArguments, ShapeArguments, PretrainingArguments)
    pretrain(*parse_arguments(kinds, description=__doc__, groups={"Needed first": FIRST}))
