r"""
What each layer would predict next (the logit lens), and how soon it agrees with the whole model.

    python scripts/analyze.py lens --model_name_or_path model_cards/gpt-mini --text "She opened the door and ran." \
        --output_dir outputs/lens

The state after a layer goes through the output matrix as if it were the last: with post-norm blocks (GPT-1) as it is,
with pre-norm blocks (GPT-2) through the final norm first. Layer 0 is the embeddings, the last the model itself.
lens.html and lens.png show the first guess of every layer after every token of the first text, and on the page the
next ones; layers.png and layers.json, as means over all texts with bootstrap intervals (95%), the surprisal of the
next token at each layer in bits, how often its first guess is the model's, and the divergence of the model's
prediction from its.
"""

from dataclasses import dataclass

import numpy as np

from ...analysis import AnalysisArguments, interval_record, interval_text, mean_intervals, words_of
from ...analysis.figures import curves_figure, grid_figure
from ...analysis.lens import STATISTICS, lens, lens_statistics
from ...analysis.pages import write_page
from ...files import flag
from ...generation import print_table

_LABELS = ("surprisal, bits", "share: the model's guess", "divergence, bits")


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
    words = [[words_of(tokenizer, row) for row in layer] for layer in top.indices.tolist()]
    chances = top.values.exp().double().numpy().round(4)
    guesses = [
        [[*zip(*cell, strict=True)] for cell in zip(*layer, strict=True)]
        for layer in zip(words, chances.tolist(), strict=True)
    ]
    shown = {"tokens": words_of(tokenizer, ids), "guesses": guesses}
    write_page(args.folder / "lens.html", title, shown)
    best = [[row[0] for row in layer] for layer in words]
    figure = grid_figure(chances[..., 0], title, "layer", "", column_names=shown["tokens"], words=best)
    args.save("lens", figure, shown)
    intervals = mean_intervals(each, args.seed).transpose(1, 0, 2)  # (statistics, 3, layers + 1)
    panels = {label: {"": values} for label, values in zip(_LABELS, intervals, strict=True)}
    record = dict(zip(STATISTICS, map(interval_record, intervals), strict=True))
    args.save("layers", curves_figure(panels, f"{title}, mean over texts", "layer"), record)
    rows = [[interval_text(interval_record(values), form=".2f") for values in layer.T] for layer in intervals.T]
    print_table([{"layer": n, **dict(zip(_LABELS, row, strict=True))} for n, row in enumerate(rows)])
