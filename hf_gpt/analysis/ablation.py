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

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from ..files import read_json, reading, write_json
from ..generation import check_predicted
from ..generation.scoring import score_texts
from ..model.configuration_gpt import GPTConfig
from ..model.modeling_gpt import GPTForCausalLM, GPTPreTrainedModel
from .attention import transformer_of

# Kind (`heads`, `neurons`, `layers`, `dimensions`), layer (of dimensions 0) and number in it (of layers 0).
Part = tuple[str, int, int]
# Gives a number of each example, in their order: `(examples,)`.
Measure = Callable[[], np.ndarray]
# What stands in for parts instead of 0; see `mean_activations`.
Means = Mapping[str, torch.Tensor]
_NAMES = {"heads": "layer {} head {}", "neurons": "layer {} unit {}", "layers": "layer {}"}


def part_name(part: Part) -> str:
    """A part as people call it."""
    return _NAMES.get(part[0], "dimension {1}").format(*part[1:])


def _counts(config: GPTConfig) -> dict[str, tuple[range, int]]:
    """By kind of parts the layers that have some, and how many."""
    layers, inner = range(1, config.n_layer + 1), config.n_inner or 4 * config.n_embd
    counts = {"heads": (layers, config.n_head), "neurons": (layers, inner), "layers": (layers, 1)}
    return counts | {"dimensions": (range(1), config.n_embd)}


def parts_of(config: GPTConfig, kind: str) -> list[Part]:
    """Every part of one kind of a model."""
    layers, count = _counts(config)[kind]
    return [(kind, layer, number) for layer in layers for number in range(count)]


def save_mask(path: Path, parts: Iterable[Part]) -> None:
    """Write parts as JSON."""
    write_json(path, {"first_layer": 1, "parts": sorted({*parts})})


def load_mask(path: Path) -> list[Part]:
    """Parts that were saved; a `ValueError` names the file if it is none of them."""
    with reading(path, "which is no mask.json of analyze ablate"):
        return [(str(kind), int(layer), int(number)) for kind, layer, number in read_json(path)["parts"]]


def _places(transformer: GPTPreTrainedModel) -> dict[str, nn.Module]:
    """The modules whose inputs hold dimensions, heads and neurons."""
    places = {"dimensions.0": transformer.h[0]}
    for layer, block in enumerate(transformer.h, 1):
        places |= {f"heads.{layer}": block.attn.c_proj, f"neurons.{layer}": block.mlp.c_proj}
    return places


def attach(model: GPTPreTrainedModel, parts: Iterable[Part], means: Means | None = None) -> ExitStack:
    """
    Switch parts of a model with any head, adapted or not, off until the result, a context manager, is closed; `means`
    (see `mean_activations`) stand in for them, by default 0. A `ValueError` says if the model has no such part.
    """
    transformer, hooks, columns = transformer_of(model), ExitStack(), {}
    counts = _counts(transformer.config)
    for part in parts:
        kind, layer, number = part
        layers, count = counts.get(kind, ((), 0))
        if layer not in layers or not 0 <= number < count:
            raise ValueError(f"The mask is of another model: it has no {part_name(part)}.")
        if kind == "layers":
            hooks.enter_context(transformer.h[layer - 1].register_forward_hook(lambda module, args, output: args[0]))
            continue
        width = transformer.h[0].attn.head_dim if kind == "heads" else 1
        columns.setdefault(f"{kind}.{layer}", []).extend(range(number * width, (number + 1) * width))
    places = _places(transformer)
    for name, off in columns.items():
        hook = partial(_replace, off, None if means is None else means[name])
        hooks.enter_context(places[name].register_forward_pre_hook(hook))
    return hooks


def _replace(columns: list[int], value: torch.Tensor | None, module: nn.Module, args: tuple) -> tuple:
    states = args[0].clone()  # (batch, length, width)
    states[..., columns] = 0 if value is None else value[columns].to(states)
    return states, *args[1:]


