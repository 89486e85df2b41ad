r"""
Which heads, neurons, layers, dimensions or words a model needs: each is switched off, and the change measured.

    python scripts/analyze.py ablate --model_name_or_path model_cards/gpt-mini --file sentences.txt \
        --output_dir outputs/heads
    python scripts/analyze.py ablate --model_name_or_path outputs/questions --what layers --metric error \
        --file questions.jsonl --output_dir outputs/layers

A head's output before the projection, a neuron's activation, a dimension of the embedding or a word's embedding
becomes 0, or its mean over the texts; a layer is left out. The measure is the language model's loss in nats per token,
or a fine-tuned classifier's loss or share of errors on texts with labels. effects.png and effects.json rank the parts
by the change, with bootstrap intervals (95%) over texts; curve.png and curve.json show the measure as more and more
are switched off, the least needed first, next to a random order; mask.json holds as many of them as cost no more than
--max_rise. `--mask mask.json` starts from a model without these parts (with the same --replacement); in Python they
are switched off by `hf_gpt.analysis.ablate.attach(model, load_mask(path))`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from ..files import flag, read_json, reading, write_json
from ..generation import check_predicted
from ..generation.scoring import score_texts
from ..model.configuration_gpt import GPTConfig
from ..model.modeling_gpt import GPTForCausalLM, GPTForSequenceClassification, GPTPreTrainedModel
from ..trees.collators import collate_trees
from ..trees.token_tree import TokenTree
from . import AnalysisArguments, interval_text, mean_intervals, words_of
from .attention import transformer_of
from .figures import curves_figure, grid_figure, rows_figure
from .pages import terminal_text, write_coloured

# Of the table that is printed and the figure, and of random orders next to the pruning curve.
_SHOWN, _RANDOM = 20, 3
_METRICS = ("lm_loss", "loss", "error")
# Kind (`heads`, `neurons`, `layers`, `dimensions`), layer (of dimensions 0) and number in it (of layers 0).
Part = tuple[str, int, int]
# Gives a number of each example, in their order: `(examples,)`.
Measure = Callable[[], np.ndarray]
# What replaces parts instead of 0; see `mean_activations`.
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
    (see `mean_activations`) replace them, by default 0. A `ValueError` if the model has no such part.
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
    The language model's loss of each text, of two tokens or more, in nats per predicted token, of long ones of what
    the context holds: `(texts,)`.
    """
    scores = score_texts(model, [list(ids[: model.config.n_positions]) for ids in texts], batch_size=batch_size)
    return np.array([-score.log_probability / len(score.log_probs) for score in scores])


@torch.no_grad()
def task_errors(
    model: GPTPreTrainedModel,
    texts: Sequence[Sequence[int]],
    labels: Sequence[int],
    metric: str = "loss",
    batch_size: int = 16,
) -> np.ndarray:
    """
    What a classifier of one class a text makes of texts, token ids without specials, and their classes, by `metric`:
    `loss` (cross-entropy in nats), or `error` (1 where the answer is wrong, else 0): `(texts,)`.
    """
    config, found = model.config, []
    for begin in range(0, len(texts), batch_size):
        read = (ids[: config.n_positions - 2] for ids in texts[begin : begin + batch_size])
        paths = ([config.start_token_id, *ids, config.classify_token_id] for ids in read)
        batch = collate_trees([TokenTree.from_paths([path]) for path in paths], config.pad_token_id, config.is_causal)
        logits = model(**{name: value.to(model.device) for name, value in batch.items()}).logits.double().cpu()
        wanted = torch.tensor(labels[begin : begin + batch_size])
        losses = nn.functional.cross_entropy(logits, wanted, reduction="none")
        found.append(losses if metric == "loss" else (logits.argmax(-1) != wanted).double())
    return torch.cat(found).numpy()


