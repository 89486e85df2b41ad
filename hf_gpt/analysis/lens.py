"""
What each layer would predict next (the "logit lens"): the state after it goes through the output matrix as if it were
the last. With post-norm blocks, GPT-1's, as it is; with pre-norm blocks, GPT-2's, through the final norm first.
"""

from collections.abc import Sequence

import numpy as np
import torch

from ..generation import check_predicted
from ..model.modeling_gpt import GPTForCausalLM

# Of a text and layer, as means over its predicted tokens; see `lens_statistics`.
STATISTICS = ("surprisal", "agreement", "divergence")


@torch.no_grad()
def lens(model: GPTForCausalLM, ids: Sequence[int]) -> torch.Tensor:
    """
    Log-probabilities, `(layers + 1, length, vocab_size)`, of what every layer would predict after every token of a
    text that fits into the context; layer 0 is the embedding, the last the model itself.
    """
    row = torch.tensor([ids], device=model.device)
    states = model.transformer(row, use_cache=False, output_hidden_states=True).hidden_states
    *before, last = [state[0] for state in states]  # (length, n_embd) each; the last has gone through the final norm
    norm = model.transformer.ln_f if model.config.final_norm else torch.nn.Identity()
    logits = model.token_logits(torch.stack([*map(norm, before), last])).float()  # (layers + 1, length, vocab_size)
    return logits.log_softmax(-1).cpu()


def lens_statistics(seen: torch.Tensor, ids: Sequence[int]) -> np.ndarray:
    """
    How near each layer of what `lens` gives is to what comes next, and to what the whole model says: `(3, layers +
    1)`, in the order of `STATISTICS`, bits of surprisal of the next token, the share of tokens after which the layer's
    first guess is the model's, and the Kullback-Leibler divergence of the model's prediction from the layer's, in
    bits. A `ValueError` says if there are fewer than two tokens.
    """
    check_predicted(ids)
    log_probs, targets = seen[:, :-1].double(), torch.tensor(ids[1:])
    last = log_probs[-1]  # (length - 1, vocab_size)
    surprisal = -log_probs.gather(2, targets.expand(len(log_probs), -1)[..., None])[..., 0]  # (layers + 1, length - 1)
    agreement = (log_probs.argmax(-1) == last.argmax(-1)).double()
    divergence = (last.exp() * (last - log_probs)).sum(-1)
    bits = np.log(2)
    return torch.stack([surprisal.mean(1) / bits, agreement.mean(1), divergence.mean(1) / bits]).numpy()
