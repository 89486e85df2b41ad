"""What the numbers of all commands may be."""

import math
from typing import Any

# Range, its lowest number and the lowest that is too large -> the flags that have it, the Trainer's own among them.
_FLAGS = {
    ("at least 2", 2, math.inf): "n_positions row_length",
    ("at least 1", 1, math.inf): "max_eval_rows max_length max_train_rows num_proc rows_per_shard tokens_per_batch "
    "validation_rows adapter_size n_embd n_head n_inner n_layer dataloader_prefetch_factor eval_accumulation_steps "
    "gradient_accumulation_steps per_device_eval_batch_size per_device_train_batch_size seeds batch_size steps "
    "max_new_tokens num_beams num_samples passages prompt_tokens stride context context_words max_pairs max_texts",
    ("at least 0", 0, math.inf): "lm_coef max_rise transfer_layers adam_epsilon learning_rate max_grad_norm "
    "warmup_steps weight_decay dataloader_num_workers eval_delay hold_out_every data_seed seed",
    ("above 0", math.ulp(0), math.inf): "eval_steps logging_steps num_train_epochs save_steps layer_decay",
    ("at least 0 and below 1", 0, 1): "dropout adam_beta1 adam_beta2 label_smoothing_factor warmup",
}
RANGES = {name: wanted for wanted, names in _FLAGS.items() for name in names.split()}


def check_ranges(arguments: Any) -> None:
    """A `ValueError` that names the first flag of an argument dataclass outside its range, NaN and infinity too."""
    for name, value in vars(arguments).items():
        if name in RANGES and not isinstance(value, str | None):
            wanted, lowest, limit = RANGES[name]
            if not lowest <= value < limit:
                raise ValueError(f"--{name} {value}: the number must be {wanted}.")
