r"""
Which heads or layers a model needs: each is switched off, and the change measured.

    hf-gpt analyze ablate --model_name_or_path gpt-mini --file sentences.txt --output_dir outputs/heads
    hf-gpt analyze ablate --model_name_or_path gpt-mini --what layers --output_dir outputs/layers

A head's output before the projection becomes 0; a layer is left out. The measure is the language model's loss in nats
per token. effects.json ranks the parts by the change, with bootstrap intervals (95%) over texts; curve.png and
curve.json show the loss as more and more are switched off, the least needed first, next to a random order; mask.json
holds in `parts` as many as cost no more than --max_rise, for `hf_gpt.analysis.ablate.attach(model, parts)` in Python.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from tqdm import tqdm

from ..files import flag, write_json
from ..generation.scoring import score_texts
from ..model.configuration_gpt import GPTConfig
from ..model.modeling_gpt import GPTForCausalLM, GPTPreTrainedModel
from . import AnalysisArguments, interval_text, mean_intervals
from .figures import curves_figure, write_figure

# Rows of the table that is printed, random orders next to the pruning curve, and texts that are read at once.
_SHOWN, _RANDOM, _BATCH = 20, 3, 16
# Kind (`heads`, `layers`), layer and number in it (of layers 0).
Part = tuple[str, int, int]
_NAMES = {"heads": "layer {} head {}", "layers": "layer {}"}


def parts_of(config: GPTConfig, kind: str) -> list[Part]:
    """Every part of one kind of a model; none of another kind."""
    count = {"heads": config.n_head, "layers": 1}.get(kind, 0)
    return [(kind, layer, number) for layer in range(1, config.n_layer + 1) for number in range(count)]


def attach(model: GPTPreTrainedModel, parts: Iterable[Part]) -> ExitStack:
    """Switch parts off until the result, a context manager, is closed; a `ValueError` if the model lacks one."""
    transformer, hooks = model.base_model, ExitStack()
    for kind, layer, number in parts:
        if (kind, layer, number) not in parts_of(transformer.config, kind):
            raise ValueError(f"The mask is of another model: this one has no {kind} {number} in layer {layer}.")
        block = transformer.h[layer - 1]
        if kind == "layers":
            hooks.enter_context(block.register_forward_hook(lambda module, args, output: args[0]))
        else:
            index = torch.arange(block.attn.head_dim, device=model.device) + number * block.attn.head_dim
            hook = partial(lambda index, module, args: args[0].index_fill(-1, index, 0), index)
            hooks.enter_context(block.attn.c_proj.register_forward_pre_hook(hook))
    return hooks


def masked_losses(model: GPTForCausalLM, masks: Iterable[list[Part]], texts: Sequence[Sequence[int]]) -> np.ndarray:
    """Losses of texts, in nats per predicted token, with each of some lists of parts off: `(masks, texts)`."""
    found = []
    for mask in tqdm(masks, desc="ablating", unit="mask"):
        with attach(model, mask):
            scores = score_texts(model, texts, batch_size=_BATCH)
        found.append([-score.log_probability / len(score.log_probs) for score in scores])
    return np.array(found)


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, what is switched off, and where the result goes."""

    what: str = flag("heads", "What is switched off.", _NAMES)
    max_rise: float = flag(0.01, "By how much the loss may rise under the saved mask.")


def run(args: Arguments) -> None:
    """Switch off, measure, rank, prune."""
    model, tokenizer = args.load()
    texts, parts = args.token_ids(tokenizer, model.config.n_positions), parts_of(model.config, args.what)
    whole, *changed = masked_losses(model, [[], *([part] for part in parts)], texts)
    intervals = mean_intervals(np.stack(changed, 1) - whole[:, None], args.seed)  # (3, parts)
    rows = [
        {"name": _NAMES[args.what].format(*part[1:]), "part": part, "change": change, "low": low, "high": high}
        for part, change, low, high in zip(parts, *intervals.tolist(), strict=True)
    ]
    ranked = sorted(rows, key=lambda row: -row["change"])
    print(f"lm_loss of {len(texts)} texts: {whole.mean():.4f}; without one of the {args.what}:")
    for row in ranked[:_SHOWN]:
        print(f"  {row['name']:16} {interval_text(row, 'change', '+.4f')}")
    write_json(args.folder / "effects.json", {"metric": "lm_loss", "whole": float(whole.mean()), "parts": ranked})

    def curve(order: list[Part]) -> np.ndarray:
        return masked_losses(model, (order[:count] for count in range(len(order) + 1)), texts).mean(1)

    order = [row["part"] for row in sorted(rows, key=lambda row: row["change"])]
    values = curve(order)
    random = np.random.default_rng(args.seed)
    found = [curve([order[number] for number in random.permutation(len(order))]) for _ in range(_RANDOM)]
    curves = {"least needed first": values.tolist(), f"random (mean of {_RANDOM})": np.mean(found, 0).tolist()}
    allowed = int(np.flatnonzero(values <= values[0] + args.max_rise).max())
    write_json(args.folder / "mask.json", {"first_layer": 1, "parts": sorted(order[:allowed])})
    figure = curves_figure({"": curves}, f"{args.name}: lm_loss as {args.what} are switched off", "switched off")
    write_figure(args.folder / "curve.png", figure, {"metric": "lm_loss", "curves": curves})
    rise = values[allowed] - values[0]
    print(f"mask.json switches off {allowed} of {len(order)} {args.what}: lm_loss changes by {rise:+.4f}.")
