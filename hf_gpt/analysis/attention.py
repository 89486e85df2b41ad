r"""
What every head of every block attends to, and where the heads look on average.

    python scripts/analyze.py attention --model_name_or_path model_cards/gpt-mini \
        --text "It rained on Tom." --choices "He was wet." "He was dry." --output_dir outputs/item

attention.html shows every head of the first text, or of each choice of an item, to be chosen by mouse or keyboard;
attention.png the same heads as a grid. statistics.png and statistics.json report of every head, as a mean over all
texts with a bootstrap interval (95%): entropy in bits, distance in tokens, and the shares of its attention on the
first token, the token before, and `_delimiter_`. The first token of a text, which sees itself alone, does not count.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from peft import PeftModel

from ..files import flag
from ..generation import check_predicted, encode
from ..model.modeling_gpt import GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import collate_trees
from ..trees.token_tree import TokenTree
from . import AnalysisArguments, interval_record, interval_text, mean_intervals, words_of
from .figures import curves_figure, heads_figure
from .pages import write_page

# Of a head over the tokens of a text, and their names in figures; see `head_statistics`.
STATISTICS = {"entropy": "entropy, bits", "distance": "distance, tokens"}
STATISTICS |= {name: f"share: {name}" for name in ("first", "previous", "delimiter")}


class PathAttention(NamedTuple):
    """
    Attention of one sequence: its tokens, and `(layers, heads, length, length)` the share of its attention that each
    token (third axis) gives to each (fourth); a row adds up to 1.
    """

    ids: list[int]
    weights: torch.Tensor


@contextmanager
def eager_attention(model: GPTPreTrainedModel) -> Iterator[None]:
    """Within it, a model computes eager attention, the one that returns probabilities."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def transformer_of(model: GPTPreTrainedModel | PeftModel) -> GPTPreTrainedModel:
    """The transformer within a model with any head, adapted or not (`GPTModel`)."""
    if isinstance(model, PeftModel):
        if model.active_peft_config.is_prompt_learning:
            raise ValueError("This adapter reads virtual tokens before the text, which are no words: name its base.")
        model = model.get_base_model()
    return model.base_model


@torch.no_grad()
def attention_of(model: GPTPreTrainedModel | PeftModel, tree: TokenTree) -> list[PathAttention]:
    """
    Attention, as eager attention has it, of every path of a token tree (a text, or an item with its choices), each as
    if it were read alone. A `ValueError` if the model has virtual tokens (prefix, prompt), which no word stands for.
    """
    transformer = transformer_of(model)
    batch = {name: value.to(model.device) for name, value in collate_trees([tree], 0).items()}
    inputs = {name: batch[name] for name in ("input_ids", "position_ids", "subtree_end") if name in batch}
    with eager_attention(transformer):
        weights = transformer(**inputs, use_cache=False, output_attentions=True).attentions
    weights = torch.stack(weights)[:, 0].float().cpu()  # (layers, heads, length, length)
    paths = [list(tree.path(number)) for number in range(len(tree.path_ends))]
    return [PathAttention([tree.input_ids[index] for index in path], weights[:, :, path][..., path]) for path in paths]


def path_record(name: str, path: PathAttention, tokenizer: GPTTokenizer) -> dict[str, Any]:
    """What the page of attention shows of a path: its name, its words, weights in thousandths."""
    weights = (path.weights * 1000).round().int().tolist()
    return {"name": name, "tokens": words_of(tokenizer, path.ids), "weights": weights}


def head_statistics(attention: PathAttention, delimiter: int | None = None) -> np.ndarray:
    """
    Where the heads look in a sequence, as means over its tokens but the first: `(5, layers, heads)`, in the order of
    `STATISTICS`: entropy in bits, mean distance in tokens, and the shares of attention on the first token, the token
    before, and the delimiters (of the tokens after the first one; NaN where there are none). A `ValueError` if
    there are fewer than two tokens.
    """
    check_predicted(attention.ids)
    weights = attention.weights.double()[:, :, 1:]  # (layers, heads, length - 1, length)
    position = torch.arange(len(attention.ids), dtype=torch.float64)
    is_delimiter = torch.tensor([token_id == delimiter for token_id in attention.ids])
    after = is_delimiter.cumsum(0)[:-1] > 0  # of the tokens but the first: whether one stands before
    found = [
        torch.special.entr(weights).sum(-1).mean(-1) / np.log(2),
        (weights * (position[1:, None] - position)).sum(-1).mean(-1),
        weights[..., 0].mean(-1),
        weights.diagonal(dim1=2, dim2=3).mean(-1),  # of each token the share on the one before
        (weights[:, :, after] * is_delimiter).sum(-1).mean(-1),
    ]
    return torch.stack(found).numpy()


def statistics_over(attentions: Sequence[PathAttention], delimiter: int | None = None, seed: int = 0) -> np.ndarray:
    """
    `head_statistics` over many sequences, `(5, 3, layers, heads)`: of each the mean and its bootstrap interval (95%);
    NaN for the delimiter where there is none.
    """
    each = np.stack([head_statistics(attention, delimiter) for attention in attentions], 1)  # (5, sequences, ...)
    found = np.full((len(each), 3, *each.shape[2:]), np.nan)
    for number, values in enumerate(each):
        present = values[~np.isnan(values).any((1, 2))]
        if len(present):
            found[number] = mean_intervals(present, seed)
    return found


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
    start, delimiter, classify = tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id
    texts = args.token_ids(tokenizer, fewest=1 if args.choices or args.task_template else 2)
    paths = [[[start, *ids, classify] if args.task_template else ids] for ids in texts]
    if args.choices:
        begin = [start, *texts[0], delimiter]
        paths = [[[*begin, *encode(tokenizer, choice), classify] for choice in args.choices]]
    limit = min(args.max_tokens, model.config.n_positions)
    if longer := sum(any(len(path) > limit for path in each) for each in paths):
        print(f"Of {longer} of {len(paths)} texts only the first {limit} tokens are read (--max_tokens).")
    read = [attention_of(model, TokenTree.from_paths([path[:limit] for path in each])) for each in paths]
    title, first, names = f"Attention of {args.name}", read[0], args.choices or [args.examples[0].text]
    records = [path_record(name, path, tokenizer) for name, path in zip(names, first, strict=True)]
    write_page(args.folder / "attention.html", title, {"paths": records})
    record = {"tokens": words_of(tokenizer, first[0].ids), "weights": first[0].weights.tolist()}
    args.save("attention", heads_figure(first[0].weights.numpy(), title), record)
    every = statistics_over([path for of_text in read for path in of_text], delimiter, args.seed)
    values = dict(zip(STATISTICS, every, strict=True))
    layers, heads = values["first"].shape[1:]
    panels = {STATISTICS[name]: {"": each.reshape(3, -1)} for name, each in values.items() if not np.isnan(each).all()}
    ticks = {heads * block: f"layer {block + 1}" for block in range(layers)}
    figure = curves_figure(panels, f"{title}, mean over texts", "heads, by layer", line="", ticks=ticks)
    args.save("statistics", figure, {name: interval_record(each) for name, each in values.items()})
    for name in ("first", "previous"):
        layer, head = divmod(int(values[name][0].argmax()), heads)
        interval = interval_text(interval_record(values[name][:, layer, head]), form=".2f")
        print(f"most on the {name} token: layer {layer + 1}, head {head}: {interval}")
