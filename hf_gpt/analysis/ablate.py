r"""
Which heads, neurons or layers a model needs: each is switched off, and the change measured.

    hf-gpt analyze ablate --model_name_or_path gpt-mini --file sentences.txt --output_dir outputs/heads

A head's output before the projection, or a neuron's activation, becomes 0; a layer is left out. The measure is the
language model's loss in nats per token, or a fine-tuned classifier's loss or share of errors on texts with labels.
effects.json ranks the parts by the change, with bootstrap intervals (95%) over texts; curve.png and curve.json show
the measure as more and more are switched off, the least needed first, next to a random order; mask.json holds as many
as cost no more than --max_rise, for `hf_gpt.analysis.ablate.attach(model, load_mask(path))` in Python.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from ..files import flag, read_json, reading, write_json
from ..generation.scoring import score_texts
from ..model.configuration_gpt import GPTConfig
from ..model.modeling_gpt import GPTForCausalLM, GPTForSequenceClassification, GPTPreTrainedModel
from ..trees.collators import collate_trees
from ..trees.token_tree import TokenTree
from . import AnalysisArguments, interval_text, mean_intervals
from .figures import curves_figure, write_figure

# Rows of the table that is printed, random orders next to the pruning curve, and texts that are read at once.
_SHOWN, _RANDOM, _BATCH = 20, 3, 16
_METRICS = ("lm_loss", "loss", "error")
# Kind (`heads`, `neurons`, `layers`), layer and number in it (of layers 0).
Part = tuple[str, int, int]
_NAMES = {"heads": "layer {} head {}", "neurons": "layer {} unit {}", "layers": "layer {}"}


def parts_of(config: GPTConfig, kind: str) -> list[Part]:
    """Every part of one kind of a model; none of another kind."""
    counts = {"heads": config.n_head, "neurons": config.n_inner or 4 * config.n_embd, "layers": 1}
    layers = range(1, config.n_layer + 1)
    return [(kind, layer, number) for layer in layers for number in range(counts.get(kind, 0))]


def load_mask(path: Path) -> list[Part]:
    """Parts that were saved; a `ValueError` names the file if it is none of them."""
    with reading(path, "which is no mask.json of analyze ablate"):
        return [(str(kind), int(layer), int(number)) for kind, layer, number in read_json(path)["parts"]]


def attach(model: GPTPreTrainedModel, parts: Iterable[Part]) -> ExitStack:
    """Switch parts off until the result, a context manager, is closed; a `ValueError` if the model lacks one."""
    transformer, hooks, columns = model.base_model, ExitStack(), {}
    known = {part for kind in _NAMES for part in parts_of(transformer.config, kind)}
    for kind, layer, number in parts:
        if (kind, layer, number) not in known:
            raise ValueError(f"The mask is of another model: this one has no {kind} {number} in layer {layer}.")
        block, width = transformer.h[layer - 1], transformer.h[0].attn.head_dim if kind == "heads" else 1
        if kind == "layers":
            hooks.enter_context(block.register_forward_hook(lambda module, args, output: args[0]))
        else:
            module = block.attn.c_proj if kind == "heads" else block.mlp.c_proj
            columns.setdefault(module, []).extend(range(number * width, (number + 1) * width))
    for module, off in columns.items():
        index = torch.tensor(off, device=model.device)
        hook = partial(lambda index, module, args: args[0].index_fill(-1, index, 0), index)
        hooks.enter_context(module.register_forward_pre_hook(hook))
    return hooks


def text_losses(model: GPTForCausalLM, texts: Sequence[Sequence[int]]) -> np.ndarray:
    """Loss of each text, `(texts,)`, in nats per predicted token."""
    scores = score_texts(model, texts, batch_size=_BATCH)
    return np.array([-score.log_probability / len(score.log_probs) for score in scores])


@torch.no_grad()
def task_errors(
    model: GPTPreTrainedModel, texts: Sequence[Sequence[int]], labels: Sequence[int], metric: str = "loss"
) -> np.ndarray:
    """A classifier's cross-entropy of texts, ids without specials, or with `error` 1 where it is wrong: `(texts,)`."""
    config, found = model.config, []
    trees = [TokenTree.from_paths([[config.start_token_id, *ids, config.classify_token_id]]) for ids in texts]
    for begin in range(0, len(texts), _BATCH):
        batch = collate_trees(trees[begin : begin + _BATCH], config.pad_token_id, config.is_causal)
        found.append(model(**{name: value.to(model.device) for name, value in batch.items()}).logits.double().cpu())
    logits, wanted = torch.cat(found), torch.tensor(labels)
    if metric == "error":
        return (logits.argmax(-1) != wanted).double().numpy()
    return nn.functional.cross_entropy(logits, wanted, reduction="none").numpy()


