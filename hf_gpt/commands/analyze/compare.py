r"""
What changed between two checkpoints: layers, heads, next tokens, and what was forgotten.

    python scripts/analyze.py compare --model_name_or_path model_cards/gpt-mini --other outputs/questions \
        --output_dir outputs/change

The first is the model as it was, --other as it is, both as language models (a head is left out). cka.png shows how
alike their layers are (linear CKA over all tokens of the texts; layer 0 is the embedding), shift.png the share of each
head's attention that looks elsewhere, compare.html the first texts coloured by how much the prediction of each token
changed. summary.json holds, as means over texts with bootstrap intervals (95%), the share of positions whose likeliest
next token is another, the divergence in bits, and the perplexity of both: what rose was forgotten.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...analysis import AnalysisArguments, interval_record, mean_intervals, words_of
from ...analysis.change import attention_shift, cka_grid, next_token_divergence, read
from ...analysis.pages import write_coloured
from ...analysis.pictures import grid_picture, write_picture
from ...files import flag, write_json
from ...generation import LanguageModelArguments

# Tokens that CKA is computed of, and texts that are shown.
_TOKENS, _TEXTS = 20_000, 20


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which models, which texts, and where the result goes."""

    other: str = flag(help="Folder or Hub id of the model as it is after the change.")


def run(args: Arguments) -> None:
    """Read with both, compare, draw."""
    (first, tokenizer), (second, other) = args.load(), LanguageModelArguments(args.other, device=args.device).load()
    shapes = [(model.config.n_layer, model.config.n_head) for model in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{args.other} has other layers and heads than {args.model_name_or_path}: name two alike.")
    if tokenizer.get_vocab() != other.get_vocab():
        raise ValueError(f"{args.other} has another vocabulary than {args.model_name_or_path}: name two alike.")
    texts = args.token_ids(tokenizer, min(first.config.n_positions, second.config.n_positions))
    states, shifts, divergences, rows = [], [], [], []
    for ids in texts:
        was, now = read(first, ids), read(second, ids)
        states += [(was.states, now.states)] if sum(len(each[0][0]) for each in states) < _TOKENS else []
        shifts.append(attention_shift(was, now))
        divergences.append(next_token_divergence(was, now))
        changed = (was.log_probs.argmax(-1) != now.log_probs.argmax(-1)).double().mean().item()
        rows.append([changed, divergences[-1].mean(), was.losses.mean(), now.losses.mean()])
    folder, names = Path(args.output_dir), [args.name, Path(args.other).name]
    _draw(args, names, [np.concatenate(each, axis=1) for each in zip(*states, strict=True)], np.stack(shifts))
    shown = [
        {"words": words_of(tokenizer, ids), "values": [0.0, *each.tolist()]}
        for ids, each in zip(texts[:_TEXTS], divergences, strict=False)
    ]
    title = f"Bits by which the prediction of each token changed: {' and '.join(names)}"
    write_coloured(folder / "compare", title, shown)
    summary = _summary(np.array(rows), args.seed)
    write_json(folder / "summary.json", {"texts": len(texts), **summary})
    for name, value in summary.items():
        print(f"{name.replace('_', ' '):28} {value['mean']:8.3f} ({value['low']:.3f} to {value['high']:.3f})")


def _draw(args: Arguments, names: list[str], states: list[np.ndarray], shifts: np.ndarray) -> None:
    """How alike the layers are, and where the heads look."""
    folder, both, grid = Path(args.output_dir), " and ".join(names), cka_grid(*states)
    figure = grid_picture(grid, f"Linear CKA of {both}", *(f"layer of {name}" for name in names))
    write_picture(folder / "cka.png", figure, {"cka": grid.tolist()})
    shift = mean_intervals(shifts, args.seed)
    figure = grid_picture(shift[0], f"Attention that looks elsewhere: {both}", "layer", "head")
    write_picture(folder / "shift.png", figure, interval_record(shift))


def _summary(rows: np.ndarray, seed: int) -> dict[str, dict]:
    """Means, with intervals, over texts `(texts, 4)`: tokens changed, divergence, loss before and after."""
    mean = mean_intervals(np.c_[rows, rows[:, 3] - rows[:, 2]], seed)
    mean[:, 2:] = np.exp(mean[:, 2:])
    names = ("next_tokens_changed", "divergence_bits", "perplexity_before", "perplexity_after", "perplexity_ratio")
    return {name: interval_record(each) for name, each in zip(names, mean.T, strict=True)}
