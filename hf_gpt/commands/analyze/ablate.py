r"""
Which heads, neurons, layers, dimensions or words a model needs: each is switched off, and the change measured.

    python scripts/analyze.py ablate --model_name_or_path model_cards/gpt-mini --file sentences.txt \
        --output_dir outputs/heads
    python scripts/analyze.py ablate --model_name_or_path outputs/questions --what layers --metric error \
        --file questions.jsonl --output_dir outputs/layers
    python scripts/analyze.py ablate --model_name_or_path model_cards/gpt-mini --what words \
        --text "She opened the door and ran." --output_dir outputs/words

A head's output before the projection, a neuron's activation, a dimension of the embedding or a word's embedding
becomes 0, or its mean over the texts; a layer is left out. Block k, its heads and its neurons are those of layer k,
from 1. The measure is the language model's loss in nats per token, or a fine-tuned classifier's loss or share of
errors on texts with labels. effects.png and effects.json rank the parts by the change, with bootstrap intervals (95%)
over texts; curve.png and curve.json show the measure as more and more are switched off, the least needed first, next
to a random order; mask.json holds as many of them as cost no more than --max_rise. `--mask mask.json` starts from a
model without these parts (with the same --replacement); in Python they are switched off by
`hf_gpt.analysis.ablation.attach(model, Mask.load(path))`.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...analysis import AnalysisArguments, ablation, interval_text, mean_intervals, words_of
from ...analysis.figures import curves_figure, grid_figure, intervals_figure
from ...analysis.pages import terminal_text, write_coloured
from ...files import flag
from ...model.modeling_gpt import GPTForCausalLM, GPTForSequenceClassification, GPTPreTrainedModel
from ...model.tokenization_gpt import GPTTokenizer
from ...trees.collators import TokenTreeCollator
from ...trees.transforms import InputTransform, SpecialIds

# Of the table that is printed and the figure, and of random orders next to the pruning curve.
_SHOWN, _RANDOM = 20, 3


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model and texts, what is switched off, and where the result goes."""

    what: str = flag("heads", "What is switched off.", ["heads", "neurons", "layers", "dimensions", "words"])
    replacement: str = flag("zero", "What stands in for it.", ["zero", "mean"])
    metric: str = flag(
        "lm_loss",
        "The language model's loss; or the loss, or share of errors, of a fine-tuned classifier.",
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
    start = ablation.Mask.load(Path(args.mask)) if args.mask else ablation.Mask()
    model, tokenizer = args.load(GPTForCausalLM if args.metric == "lm_loss" else GPTForSequenceClassification)
    texts = args.token_ids(tokenizer, model.config.n_positions, fewest=2 if args.metric == "lm_loss" else 1)
    means = ablation.mean_activations(model, texts) if args.replacement == "mean" else None
    ablation.attach(model, start, means)
    if args.what == "words":
        _run_words(args, model, tokenizer, texts)
        return
    measure = _measure(args, model, texts)
    masks = ablation.units(model.config, args.what)
    title = f"{args.name} without one of its {args.what}: {args.metric}, change"
    whole = float(measure().mean())
    intervals = mean_intervals(ablation.effects(model, masks, measure, means).T, args.seed)  # (3, masks)
    rows = ablation.ranking(masks, intervals)
    print(f"{args.metric} of {len(texts)} texts: {whole:.4f}; without one of the {args.what}:")
    for row in rows[:_SHOWN]:
        print(f"  {row['name']:16} {interval_text(row, 'change', '+.4f')}")
    if args.what == "heads":
        layers = range(1, model.config.n_layer + 1)
        figure = grid_figure(intervals[0].reshape(len(layers), -1), title, "layer", "head", layers)
    else:
        figure = intervals_figure(rows[:_SHOWN], title)
    args.save("effects", figure, {"metric": args.metric, "whole": whole, "parts": rows})
    order = [masks[number] for number in np.argsort(intervals[0], kind="stable")]

    def curve(parts: list[ablation.Mask]) -> list[float]:
        return ablation.pruning_curve(model, parts, measure, means)

    curves = {"least needed first": curve(order)}
    if args.what in ("heads", "layers"):
        random = np.random.default_rng(args.seed)
        found = [curve([order[number] for number in random.permutation(len(order))]) for _ in range(_RANDOM)]
        curves[f"random (mean of {_RANDOM})"] = np.mean(found, 0).tolist()
    _save_curves(args, curves, order, start)


def _save_curves(
    args: Arguments, curves: dict[str, list[float]], order: list[ablation.Mask], start: ablation.Mask
) -> None:
    """The pruning curves, and the largest mask that is allowed."""
    values = curves["least needed first"]
    allowed = max(count for count, value in enumerate(values) if value <= values[0] + args.max_rise)
    sum(order[:allowed], start).save(args.folder / "mask.json")
    title = f"{args.name}: {args.metric} as {args.what} are switched off"
    figure = curves_figure(curves, title, f"{args.what} switched off", args.metric)
    args.save("curve", figure, {"metric": args.metric, "curves": curves})
    rise = values[allowed] - values[0]
    print(f"mask.json switches off {allowed} of {len(order)} {args.what}: {args.metric} changes by {rise:+.4f}.")


def _run_words(args: Arguments, model: GPTForCausalLM, tokenizer: GPTTokenizer, texts: list[list[int]]) -> None:
    """Text coloured by what its words are for."""
    record = []
    for ids in texts:
        changes = ablation.word_effects(model, ids, args.replacement == "mean", args.batch_size)
        record.append({"words": words_of(tokenizer, ids), "values": changes.tolist()})
        print(terminal_text(**record[-1], colours=sys.stdout.isatty()))
    write_coloured(args.folder / "words", f"{args.name}: nats that what follows loses without a word", record)


def _measure(args: Arguments, model: GPTPreTrainedModel, texts: list[list[int]]) -> ablation.Measure:
    if args.metric == "lm_loss":
        return ablation.text_losses(model, texts, args.batch_size)
    config, examples = model.config, args.examples
    if config.problem_type not in (None, "single_label_classification"):
        raise ValueError(f"--metric {args.metric} is of one class a text, {args.name} of {config.problem_type}.")
    if unknown := {str(example.label) for example in examples} - config.label2id.keys():
        known = ", ".join(config.label2id)
        raise ValueError(f"--metric {args.metric}: {args.name} has the labels {known}, not {', '.join(unknown)}.")
    special = SpecialIds(config.start_token_id, config.delimiter_token_id, config.classify_token_id)
    transform = InputTransform("classification", special, config.n_positions)
    collator = TokenTreeCollator(config.pad_token_id, config.is_causal)
    rows = [
        {**vars(transform({"text": ids})), "label": config.label2id[example.label]}
        for ids, example in zip(texts, examples, strict=True)
    ]
    batches = [collator(rows[begin : begin + args.batch_size]) for begin in range(0, len(rows), args.batch_size)]
    return ablation.task_errors(model, batches, args.metric)
