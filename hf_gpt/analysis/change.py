"""
What changed between two checkpoints, as from before to after fine-tuning: how alike their layers are, where their
heads look, and what they predict.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..generation import check_predicted
from ..model.modeling_gpt import GPTForCausalLM
from .attention import eager_attention


def linear_cka(first: np.ndarray, second: np.ndarray) -> float:
    """
    Linear centred kernel alignment (Kornblith et al., 2019, equation 4): how alike states of the same examples,
    `(examples, n)` and `(examples, m)`, are but for rotation and scale, from 0 to 1; NaN where one does not vary.
    """
    first, second = (each - each.mean(0) for each in (first.astype(np.float64), second.astype(np.float64)))
    both = np.linalg.norm(second.T @ first) ** 2
    scale = np.linalg.norm(first.T @ first) * np.linalg.norm(second.T @ second)
    return float(both / scale) if scale else float("nan")


@dataclass(frozen=True)
class Reading:
    """
    A model's reading of a text: states after the embedding and every block `(layers + 1, length, n_embd)`, attention
    `(layers, heads, length, length)`, log-probabilities of the tokens that follow `(length - 1, vocab_size)`, and the
    loss of each token but the first in nats `(length - 1,)`.
    """

    states: np.ndarray
    weights: np.ndarray
    log_probs: torch.Tensor
    losses: np.ndarray


@torch.no_grad()
def read(model: GPTForCausalLM, ids: Sequence[int]) -> Reading:
    """A text, of two tokens or more (else a `ValueError`) and no more than the context, as a model reads it."""
    check_predicted(ids)
    row = torch.tensor([ids], device=model.device)
    with eager_attention(model):
        outputs = model(row, use_cache=False, output_hidden_states=True, output_attentions=True)
    log_probs = outputs.logits[0, :-1].double().log_softmax(-1).cpu()
    losses = -log_probs.gather(1, row[0, 1:, None].cpu())[:, 0]
    states, weights = (torch.cat(each).float().cpu().numpy() for each in (outputs.hidden_states, outputs.attentions))
    return Reading(states, weights, log_probs, losses.numpy())


def attention_shift(before: Reading, after: Reading) -> np.ndarray:
    """
    Of each head the share of its attention that looks elsewhere (total variation), as a mean over the text's tokens
    but the first: `(layers, heads)`, from 0 to 1.
    """
    return np.abs(before.weights - after.weights)[:, :, 1:].sum(-1).mean(-1) / 2


def next_token_divergence(before: Reading, after: Reading) -> np.ndarray:
    """Kullback-Leibler divergence of what was predicted from what is, in bits, after each token: `(length - 1,)`."""
    was, now = before.log_probs, after.log_probs
    return ((was.exp() * (was - now)).sum(-1) / np.log(2)).numpy()
