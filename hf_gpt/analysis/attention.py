r"""
What every head of every block attends to, and where the heads look on average.

    python scripts/analyze.py attention --model_name_or_path model_cards/gpt-mini \
        --text "It rained on Tom." --choices "He was wet." "He was dry." --output_dir outputs/item

attention.html shows every head of the first text, or of each choice of an item, to be chosen by mouse or keyboard;
attention.png the same heads as a grid. statistics.json reports of every head, as a mean over all texts with a
bootstrap interval (95%): entropy in bits, distance in tokens, and the shares of its attention on the first token and
on the token before. The first token of a text, which sees itself alone, does not count.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from peft import PeftModel

from ..files import flag, write_json
from ..generation import check_predicted, encode
from ..model.modeling_gpt import GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import collate_trees
from ..trees.token_tree import TokenTree
from . import AnalysisArguments, interval_record, interval_text, mean_intervals, words_of
from .figures import heads_figure
from .pages import write_page

# Of a head over the tokens of a text; see `head_statistics`.
STATISTICS = ("entropy", "distance", "first", "previous")


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


def head_statistics(attention: PathAttention) -> np.ndarray:
    """
    Where the heads look in a sequence, as means over its tokens but the first: `(4, layers, heads)`, in the order of
    `STATISTICS`: entropy in bits, mean distance in tokens, and the shares of attention on the first token and the
    token before. A `ValueError` if there are fewer than two tokens.
    """
    check_predicted(attention.ids)
    weights = attention.weights.double()[:, :, 1:]  # (layers, heads, length - 1, length)
    position = torch.arange(len(attention.ids), dtype=torch.float64)
    found = [
        torch.special.entr(weights).sum(-1).mean(-1) / np.log(2),
        (weights * (position[1:, None] - position)).sum(-1).mean(-1),
        weights[..., 0].mean(-1),
        weights.diagonal(dim1=2, dim2=3).mean(-1),  # of each token the share on the one before
    ]
    return torch.stack(found).numpy()


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    """Which model, which texts or choices, and where the result goes."""

    choices: list[str] | None = flag(None, "Choices of an item after the one --text, read as in fine-tuning.")
    max_tokens: int = flag(64, "Tokens of a text that are read and shown at most.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.choices and (self.text is None or len(self.text) != 1 or not all(map(str.strip, self.choices))):
            raise ValueError("--choices, none of them empty, belong to one --text: give one.")


def run(args: Arguments) -> None:
    """Read, count, draw."""
    model, tokenizer = args.load()
    limit = min(args.max_tokens, model.config.n_positions)
    items = [[ids] for ids in args.token_ids(tokenizer, limit, fewest=1 if args.choices else 2)]
    if args.choices:
        begin = [tokenizer.bos_token_id, *items[0][0], tokenizer.sep_token_id]
        texts = [encode(tokenizer, choice) for choice in args.choices]
        items = [[[*begin, *ids, tokenizer.cls_token_id][:limit] for ids in texts]]
    read = [attention_of(model, TokenTree.from_paths(paths)) for paths in items]
    title, names = f"Attention of {args.name}", args.choices or [args.examples[0].text]
    records = [path_record(name, path, tokenizer) for name, path in zip(names, read[0], strict=True)]
    write_page(args.folder / "attention.html", title, {"paths": records})
    record = {"tokens": records[0]["tokens"], "weights": read[0][0].weights.tolist()}
    args.save("attention", heads_figure(read[0][0].weights.numpy(), title), record)
    values = mean_intervals([head_statistics(path) for paths in read for path in paths], args.seed)
    record = {name: interval_record(values[:, number]) for number, name in enumerate(STATISTICS)}
    write_json(args.folder / "statistics.json", record)
    for number, name in enumerate(STATISTICS[2:], 2):
        layer, head = divmod(int(values[0, number].argmax()), model.config.n_head)
        interval = interval_text(interval_record(values[:, number, layer, head]), form=".2f")
        print(f"most on the {name} token: layer {layer + 1}, head {head}: {interval}")
