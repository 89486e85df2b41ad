r"""
Which states carry a difference between two prompts (activation patching): states of one are put into the other.

    hf-gpt analyze patch --model_name_or_path gpt-mini --text "The boy and the girl" \
        --corrupted "The boy near the girl" --answers were was --output_dir outputs/patch

Both prompts have the same number of tokens. While the corrupted one is read, what a part computes at one position is
replaced by what it computes for the clean one (`--text`), for every layer and position: the state after a block
(layer 0: the embeddings), or what attention or the feed-forward layer adds. effects.json and effects.png show by how
much that restores the preference for the first answer: 0 as in the corrupted prompt, 1 as in the clean one (Wang et
al., 2023, `(patched - corrupted) / (clean - corrupted)` of the difference of the answers' log-probabilities).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from ..files import flag
from ..generation import encode
from ..model.modeling_gpt import GPTForCausalLM
from . import AnalysisArguments, words_of
from .figures import new_figure, write_figure

# What is patched, and its first layer.
PARTS = {"state": 0, "attention": 1, "mlp": 1}


def preferences(model: GPTForCausalLM, rows: torch.Tensor, answers: Sequence[int]) -> np.ndarray:
    """By how many nats the first answer is likelier than the second after each row: `(rows,)` of `(rows, length)`."""
    logits = model(rows, use_cache=False).logits[:, -1].double()  # (rows, vocab_size)
    return (logits[:, answers[0]] - logits[:, answers[1]]).cpu().numpy()


@torch.no_grad()
def patch_effects(
    model: GPTForCausalLM, clean: Sequence[int], corrupted: Sequence[int], answers: Sequence[int]
) -> dict[str, np.ndarray]:
    """
    The share of the preference between two next tokens that each part restores, by part `(layers, positions)`; a
    `ValueError` for prompts, token ids, of different lengths, and where both have the same preference.
    """
    if len(clean) != len(corrupted):
        raise ValueError(f"The clean prompt has {len(clean)} tokens, the corrupted one {len(corrupted)}.")
    rows = torch.tensor([clean, corrupted], device=model.device)
    best, worst = preferences(model, rows, answers)
    if abs(best - worst) < 1e-6:
        raise ValueError("Both prompts have the same preference between the answers: there is nothing to restore.")
    position = torch.arange(len(clean), device=model.device)
    rows = torch.cat([rows[:1], rows[1:].expand(len(clean), -1)])  # the clean prompt, and a copy for each position

    def patch(module: nn.Module, args: Any, output: Any) -> None:
        states = output[0] if isinstance(output, tuple) else output  # (1 + length, length, n_embd)
        states[1 + position, position] = states[0].clone()  # in copy i that of position i

    blocks, effects = [*model.transformer.h], {}
    modules = {"state": [model.transformer.embd_dropout, *blocks]}  # from layer 0, the others from layer 1
    modules |= {"attention": [block.attn for block in blocks], "mlp": [block.mlp for block in blocks]}
    for part in PARTS:
        found = []
        for module in tqdm(modules[part], desc=part, unit="layer"):
            with module.register_forward_hook(patch):
                found.append(preferences(model, rows, answers)[1:])
        effects[part] = (np.stack(found) - worst) / (best - worst)
    return effects


@dataclass(kw_only=True)
class Arguments(AnalysisArguments):
    corrupted: str = flag(help="The prompt that differs; as many tokens as --text.")
    answers: list[str] = flag(help="Two words, of which the first token counts: that of the clean prompt first.")


def run(args: Arguments) -> None:
    """Read both, patch, draw."""
    if len(args.text or ()) != 1 or [bool(word.strip()) for word in args.answers] != [True, True]:
        raise ValueError("Give one clean prompt with --text, and two words with --answers.")
    model, tokenizer = args.load()
    (clean,), corrupted = args.token_ids(tokenizer, model.config.n_positions, 1), encode(tokenizer, args.corrupted)
    answers = [encode(tokenizer, word)[0] for word in args.answers]
    effects, words = patch_effects(model, clean, corrupted, answers), words_of(tokenizer, corrupted)
    first, second = words_of(tokenizer, answers)
    title = f"{args.name}: what restores {first} over {second}"
    figure, largest = new_figure(5 * len(PARTS), 4.5, title), max(abs(each).max() for each in effects.values())
    for axes, (part, values) in zip(figure.subplots(1, len(PARTS)), effects.items(), strict=True):
        axes.imshow(values, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto", origin="lower")
        axes.set(title=part, ylabel="layer")
        axes.set_xticks(range(len(words)), words, rotation=60, ha="right")
        axes.set_yticks(range(len(values)), range(PARTS[part], PARTS[part] + len(values)))
    record = {"clean": words_of(tokenizer, clean), "corrupted": words, "answers": [first, second]}
    record |= {"first_layer": PARTS, "effects": {part: values.round(4) for part, values in effects.items()}}
    write_figure(args.folder / "effects.png", figure, record)
    for part, values in effects.items():
        layer, position = np.unravel_index(values.argmax(), values.shape)
        print(f"{part:10} most at layer {layer + PARTS[part]}, {words[position]}: {values.max():.2f}")
