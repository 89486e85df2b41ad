"""Training a task head on frozen features: those of all rows are computed once, and kept in tables of `datasets`."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import TrainingArguments

from ..model.configuration_gpt import GPTConfig
from ..model.modeling_gpt import GPTTaskModel, GPTTaskOutput
from ..tasks.encode import TREE_FEATURES
from ..trees.collators import collate_labels, length_sorted_batches

# Folder of an output folder with cached features while a head is trained on them.
FEATURES = "features"
_TOKENS_PER_BATCH = 4096


class FrozenFeatureHead(nn.Module):
    """The head of a task model as a model of its own, with shared parameters (`score`, `head_mix`)."""

    accepts_loss_kwargs = True  # the loss is divided by `num_items_in_batch`

    def __init__(self, model: GPTTaskModel):
        super().__init__()
        self.config = model.config
        self.score, self.clf_dropout = model.score, model.clf_dropout
        if model.config.head_layers == "mix":
            self.head_mix = model.head_mix
        # In a dict of Python, so that torch does not find the body, which is saved with the head: see `GPTTrainer`.
        self.task_models = {"": model.eval()}

    def forward(
        self, features: torch.Tensor, present: torch.Tensor, labels: Any = None, num_items_in_batch: Any = None
    ) -> GPTTaskOutput:
        """
        Logits and loss, as of the whole model with its body in evaluation mode: of `features` of shape `(batch, paths,
        layers, n_embd)`, and `present` of shape `(batch, paths)`, False where a row has fewer paths than others.
        """
        model, loss = self.task_models[""], None
        logits = model.head_logits(features, present)
        if labels is not None:
            items = labels.ne(-100).sum() if num_items_in_batch is None else num_items_in_batch
            loss = model._task_loss_sum(logits, labels) / items
        # Two tensors: the Trainer scales its loss in place.
        return GPTTaskOutput(loss=loss, logits=logits, task_loss=None if loss is None else loss.clone())


def collate_features(rows: Sequence[Mapping[str, Any]], config: GPTConfig) -> dict[str, torch.Tensor]:
    """
    Rows of cached features of a model of this configuration as what `FrozenFeatureHead.forward` takes; a row without
    `features` (`PaddedDataset`) has a path of 0.
    """
    shape = (len(config.layers_of_head), config.n_embd)
    filler = np.zeros(math.prod(shape), dtype=np.float32)
    found = [row.get("features", filler) for row in rows]
    counts = torch.tensor([len(row) // len(filler) for row in found])
    present = torch.arange(int(counts.max())) < counts.unsqueeze(1)  # (batch, paths)
    features = torch.zeros(*present.shape, *shape)  # (batch, paths, layers, n_embd)
    features[present] = torch.from_numpy(np.concatenate(found)).view(-1, *shape)
    batch = {"features": features, "present": present}
    return batch | ({"labels": collate_labels([row["label"] for row in rows])} if "label" in rows[0] else {})


def cache_features(
    model: GPTTaskModel, encoded: Mapping[str, Dataset], collator: Callable, args: TrainingArguments
) -> dict[str, Dataset]:
    """
    Run the model once over all encoded rows, by split: their columns without the trees, and `features`, the float32
    states of shape `(paths, layers, n_embd)` in one list, kept in the folder `features` of `args.output_dir`.
    """
    model.to(args.device).eval()
    folder = Path(args.output_dir) / FEATURES
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for split, rows in encoded.items():
        # The first process computes, and the others read its file.
        with args.main_process_first(desc=f"features of {split}"):
            found[split] = rows.map(
                lambda batch: {"features": _features_of(batch, model, collator)},
                batched=True,
                remove_columns=[name for name in TREE_FEATURES if name != "path_ends"],
                load_from_cache_file=args.process_index > 0,
                new_fingerprint=f"{rows._fingerprint}-features",
                cache_file_name=str(folder / f"{split}.arrow"),
                desc=f"features of {split}",
            ).with_format("numpy", columns=["features"], output_all_columns=True)
    return found


@torch.no_grad()
def _features_of(rows: Mapping[str, Sequence[Any]], model: GPTTaskModel, collator: Callable) -> list[np.ndarray]:
    """The features of some rows, each `(paths * layers * n_embd,)`, computed in batches of rows of like length."""
    found: list[Any] = [[] for _ in rows["length"]]
    for numbers in length_sorted_batches(np.array(rows["length"]), _TOKENS_PER_BATCH):
        trees = [{name: rows[name][number] for name in TREE_FEATURES} for number in numbers]
        batch = {name: value.to(model.device) for name, value in collator(trees).items()}
        inputs = {name: batch[name] for name in ("input_ids", "position_ids", "subtree_end") if name in batch}
        reads_layers = model.config.head_layers is not None
        outputs = model.base_model(**inputs, use_cache=False, output_hidden_states=reads_layers)
        states = model.classify_states(outputs, batch["classify_index"]).float()
        for number, row, is_path in zip(numbers, states, batch["classify_index"].ge(0), strict=True):
            found[number] = row[is_path].flatten().cpu().numpy()
    return found