@torch.no_grad()
def mean_activations(model: GPTPreTrainedModel, texts: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """
    Means over all tokens of texts (of long ones as much as the context holds) of what `attach` replaces: `heads.N`
    `(n_embd,)` and `neurons.N` `(n_inner,)` of each layer N, `dimensions.0` `(n_embd,)`.
    """
    transformer, sums, count = transformer_of(model), {}, 0

    def add(name: str, module: nn.Module, args: tuple) -> None:
        sums[name] = sums.get(name, 0) + args[0].double().sum((0, 1))

    with ExitStack() as hooks:
        for name, module in _places(transformer).items():
            hooks.enter_context(module.register_forward_pre_hook(partial(add, name)))
        for ids in texts:
            row = torch.tensor([ids[: transformer.config.n_positions]], device=transformer.device)
            transformer(row, use_cache=False)
            count += row.shape[1]
    return {name: (total / count).float() for name, total in sums.items()}


def text_losses(model: GPTForCausalLM, texts: Sequence[Sequence[int]], batch_size: int = 16) -> np.ndarray:
    """
    The language model's loss of each text, in nats per predicted token, of long ones of what the context holds:
    `(texts,)`. A `ValueError` says if a text has fewer than two tokens.
    """
    read = [list(ids[: model.config.n_positions]) for ids in texts]
    for ids in read:
        check_predicted(ids)
    scores = score_texts(model, read, batch_size=batch_size)
    return np.array([-score.log_probability / len(score.log_probs) for score in scores])


@torch.no_grad()
def task_errors(model: GPTPreTrainedModel, batches: Sequence[Mapping[str, torch.Tensor]], metric: str) -> np.ndarray:
    """
    What a fine-tuned model of one label an example makes of batches of `TokenTreeCollator`, with `labels`, by
    `metric`: `loss` (cross-entropy in nats), or `error` (1 where the answer is wrong, else 0): `(examples,)`.
    """
    found = []
    for batch in batches:
        inputs = {name: value.to(model.device) for name, value in batch.items() if name != "labels"}
        logits, labels = model(**inputs).logits.double().cpu(), batch["labels"].cpu()
        losses = nn.functional.cross_entropy(logits, labels, reduction="none")
        found.append(losses if metric == "loss" else (logits.argmax(-1) != labels).double())
    return torch.cat(found).numpy()


def masked(
    model: GPTPreTrainedModel, masks: Sequence[Sequence[Part]], measure: Measure, means: Means | None = None
) -> np.ndarray:
    """A measure with each of some masks, lists of parts that are off: `(masks, examples)`."""
    found = []
    for mask in tqdm(masks, desc="ablating", unit="mask"):
        with attach(model, mask, means):
            found.append(measure())
    return np.stack(found)


@torch.no_grad()
def word_effects(
    model: GPTForCausalLM, ids: Sequence[int], use_mean: bool = False, batch_size: int = 16
) -> np.ndarray:
    """
    How much the loss of what follows rises, in nats in all, as each token's embedding becomes 0 (or the mean of the
    text's): `(length,)`, of the last token 0, which nothing follows. A `ValueError` says if there are fewer than two.
    """
    from captum.attr import FeatureAblation

    check_predicted(ids)
    row = torch.tensor([ids], device=model.device)
    embeds = model.get_input_embeddings()(row)  # (1, length, n_embd)

    def log_probability(copies: torch.Tensor) -> torch.Tensor:
        log_probs = model(inputs_embeds=copies, use_cache=False).logits[:, :-1].log_softmax(-1)
        return log_probs.gather(2, row[:, 1:, None].expand(len(copies), -1, -1)).sum((1, 2)).double()

    token = torch.arange(len(ids), device=row.device)[:, None].expand_as(embeds)
    filler = embeds.mean(1, keepdim=True).expand_as(embeds) if use_mean else 0
    settings = {"feature_mask": token, "perturbations_per_eval": batch_size}
    return FeatureAblation(log_probability).attribute(embeds, filler, **settings)[0, :, 0].cpu().numpy()
