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
are switched off by `hf_gpt.analysis.ablation.attach(model, load_mask(path))`.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ...analysis import AnalysisArguments, ablation, interval_text, mean_intervals, words_of
from ...analysis.figures import curves_figure, grid_figure, rows_figure
from ...analysis.pages import terminal_text, write_coloured
from ...files import flag
from ...model.modeling_gpt import GPTForCausalLM, GPTForSequenceClassification, GPTPreTrainedModel
from ...trees.collators import TokenTreeCollator
from ...trees.transforms import InputTransform, SpecialIds

# Of the table that is printed and the figure, and of random orders next to the pruning curve.
_SHOWN, _RANDOM = 20, 3
_METRICS = ("lm_loss", "loss", "error")


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, what is switched off, and where the result goes."""

    what: str = flag("heads", "What is switched off.", ["heads", "neurons", "layers", "dimensions", "words"])
    replacement: str = flag("zero", "What stands in for it.", ["zero", "mean"])
    metric: str = flag(
        "lm_loss",
        "The language model's loss; or a classifier's loss or share of errors.",
        ["lm_loss", "loss", "error"],
    )
    mask: str | None = flag(None, "Mask, as mask.json, of parts that are off from the start.")
    max_rise: float = flag(0.01, "By how much the measure may rise under the saved mask.")
    batch_size: int = flag(16, "Texts that are read at once.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.what == "words" and self.metric != "lm_loss":
            raise ValueError("--what words measures --metric lm_loss.")


def run(args: Arguments) -> None:
    """Switch off, measure, rank, prune."""
    start = ablation.load_mask(Path(args.mask)) if args.mask else []
    model, tokenizer = args.load(GPTForCausalLM if args.metric == "lm_loss" else GPTForSequenceClassification)
    texts = args.token_ids(tokenizer, model.config.n_positions, fewest=2 if args.metric == "lm_loss" else 1)
    means = ablation.mean_activations(model, texts) if args.replacement == "mean" else None
    ablation.attach(model, start, means)
    if args.what == "words":
        record = []
        for ids in texts:
            values = ablation.word_effects(model, ids, args.replacement == "mean", args.batch_size).tolist()
            record.append({"words": words_of(tokenizer, ids), "values": values})
            print(terminal_text(**record[-1]))
        write_coloured(args.folder / "words", f"{args.name}: nats that what follows loses without a word", record)
        return
    measure, parts = _measure(args, model, texts), ablation.parts_of(model.config, args.what)
    whole, *changed = ablation.masked(model, [[], *([part] for part in parts)], measure, means)
    intervals = mean_intervals(np.stack(changed, 1) - whole[:, None], args.seed)  # (3, parts)
    rows = [
        {"name": ablation.part_name(part), "part": part, "change": change, "low": low, "high": high}
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
        masks = [[parts[number] for number in numbers[:count]] for count in range(len(parts) + 1)]
        return ablation.masked(model, masks, measure, means).mean(1)

    values = curve(order)
    curves = {"least needed first": values.tolist()}
    if args.what in ("heads", "layers"):
        random = np.random.default_rng(args.seed)
        found = [curve(order[random.permutation(len(order))]) for _ in range(_RANDOM)]
        curves[f"random (mean of {_RANDOM})"] = np.mean(found, 0).tolist()
    allowed = int(np.flatnonzero(values <= values[0] + args.max_rise).max())
    ablation.save_mask(args.folder / "mask.json", [*start, *(parts[number] for number in order[:allowed])])
    title = f"{args.name}: {args.metric} as {args.what} are switched off"
    args.save("curve", curves_figure({"": curves}, title, "switched off"), {"metric": args.metric, "curves": curves})
    rise = values[allowed] - values[0]
    print(f"mask.json switches off {allowed} of {len(order)} {args.what}: {args.metric} changes by {rise:+.4f}.")


def _measure(args: Arguments, model: GPTPreTrainedModel, texts: list[list[int]]) -> ablation.Measure:
    if args.metric == "lm_loss":
        return partial(ablation.text_losses, model, texts, args.batch_size)
    config, labels = model.config, [str(example.label) for example in args.examples]
    if config.problem_type not in (None, "single_label_classification"):
        raise ValueError(f"--metric {args.metric} is of one class a text, {args.name} of {config.problem_type}.")
    if unknown := {*labels} - config.label2id.keys():
        known = ", ".join(config.label2id)
        raise ValueError(f"--metric {args.metric}: {args.name} has the labels {known}, not {', '.join(unknown)}.")
    special = SpecialIds(config.start_token_id, config.delimiter_token_id, config.classify_token_id)
    transform = InputTransform("classification", special, config.n_positions)
    collator = TokenTreeCollator(config.pad_token_id, config.is_causal)
    rows = [
        {**vars(transform({"text": ids})), "label": config.label2id[label]}
        for ids, label in zip(texts, labels, strict=True)
    ]
    batches = [collator(rows[begin : begin + args.batch_size]) for begin in range(0, len(rows), args.batch_size)]
    return partial(ablation.task_errors, model, batches, args.metric)