def masked(model: GPTPreTrainedModel, masks: Iterable[list[Part]], measure: Callable[[], np.ndarray]) -> np.ndarray:
    """A measure, `(examples,)`, with each of some masks, lists of parts that are off: `(masks, examples)`."""
    found = []
    for mask in tqdm(masks, desc="ablating", unit="mask"):
        with attach(model, mask):
            found.append(measure())
    return np.stack(found)


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    what: str = flag("heads", "What is switched off.", _NAMES)
    metric: str = flag("lm_loss", "The loss of a language model; loss or errors of a classifier.", _METRICS)
    max_rise: float = flag(0.01, "By how much the measure may rise under the saved mask.")


def run(args: Arguments) -> None:
    """Switch off, measure, rank, prune."""
    head, specials = (GPTForCausalLM, 0) if args.metric == "lm_loss" else (GPTForSequenceClassification, 2)
    model, tokenizer = args.load(head)
    texts = args.token_ids(tokenizer, model.config.n_positions - specials, fewest=1 if specials else 2)
    measure = partial(text_losses, model, texts)
    if specials:
        if (kind := model.config.problem_type) not in (None, "single_label_classification"):
            raise ValueError(f"--metric {args.metric} is of one class a text, {args.name} of {kind}.")
        labels, known = [str(example.label) for example in args.examples], model.config.label2id
        if unknown := {*labels} - known.keys():
            raise ValueError(f"{args.name} has the labels {', '.join(known)}, not {', '.join(unknown)}.")
        measure = partial(task_errors, model, texts, [known[label] for label in labels], args.metric)
    parts = parts_of(model.config, args.what)
    whole, *changed = masked(model, [[], *([part] for part in parts)], measure)
    intervals = mean_intervals(np.stack(changed, 1) - whole[:, None], args.seed).values()  # (parts,) each
    rows = [
        {"name": _NAMES[args.what].format(*part[1:]), "part": part, "change": change, "low": low, "high": high}
        for part, change, low, high in zip(parts, *intervals, strict=True)
    ]
    ranked = sorted(rows, key=lambda row: -row["change"])
    print(f"{args.metric} of {len(texts)} texts: {whole.mean():.4f}; without one of the {args.what}:")
    for row in ranked[:_SHOWN]:
        print(f"  {row['name']:16} {interval_text((row[end] for end in ('change', 'low', 'high')), '+.4f')}")
    write_json(args.folder / "effects.json", {"metric": args.metric, "whole": whole.mean(), "parts": ranked})

    def curve(order: list[Part]) -> np.ndarray:
        return masked(model, (order[:count] for count in range(len(order) + 1)), measure).mean(1)

    order = [row["part"] for row in sorted(rows, key=lambda row: row["change"])]
    curves = {"least needed first": (values := curve(order))}
    if args.what != "neurons":
        random = np.random.default_rng(args.seed)
        found = [curve([order[number] for number in random.permutation(len(order))]) for _ in range(_RANDOM)]
        curves[f"random (mean of {_RANDOM})"] = np.mean(found, 0)
    allowed = int(np.flatnonzero(values <= values[0] + args.max_rise).max())
    write_json(args.folder / "mask.json", {"first_layer": 1, "parts": sorted(order[:allowed])})
    figure = curves_figure({"": curves}, f"{args.name}: {args.metric} as {args.what} are switched off", "switched off")
    write_figure(args.folder / "curve.png", figure, {"metric": args.metric, "curves": curves})
    rise = values[allowed] - values[0]
    print(f"mask.json switches off {allowed} of {len(order)} {args.what}: {args.metric} changes by {rise:+.4f}.")
