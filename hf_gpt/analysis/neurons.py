r"""
What single units respond to, as coloured text, and which of them separates the labels of texts.

    python scripts/analyze.py neurons --model_name_or_path model_cards/gpt-mini --file reviews.csv \
        --output_dir outputs/neurons
    python scripts/analyze.py neurons --model_name_or_path model_cards/gpt-mini --unit 3 17 \
        --text "She opened the door and ran." --output_dir outputs/unit

Units are the neurons of the feed-forward layers, or the dimensions of the states after each block (--units). With
labels they are ranked by correlation (labels are numbers or two classes) or mutual information (any classes) with
their mean, last or highest activation in a text; the printed threshold is what the best of all units reaches by chance
in one of 20 shuffles of the labels. ranking.png and ranking.json hold the best; neurons.html, neurons.png and
neurons.json the texts, coloured by the activation of the best units, or of --unit LAYER NUMBER: layers count from 1,
the first block, units from 0.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from peft import PeftModel
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression, r_regression

from ..files import flag
from ..model.modeling_gpt import GPTPreTrainedModel
from . import AnalysisArguments, words_of
from .attention import transformer_of
from .figures import rows_figure
from .pages import terminal_text, write_coloured

# Units of the page, of the ranking, and texts that are shown.
_COLOURED, _RANKED, _TEXTS = 5, 20, 20
# Of the activations of a text, (..., length), one number.
POOLINGS = {
    "mean": lambda values: values.mean(-1),
    "last": lambda values: values[..., -1],
    "max": lambda values: values.max(-1),
}


@torch.no_grad()
def activations(model: GPTPreTrainedModel | PeftModel, ids: Sequence[int], kind: str = "neurons") -> np.ndarray:
    """
    The activation, `(layers, units, length)`, of every neuron, or of `states`, the dimensions of the state after each
    block, at every token of a text that fits into the context; the first row is layer 1.
    """
    transformer, found = transformer_of(model), []  # (1, length, units) of each layer
    with ExitStack() as hooks:
        for block in transformer.h:
            if kind == "states":
                hook = block.register_forward_hook(lambda module, args, output: found.append(output))
            else:
                hook = block.mlp.c_proj.register_forward_pre_hook(lambda module, args: found.append(args[0]))
            hooks.enter_context(hook)
        transformer(torch.tensor([ids], device=transformer.device), use_cache=False)
    return torch.cat(found).transpose(1, 2).float().contiguous().cpu().numpy()


def association(pooled: np.ndarray, labels: np.ndarray, measure: str = "correlation", seed: int = 0) -> np.ndarray:
    """
    How much each unit says about a label, `(layers, units)`.

    Args:
        pooled (`np.ndarray` of shape `(texts, layers, units)`): a number of each unit and text.
        labels (`np.ndarray` of shape `(texts,)`): numbers, or two classes as 0 and 1; for mutual information any
            number of classes, too (of type `str`).
        measure (`str`): Pearson's `correlation`; or `mutual_information`, in nats, as scikit-learn estimates it from
            nearest neighbours, which `seed` draws.
    """
    flat = pooled.reshape(len(pooled), -1)
    if measure == "correlation":
        with np.errstate(divide="ignore", invalid="ignore"):
            values = r_regression(flat, labels)
        values[np.ptp(flat, axis=0) == 0] = 0  # what never changes goes with nothing
    else:
        estimate = mutual_info_regression if labels.dtype.kind == "f" else mutual_info_classif
        values = estimate(flat, labels, random_state=seed)
    return np.asarray(values).reshape(pooled.shape[1:])


def chance(pooled: np.ndarray, labels: np.ndarray, seed: int = 0, shuffles: int = 200) -> float:
    """
    How far from 0 the best of so many units is correlated with labels that mean nothing: the 95th percentile over
    shuffles of the labels of the largest absolute correlation. What is below may be chance.
    """
    flat = pooled.reshape(len(pooled), -1).astype(np.float64)
    deviation = flat.std(0)
    flat = (flat - flat.mean(0))[:, deviation > 0] / deviation[deviation > 0]
    wanted = (labels - labels.mean()) / labels.std()
    generator = np.random.default_rng(seed)
    best = [np.abs(generator.permutation(wanted) @ flat).max() / len(flat) for _ in range(shuffles)]
    return float(np.quantile(best, 0.95))


def best_units(values: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Layer, from 1, and unit of the largest absolute values `(layers, units)`, the first first."""
    order = np.argsort(-np.abs(values), axis=None, kind="stable")[:count]
    return [(int(layer) + 1, int(unit)) for layer, unit in zip(*np.unravel_index(order, values.shape), strict=True)]


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, which units, and where the result goes."""

    unit: list[int] | None = flag(None, "Layer, from 1, and number of the one unit to show.")
    units: str = flag("neurons", "What a unit is.", ["neurons", "states"])
    measure: str = flag("correlation", "What units are ranked by.", ["correlation", "mutual_information"])
    pooling: str = flag("mean", "Which activation in a text counts.", POOLINGS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit is not None and len(self.unit) != 2:
            raise ValueError("--unit is two numbers: a layer and a unit in it.")


def run(args: Arguments) -> None:
    """Read, rank, colour."""
    examples = args.examples
    labels = None if args.unit else _labels(args, [example.label for example in examples])
    model, tokenizer = args.load()
    texts = args.token_ids(tokenizer, model.config.n_positions, fewest=1)
    shown, pooled = [], []
    for ids in texts:
        values = activations(model, ids, args.units)  # (layers, units, length)
        pooled.append(POOLINGS[args.pooling](values))
        shown += [values] if len(shown) < _TEXTS else []
    layers, width = pooled[0].shape
    if args.unit and not (1 <= args.unit[0] <= layers and 0 <= args.unit[1] < width):
        has = f"there are layers 1 to {layers} of {width} units, from 0"
        raise ValueError(f"--unit {args.unit[0]} {args.unit[1]}: {has}.")
    units = [tuple(args.unit)] if args.unit else _rank(args, np.stack(pooled), labels)
    coloured = [
        {
            "view": f"layer {layer}, unit {unit}",
            "label": example.label,
            "words": words_of(tokenizer, ids),
            "values": values[layer - 1, unit].tolist(),
        }
        for layer, unit in units[:_COLOURED]
        for ids, values, example in zip(texts, shown, examples, strict=False)
    ]
    print(f"{coloured[0]['view']}:")
    for text in coloured[: len(shown)]:
        print(f"  {text['label'] or ''} {terminal_text(text['words'], text['values'])}")
    more = f", {coloured[0]['view']}" if args.unit else ""
    write_coloured(args.folder / "neurons", f"Activation in {args.name}{more}", coloured)


def _labels(args: Arguments, labels: list[str | None]) -> np.ndarray:
    """Numbers, or two classes as 0 and 1; for mutual information classes as they are."""
    names = sorted(set(map(str, labels)))
    if None in labels or len(names) < 2:
        raise ValueError(
            "Units are ranked by two labels or more: give a --file with a label for each text, or --unit."
        )
    try:
        return np.array(labels, dtype=np.float64)
    except ValueError:
        if args.measure == "mutual_information":
            return np.array(labels)
        if len(names) == 2:
            return np.array([float(names.index(label)) for label in labels])
    raise ValueError(f"Correlation takes numbers or two classes, not {len(names)}: give --measure mutual_information.")


def _rank(args: Arguments, pooled: np.ndarray, labels: np.ndarray) -> list[tuple[int, int]]:
    """Write and print the units that say most about the labels."""
    values = association(pooled, labels, args.measure, args.seed)
    units = best_units(values, _RANKED)
    rows = [{"name": f"layer {layer} unit {unit}", "value": float(values[layer - 1, unit])} for layer, unit in units]
    record = {"measure": args.measure, "texts": len(labels), "units": values.size, "best": rows}
    for row in rows[:_COLOURED]:
        print(f"  {row['name']:18} {row['value']:+.3f}")
    title = f"{args.name}: {args.measure} of units with the label"
    if args.measure == "correlation":
        record["chance"] = chance(pooled, labels, args.seed)
        print(f"By chance the best of {values.size:,} units reaches {record['chance']:.3f} with {len(labels)} texts.")
        title += f" (chance: {record['chance']:.2f})"
    drawn = [row | {"of": args.name, "low": row["value"], "high": row["value"]} for row in rows]
    args.save("ranking", rows_figure(drawn, title, "value", 0), record)
    return units
