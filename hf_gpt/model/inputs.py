"""What the models read, conventional inputs and token trees: their checks, positions, masks and classify tokens."""

import torch
from transformers.masking_utils import (
    create_bidirectional_mask,
    create_causal_mask,
    find_packed_sequence_indices,
    packed_sequence_mask_function,
)

from .configuration_gpt import GPTConfig

VIRTUAL_TOKENS = (
    "For prefix and prompt tuning of a task head, take the settings that hf_gpt.adapter_config gives "
    '(task_type="GPT_TASK"); peft\'s own "SEQ_CLS" cannot find the classify token.'
)


def conventional_inputs(
    config: GPTConfig, input_ids: torch.Tensor | None, attention_mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """
    Sequences of tokens as a task head reads them.

    Args:
        config (`GPTConfig`): of the model.
        input_ids, attention_mask (`torch.Tensor` of shape `(batch, length)` or `(batch, choices, length)`).

    Returns:
        `tuple`: tokens and mask of shape `(rows, length)`, and the `classify_index` of shape `(batch, paths)`: each
        path's first classify token among the tokens of its item, -1 where the mask leaves none.
    """
    if input_ids is None:
        raise ValueError(
            f"inputs_embeds needs classify_index: the position whose state is classified. {VIRTUAL_TOKENS}"
        )
    batch, *_, length = input_ids.shape
    tokens = input_ids.reshape(batch, -1, length)  # (batch, paths, length)
    is_classify = tokens.eq(-1 if config.classify_token_id is None else config.classify_token_id)
    flat_mask = None if attention_mask is None else attention_mask.reshape(-1, length)  # (rows, length)
    seen = torch.ones_like(tokens) if flat_mask is None else flat_mask.view_as(tokens)
    present = seen.bool().any(-1)  # (batch, paths)
    checked = not (config.release_quirks or torch.compiler.is_compiling())
    if checked and not (is_classify.any(-1) | ~present).all():
        raise ValueError(
            f"A sequence has no classify token (id {config.classify_token_id}), so there is no state to "
            "classify: end each text with it (GPTTokenizer with task_template=True does), or give classify_index."
        )
    first = is_classify.int().argmax(-1)  # the first one; position 0 where there is none
    before = torch.arange(tokens.shape[1], device=tokens.device) * length  # (paths,), tokens of the paths before
    return tokens.flatten(0, 1), flat_mask, (before + first).masked_fill(~present, -1)


def token_index(
    input_ids: torch.Tensor | None, attention_mask: torch.Tensor | None, inputs_embeds: torch.Tensor | None
) -> torch.Tensor:
    """The `classify_index` of a head that scores every token, of shape `(batch, length)`, -1 for padding."""
    tokens = input_ids if inputs_embeds is None else inputs_embeds
    index = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape[0], -1)  # (batch, length)
    return index if attention_mask is None else index.masked_fill(~attention_mask.bool(), -1)


def default_lm_weights(input_ids: torch.Tensor, attention_mask: torch.Tensor | None, batch: int) -> torch.Tensor:
    """
    `1 / (sequences of the example * predicted tokens of the sequence)` for every token after the first, of shape
    `(rows, length)` as what `conventional_inputs` gives; each of the `batch` examples has as many rows.
    """
    tokens = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    tokens = tokens.bool().reshape(batch, -1, input_ids.shape[-1])  # (batch, rows of an example, length)
    predicted = (tokens & (tokens.int().cumsum(-1) > 1)).float()
    per_sequence = predicted / predicted.sum(-1, keepdim=True).clamp(min=1)
    sequences = tokens.any(-1).sum(-1).clamp(min=1)  # (batch,)
    return (per_sequence / sequences[:, None, None]).view_as(input_ids)


def check_labels(config: GPTConfig, labels: torch.Tensor) -> None:
    """Raise a `ValueError` for labels of tokens that have no probability."""
    without = list({config.mask_token_id, *(config.untrained_token_ids or ())} - {None})
    if without and not torch.compiler.is_compiling():
        found = labels[torch.isin(labels, torch.tensor(without, device=labels.device))]
        if found.numel():
            raise ValueError(
                f"labels hold the token {int(found[0])}, whose row is untrained and takes no part in the softmax "
                "(mask_token_id and untrained_token_ids of the configuration): put -100 there, or, to train it, set "
                "model.config.untrained_token_ids = None before training."
            )


