r"""
What every head of every block attends to, and where the heads look on average.

    hf-gpt analyze attention --model_name_or_path gpt-mini --text "It rained on Tom." --output_dir outputs/attention

attention.html shows every head of the first text, to be chosen by mouse or keyboard; attention.png the same heads as a
grid. statistics.json reports of every head, as a mean over all texts with a bootstrap interval (95%): entropy in bits,
distance in tokens, and the shares of its attention on the first token and on the token before. The first token of a
text, which sees itself alone, does not count; of a long text the first 64 tokens are read.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.utils import ModelOutput

from ..files import write_json
from ..model.modeling_gpt import GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from . import AnalysisArguments, interval_text, mean_intervals, words_of
from .figures import heads_figure, write_figure, write_page

STATISTICS = ("entropy", "distance", "first", "previous")
# Tokens of a text that are read and shown at most.
_TOKENS = 64


@torch.no_grad()
def outputs_of(model: GPTPreTrainedModel, ids: Sequence[int]) -> ModelOutput:
    """A model's output for a text with all states, and attention by the implementation that returns probabilities."""
    row, before = torch.tensor([ids], device=model.device), model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        return model(row, use_cache=False, output_hidden_states=True, output_attentions=True)
    finally:
        model.set_attn_implementation(before)


def attention_of(model: GPTPreTrainedModel, ids: Sequence[int]) -> torch.Tensor:
    """`(layers, heads, length, length)`: what each token of a text (third axis) gives to each (fourth), in all 1."""
    return torch.cat(outputs_of(model.base_model, ids).attentions).float().cpu()


def page_record(tokenizer: GPTTokenizer, ids: Sequence[int], weights: torch.Tensor) -> dict[str, Any]:
    """What the page of attention shows of a text: its words, and weights in thousandths."""
    return {"tokens": words_of(tokenizer, ids), "weights": (weights * 1000).round().int().tolist()}


def head_statistics(weights: torch.Tensor) -> np.ndarray:
    """Means of `STATISTICS` over the tokens but the first, in bits, tokens and shares: `(4, layers, heads)`."""
    weights = weights.double()[:, :, 1:]  # (layers, heads, length - 1, length)
    position = torch.arange(weights.shape[-1], dtype=torch.float64)
    found = [
        torch.special.entr(weights).sum(-1).mean(-1) / np.log(2),
        (weights * (position[1:, None] - position)).sum(-1).mean(-1),
        weights[..., 0].mean(-1),
        weights.diagonal(dim1=2, dim2=3).mean(-1),  # of each token the share on the one before
    ]
    return torch.stack(found).numpy()


Arguments = AnalysisArguments


def run(args: Arguments) -> None:
    """Read, count, draw."""
    model, tokenizer = args.load()
    texts, title = args.token_ids(tokenizer, min(_TOKENS, model.config.n_positions)), f"Attention of {args.name}"
    read = [attention_of(model, ids) for ids in texts]
    record = page_record(tokenizer, texts[0], read[0])
    write_page(args.folder / "attention.html", title, record)
    record["weights"] = read[0]  # exact in the JSON
    write_figure(args.folder / "attention.png", heads_figure(read[0].numpy(), title), record)
    found = np.stack([head_statistics(weights) for weights in read], 1)  # (4, texts, layers, heads)
    values = {name: mean_intervals(each, args.seed) for name, each in zip(STATISTICS, found, strict=True)}
    write_json(args.folder / "statistics.json", values)
    for name in STATISTICS[2:]:
        layer, head = divmod(int(values[name]["mean"].argmax()), model.config.n_head)
        interval = interval_text((each[layer, head] for each in values[name].values()), ".2f")
        print(f"most on the {name} token: layer {layer + 1}, head {head}: {interval}")
