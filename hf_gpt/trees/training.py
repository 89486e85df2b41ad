"""
Training of any causal model of transformers on trees (`collate_choices`), with plain `transformers.Trainer`. One loss
serves multiple choice, rewards and preferences: the cross-entropy over the scores of an item's choices, which of two
is Bradley and Terry's.
"""

import functools
from types import MethodType
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from .any_model import check_model, choice_log_probs, of_choices, read_trees

# What the scores of choices are; of "answers" every choice is right.
HEADS = ("multiple-choice", "log-probs", "answers")


def tree_model(
    model: PreTrainedModel, head: str, lm_coef: float = 0.0, beta: float = 1.0, mean: bool = False
) -> PreTrainedModel:
    """
    The same model, which from now on reads batches of `collate_choices`, too, and gives their `loss`, averaged over
    the items of the whole batch, and `logits`, `(batch, choices)`, -inf for none. All else about it stays as it is:
    it is saved, loaded, adapted by peft and generates as before. A `ValueError` if it cannot hold trees.

    Args:
        model (`PreTrainedModel`): a causal language model; peft adapts what is returned.
        head (`str`): how choices are scored.
            `"multiple-choice"`: by a new linear unit, `model.score`, on the last token of each: multiple choice with
            a head, rewards of pairs. Without `lm_coef` an output matrix of its own is frozen.
            `"log-probs"`: by their log-probability, less `reference` where rows have it, times `beta`: multiple choice
            without a head, DPO (Rafailov et al., 2023). Logits are log-probabilities among the choices.
            `"answers"`: not at all; the loss is the mean over choices of their mean over tokens. `logits` are the mean
            log-probabilities.
        lm_coef (`float`, *optional*, defaults to 0.0): factor of the language model's loss, the mean over sequences of
            the mean over their predicted tokens, which is added (Radford et al., 2018, equation 5).
        beta (`float`, *optional*, defaults to 1.0): of `"log-probs"`.
        mean (`bool`, *optional*, defaults to `False`): `"log-probs"` per token instead of the sum.
    """
    if head not in HEADS:
        raise ValueError(f"Unknown head {head!r}; choose one of {', '.join(HEADS)}.")
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"Give a model of transformers, not a {type(model).__name__}; add adapters to the result.")
    check_model(model, 1)
    if head == "multiple-choice":
        config = model.config.get_text_config()
        model.score = nn.Linear(config.hidden_size, 1, bias=False, dtype=model.dtype, device=model.device)
        nn.init.normal_(model.score.weight, std=getattr(config, "initializer_range", 0.02))
        if not lm_coef and model.get_output_embeddings().weight is not model.get_input_embeddings().weight:
            model.get_output_embeddings().requires_grad_(False)
    original = type(model).forward

    @functools.wraps(original)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if "classify_index" not in kwargs:
            return original(self, *args, **kwargs)
        items = kwargs.pop("num_items_in_batch", None)
        batch = {name: value for name, value in kwargs.items() if isinstance(value, torch.Tensor)}
        loss, scores = _read(self, batch, head, lm_coef, beta, mean)
        return SequenceClassifierOutput(loss / (batch["labels"].ne(-100).sum() if items is None else items), scores)

    model.forward = MethodType(forward, model)
    # The Trainer counts the labels of all that is accumulated: one for each item, of which none is shifted away.
    model.accepts_loss_kwargs, model.loss_type = True, None
    return model


def _read(self, batch, head, lm_coef, beta, mean) -> tuple[torch.Tensor, torch.Tensor]:
    """The summed loss of a batch, and the scores."""
    labels, present = batch["labels"], batch["classify_index"] >= 0
    counted = batch["lm_weights"].gt(0) if lm_coef else of_choices(batch) & (head != "multiple-choice")
    log_probs, output = read_trees(self, batch, counted, output_hidden_states=head == "multiple-choice")
    if head == "multiple-choice":
        ends = batch["classify_index"].clamp(min=0).unsqueeze(-1)  # (batch, choices, 1)
        states = output.hidden_states[-1].take_along_dim(ends, dim=1).to(self.score.weight.dtype)
        scores = self.score(states).squeeze(-1).float().masked_fill(~present, float("-inf"))
    else:
        scores = choice_log_probs(batch, log_probs, of_choices(batch), mean or head == "answers")
    if head == "log-probs":
        scores = (beta * (scores - batch.get("reference", 0))).log_softmax(-1)
    if head == "answers":
        loss = -(scores.masked_fill(~present, 0).sum(-1) / present.sum(-1)).sum()
    else:
        loss = nn.functional.cross_entropy(scores, labels, reduction="sum")
    if lm_coef:
        loss = loss - lm_coef * (batch["lm_weights"] * log_probs).sum()
    return loss, scores