def check_tree_inputs(config: GPTConfig, subtree_end, position_ids, attention_mask, past_key_values) -> None:
    """Raise a `ValueError` for what does not go with `subtree_end`."""
    if position_ids is None:
        raise ValueError("subtree_end needs position_ids: the depth of each token in its tree.")
    if attention_mask is not None or past_key_values is not None:
        raise ValueError("subtree_end already says what each token sees: leave out attention_mask and cache.")
    if not config.is_causal and not torch.compiler.is_compiling():
        within, following = subtree_end[:, :-1], subtree_end[:, 1:]  # (batch, length - 1)
        own = torch.arange(1, subtree_end.shape[1], device=subtree_end.device)
        if ((own < within) & (following != within)).any():
            raise ValueError(
                "What branches of a tree share would see all of them with is_causal=False: lay the sequences out one "
                "by one (share_prefix=False)."
            )
    if "flash" in config._attn_implementation:
        raise ValueError(
            f"Branching token trees need a masked attention, which {config._attn_implementation} is not: "
            'load the model with attn_implementation="sdpa", "flex_attention" or "eager".'
        )


def check_bidirectional(config: GPTConfig, attention_mask, subtree_end, classify_index, return_lm_loss: bool) -> None:
    """Raise a `ValueError` for what a task head on a model that is not causal would get wrong."""
    if config.is_causal:
        return
    if return_lm_loss:
        raise ValueError("A model with is_causal=False sees the tokens that it would predict: set lm_coef to 0.")
    if classify_index is not None and attention_mask is None and subtree_end is None:
        raise ValueError("A model with is_causal=False sees padding on the right: give attention_mask or subtree_end.")


def token_positions(config, position_ids, tokens, attention_mask, past_key_values) -> torch.Tensor:
    """
    Positions as given, or counted from the first token of each row that is not padding. Those beyond the context are a
    `ValueError`, instead of an index error, where looking costs no synchronisation.
    """
    needed = 0
    if position_ids is None and attention_mask is not None and attention_mask.ndim == 2:
        position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]  # (batch, length)
    elif position_ids is None:
        needed = tokens.shape[1]
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        position_ids = (torch.arange(needed, device=tokens.device) + past).unsqueeze(0)  # (1, length)
    if needed <= config.n_positions and position_ids.device.type == "cpu" and not torch.compiler.is_compiling():
        needed = int(position_ids.max()) + 1 if position_ids.numel() else 0
    if needed > config.n_positions:
        raise ValueError(
            f"A sequence of {needed} tokens is longer than the context of {config.n_positions}: truncate it."
        )
    return position_ids


def attention_mask_of(
    config: GPTConfig, hidden_states, attention_mask, position_ids, subtree_end, past_key_values
) -> torch.Tensor | None:
    """
    What the attention implementation takes: tokens see their own sequence, of a tree their ancestors (and, where
    `config.is_causal` is false, their descendants). `position_ids` are those that were given, or `None`.
    """
    arguments = {
        "config": config,
        "inputs_embeds": hidden_states,
        "attention_mask": attention_mask,
        "past_key_values": past_key_values,
    }
    if subtree_end is None and config.is_causal:
        return create_causal_mask(**arguments, position_ids=position_ids)
    if subtree_end is None:
        packed = None
        if position_ids is not None and attention_mask is None and past_key_values is None:
            packed = find_packed_sequence_indices(position_ids.expand(len(hidden_states), -1))
        within = None if packed is None else packed_sequence_mask_function(packed)
        return create_bidirectional_mask(**arguments, and_mask_function=within)

    def within_subtree(batch_idx, head_idx, q_idx, kv_idx):
        seen = q_idx < subtree_end[batch_idx, kv_idx]
        return seen if config.is_causal else seen & (kv_idx < subtree_end[batch_idx, q_idx])

    # Without position_ids: transformers would take every branch for the start of a packed sequence.
    return create_causal_mask(**arguments, and_mask_function=within_subtree)
