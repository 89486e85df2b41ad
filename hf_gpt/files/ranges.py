"""What the numbers of all commands may be."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

# Range -> its check and the flags that have it, the Trainer's own among them.
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "at least 1": (
        lambda number: number >= 1,
        "max_eval_rows max_length max_train_rows num_proc rows_per_shard task_rows_cap tokens_per_batch "
        "validation_rows adapter_size n_embd n_head n_inner n_layer dataloader_prefetch_factor "
        "eval_accumulation_steps gradient_accumulation_steps per_device_eval_batch_size per_device_train_batch_size "
        "seeds batch_size max_new_tokens max_tokens no_repeat_ngram_size num_samples passages prompt_tokens stride "
        "top_tokens count draws max_pairs max_texts path_steps phrase_words steps",
    ),
    "at least 2": (lambda number: number >= 2, "n_positions row_length"),
    "at least 0": (
        lambda number: number >= 0,
        "lm_coef max_rise transfer_layers adam_epsilon learning_rate max_grad_norm warmup_steps weight_decay "
        "dataloader_num_workers eval_delay",
    ),
    "above 0": (
        lambda number: number > 0,
        "repetition_penalty perturbation_learning_rate perturbation_rate eval_steps logging_steps num_train_epochs "
        "save_steps",
    ),
    "at least 0 and below 1": (
        lambda number: 0 <= number < 1,
        "dropout adam_beta1 adam_beta2 label_smoothing_factor warmup",
    ),
    "at least 0 and below 4294967296": (lambda number: 0 <= number < 2**32, "data_seed seed"),
    "at least 0 and other than 1": (lambda number: number >= 0 and number != 1, "hold_out_every"),
    "above 0 and at most 1": (lambda number: 0 < number <= 1, "layer_decay"),
    "at least -1 and other than 0": (lambda number: number >= -1 and number != 0, "max_steps"),
}
RANGES = {name: wanted for wanted, (_, names) in _RANGES.items() for name in names.split()}


def check_ranges(arguments: Any) -> None:
    """A `ValueError` that names the first flag of an argument dataclass outside its range, NaN and infinity too."""
    for name in [item.name for item in dataclasses.fields(arguments) if item.name in RANGES]:
        value, wanted = getattr(arguments, name), RANGES[name]
        if not isinstance(value, str | None) and not (math.isfinite(value) and _RANGES[wanted][0](value)):
            raise ValueError(f"--{name} {value}: the number must be {wanted}.")
