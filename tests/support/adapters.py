"""Adapters of every method on tiny models of both heads, and the batches that they answer."""

import json
from pathlib import Path

import torch
from peft import PeftModel, get_peft_model
from torch import nn

from hf_gpt import GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.adapters import HEAD_CONFIG, adapter_config, head_config
from hf_gpt.trees.collators import collate_trees
from hf_gpt.trees.token_tree import TokenTree

from .tensors import padded
from .tiny import CLASSIFY, DELIMITER, PAD, START

HEADS = {
    "multiple-choice": (GPTForMultipleChoice, {}),
    "classification": (GPTForSequenceClassification, {"num_labels": 3}),
}
VARIANTS = {
    "lora": ("lora", {"size": 4}),
    "dora": ("lora", {"size": 4, "use_dora": True}),
    "rslora": ("lora", {"size": 4, "use_rslora": True}),
    "ia3": ("ia3", {}),
    "prefix": ("prefix", {"size": 3}),
    "prompt": ("prompt", {"size": 3}),
    "houlsby": ("houlsby", {"size": 5}),
    "bitfit": ("bitfit", {}),
    "ln": ("ln", {}),
}
MERGING = ("lora", "dora", "rslora", "ia3", "bitfit", "ln")
VIRTUAL = ("prefix", "prompt")

# The items of a batch: the second has a choice less.
ITEMS = [
    [[START, 1, 2, DELIMITER, 3, CLASSIFY], [START, 1, 2, DELIMITER, 4, 5, CLASSIFY], [START, 1, 2, 6, CLASSIFY]],
    [[START, 5, 6, DELIMITER, 7, CLASSIFY], [START, 5, 6, 7, 8, DELIMITER, 8, CLASSIFY]],
]
LABELS = torch.tensor([1, 0])


def tree_batch(head: str) -> dict[str, torch.Tensor]:
    items = ITEMS if head == "multiple-choice" else [item[:1] for item in ITEMS]
    return collate_trees([TokenTree.from_paths(item) for item in items], PAD)


def padded_batch(head: str) -> dict[str, torch.Tensor]:
    """The same items as conventional tensors, `(items, choices, length)` or `(items, length)`."""
    paths = [path for item in ITEMS for path in (*item, [])[:3]]  # of a choice that is missing padding alone
    kept = slice(None) if head == "multiple-choice" else 0
    ids, mask = (tensor.view(2, 3, -1)[:, kept] for tensor in padded(paths))
    return {"input_ids": ids, "attention_mask": mask}


def load_base(head: str, base: Path, **overrides) -> nn.Module:
    model_class, settings = HEADS[head]
    return model_class.from_pretrained(base, **settings | overrides)


@torch.no_grad()
def moved(model: PeftModel) -> PeftModel:
    """The model in evaluation mode, its adapter moved away from where it starts."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.eval()


def adapted(variant: str, head: str, base: Path, **overrides) -> PeftModel:
    """A base model with a task head and an adapter that has moved."""
    method, options = VARIANTS[variant]
    model = load_base(head, base, **overrides)
    return moved(get_peft_model(model, adapter_config(method, model.config, **options)))


@torch.no_grad()
def logits_of(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model(**batch).logits


def save_adapter(model: PeftModel, folder: Path) -> Path:
    """A folder like those of `scripts/finetune.py`."""
    model.save_pretrained(folder)
    (folder / HEAD_CONFIG).write_text(json.dumps(head_config(model)))
    return folder
