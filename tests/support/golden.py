"""Recorded numbers of the original TensorFlow code, and models of ours with the same weights.

The folder is HF_GPT_GOLDEN, or ../shared/golden beside the repository, or the part of it in tests/data/golden.
"""

import json
import os
from functools import cache
from pathlib import Path

import numpy as np
import torch

from hf_gpt import GPTConfig, GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.conversion.release import BLOCK_ARRAYS, block_state_dict

REPOSITORY = Path(__file__).resolve().parents[2]
CARRIED = REPOSITORY / "tests" / "data" / "golden"


def golden_directory() -> Path:
    """Folder of the recorded numbers."""
    beside = Path(os.environ.get("HF_GPT_GOLDEN", REPOSITORY.parent / "shared" / "golden"))
    return beside if beside.is_dir() else CARRIED


@cache
def golden_config(model: str) -> dict:
    return json.loads((golden_directory() / model / "config.json").read_text(encoding="utf-8"))


@cache
def arrays(model: str, name: str) -> dict[str, np.ndarray]:
    with np.load(golden_directory() / model / f"{name}.npz") as archive:
        return {key: archive[key] for key in archive.files}


def models() -> list[str]:
    return sorted(path.parent.name for path in golden_directory().glob("*/params.npz"))


def model_config(model: str, quirks: bool, **kwargs) -> GPTConfig:
    """Configuration of a recorded model, dropout off; its vocabulary has the three specials and no padding row."""
    recorded = golden_config(model)["config"]
    ids = golden_config(model)["special_ids"]
    dropout = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop"), 0.0)
    return GPTConfig(
        vocab_size=recorded["n_vocab"] + recorded["n_special"],
        n_positions=recorded["n_ctx"],
        n_embd=recorded["n_embd"],
        n_layer=recorded["n_layer"],
        n_head=recorded["n_head"],
        bos_token_id=ids["_start_"],
        start_token_id=ids["_start_"],
        delimiter_token_id=ids["_delimiter_"],
        classify_token_id=ids["_classify_"],
        pad_token_id=None,
        release_quirks=quirks,
        **{**dropout, **kwargs},
    )


def load_variables(model: str, head: str, quirks: bool = True, attention: str = "eager", **kwargs):
    """A model of ours with the recorded variables: `head` is `roc`, `clf6` or `lm`."""
    if head == "clf6":
        kwargs["num_labels"] = 6
    config = model_config(model, quirks, **kwargs)
    config._attn_implementation = attention
    classes = {"roc": GPTForMultipleChoice, "clf6": GPTForSequenceClassification, "lm": GPTForCausalLM}
    ours = classes[head](config)
    variables = arrays(model, "params")
    ours.base_model.load_state_dict(transformer_state(variables, config))
    if head != "lm":
        prefix = "model/clf" if head == "roc" else "clf6"
        ours.score.load_state_dict(
            {
                "weight": torch.tensor(variables[f"{prefix}/w"]).reshape(config.n_embd, -1).T,
                "bias": torch.tensor(variables[f"{prefix}/b"]),
            }
        )
    return ours.eval()


def transformer_state(variables: dict[str, np.ndarray], config: GPTConfig) -> dict[str, torch.Tensor]:
    tokens, positions = torch.tensor(variables["model/we"]).split([config.vocab_size, config.n_positions])
    return {
        "embed_tokens.weight": tokens,
        "embed_positions.weight": positions,
        **block_state_dict(variables, config.n_layer),
    }


def as_release(model, values) -> dict[str, np.ndarray]:
    """Values of our parameters (`values(parameter)`) under the release's names and in its layout."""
    transformer = model.base_model
    named = {
        "model/we": torch.cat([values(transformer.embed_tokens.weight), values(transformer.embed_positions.weight)]),
        "model/clf/w": values(model.score.weight).T,
        "model/clf/b": values(model.score.bias),
    }
    for layer, block in enumerate(transformer.h):
        parameters = dict(block.named_parameters())
        for source, (target, sizes) in BLOCK_ARRAYS.items():
            value = values(parameters[target])
            named[f"model/h{layer}/{source}"] = value.T.unsqueeze(0) if len(sizes) == 2 else value
    return {name: value.detach().numpy().copy() for name, value in named.items()}


def roc_inputs(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """A recorded batch as conventional inputs; like the release, no mask (padding stands right)."""
    labels = {"labels": torch.tensor(batch["Y"]).long()} if "Y" in batch else {}
    return {"input_ids": torch.tensor(batch["X"][..., 0]).long(), **labels}


def recorded_lm_weights(mask: np.ndarray) -> torch.Tensor:
    """Weights that repeat the release's masked mean: over targets of a sequence, then over sequences."""
    mask = torch.tensor(mask).float()
    targets = mask.clone()
    targets[..., 0] = 0
    weights = targets / targets.sum(-1, keepdim=True)
    sequences_per_example = mask.shape[1] if mask.ndim == 3 else 1
    return (weights / sequences_per_example).view(-1, mask.shape[-1])


def with_recorded_weights(batch):
    return {**roc_inputs(batch), "lm_weights": recorded_lm_weights(batch["M"])}
