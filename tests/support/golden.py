"""Recorded numbers of the original TensorFlow code, and models of ours with the same weights.

The folder is HF_GPT_GOLDEN, or ../shared/golden next to the repository, or the part of it in tests/data/golden.
"""

import json
import os
from functools import cache
from pathlib import Path

import numpy as np
import torch

from hf_gpt import GPTConfig, GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.conversion.release import release_arrays, release_parameters

REPOSITORY = Path(__file__).resolve().parents[2]
BUNDLED = REPOSITORY / "tests" / "data" / "golden"


def golden_directory() -> Path:
    """Folder of the recorded numbers."""
    recorded = Path(os.environ.get("HF_GPT_GOLDEN", REPOSITORY.parent / "shared" / "golden"))
    return recorded if recorded.is_dir() else BUNDLED


@cache
def golden_config(model: str) -> dict:
    return json.loads((golden_directory() / model / "config.json").read_text(encoding="utf-8"))


@cache
def arrays(model: str, name: str) -> dict[str, np.ndarray]:
    with np.load(golden_directory() / model / f"{name}.npz") as archive:
        return {key: archive[key] for key in archive.files}


def models() -> list[str]:
    return sorted(path.parent.name for path in golden_directory().glob("*/params.npz"))


def load_variables(model: str, head: str, quirks: bool = True, attention: str = "eager", **kwargs):
    """
    A model of ours with the recorded variables, dropout off; its vocabulary has the three specials and no padding row.
    `head` is `roc`, `clf6` or `lm`.
    """
    recorded, ids = golden_config(model)["config"], golden_config(model)["special_ids"]
    values = {name: recorded[name] for name in ("n_embd", "n_layer", "n_head")} | {"n_positions": recorded["n_ctx"]}
    values |= {"vocab_size": recorded["n_vocab"] + recorded["n_special"], "release_quirks": quirks}
    values |= {"bos_token_id": ids["_start_"], "pad_token_id": None, "num_labels": 6 if head == "clf6" else 2}
    values |= {f"{name}_token_id": ids[f"_{name}_"] for name in ("start", "delimiter", "classify")}
    values |= dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop"), 0.0)
    config = GPTConfig(**values | kwargs)
    config._attn_implementation = attention
    classes = {"roc": GPTForMultipleChoice, "clf6": GPTForSequenceClassification, "lm": GPTForCausalLM}
    ours, variables = classes[head](config), arrays(model, "params")
    tokens, positions = np.split(variables["model/we"], [config.vocab_size])
    named = variables | {"tokens": tokens, "positions": positions}
    ours.base_model.load_state_dict(release_parameters(named, config))
    if head != "lm":
        weight, bias = (torch.tensor(variables[f"{'model/clf' if head == 'roc' else 'clf6'}/{name}"]) for name in "wb")
        ours.score.load_state_dict({"weight": weight.reshape(config.n_embd, -1).T, "bias": bias})
    return ours.eval()


def as_release(model, values) -> dict[str, np.ndarray]:
    """Values of our parameters (`values(parameter)`) under the release's names and in its layout."""
    parameters = {name: values(parameter).detach() for name, parameter in model.base_model.named_parameters()}
    named = release_arrays(parameters, model.config.n_layer)
    named["model/we"] = np.concatenate([named.pop("tokens"), named.pop("positions")])
    named["model/clf/w"] = values(model.score.weight).detach().numpy().T
    named["model/clf/b"] = values(model.score.bias).detach().numpy()
    return {name: value.copy() for name, value in named.items()}


def roc_inputs(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """A recorded batch as conventional inputs; like the release, no mask (padding stands right)."""
    labels = {"labels": torch.tensor(batch["Y"]).long()} if "Y" in batch else {}
    return {"input_ids": torch.tensor(batch["X"][..., 0]).long(), **labels}


def recorded_lm_weights(mask: np.ndarray) -> torch.Tensor:
    """Weights that repeat the release's masked mean: over targets of a sequence, then over sequences."""
    targets = torch.tensor(mask).float()
    targets[..., 0] = 0
    weights = targets / targets.sum(-1, keepdim=True)
    return weights.flatten(0, -2) / (mask.shape[1] if mask.ndim == 3 else 1)


def with_recorded_weights(batch):
    return {**roc_inputs(batch), "lm_weights": recorded_lm_weights(batch["M"])}
