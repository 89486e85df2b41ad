r"""
What every head of every block attends to, and where the heads look on average.

    python scripts/analyze.py attention --model_name_or_path model_cards/gpt-mini \
        --text "It rained on Tom." --choices "He was wet." "He was dry." --output_dir outputs/item

attention.html shows every head of the first text, or of each choice of an item, to be chosen by mouse or keyboard;
attention.png the same heads as a grid. statistics.png and statistics.json report of every head, as a mean over all
texts with a bootstrap interval (95%): entropy in bits, distance in tokens, and the shares of its attention on the
first token, the token before, and `_delimiter_`. The first token of a text, which sees itself alone, does not count.
"""

from dataclasses import dataclass

import numpy as np

from ...analysis import AnalysisArguments, interval_record, words_of
from ...analysis.attention import STATISTICS, attention_of, path_record, statistics_over
from ...analysis.figures import curves_figure, heads_figure
from ...analysis.pages import write_page
from ...files import flag
from ...generation import encode
from ...model.tokenization_gpt import GPTTokenizer
from ...trees.token_tree import TokenTree

_LABELS = ("entropy, bits", "distance, tokens", "share: first", "share: previous", "share: delimiter")


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model, which texts or choices, and where the result goes."""

    choices: list[str] | None = flag(None, "Choices of an item after the one --text, read as in fine-tuning.")
    task_template: bool = flag(False, "Read each text as in fine-tuning: between _start_ and _classify_.")
    max_tokens: int = flag(64, "Tokens of a text that are read and shown at most.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.choices and (self.text is None or len(self.text) != 1 or not all(map(str.strip, self.choices))):
            raise ValueError("--choices, none of them empty, belong to one --text: give one.")


def run(args: Arguments) -> None:
    """Read, count, draw."""
    model, tokenizer = args.load()
    limit = min(args.max_tokens, model.config.n_positions)
    paths = _paths(args, tokenizer)
    if longer := sum(any(len(path) > limit for path in each) for each in paths):
        print(f"Of {longer} of {len(paths)} texts only the first {limit} tokens are read (--max_tokens).")
    read = [attention_of(model, TokenTree.from_paths([path[:limit] for path in each])) for each in paths]
    title, first, names = f"Attention of {args.name}", read[0], args.choices or [args.examples[0].text]
    records = [path_record(name, path, tokenizer) for name, path in zip(names, first, strict=True)]
    write_page(args.folder / "attention.html", title, {"paths": records})
    record = {"tokens": words_of(tokenizer, first[0].ids), "weights": first[0].weights.tolist()}
    args.save("attention", heads_figure(first[0].weights.numpy(), title), record)
    values = statistics_over([path for of_text in read for path in of_text], tokenizer.sep_token_id, args.seed)
    layers, heads = values.shape[2:]
    panels = {
        label: {"": each.reshape(3, -1)}
        for label, each in zip(_LABELS, values, strict=True)
        if not np.isnan(each).all()
    }
    ticks = {heads * block: f"layer {block + 1}" for block in range(layers)}
    figure = curves_figure(panels, f"{title}, mean over texts", "heads, by layer", line="", ticks=ticks)
    args.save("statistics", figure, dict(zip(STATISTICS, map(interval_record, values), strict=True)))
    for name in ("first", "previous"):
        mean, low, high = values[STATISTICS.index(name)]
        best = np.unravel_index(mean.argmax(), mean.shape)
        interval = f"{mean[best]:.2f} ({low[best]:.2f} to {high[best]:.2f})"
        print(f"most on the {name} token: layer {best[0] + 1}, head {best[1]}: {interval}")


def _paths(args: Arguments, tokenizer: GPTTokenizer) -> list[list[list[int]]]:
    """Token ids of each text, or of each choice after the one text."""
    start, delimiter, classify = tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id
    texts = args.token_ids(tokenizer, fewest=1 if args.choices or args.task_template else 2)
    if args.choices:
        begin = [start, *texts[0], delimiter]
        return [[[*begin, *encode(tokenizer, choice), classify] for choice in args.choices]]
    return [[[start, *ids, classify] if args.task_template else ids] for ids in texts]