def masked(
    model: GPTPreTrainedModel, masks: Iterable[Sequence[Part]], measure: Measure, means: Means | None = None
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
    text's): `(length,)`, of the last token 0, which nothing follows. A `ValueError` if there are fewer than two.
    """
    from captum.attr import FeatureAblation

    check_predicted(ids)
    row = torch.tensor([ids], device=model.device)
    embeds = model.get_input_embeddings()(row)  # (1, length, n_embd)

    def log_probability(copies: torch.Tensor) -> torch.Tensor:
        log_probs = model(inputs_embeds=copies, use_cache=False).logits[:, :-1].log_softmax(-1)
        return log_probs.gather(2, row[:, 1:, None].expand(len(copies), -1, -1)).sum((1, 2)).double()

    token = torch.arange(len(ids), device=row.device)[:, None].expand_as(embeds)
    baseline = embeds.mean(1, keepdim=True).expand_as(embeds) if use_mean else 0
    settings = {"feature_mask": token, "perturbations_per_eval": batch_size}
    return FeatureAblation(log_probability).attribute(embeds, baseline, **settings)[0, :, 0].cpu().numpy()


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, what is switched off, and where the result goes."""

    what: str = flag("heads", "What is switched off.", ["heads", "neurons", "layers", "dimensions", "words"])
    replacement: str = flag("zero", "What replaces it.", ["zero", "mean"])
    metric: str = flag("lm_loss", "The loss of a language model; loss or errors of a classifier.", _METRICS)
    mask: str | None = flag(None, "Mask, as mask.json, of parts that are off from the start.")
    max_rise: float = flag(0.01, "By how much the measure may rise under the saved mask.")
    batch_size: int = flag(16, "Texts that are read at once.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.what == "words" and self.metric != "lm_loss":
            raise ValueError("--what words measures --metric lm_loss.")


def run(args: Arguments) -> None:
    """Switch off, measure, rank, prune."""
    start = load_mask(Path(args.mask)) if args.mask else []
    model, tokenizer = args.load(GPTForCausalLM if args.metric == "lm_loss" else GPTForSequenceClassification)
    texts = args.token_ids(tokenizer, model.config.n_positions, fewest=2 if args.metric == "lm_loss" else 1)
    means = mean_activations(model, texts) if args.replacement == "mean" else None
    attach(model, start, means)
    if args.what == "words":
        record = []
        for ids in texts:
            values = word_effects(model, ids, args.replacement == "mean", args.batch_size).tolist()
            record.append({"words": words_of(tokenizer, ids), "values": values})
            print(terminal_text(**record[-1]))
        write_coloured(args.folder / "words", f"{args.name}: nats that what follows loses without a word", record)
        return
    measure, parts = _measure(args, model, texts), parts_of(model.config, args.what)
    whole, *changed = masked(model, [[], *([part] for part in parts)], measure, means)
    intervals = mean_intervals(np.stack(changed, 1) - whole[:, None], args.seed)  # (3, parts)
    rows = [
        {"name": part_name(part), "part": part, "change": change, "low": low, "high": high}
        for part, change, low, high in zip(parts, *intervals.tolist(), strict=True)
    ]
    order = np.argsort(intervals[0], kind="stable")
    ranked = [rows[number] for number in np.argsort(-intervals[0], kind="stable")]
    print(f"{args.metric} of {len(texts)} texts: {whole.mean():.4f}; without one of the {args.what}:")
    for row in ranked[:_SHOWN]:
        print(f"  {row['name']:16} {interval_text(row, 'change', '+.4f')}")
    title = f"{args.name} without one of its {args.what}: {args.metric}, change"
    if args.what == "heads":
        layers = range(1, model.config.n_layer + 1)
        figure = grid_figure(intervals[0].reshape(len(layers), -1), title, "layer", "head", layers)
    else:
        figure = rows_figure([row | {"of": args.name} for row in ranked[:_SHOWN]], title, "change", 0)
    args.save("effects", figure, {"metric": args.metric, "whole": float(whole.mean()), "parts": ranked})

    def curve(numbers: np.ndarray) -> np.ndarray:
        masks = ([parts[number] for number in numbers[:count]] for count in range(len(parts) + 1))
        return masked(model, masks, measure, means).mean(1)

    values = curve(order)
    curves = {"least needed first": values.tolist()}
    if args.what in ("heads", "layers"):
        random = np.random.default_rng(args.seed)
        found = [curve(order[random.permutation(len(order))]) for _ in range(_RANDOM)]
        curves[f"random (mean of {_RANDOM})"] = np.mean(found, 0).tolist()
    allowed = int(np.flatnonzero(values <= values[0] + args.max_rise).max())
    save_mask(args.folder / "mask.json", [*start, *(parts[number] for number in order[:allowed])])
    title = f"{args.name}: {args.metric} as {args.what} are switched off"
    args.save("curve", curves_figure({"": curves}, title, "switched off"), {"metric": args.metric, "curves": curves})
    rise = values[allowed] - values[0]
    print(f"mask.json switches off {allowed} of {len(order)} {args.what}: {args.metric} changes by {rise:+.4f}.")


def _measure(args: Arguments, model: GPTPreTrainedModel, texts: list[list[int]]) -> Measure:
    if args.metric == "lm_loss":
        return partial(text_losses, model, texts, args.batch_size)
    config, labels = model.config, [str(example.label) for example in args.examples]
    if config.problem_type not in (None, "single_label_classification"):
        raise ValueError(f"--metric {args.metric} is of one class a text, {args.name} of {config.problem_type}.")
    if unknown := {*labels} - config.label2id.keys():
        known = ", ".join(config.label2id)
        raise ValueError(f"--metric {args.metric}: {args.name} has the labels {known}, not {', '.join(unknown)}.")
    wanted = [config.label2id[label] for label in labels]
    return partial(task_errors, model, texts, wanted, args.metric, args.batch_size)
