"""What a language model expects at each position of a text: the likeliest tokens, and the rank of the true one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..files import templates
from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from . import check_predicted
from .scoring import score_texts

# Surprisal, in bits, from which a token of the page has the full colour.
_FULL_COLOUR = 16


@dataclass(frozen=True)
class NextToken:
    """A token that may come next: its text, whether it ends a word (if known), and its probability."""

    text: str
    ends_word: bool | None
    probability: float

    @classmethod
    def of(cls, tokenizer: GPTTokenizer, token_id: int, probability: float) -> "NextToken":
        """The token with an id."""
        return cls(*tokenizer.piece(token_id), probability)

    def __str__(self) -> str:
        """On one line; what does not end a word ends with an ellipsis."""
        return self.text.replace("\n", "⏎") + ("…" if self.ends_word is False else "")


@dataclass(frozen=True)
class Position:
    """A token of a text, its rank by probability, from 1, its surprisal in bits, and the likeliest tokens."""

    token: NextToken
    rank: int
    surprisal: float
    likeliest: tuple[NextToken, ...]


def inspect(
    model: GPTForCausalLM,
    tokenizer: GPTTokenizer,
    ids: Sequence[int],
    count: int = 5,
    stride: int | None = None,
    given: Sequence[int] = (),
) -> list[Position]:
    """
    What was expected at every position of a text but the first, or, with tokens that are `given` before it, at every
    one; with the `count` likeliest tokens. See `hf_gpt.generation.scoring.score_texts` for long texts. A `ValueError`
    if there are fewer than two tokens.
    """
    check_predicted([*given, *ids])
    (score,) = score_texts(model, [ids], stride, given=[given], likeliest=min(count, len(tokenizer)))
    columns = (score.log_probs, score.ranks, score.likeliest, score.likeliest_log_probs.exp())
    predicted = ids[len(ids) - len(score.log_probs) :]
    positions = []
    for token_id, value, rank, *expected in zip(predicted, *(column.tolist() for column in columns), strict=True):
        likeliest = tuple(NextToken.of(tokenizer, *token) for token in zip(*expected, strict=True))
        token = NextToken.of(tokenizer, token_id, math.exp(value))
        positions.append(Position(token, rank, -value / math.log(2), likeliest))
    return positions


def render_page(model: str, first: NextToken | None, positions: Sequence[Position]) -> str:
    """
    A self-contained HTML page: the text coloured by surprisal, and a table of all positions; `first` is the text's
    first token, where it was not predicted.
    """
    rows = [(position, round(min(position.surprisal / _FULL_COLOUR, 1), 2)) for position in positions]
    mean = sum(position.surprisal for position in positions) / len(positions)
    template = Path(__file__).parent / "templates" / "inspection.html.jinja"
    return templates.render_page(template, f"What {model} expected", first=first, positions=rows, mean=mean)
