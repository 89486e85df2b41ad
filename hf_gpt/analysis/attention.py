"""What every head of every block attends to in a text, or on each path of a token tree, and statistics over texts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from peft import PeftModel

from ..generation import check_predicted
from ..model.modeling_gpt import GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from ..trees.collators import collate_trees
from ..trees.token_tree import TokenTree
from . import mean_intervals, words_of

# Of a head over the tokens of a text; see `head_statistics`.
STATISTICS = ("entropy", "distance", "first", "previous", "delimiter")


@dataclass(frozen=True)
class PathAttention:
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


def transformer_of(model: GPTPreTrainedModel | PeftModel) -> GPTPreTrainedModel:
    """The transformer within a model with any head, adapted or not (`GPTModel`)."""
    if isinstance(model, PeftModel):
        if model.active_peft_config.is_prompt_learning:
            raise ValueError("This adapter reads virtual tokens before the text, which are no words: name its base.")
        model = model.get_base_model()
    return model.base_model


def head_statistics(attention: PathAttention, delimiter: int | None = None) -> np.ndarray:
    """
    Where the heads look in a sequence, as means over its tokens but the first, which sees itself alone.

    `(5, layers, heads)`, in the order of `STATISTICS`: entropy in bits, mean distance in tokens, and the shares of
    attention on the first token, the token before, and the delimiters (of the tokens after the first one; NaN where
    there are none). A `ValueError` says if there are fewer than two tokens.
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
