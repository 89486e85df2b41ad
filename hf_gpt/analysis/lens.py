"""
What each layer would predict next (the "logit lens"): the state after it goes through the output matrix as if it were
the last. With post-norm blocks, GPT-1's, as it is; with pre-norm blocks, GPT-2's, through the final norm first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..generation import check_predicted
from ..model.modeling_gpt import GPTForCausalLM

# Of a text and layer, as means over its predicted tokens; see `lens_statistics`.
STATISTICS = ("surprisal", "agreement", "divergence")


@dataclass(frozen=True)
class Lens:
    """
    Predictions of every layer for a text; layer 0 is the embedding, the last the model itself.

    Args:
        ids (`list[int]`): its tokens.
        log_probs (`torch.Tensor` of shape `(layers + 1, length, vocab_size)`): of the token after each.
    """

    ids: list[int]
    log_probs: torch.Tensor


@torch.no_grad()
def lens(model: GPTForCausalLM, ids: Sequence[int]) -> Lens:
    """
    What every layer would predict at every token.

    Args:
        model (`GPTForCausalLM`): in evaluation mode.
        ids (`Sequence[int]`): one token or more, no more than the context.
    """
    states = model.transformer(
        torch.tensor([ids], device=model.device), use_cache=False, output_hidden_states=True
    ).hidden_states
    *before, last = [state[0] for state in states]  # (length, n_embd) each; the last has gone through the final norm
    norm = model.transformer.ln_f if model.config.final_norm else torch.nn.Identity()
    logits = model.token_logits(torch.stack([*map(norm, before), last])).float()  # (layers + 1, length, vocab_size)
    return Lens(list(ids), logits.log_softmax(-1).cpu())


def lens_statistics(seen: Lens) -> np.ndarray:
    """
    How near each layer is to what comes next, and to what the whole model says.

    Args:
        seen (`Lens`): of two tokens or more.

    Returns:
        `np.ndarray` of shape `(3, layers + 1)`, in the order of `STATISTICS`: bits of surprise at the next token, the
        share of tokens behind which the layer's first guess is the model's, and the Kullback-Leibler divergence of the
        model's prediction from the layer's, in bits.

    Raises:
        ValueError: if there are fewer than two tokens.
    """
    check_predicted(seen.ids)
    log_probs, targets = seen.log_probs[:, :-1].double(), torch.tensor(seen.ids[1:])
    last = log_probs[-1]  # (length - 1, vocab_size)
    surprisal = -log_probs.gather(2, targets.expand(len(log_probs), -1)[..., None])[..., 0]  # (layers + 1, length - 1)
    agreement = (log_probs.argmax(-1) == last.argmax(-1)).double()
    divergence = (last.exp() * (last - log_probs)).sum(-1)
    bits = np.log(2)
    return torch.stack([surprisal.mean(1) / bits, agreement.mean(1), divergence.mean(1) / bits]).numpy()
