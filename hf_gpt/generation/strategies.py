"""Prompts continued by several decoding strategies side by side, and what these write against human text."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import set_seed

from ..model.modeling_gpt import GPTForCausalLM
from ..model.tokenization_gpt import GPTTokenizer
from .scoring import score_texts

# Ranks that Zipf's coefficient is fitted to, as in the paper's code.
_RANKS = 5000
# What a precision without a match has in its numerator (smoothing method 1 of Chen and Cherry, 2014).
_SMOOTHING = 0.1
# What a strategy's description leaves out.
_SWITCHED_OFF = (("do_sample", False), ("do_sample", True), ("top_k", 0), ("top_p", 1.0))


@dataclass(frozen=True)
class Strategy:
    """A way to choose the next tokens: what people call it, and its arguments of `model.generate`."""

    name: str
    settings: Mapping[str, Any]

    @property
    def flag(self) -> str:
        """Its first word, as `--strategy` takes it."""
        return self.name.split()[0].lower().replace("-", "_")

    def __str__(self) -> str:
        shown = [f"{name}={value}" for name, value in self.settings.items() if (name, value) not in _SWITCHED_OFF]
        return f"{self.name} ({', '.join(shown)})" if shown else self.name


def strategies(
    num_beams: int = 4, top_k: int = 40, top_p: float = 0.9, typical_p: float = 0.95, temperature: float = 1.0
) -> list[Strategy]:
    """
    Greedy, beam search (without repeated pairs of tokens, as it would else go round in circles), and sampling from all
    tokens, the likeliest `top_k`, those with probability `top_p` (nucleus), and those with `typical_p` nearest to the
    entropy (Meister et al., 2023). A `ValueError` refuses what `generate` could do nothing with.
    """
    likely = 2 <= num_beams <= 1000 and top_k >= 1 and 0 < top_p <= 1 and 0 < typical_p <= 1
    # Logits divided by less are infinite, by more all alike.
    if not (likely and 1e-3 <= temperature <= 1e3):
        given = f"{num_beams} beams, top-k {top_k}, top-p {top_p}, typical-p {typical_p}, temperature {temperature}"
        raise ValueError(f"{given}: give 2 to 1,000 beams, top-k from 1, p above 0 to 1, temperature 0.001 to 1,000.")
    sampling = {"Temperature": {}, "Top-k": {"top_k": top_k}, "Nucleus": {"top_p": top_p}}
    sampling["Typical"] = {"typical_p": typical_p}
    plain = {"do_sample": True, "top_k": 0, "top_p": 1.0}
    return [
        Strategy("Greedy", {"do_sample": False}),
        Strategy("Beam search", {"do_sample": False, "num_beams": num_beams, "no_repeat_ngram_size": 2}),
        *(Strategy(f"{name} sampling", plain | own | {"temperature": temperature}) for name, own in sampling.items()),
    ]


@dataclass(frozen=True)
class Continuation:
    """A prompt as the model reads it with what follows, that alone without the space before it, and the new tokens."""

    strategy: Strategy
    text: str
    generated: str
    ids: tuple[int, ...]
    mean_log_probability: float
    new_tokens: int
    repetition: float  # share of the new 4-grams that are not there for the first time


@torch.no_grad()
def continue_prompts(
    model: GPTForCausalLM,
    tokenizer: GPTTokenizer,
    prompts: Sequence[Sequence[int]],
    chosen: Sequence[Strategy],
    new_tokens: int,
    seed: int = 0,
    num_samples: int = 1,
    batch_size: int = 16,
) -> list[list[Continuation]]:
    """
    Prompts, token ids fewer than the context, continued by each strategy, by those that draw `num_samples` times: for
    each strategy all of the first prompt, of the second, and so on. `new_tokens` are added, or fewer where the model
    ends the text; where the context is full, its last half becomes the prompt. The seed is set before each strategy.
    """
    by_length: dict[int, list[int]] = {}  # equally long prompts need no padding
    for number, ids in enumerate(prompts):
        by_length.setdefault(len(ids), []).append(number)
    batches = [same[at : at + batch_size] for same in by_length.values() for at in range(0, len(same), batch_size)]
    results = []
    with tqdm(total=len(chosen) * len(batches), desc="generating", unit="batch") as bar:
        for strategy in chosen:
            set_seed(seed)
            copies, rows = num_samples if strategy.settings["do_sample"] else 1, {}
            for numbers in batches:
                given = [[*prompts[number]] for number in numbers]
                new = _generated(model, given, copies, new_tokens, **strategy.settings)
                rows |= {number: new[place * copies :][:copies] for place, number in enumerate(numbers)}
                bar.update()
            given = [prompt for prompt in prompts for _ in range(copies)]
            new = [row for number in range(len(prompts)) for row in rows[number]]
            scores = score_texts(model, new, given=given)
            results.append([])
            for prompt, ids, score in zip(given, new, scores, strict=True):
                text = tokenizer.decode([*prompt, *ids])
                generated = text.removeprefix(tokenizer.decode(prompt)).lstrip(" ")
                repetition = 1 - distinct([ids], 4) if len(ids) >= 4 else 0.0
                numbers = (score.log_probability / max(1, len(ids)), len(ids), repetition)
                results[-1].append(Continuation(strategy, text, generated, tuple(ids), *numbers))
    return results


def _generated(
    model: GPTForCausalLM, prompts: list[list[int]], copies: int, new_tokens: int, **settings: Any
) -> list[list[int]]:
    """The new tokens of each copy of equally long prompts."""
    context, given = model.config.n_positions, len(prompts[0])
    inputs, free = torch.tensor(prompts, device=model.device), context - given
    counts = {"max_new_tokens": min(new_tokens, free), "num_return_sequences": copies}
    output = model.generate(inputs, attention_mask=torch.ones_like(inputs), **counts, **settings)
    ends = model.config.eos_token_ids  # what follows one is padding
    rows = [[*takewhile(lambda token: token not in ends, row)] for row in output[:, given:].tolist()]
    unfinished = [number for number, row in enumerate(rows) if new_tokens > free == len(row)]
    if unfinished:
        tails = [[*prompts[number // copies], *rows[number]][-(context // 2) :] for number in unfinished]
        more = _generated(model, tails, 1, new_tokens - free, **settings)
        for number, row in zip(unfinished, more, strict=True):
            rows[number] += row
    return rows


def ngrams(ids: Sequence[int], n: int) -> list[tuple[int, ...]]:
    """All runs of n tokens, in order."""
    return [tuple(ids[start : start + n]) for start in range(len(ids) - n + 1)]


def distinct(texts: Sequence[Sequence[int]], n: int) -> float:
    """Share of the n-grams of all texts that are different (Li et al., 2016); 0 where there are none."""
    grams = [gram for ids in texts for gram in ngrams(ids, n)]
    return len(set(grams)) / len(grams) if grams else 0.0


def self_bleu(texts: Sequence[Sequence[int]], order: int = 4) -> float:
    """Mean BLEU of each text against all others (Zhu et al., 2018), from 0 to 1; the lower, the more diverse."""
    counts = [Counter(gram for n in range(1, order + 1) for gram in ngrams(ids, n)) for ids in texts]
    scores = []
    for number, (ids, own) in enumerate(zip(texts, counts, strict=True)):
        others, matches = [*range(number), *range(number + 1, len(texts))], Counter()
        for gram, count in own.items():
            matches[len(gram)] += min(count, max(counts[other][gram] for other in others))
        precisions = [(matches[n] or _SMOOTHING) / max(len(ids) - n + 1, 1) for n in range(1, order + 1)]
        reference = min((len(texts[other]) for other in others), key=lambda length: (abs(length - len(ids)), length))
        brevity = min(0.0, 1 - reference / max(len(ids), 1))
        scores.append(math.exp(sum(map(math.log, precisions)) / order + brevity))
    return sum(scores) / len(scores)


def compare(texts: Sequence[Sequence[int]]) -> dict[str, float | None]:
    """
    Measures of the token ids of texts (Holtzman et al., 2020, table 1), `None` where there are too few texts or tokens
    for one: distinct-1 and -2, self-BLEU-4, Zipf's coefficient (minus the slope of log frequency over log rank, about
    1 in human language), and the share of texts that end with a phrase of two tokens or more three times in a row.
    """
    frequencies = [count for _, count in Counter(token for ids in texts for token in ids).most_common(_RANKS)]
    ranks = range(1, len(frequencies) + 1)
    loops = [
        any(ids[-n:] == ids[-2 * n : -n] == ids[-3 * n : -2 * n] for n in range(2, len(ids) // 3 + 1)) for ids in texts
    ]
    return {
        "distinct_1": distinct(texts, 1),
        "distinct_2": distinct(texts, 2),
        "self_bleu_4": self_bleu(texts) if len(texts) > 1 else None,
        "zipf": -float(np.polyfit(np.log(ranks), np.log(frequencies), 1)[0]) if len(frequencies) > 1 else None,
        "looping": sum(loops) / len(texts),
    }


def passages(ids: Sequence[int], count: int, given: int, length: int) -> list[tuple[list[int], list[int]]]:
    """So many passages, spread over a text: tokens before each, and its own; a `ValueError` for a short text."""
    size = given + length
    if len(ids) < count * size:
        raise ValueError(f"the human text has {len(ids):,} tokens, and {count} passages of {size} are needed.")
    begins = [number * (len(ids) // count) for number in range(count)]
    return [(list(ids[begin : begin + given]), list(ids[begin + given : begin + size])) for begin in begins]
