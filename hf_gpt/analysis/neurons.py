r"""
What single neurons respond to, as coloured text, and which of them separates the labels of texts.

    hf-gpt analyze neurons --model_name_or_path gpt-mini --file reviews.csv --output_dir outputs/neurons

Units are the neurons of the feed-forward layers. With labels, numbers or two classes, they are ranked by correlation
with their mean activation in a text; the printed threshold is what the best of all units reaches by chance in one of
20 shuffles of the labels. ranking.json holds the best; neurons.html and neurons.json the texts, coloured by the
activation of the best units, or of --unit LAYER NUMBER: layers count from 1, the first block, units from 0.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

from ..files import flag, write_json
from ..model.modeling_gpt import GPTPreTrainedModel
from . import AnalysisArguments, words_of
from .figures import terminal_text, write_page

# Units of the page, of the ranking, and texts that are shown.
_COLOURED, _RANKED, _TEXTS = 5, 20, 20


@torch.no_grad()
def activations(model: GPTPreTrainedModel, ids: Sequence[int]) -> np.ndarray:
    """Activations, `(layers, units, length)`, of all neurons at the tokens of a text; the first row is layer 1."""
    transformer, found = model.base_model, []  # (1, length, units) of each layer
    with ExitStack() as hooks:
        for block in transformer.h:
            hooks.enter_context(block.mlp.c_proj.register_forward_pre_hook(lambda _, args: found.append(args[0])))
        transformer(torch.tensor([ids], device=transformer.device), use_cache=False)
    return torch.cat(found).transpose(1, 2).float().contiguous().cpu().numpy()


def association(pooled: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Pearson's correlations, `(..., layers, units)`, of `(texts, layers, units)` with labels `(..., texts)`."""
    flat = StandardScaler().fit_transform(pooled.reshape(len(pooled), -1).astype(np.float64))
    wanted = (labels - labels.mean(-1, keepdims=True)) / labels.std(-1, keepdims=True)
    return (wanted @ flat / len(flat)).reshape(*labels.shape[:-1], *pooled.shape[1:])


def chance(pooled: np.ndarray, labels: np.ndarray, seed: int = 0) -> float:
    """How far from 0 the best unit's correlation is in one of 20 shuffles of the labels: what is below is chance."""
    shuffled = np.random.default_rng(seed).permuted(np.tile(labels, (200, 1)), axis=1)
    return float(np.quantile(np.abs(association(pooled, shuffled)).max((1, 2)), 0.95))


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    unit: list[int] | None = flag(None, "Layer, from 1, and number of the one unit to show.")


def run(args: Arguments) -> None:
    """Read, rank, colour."""
    if len(args.unit or (0, 0)) != 2:
        raise ValueError("--unit is two numbers: a layer and a unit in it.")
    examples = args.examples
    labels = None if args.unit else _labels([example.label for example in examples])
    model, tokenizer = args.load()
    texts = args.token_ids(tokenizer, model.config.n_positions, fewest=1)
    shown, pooled = [], []
    for ids in texts:
        values = activations(model, ids)  # (layers, units, length)
        pooled.append(values.mean(-1))
        shown += [values] if len(shown) < _TEXTS else []
    layers, width = pooled[0].shape
    if not args.unit:
        pooled = np.stack(pooled)
        values, by_chance = association(pooled, labels), chance(pooled, labels, args.seed)
        order = np.argsort(-np.abs(values), axis=None, kind="stable")[:_RANKED].tolist()
        units = [(place // width + 1, place % width) for place in order]
        rows = [{"name": f"layer {k} unit {unit}", "value": values[k - 1, unit]} for k, unit in units]
        for row in rows[:_COLOURED]:
            print(f"  {row['name']:18} {row['value']:+.3f}")
        print(f"By chance the best of {values.size:,} units reaches {by_chance:.3f} with {len(labels)} texts.")
        record = {"texts": len(labels), "units": values.size, "best": rows, "chance": by_chance}
        write_json(args.folder / "ranking.json", record)
        units = units[:_COLOURED]
    elif 1 <= args.unit[0] <= layers and 0 <= args.unit[1] < width:
        units = [tuple(args.unit)]
    else:
        raise ValueError(f"--unit {args.unit}: there are layers 1 to {layers} of {width} units, from 0.")
    coloured = []
    for layer, unit in units:
        view = f"layer {layer}, unit {unit}"
        for ids, values, example in zip(texts, shown, examples, strict=False):
            text = {"words": words_of(tokenizer, ids), "values": values[layer - 1, unit]}
            coloured.append({"view": view, "label": example.label, **text})
    print(f"{coloured[0]['view']}:")
    for text in coloured[: len(shown)]:
        print(f"  {text['label'] or ''} {terminal_text(text['words'], text['values'])}")
    write_page(args.folder / "neurons.html", f"Activation in {args.name}", {"texts": coloured}, "coloured")


def _labels(labels: list[str | None]) -> np.ndarray:
    """Numbers, or two classes as 0 and 1."""
    names, classes = np.unique([*map(str, labels)], return_inverse=True)
    if None in labels or len(names) < 2:
        raise ValueError("Units are ranked by two labels or more: give a --file with one for each text, or --unit.")
    try:
        return np.array(labels, dtype=np.float64)
    except ValueError as error:
        if len(names) > 2:
            raise ValueError(f"Units are ranked by numbers or two classes, not by {len(names)} classes.") from error
        return classes
