"""
What parts of a model are for: they are switched off, and the change is measured.

    a head         its output before `c_proj`; 0, or its mean over the data
    a neuron       a unit of a block's feed-forward layer after its activation; 0, or its mean
    a dimension    of the sum of embeddings, before the first block; 0, or its mean
    a layer        the whole block: what comes in goes out
    a word         the embedding of an input token, its position kept; 0, or the mean embedding of the text's tokens

Block k is layer k, from 1, as in all analyses; heads, neurons and dimensions count from 0. Hooks do it, and leave the
model as it was.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from tqdm import tqdm

from ..files import read_json, reading, write_json
from ..generation import check_predicted
from ..generation.scoring import score_texts
from ..model.configuration_gpt import GPTConfig
from ..model.modeling_gpt import GPTForCausalLM, GPTPreTrainedModel
from . import removing
from .attention import transformer_of

# Gives a number of each example, in their order: `(examples,)`.
Measure = Callable[[], np.ndarray]
# What stands in for parts instead of 0; see `mean_activations`.
Means = Mapping[str, torch.Tensor]
_NAMES = {
    "heads": "layer {} head {}",
    "neurons": "layer {} unit {}",
    "layers": "layer {}",
    "dimensions": "dimension {}",
}


@dataclass(frozen=True)
class Mask:
    """
    Parts of a model that are switched off: heads as `(layer, head)`, units of the feed-forward layers as `(layer,
    unit)`, whole blocks by their layer, and dimensions of the embedding.
    """

    heads: tuple[tuple[int, int], ...] = ()
    neurons: tuple[tuple[int, int], ...] = ()
    layers: tuple[int, ...] = ()
    dimensions: tuple[int, ...] = ()

    def __add__(self, other: "Mask") -> "Mask":
        """What either switches off."""
        names = [item.name for item in fields(self)]
        return Mask(*(tuple(sorted({*getattr(self, name), *getattr(other, name)})) for name in names))

    def save(self, path: Path) -> None:
        """Write the mask as JSON."""
        write_json(path, {"first_layer": 1, **asdict(self)})

    @classmethod
    def load(cls, path: Path) -> "Mask":
        """A mask that was saved; a `ValueError` names the file if it is none, or of another numbering of layers."""
        with reading(path, "which is no mask.json of analyze ablate"):
            values = read_json(path)
            if values["first_layer"] != 1:
                raise ValueError("its layers are not numbered from 1")
            pairs = [tuple((int(layer), int(unit)) for layer, unit in values[name]) for name in ("heads", "neurons")]
            return cls(*pairs, *(tuple(map(int, values[name])) for name in ("layers", "dimensions")))


def _shapes(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """How many parts of each kind there are: by layer, or in all."""
    inner = config.n_inner or 4 * config.n_embd
    shapes = {"heads": (config.n_layer, config.n_head), "neurons": (config.n_layer, inner)}
    return shapes | {"layers": (config.n_layer,), "dimensions": (config.n_embd,)}


def units(config: GPTConfig, kind: str) -> list[Mask]:
    """Every part of one kind (`heads`, `neurons`, `layers`, `dimensions`) of a model, each as a mask of its own."""
    parts = np.ndindex(*_shapes(config)[kind])
    if kind == "dimensions":
        return [Mask(dimensions=part) for part in parts]
    return [Mask(**{kind: ((block + 1, *rest) if rest else block + 1,)}) for block, *rest in parts]


def attach(model: GPTPreTrainedModel, mask: Mask, means: Means | None = None) -> list[RemovableHandle]:
    """
    Switch parts of a model with any head, adapted or not, off until the handles are removed; `means` (see
    `mean_activations`) stand in for them, by default 0. A `ValueError` says if the model has no such part.
    """
    transformer, handles = transformer_of(model), []
    for kind, (count, *inner) in _shapes(transformer.config).items():
        first = 0 if kind == "dimensions" else 1
        for part in getattr(mask, kind):
            number, *unit = np.atleast_1d(part)
            if not first <= number < first + count or (unit and not 0 <= unit[0] < inner[0]):
                raise ValueError(f"The mask is of another model: it has no {_NAMES[kind].format(number, *unit)}.")
    for layer, block in enumerate(transformer.h, 1):
        width = block.attn.head_dim
        heads = [head * width + column for at, head in mask.heads if at == layer for column in range(width)]
        neurons = [unit for at, unit in mask.neurons if at == layer]
        for name, module, off in (("heads", block.attn.c_proj, heads), ("neurons", block.mlp.c_proj, neurons)):
            if off:
                value = None if means is None else means[f"{name}.{layer}"]
                handles.append(module.register_forward_pre_hook(partial(_replace, off, value)))
        if layer in mask.layers:
            handles.append(block.register_forward_hook(lambda module, args, output: args[0]))
    if mask.dimensions:
        value = None if means is None else means["dimensions"]
        hook = partial(_replace, list(mask.dimensions), value)
        handles.append(transformer.h[0].register_forward_pre_hook(hook))
    return handles


def _replace(columns: list[int], value: torch.Tensor | None, module: nn.Module, args: tuple) -> tuple:
    states = args[0].clone()  # (batch, length, width)
    states[..., columns] = 0 if value is None else value[columns].to(states)
    return states, *args[1:]


@torch.no_grad()
def mean_activations(model: GPTPreTrainedModel, texts: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """
    Means over all tokens of texts (of long ones as much as the context holds) of what `attach` replaces: `heads.N`
    `(n_embd,)` and `neurons.N` `(n_inner,)` of each layer N, `dimensions` `(n_embd,)`.
    """
    transformer, sums, count = transformer_of(model), {}, 0
    places = {"dimensions": transformer.h[0]}
    for layer, block in enumerate(transformer.h, 1):
        places |= {f"heads.{layer}": block.attn.c_proj, f"neurons.{layer}": block.mlp.c_proj}

    def add(name: str, module: nn.Module, args: tuple) -> None:
        sums[name] = sums.get(name, 0) + args[0].double().sum((0, 1))

    with removing(module.register_forward_pre_hook(partial(add, name)) for name, module in places.items()):
        for ids in texts:
            row = torch.tensor([ids[: model.config.n_positions]], device=model.device)
            transformer(row, use_cache=False)
            count += row.shape[1]
    return {name: (total / count).float() for name, total in sums.items()}


def text_losses(model: GPTForCausalLM, texts: Sequence[Sequence[int]], batch_size: int = 16) -> Measure:
    """
    The language model's loss of each text, in nats per predicted token, of long ones of what the context holds. A
    `ValueError` says if a text has fewer than two tokens.
    """
    read = [list(ids[: model.config.n_positions]) for ids in texts]
    for ids in read:
        check_predicted(ids)
    return lambda: np.array(
        [-score.log_probability / len(score.log_probs) for score in score_texts(model, read, batch_size=batch_size)]
    )


def task_errors(model: GPTPreTrainedModel, batches: Sequence[dict[str, torch.Tensor]], metric: str) -> Measure:
    """
    What a fine-tuned model of one label an example makes of batches of `TokenTreeCollator`, with `labels`, by
    `metric`: `loss` (cross-entropy in nats), or `error` (1 where the answer is wrong, else 0).
    """

    @torch.no_grad()
    def measure() -> np.ndarray:
        found = []
        for batch in batches:
            inputs = {name: value.to(model.device) for name, value in batch.items() if name != "labels"}
            logits, labels = model(**inputs).logits.double().cpu(), batch["labels"].cpu()
            losses = nn.functional.cross_entropy(logits, labels, reduction="none")
            found.append(losses if metric == "loss" else (logits.argmax(-1) != labels).double())
        return torch.cat(found).numpy()

    return measure


def effects(
    model: GPTPreTrainedModel, masks: Sequence[Mask], measure: Measure, means: Means | None = None
) -> np.ndarray:
    """How much each mask alone changes a measure, `(masks, examples)`: above 0 where the part was needed."""
    whole, found = measure(), []
    for mask in tqdm(masks, desc="ablating", unit="part"):
        with removing(attach(model, mask, means)):
            found.append(measure() - whole)
    return np.stack(found)


def pruning_curve(
    model: GPTPreTrainedModel, order: Sequence[Mask], measure: Measure, means: Means | None = None
) -> list[float]:
    """The mean of a measure with none of `order` switched off, with the first, with the first two, to all."""
    curve, mask = [float(measure().mean())], Mask()
    for part in tqdm(order, desc="pruning", unit="part"):
        mask += part
        with removing(attach(model, mask, means)):
            curve.append(float(measure().mean()))
    return curve


@torch.no_grad()
def word_effects(
    model: GPTForCausalLM, ids: Sequence[int], use_mean: bool = False, batch_size: int = 16
) -> np.ndarray:
    """
    How much the loss of what follows rises, in nats in all, as each token's embedding becomes 0 (or the mean of the
    text's): `(length,)`, of the last token 0, which nothing follows. A `ValueError` says if there are fewer than two.
    """
    check_predicted(ids)
    row = torch.tensor([ids], device=model.device)
    embeds = model.get_input_embeddings()(row)  # (1, length, n_embd)
    losses = []
    # A copy without each token, and a whole one.
    for part in torch.arange(len(ids) + 1).split(batch_size):
        copies, left_out = embeds.repeat(len(part), 1, 1), part[part < len(ids)]  # (copies, length, n_embd)
        copies[torch.arange(len(left_out)), left_out] = embeds.mean(1) if use_mean else torch.zeros_like(embeds[:, 0])
        log_probs = model(inputs_embeds=copies, use_cache=False).logits[:, :-1].log_softmax(-1)
        targets = row[:, 1:, None].expand(len(part), -1, -1)
        losses.append(-log_probs.gather(2, targets).sum((1, 2)).double().cpu())
    *changed, whole = torch.cat(losses).tolist()
    return np.array(changed) - whole


def ranking(masks: Sequence[Mask], intervals: np.ndarray) -> list[dict[str, Any]]:
    """
    Rows of a table of masks with one part each, the one that is needed most first, by their mean changes, low and high
    `(3, masks)`: `name` and the part under its kind, `change`, `low` and `high`.
    """
    rows = []
    for number in np.argsort(-intervals[0], kind="stable"):
        ((kind, part),) = [(kind, parts[0]) for kind, parts in asdict(masks[number]).items() if parts]
        change = dict(zip(("change", "low", "high"), intervals[:, number].tolist(), strict=True))
        rows.append({"name": _NAMES[kind].format(*np.atleast_1d(part)), kind: part, **change})
    return rows
