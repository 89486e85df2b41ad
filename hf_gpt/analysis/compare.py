r"""
What changed between two checkpoints: layers, heads, next tokens, and what was forgotten.

    hf-gpt analyze compare --model_name_or_path gpt-mini --other outputs/questions --output_dir outputs/new

--other is the model as it is now; both are read as language models (a head is left out). cka.png shows how alike their
layers are (linear CKA over tokens), compare.html the first texts coloured by how much the prediction of each token
changed. As means over texts with bootstrap intervals (95%), shift.json holds the share of each head's attention that
looks elsewhere, summary.json how often the likeliest next token is another, the divergence in bits, and perplexities.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..files import flag, write_json
from ..generation import LanguageModelArguments
from ..model.modeling_gpt import GPTForCausalLM
from . import AnalysisArguments, interval_text, mean_intervals, words_of
from .attention import outputs_of
from .figures import cells_figure, write_figure, write_page
from .lens import lens_statistics

# Tokens that CKA is computed of, and texts that are shown.
_TOKENS, _TEXTS = 20_000, 20
_SUMMARY = ("next_tokens_changed", "divergence_bits", "perplexity_before", "perplexity_after", "perplexity_ratio")


def linear_cka(first: np.ndarray, second: np.ndarray) -> float:
    """Linear CKA (Kornblith et al., 2019, equation 4) of states of the same examples; NaN where one does not vary."""
    first, second = (each - each.mean(0) for each in (first.astype(np.float64), second.astype(np.float64)))
    both = np.linalg.norm(second.T @ first) ** 2
    scale = np.linalg.norm(first.T @ first) * np.linalg.norm(second.T @ second)
    return float(both / scale) if scale else float("nan")


def read(model: GPTForCausalLM, ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    """States, `(layers + 1, length, n_embd)`, attention (see `attention_of`) and log-probabilities of a text."""
    outputs = outputs_of(model, ids)
    states, weights = (torch.cat(each).float().cpu().numpy() for each in (outputs.hidden_states, outputs.attentions))
    return states, weights, outputs.logits[0].double().log_softmax(-1).cpu()  # (length, vocab_size)


def attention_shift(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Of each head, `(layers, heads)`, the share of attention that looks elsewhere (total variation), as a mean."""
    return np.abs(before - after)[:, :, 1:].sum(-1).mean(-1) / 2


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    other: str = flag(help="Folder or Hub id of the model as it is after the change.")


def run(args: Arguments) -> None:
    """Read with both, compare, draw."""
    (first, tokenizer), (second, other) = args.load(), LanguageModelArguments(args.other, device=args.device).load()
    shapes = [(model.config.n_layer, model.config.n_head) for model in (first, second)]
    if shapes[0] != shapes[1] or tokenizer.get_vocab() != other.get_vocab():
        raise ValueError(f"{args.other} has other layers, heads or another vocabulary than {args.model_name_or_path}.")
    states, tokens, shifts, shown, rows = [], 0, [], [], []
    for ids in args.token_ids(tokenizer, min(first.config.n_positions, second.config.n_positions)):
        both_states, weights, log_probs = zip(read(first, ids), read(second, ids), strict=True)
        states += [both_states] if tokens < _TOKENS else []
        tokens += len(ids)
        shifts.append(attention_shift(*weights))
        # The model of before in the place of the last layer.
        (after, before), (same, _), (divergence, _) = lens_statistics(torch.stack(log_probs[::-1]), ids)
        shown.append({"words": words_of(tokenizer, ids), "values": [0.0, *divergence]})
        rows.append([np.mean(each) for each in (1 - same, divergence, before, after, after - before)])
    names = f"{args.name} and {Path(args.other).name}"
    layers = [np.concatenate(each, axis=1) for each in zip(*states, strict=True)]  # (layers + 1, tokens, n_embd)
    grid = np.array([[linear_cka(one, other) for other in layers[1]] for one in layers[0]])
    cells = [[f"{value:.2f}" for value in row] for row in grid]
    figure = cells_figure(grid, cells, range(len(grid)), f"Linear CKA of layers: {names} (across)")
    write_figure(args.folder / "cka.png", figure, {"cka": grid})
    title = f"Bits by which the prediction of each token changed: {names}"
    write_page(args.folder / "compare.html", title, {"texts": shown[:_TEXTS]}, "coloured")
    write_json(args.folder / "shift.json", mean_intervals(shifts, args.seed))
    summary = {}
    for name, values in zip(_SUMMARY, np.transpose(rows), strict=True):
        found = mean_intervals(values, args.seed)
        summary[name] = {end: np.exp2(each) if "perplexity" in name else each for end, each in found.items()}
        print(f"{name.replace('_', ' '):28} {interval_text(summary[name].values())}")
    write_json(args.folder / "summary.json", {"texts": len(rows), **summary})
