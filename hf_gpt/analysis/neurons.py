"""
What single units of a model respond to: their activation at every token, and which of them separates labels (the
question of Radford et al., 2017, section 4). A unit is a neuron of a feed-forward layer, after its activation
function, or a dimension of the state after a block; both are those of layer k, the number of the block, from 1.
"""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import torch
from peft import PeftModel
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression, r_regression

from ..model.modeling_gpt import GPTPreTrainedModel
from .attention import transformer_of

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
