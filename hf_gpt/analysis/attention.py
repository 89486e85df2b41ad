r"""
What every head of every block attends to, and where the heads look on average.

    hf-gpt analyze attention --model_name_or_path gpt-mini \
        --text "It rained on Tom." --choices "He was wet." "He was dry." --output_dir outputs/item

attention.html shows every head of the first text, or of each choice of an item, to be chosen by mouse or keyboard;
attention.png the same heads as a grid. statistics.json reports of every head, as a mean over all texts with a
bootstrap interval (95%): entropy in bits, distance in tokens, and the shares of its attention on the first token and
on the token before. The first token of a text, which sees itself alone, does not count.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..files import flag, write_json
from ..generation import check_predicted, encode
from ..model.modeling_gpt import GPTPreTrainedModel
from ..model.tokenization_gpt import GPTTokenizer
from . import AnalysisArguments, interval_record, interval_text, mean_intervals, words_of
from .figures import heads_figure, write_figure, write_page

STATISTICS = ("entropy", "distance", "first", "previous")


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
def attention_of(model: GPTPreTrainedModel, ids: Sequence[int]) -> torch.Tensor:
    """`(layers, heads, length, length)`: what each token of a text (third axis) gives to each (fourth), in all 1."""
    with eager_attention(model.base_model):
        outputs = model.base_model(torch.tensor([ids], device=model.device), use_cache=False, output_attentions=True)
    return torch.cat(outputs.attentions).float().cpu()


def path_record(name: str, tokenizer: GPTTokenizer, ids: Sequence[int], weights: torch.Tensor) -> dict[str, Any]:
    """What the page of attention shows of a text: its name, its words, weights in thousandths."""
    return {"name": name, "tokens": words_of(tokenizer, ids), "weights": (weights * 1000).round().int().tolist()}


def head_statistics(weights: torch.Tensor) -> np.ndarray:
    """
    Where the heads look, as means over the tokens but the first, `(4, layers, heads)` in the order of `STATISTICS`:
    entropy in bits, distance in tokens, and the shares of attention on the first token and the token before.
    """
    check_predicted(range(weights.shape[-1]))
    weights = weights.double()[:, :, 1:]  # (layers, heads, length - 1, length)
    position = torch.arange(weights.shape[-1], dtype=torch.float64)
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


def run(args: Arguments) -> None:
    """Read, count, draw."""
    if args.choices and (len(args.text or ()) != 1 or not all(map(str.strip, args.choices))):
        raise ValueError("--choices, none of them empty, belong to one --text: give one.")
    model, tokenizer = args.load()
    limit = min(args.max_tokens, model.config.n_positions)
    texts = args.token_ids(tokenizer, limit, fewest=1 if args.choices else 2)
    if args.choices:
        begin = [tokenizer.bos_token_id, *texts[0], tokenizer.sep_token_id]
        rows = [[*begin, *encode(tokenizer, choice), tokenizer.cls_token_id] for choice in args.choices]
        texts = [row[:limit] for row in rows]
    title, names = f"Attention of {args.name}", args.choices or [args.examples[0].text]
    read = [attention_of(model, ids) for ids in texts]
    # The choices, or the first text.
    records = [path_record(name, tokenizer, *each) for name, *each in zip(names, texts, read, strict=False)]
    write_page(args.folder / "attention.html", title, {"paths": records})
    record = {"tokens": records[0]["tokens"], "weights": read[0].tolist()}
    write_figure(args.folder / "attention.png", heads_figure(read[0].numpy(), title), record)
    values = mean_intervals([head_statistics(weights) for weights in read], args.seed)
    record = {name: interval_record(values[:, number]) for number, name in enumerate(STATISTICS)}
    write_json(args.folder / "statistics.json", record)
    for number, name in enumerate(STATISTICS[2:], 2):
        layer, head = divmod(int(values[0, number].argmax()), model.config.n_head)
        interval = interval_text(interval_record(values[:, number, layer, head]), form=".2f")
        print(f"most on the {name} token: layer {layer + 1}, head {head}: {interval}")
