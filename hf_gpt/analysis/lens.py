r"""
What each layer would predict next (the logit lens), and how soon it agrees with the whole model.

    hf-gpt analyze lens --model_name_or_path gpt-mini --text "She ran home." --output_dir outputs/lens

The state after a layer goes through the output matrix as if it were the last: with post-norm blocks (GPT-1) as it is,
with pre-norm blocks (GPT-2) through the final norm first. Layer 0 is the embeddings, the last the model itself.
lens.html and lens.png show the first guess of every layer after every token of the first text, and on the page the
next ones; layers.json, as means over all texts with bootstrap intervals (95%), the surprisal of the next token at each
layer in bits, how often it agrees with the model's first guess, and the divergence of the model's prediction in bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..files import flag, write_json
from ..generation import check_predicted, print_table
from ..model.modeling_gpt import GPTForCausalLM
from . import AnalysisArguments, interval_record, interval_text, mean_intervals, words_of
from .figures import words_figure, write_figure, write_page

STATISTICS = ("surprisal", "agreement", "divergence")


@torch.no_grad()
def lens(model: GPTForCausalLM, ids: Sequence[int]) -> torch.Tensor:
    """Log-probabilities, `(layers + 1, length, vocab_size)`, of what every layer would predict after every token."""
    row = torch.tensor([ids], device=model.device)
    states = model.transformer(row, use_cache=False, output_hidden_states=True).hidden_states
    *before, last = [state[0] for state in states]  # (length, n_embd) each; the last has gone through the final norm
    norm = model.transformer.ln_f if model.config.final_norm else torch.nn.Identity()
    logits = model.token_logits(torch.stack([*map(norm, before), last])).float()  # (layers + 1, length, vocab_size)
    return logits.log_softmax(-1).cpu()


def lens_statistics(seen: torch.Tensor, ids: Sequence[int]) -> np.ndarray:
    """
    Of each layer of what `lens` gives, `(3, layers + 1)` in the order of `STATISTICS`: surprisal of the next token,
    share of first guesses that are the model's, and the Kullback-Leibler divergence of its prediction, in bits.
    """
    check_predicted(ids)
    log_probs, targets = seen[:, :-1].double(), torch.tensor(ids[1:])
    last = log_probs[-1]  # (length - 1, vocab_size)
    surprisal = -log_probs.gather(2, targets.expand(len(log_probs), -1)[..., None])[..., 0]  # (layers + 1, length - 1)
    agreement = (log_probs.argmax(-1) == last.argmax(-1)).double()
    divergence = (last.exp() * (last - log_probs)).sum(-1)
    return torch.stack([surprisal / np.log(2), agreement, divergence / np.log(2)]).mean(-1).numpy()


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model, which texts, and where the result goes."""

    top_tokens: int = flag(5, "Likeliest tokens of each layer that the page shows.")
    max_tokens: int = flag(32, "Tokens of the first text that are shown at most.")


def run(args: Arguments) -> None:
    """Read, guess, draw."""
    model, tokenizer = args.load()
    texts, title = args.token_ids(tokenizer, model.config.n_positions), f"What the layers of {args.name} would predict"
    each = np.stack([lens_statistics(lens(model, ids), ids) for ids in texts])  # (texts, statistics, layers + 1)
    ids = texts[0][: args.max_tokens]
    top = lens(model, ids).topk(min(args.top_tokens, len(tokenizer)))  # (layers + 1, length, count)
    chances = top.values.exp().double().numpy().round(4)
    guesses = [
        [[*zip(words_of(tokenizer, row), each, strict=True)] for row, each in zip(*layer, strict=True)]
        for layer in zip(top.indices.tolist(), chances.tolist(), strict=True)
    ]
    shown = {"tokens": words_of(tokenizer, ids), "guesses": guesses}
    write_page(args.folder / "lens.html", title, shown)
    best = [[cell[0][0] for cell in layer] for layer in guesses]
    write_figure(args.folder / "lens.png", words_figure(chances[..., 0], best, shown["tokens"], title), shown)
    values = dict(zip(STATISTICS, mean_intervals(each, args.seed).transpose(1, 0, 2), strict=True))  # (3, layers + 1)
    write_json(args.folder / "layers.json", {name: interval_record(value) for name, value in values.items()})
    rows = []
    for layer in range(each.shape[2]):
        cells = {name: interval_text(interval_record(of[:, layer]), form=".2f") for name, of in values.items()}
        rows.append({"layer": layer, **cells})
    print_table(rows)
