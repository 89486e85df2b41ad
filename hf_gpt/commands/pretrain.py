r"""
Pretrain a GPT language model on texts, from random weights or from a pretrained checkpoint.

    hf-gpt pretrain --text_files books/ --tokenizer outputs/my_tokenizer --output_dir outputs/pretrained \
        --n_layer 5 --n_embd 192 --n_head 3 --n_positions 512 --max_steps 4000
    hf-gpt pretrain --model_name_or_path gpt-mini --text_files notes.jsonl --text_column body \
        --learning_rate 1e-3 --output_dir outputs/notes

Texts are tokenized and packed into rows as long as the context once; later runs find them in the cache of
`datasets`. About one document in `--hold_out_every` is held out, chosen by its text, or of a few documents the middle
of each; or `--validation_files` are measured. The final folder holds the model, its tokenizer and, in
`pretraining.json` and the card (README.md), where it started, tokens seen, time and the held-out perplexity.
"""

from ..training.arguments import check_launch
from ..training.pretraining import PretrainingArguments, ShapeArguments, TextArguments, pretrain
from . import RESUME, command

# What `--help` shows.
COMMON = """text_files dataset_name validation_files text_column tokenizer hold_out_every row_length
model_name_or_path masked n_layer n_embd n_head n_positions output_dir learning_rate per_device_train_batch_size
max_steps num_train_epochs warmup_steps save_steps eval_steps seed resume_from_checkpoint overwrite_output_dir"""

_KINDS = (TextArguments, ShapeArguments, PretrainingArguments)
main = command(__doc__, *_KINDS, resume=RESUME, check=check_launch, common=COMMON)(pretrain)
