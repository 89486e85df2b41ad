r"""
Pretrain a GPT language model on texts, from random weights or from a pretrained checkpoint.

    python scripts/pretrain.py --text_files books/ --tokenizer outputs/my_tokenizer \
        --output_dir outputs/pretrained --n_layer 5 --n_embd 192 --n_head 3 --n_positions 512 --max_steps 4000
    python scripts/pretrain.py --model_name_or_path model_cards/gpt-mini --text_files notes.jsonl \
        --text_column body --learning_rate 1e-3 --output_dir outputs/notes

Texts are tokenized and packed into rows as long as the context once; later runs find them in the cache of
`datasets`. About one document in `--hold_out_every` is held out, chosen by its text, or of a few documents the middle
of each; or `--validation_files` are measured. `--config` gives defaults that flags override. A run that was stopped
resumes with `--resume_from_checkpoint last`. The final folder holds the model, its tokenizer and `pretraining.json`:
where it started, tokens seen, time and the perplexity on the held-out rows, per token and per word of the texts as
given, of a pretrained checkpoint also before training. The card (`README.md`) says the same.
"""

from ..training.arguments import check_launch
from ..training.pretraining import PretrainingArguments, ShapeArguments, TextArguments, pretrain
from . import command, parse_arguments

FIRST = ["text_files", "dataset_name", "model_name_or_path", "tokenizer", "output_dir", "n_layer", "n_embd", "n_head"]
FIRST += ["n_positions", "learning_rate", "max_steps", "per_device_train_batch_size", "resume_from_checkpoint"]


@command(resume="The same command with --resume_from_checkpoint last resumes from the last checkpoint.")
def main() -> None:
    """Parse arguments and run."""
    check_launch()
    kinds = (TextArguments, ShapeArguments, PretrainingArguments)
    pretrain(*parse_arguments(kinds, description=__doc__, groups={"Needed first": FIRST}))
