"""How much of decoding is products with the model's own weights, beside stock gpt2."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from hf_gpt import GPTForCausalLM

from .contenders import PEERS, our_model, peer_config
from .measure import in_turns
from .workloads import PAD, VOCABULARY

PROMPT, NEW_TOKENS = 16, 32
CASES = {
    f"batch {batch}, {way}": (batch, beams) for batch in (1, 16) for way, beams in {"greedy": 1, "4 beams": 4}.items()
}
OURS, HALF, PEER, PRODUCTS = "hf_gpt", "hf_gpt, bfloat16 weights", "gpt2", "products"


def decoding(size: dict, rounds: int, seed: int, device: torch.device) -> dict[str, Any]:
    """
    Times of `NEW_TOKENS` behind random prompts: both models, ours also with weights in bfloat16, and the products of
    our linear layers, output matrix included, with as many states as there are rows and beams, so often as there are
    new tokens. All take turns.
    """
    torch.manual_seed(seed)
    models = {
        OURS: our_model(GPTForCausalLM, size).to(device).eval(),
        HALF: our_model(GPTForCausalLM, size).to(device, torch.bfloat16).eval(),
        PEER: PEERS[PEER][2](peer_config(PEER, size)).to(device).eval(),
    }
    layers = [module for module in models[OURS].modules() if isinstance(module, nn.Linear)]

    @torch.inference_mode()
    def turn(name: str, batch: int, beams: int) -> None:
        if name in models:
            prompt = torch.randint(VOCABULARY, (batch, PROMPT), device=device)
            settings = {
                "max_new_tokens": NEW_TOKENS,
                "min_new_tokens": NEW_TOKENS,
                "num_beams": beams,
                "pad_token_id": PAD,
            }
            models[name].generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, **settings)
            return
        states = {layer.in_features: torch.randn(batch * beams, layer.in_features, device=device) for layer in layers}
        for _ in range(NEW_TOKENS):
            for layer in layers:
                layer(states[layer.in_features])

    names = (OURS, HALF, PEER, PRODUCTS)
    turns = {(case, name): functools.partial(turn, name, *CASES[case]) for case in CASES for name in names}
    measured = in_turns(turns, rounds, device, "decoding")
    seconds, medians = ({case: {name: found[case, name] for name in names} for case in CASES} for found in measured)
    return {"suite": "decoding", "new_tokens": NEW_TOKENS, "seconds": seconds, "median_seconds": medians}


def decoding_table(result: Mapping[str, Any]) -> str:
    """A Markdown table of tokens a second, the others' times, and the products' share."""
    heads = (f"{result['new_tokens']} tokens behind {PROMPT}", "tokens/s", *(PEER, HALF.partition(", ")[2]))
    lines = [f"| {' | '.join(heads)} | share of bare products |", "|---" * 5 + "|"]
    for case, found in result["median_seconds"].items():
        rate = CASES[case][0] * result["new_tokens"] / found[OURS]
        times = [f"{found[name] / found[OURS]:.2f} x" for name in (PEER, HALF)]
        lines.append(f"| {case} | {rate:.1f} | {' | '.join(times)} | {found[PRODUCTS] / found[OURS]:.0%} |")
    return "\n".join(lines)
