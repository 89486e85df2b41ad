r"""
What each layer would predict next (the logit or tuned lens), and how soon it agrees with the whole model.

    hf-gpt analyze lens --model_name_or_path gpt-mini --text "She ran home." --output_dir outputs/lens
    hf-gpt analyze lens --model_name_or_path gpt-mini --tuned true --text_files books/ --output_dir outputs/tuned

The state after a layer goes through the output matrix as if it were the last: with post-norm blocks (GPT-1) as it is,
with pre-norm blocks (GPT-2) through the final norm first. Layer 0 is the embeddings, the last the model itself.
lens.html and lens.png show the first guess of every layer after every token of the first text, and on the page the
next ones; layers.json, as means over all texts with bootstrap intervals (95%), the surprisal of the next token at each
layer in bits, how often it agrees with the model's first guess, and the divergence of the model's prediction in bits.

With `--tuned true` the states of each layer but the last go through an affine map first, which is trained to make that
divergence small (the tuned lens, Belrose et al., 2023) on --text_files, by default the bundled stories. The guesses
are those of the tuned lens then, and layers.json holds the numbers of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from ..files import flag, write_json
from ..generation import encode, print_table
from ..model.modeling_gpt import GPTForCausalLM
from ..training.text_files import iter_texts
from . import AnalysisArguments, interval_text, mean_intervals, words_of
from .figures import cells_figure, write_figure, write_page

STATISTICS = ("surprisal", "agreement", "divergence")
# What the tuned lens is trained on by default, and tokens of a step: a gradient of so few is good enough.
_STORIES, _ROW = Path(__file__).parents[1] / "tasks" / "data" / "stories.jsonl", 128
# Tokens of the first text that are shown at most, and guesses of each layer on the page.
_TOKENS, _GUESSES = 32, 5


@torch.no_grad()
def layer_states(model: GPTForCausalLM, ids: Sequence[int]) -> list[torch.Tensor]:
    """States, `(length, n_embd)`, of a text after every layer; the last have gone through the final norm."""
    row = torch.tensor([ids], device=model.device)
    return [state[0] for state in model.transformer(row, use_cache=False, output_hidden_states=True).hidden_states]


def read_out(model: GPTForCausalLM, states: torch.Tensor) -> torch.Tensor:
    """Log-probabilities, `(length, vocab_size)`, of what states before the last layer, `(length, n_embd)`, predict."""
    states = model.transformer.ln_f(states) if model.config.final_norm else states
    return model.token_logits(states).float().log_softmax(-1)


@torch.no_grad()
def lens(model: GPTForCausalLM, ids: Sequence[int], maps: Sequence[nn.Module] | None = None) -> torch.Tensor:
    """Log-probabilities, `(layers + 1, length, vocab_size)`, by the logit lens, or with `maps` by the tuned one."""
    *before, last = layer_states(model, ids)
    found = [read_out(model, each(state)) for each, state in zip(maps or repeat(nn.Identity()), before, strict=False)]
    return torch.stack([*found, model.token_logits(last).float().log_softmax(-1)]).cpu()


def tuned_lens(
    model: GPTForCausalLM, texts: Sequence[Sequence[int]], steps: int = 250, learning_rate: float = 2e-3, seed: int = 0
) -> nn.ModuleList:
    """
    The tuned lens (Belrose et al., 2023): of every layer but the last an affine map of its states, which Adam trains
    from the identity on, in each step on one of the texts, token ids that fit into the context, drawn at random.
    """
    width, order = model.config.n_embd, np.random.default_rng(seed).integers(len(texts), size=steps)
    maps = nn.ModuleList(nn.Linear(width, width) for _ in model.transformer.h).to(model.device)
    for each in maps:
        nn.init.eye_(each.weight)
        nn.init.zeros_(each.bias)
    optimizer = torch.optim.Adam(maps.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 1 / steps, steps)
    for number in tqdm(order.tolist(), desc="tuned lens", unit="step"):
        *before, last = layer_states(model, texts[number])
        wanted = model.token_logits(last).float().log_softmax(-1).detach()
        optimizer.zero_grad()
        for each, state in zip(maps, before, strict=True):
            found = read_out(model, each(state))  # (length, vocab_size)
            loss = nn.functional.kl_div(found, wanted, reduction="batchmean", log_target=True)
            loss.backward(inputs=[*each.parameters()])
        optimizer.step()
        schedule.step()
    return maps


def lens_statistics(seen: torch.Tensor, ids: Sequence[int]) -> np.ndarray:
    """
    Of each layer of `lens` after each token, `(3, layers + 1, length - 1)`: surprisal of the next token in bits,
    whether the first guess is that of the last layer, and the Kullback-Leibler divergence of its prediction, in bits.
    """
    log_probs, targets = seen[:, :-1].double(), torch.tensor(ids[1:])
    last = log_probs[-1]  # (length - 1, vocab_size)
    surprisal = -log_probs.gather(2, targets.expand(len(log_probs), -1)[..., None])[..., 0]  # (layers + 1, length - 1)
    agreement = (log_probs.argmax(-1) == last.argmax(-1)).double()
    divergence = (last.exp() * (last - log_probs)).sum(-1)
    return torch.stack([surprisal / np.log(2), agreement, divergence / np.log(2)]).numpy()


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    tuned: bool = flag(False, "Train the tuned lens, and compare it with the logit lens.")
    text_files: list[str] | None = flag(None, "With --tuned: texts to train on; by default the bundled stories.")
    steps: int = flag(250, "With --tuned: of training, on 128 tokens each.")


def run(args: Arguments) -> None:
    """Read, guess, draw."""
    model, tokenizer = args.load()
    context, title = model.config.n_positions, f"What the layers of {args.name} would predict"
    texts, maps = args.token_ids(tokenizer, context), {"": None}
    if args.tuned:
        files = iter_texts(args.text_files, args.text_column) if args.text_files else iter_texts(_STORIES, "story")
        read = [token for _, text in files for token in encode(tokenizer, text)]
        if not read:
            raise ValueError("The text of --text_files has no token: name other files.")
        size = min(_ROW, context)
        rows = [read[begin : begin + size] for begin in range(0, len(read), size)]
        maps["tuned_"] = tuned_lens(model, rows, args.steps, seed=args.seed)
    values = {}
    for name, own in maps.items():
        each = np.stack([lens_statistics(lens(model, ids, own), ids).mean(-1) for ids in texts], 1)
        values |= {f"{name}{what}": mean_intervals(of, args.seed) for what, of in zip(STATISTICS, each, strict=True)}
    ids = texts[0][:_TOKENS]
    top = lens(model, ids, own).topk(_GUESSES)  # (layers + 1, length, count)
    chances = top.values.exp().double().numpy().round(4)
    guesses = [
        [[*zip(words_of(tokenizer, row), each, strict=True)] for row, each in zip(*layer, strict=True)]
        for layer in zip(top.indices.tolist(), chances.tolist(), strict=True)
    ]
    shown = {"tokens": words_of(tokenizer, ids), "guesses": guesses}
    write_page(args.folder / "lens.html", title, shown)
    best = [[cell[0][0] for cell in layer] for layer in guesses]
    write_figure(args.folder / "lens.png", cells_figure(chances[..., 0], best, shown["tokens"], title), shown)
    write_json(args.folder / "layers.json", values)
    layers = {name: zip(*of.values(), strict=True) for name, of in values.items()}
    table = {name: [interval_text(each, ".2f") for each in of] for name, of in layers.items()}
    print_table({"layer": range(len(guesses)), **table})
