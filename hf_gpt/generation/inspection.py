"""What a language model expects at each position of a text: the likeliest tokens, and the place of the true one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from ..files import templates
from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from . import check_predicted
from .scoring import checked_stride, windows

# Surprisal, in bits, from which a token of the page has the full colour.
_FULL_COLOUR = 16


@dataclass(frozen=True)
class NextToken:
    """A token that may come next: its text, whether it ends a word (if it says so), and its probability."""

    text: str
    ends_word: bool | None
    probability: float

    @classmethod
    def of(cls, tokenizer: GPTTokenizer, token_id: int, probability: float) -> "NextToken":
        """The token with an id."""
        return cls(*tokenizer.piece(token_id), probability)

    def __str__(self) -> str:
        """On one line; what goes on within the word ends with an ellipsis."""
        return self.text.replace("\n", "⏎") + ("…" if self.ends_word is False else "")


@dataclass(frozen=True)
class Position:
    """
    A token of a text with its probability, its place among all tokens by probability, from 1, -log2 of it, in bits,
    and the likeliest tokens, the first first.
    """

    token: NextToken
    rank: int
    surprisal: float
    likeliest: tuple[NextToken, ...]


@torch.no_grad()
def inspect(
    model: GPTForCausalLM,
    tokenizer: GPTTokenizer,
    ids: Sequence[int],
    count: int = 5,
    stride: int | None = None,
) -> list[Position]:
    """
    What was expected at every position of a text but the first, with so many likeliest tokens; see
    `hf_gpt.generation.scoring` for long ones. A `ValueError` says if there are fewer than two tokens.
    """
    check_predicted(ids)
    context = model.config.n_positions
    count = min(count, len(tokenizer))
    positions = []
    parts = [*windows(len(ids), context, checked_stride(stride, context))]
    for begin, end, first in tqdm(parts, desc="reading", unit="window"):
        row = torch.tensor([ids[begin:end]], device=model.device)  # (1, window)
        before = torch.arange(first - 1, end - 1, device=model.device) - begin
        log_probs = model(row, logits_to_keep=before).logits[0].float().log_softmax(-1)  # (counted, vocab_size)
        own = log_probs.gather(1, row[0, before + 1, None])  # (counted, 1)
        ranks = (log_probs > own).sum(1) + 1
        top = log_probs.topk(count)
        for index, token_id in enumerate(ids[first:end]):
            value = own[index].item()
            likeliest = zip(top.indices[index].tolist(), top.values[index].exp().tolist(), strict=True)
            positions.append(
                Position(
                    NextToken.of(tokenizer, token_id, math.exp(value)),
                    int(ranks[index]),
                    -value / math.log(2),
                    tuple(NextToken.of(tokenizer, *expected) for expected in likeliest),
                )
            )
    return positions


def render_page(model: str, first: NextToken, positions: Sequence[Position]) -> str:
    """A self-contained HTML page: the text coloured by surprisal, and a table of all positions."""
    shades = [round(min(position.surprisal / _FULL_COLOUR, 1), 2) for position in positions]
    template = Path(__file__).parent / "templates" / "inspection.html.jinja"
    mean = sum(position.surprisal for position in positions) / len(positions)
    rows = [*zip(positions, shades, strict=True)]
    return templates.render_page(template, f"What {model} expected", first=first, positions=rows, mean=mean)
