"""What the numbers of all commands may be."""

import dataclasses
import math
import operator
from typing import Any

_COMPARISONS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}
_COMPARISONS["other than"] = operator.ne
# The bounds, and the flags that have them, the Trainer's own among them.
_BOUNDS: list[tuple[dict[str, float], str]] = [
    (
        {"at least": 1},
        "max_eval_rows max_length max_train_rows num_proc rows_per_shard task_rows_cap tokens_per_batch "
        "validation_rows adapter_size n_embd n_head n_inner n_layer dataloader_prefetch_factor "
        "eval_accumulation_steps gradient_accumulation_steps per_device_eval_batch_size per_device_train_batch_size "
        "seeds batch_size max_new_tokens max_tokens no_repeat_ngram_size num_samples passages prompt_tokens stride "
        "top_tokens count draws max_pairs max_texts path_steps phrase_words steps",
    ),
    ({"at least": 2}, "n_positions row_length"),
    (
        {"at least": 0},
        "lm_coef max_rise transfer_layers adam_epsilon learning_rate max_grad_norm warmup_steps weight_decay "
        "dataloader_num_workers eval_delay",
    ),
    (
        {"above": 0},
        "repetition_penalty perturbation_learning_rate perturbation_rate eval_steps logging_steps num_train_epochs "
        "save_steps",
    ),
    ({"at least": 0, "below": 1}, "dropout adam_beta1 adam_beta2 label_smoothing_factor warmup"),
    ({"at least": 0, "below": 2**32}, "data_seed seed"),
    ({"at least": 0, "other than": 1}, "hold_out_every"),
    ({"above": 0, "at most": 1}, "layer_decay"),
    ({"at least": -1, "other than": 0}, "max_steps"),
]
RANGES = {name: bounds for bounds, names in _BOUNDS for name in names.split()}


def check_ranges(arguments: Any) -> None:
    """
    Compare the numbers of an argument dataclass with `RANGES`: a `ValueError` names the first flag outside, NaN and
    infinity among them, and its range.
    """
    for name in [item.name for item in dataclasses.fields(arguments) if item.name in RANGES]:
        value, bounds = getattr(arguments, name), RANGES[name]
        if value is None or isinstance(value, str):
            continue
        if not math.isfinite(value) or not all(_COMPARISONS[word](value, bound) for word, bound in bounds.items()):
            wanted = " and ".join(f"{word} {bound}" for word, bound in bounds.items())
            raise ValueError(f"--{name} {value}: the number must be {wanted}.")
