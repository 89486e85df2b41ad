"""
Training a task head on frozen features, which are computed once.

    head = FrozenFeatureHead(model)
    rows = cache_features(head, {"train": train, "test": test}, TokenTreeCollator(pad_token_id), args)
    trainer = FrozenFeatureTrainer(
        model=head, args=args, train_dataset=rows["train"], data_collator=FeatureCollator(model.config)
    )

A frozen model gives every row the same states each time, so the states at the classify tokens of all rows are kept in
tables of `datasets`, and the head is trained on these. Without the cache the same head runs the model in every step.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Features, Value
from datasets import Sequence as Array
from datasets.fingerprint import Hasher
from torch import nn
from transformers import TrainingArguments

from ..files import write_json
from ..model.configuration_gpt import GPTConfig
from ..model.modeling_gpt import GPTTaskModel, GPTTaskOutput
from ..tasks.encode import EMPTY, KEPT_COLUMNS, PLACES, TREE_FEATURES
from ..trees.collators import collate_labels, length_sorted_batches
from .trainer import HEAD_LAYERS, GPTTrainer

# Folder of an output folder with cached features while a head is trained on them.
FEATURES = "features"
_TOKENS_PER_BATCH = 4096
# Columns of the rows that stay next to their features.
_KEPT = (*KEPT_COLUMNS, *PLACES, "label", "length", "path_ends", EMPTY)


class FrozenFeatureHead(nn.Module):
    """
    The head of a task model as a model of its own: it reads frozen features, given or computed.

    Parameters, and so checkpoints, are those of the head (`score`, `head_mix`), which it shares with the whole model:
    training the one is training the other. The body is no submodule: nothing trains it, saves it in checkpoints, or
    puts it in training mode, so its dropout never falls.
    """

    # The loss is divided by `num_items_in_batch`.
    accepts_loss_kwargs = True

    def __init__(self, model: GPTTaskModel):
        super().__init__()
        self.config = model.config
        self.score = model.score
        self.clf_dropout = model.clf_dropout
        if model.config.head_layers == "mix":
            self.head_mix = model.head_mix
        for parameter in model.base_model.parameters():
            parameter.requires_grad_(False)
        self._whole = (model.eval(),)  # in a tuple, which hides it from nn.Module

    @property
    def whole_model(self) -> GPTTaskModel:
        """The model that this is the head of."""
        return self._whole[0]

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        # The body goes to the device that the head goes to.
        self.whole_model.base_model._apply(fn, recurse)
        return super()._apply(fn, recurse)

    @torch.no_grad()
    def features(
        self,
        input_ids: torch.Tensor,
        classify_index: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        subtree_end: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """
        Frozen features of a batch of `TokenTreeCollator`, of shape `(batch, paths, layers, n_embd)` (see
        `GPTTaskModel.classify_states`), in float32 whatever the mixed precision of the training.
        """
        model = self.whole_model
        with torch.autocast(input_ids.device.type, enabled=False):
            outputs = model.base_model(
                input_ids,
                position_ids=position_ids,
                subtree_end=subtree_end,
                use_cache=False,
                output_hidden_states=model.config.head_layers is not None,
            )
            return model.classify_states(outputs, classify_index).float()

    def forward(
        self,
        labels: torch.Tensor | None = None,
        features: torch.Tensor | None = None,
        present: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **tree: Any,
    ) -> GPTTaskOutput:
        """
        Task logits and the task's loss, as the whole model gives them with its body in evaluation mode.

        Args:
            features (`torch.Tensor` of shape `(batch, paths, layers, n_embd)`, *optional*): see `features`.
            present (`torch.Tensor` of shape `(batch, paths)`, *optional*): with `features`, False where a row has
                fewer paths than its neighbours.
            labels, num_items_in_batch (*optional*): see `GPTTaskModel.forward`.
            tree: instead of `features` and `present`, a batch of `TokenTreeCollator`.
        """
        model = self.whole_model
        if features is None:
            features, present = self.features(**tree), tree["classify_index"].ge(0)
        logits = model.head_logits(features, present)
        loss = None
        if labels is not None:
            items = labels.ne(-100).sum() if num_items_in_batch is None else num_items_in_batch
            loss = model._task_loss_sum(logits, labels) / items
        # Two tensors: the Trainer scales its loss in place.
        task_loss = None if loss is None else loss.clone()
        return GPTTaskOutput(loss=loss, logits=logits, task_loss=task_loss)


class FrozenFeatureTrainer(GPTTrainer):
    """`GPTTrainer` of a `FrozenFeatureHead`: checkpoints hold the head, the output folder gets the whole model."""

    def task_models(self) -> list[GPTTaskModel]:
        """The whole model, whose task loss the head has."""
        return [self.model.whole_model] if isinstance(self.model, FrozenFeatureHead) else super().task_models()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As the Trainer does; parameters do not tell which layer a head reads, so a file of the checkpoint does."""
        super().save_model(output_dir, _internal_call)
        if isinstance(self.model, FrozenFeatureHead) and self.args.should_save:
            layers = {"layers": self.model.config.layers_of_head}
            write_json(Path(output_dir or self.args.output_dir) / HEAD_LAYERS, layers)

    def write_whole_model(self, folder: Path) -> None:
        """Not the head, but the model that it is the head of."""
        head = self.model
        self.model = head.whole_model
        try:
            super().write_whole_model(folder)
        finally:
            self.model = head


@dataclass
class FeatureCollator:
    """Batches of cached features of a model of this configuration, for `FrozenFeatureHead`."""

    config: GPTConfig

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """
        `features`, `present` and `labels`, as `FrozenFeatureHead.forward` takes them, of rows with `features` and,
        optionally, `label`. A row without `features` fills up a batch (see `PaddedDataset`): it has one path, whose
        features are 0.
        """
        shape = (len(self.config.layers_of_head), self.config.n_embd)
        filler = np.zeros(math.prod(shape), dtype=np.float32)
        found = [row.get("features", filler) for row in rows]
        states = torch.from_numpy(np.concatenate(found)).view(-1, *shape)
        counts = torch.tensor([len(row) // len(filler) for row in found])
        present = torch.arange(int(counts.max())) < counts.unsqueeze(1)  # (batch, paths)
        features = torch.zeros(*present.shape, *shape)
        features[present] = states  # (batch, paths, layers, n_embd)
        batch = {"features": features, "present": present}
        if "label" in rows[0]:
            batch["labels"] = collate_labels([row["label"] for row in rows])
        return batch


def cache_features(
    head: FrozenFeatureHead,
    encoded: Mapping[str, Dataset],
    collator: Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]],
    args: TrainingArguments,
) -> dict[str, Dataset]:
    """
    Run the model once over all rows, by split those of `hf_gpt.tasks.encode.encode_split`, of which the collator
    makes batches. A run that was stopped finds the splits that were finished in the folder `features` of
    `args.output_dir`, if model and rows are the same.

    Returns:
        `dict[str, datasets.Dataset]`: by split `id`, `label`, `length`, `path_ends`, and `features`: the float32
            states of shape `(paths, layers, n_embd)` in one list; the same in every process.
    """
    head.to(args.device).eval()
    folder = Path(args.output_dir) / FEATURES
    folder.mkdir(parents=True, exist_ok=True)
    parameters = [value.detach().cpu().numpy() for value in head.whole_model.base_model.parameters()]
    settings = [head.config.layers_of_head, head.config.n_head, _TOKENS_PER_BATCH, torch.__version__]
    digest, found = Hasher.hash([settings, parameters]), {}
    for split, rows in encoded.items():
        kept = {name: rows.features[name] for name in _KEPT if name in rows.column_names}
        fingerprint = Hasher.hash([digest, rows._fingerprint])
        # The first process computes, and the others read its file (or compute, where they do not see it).
        with args.main_process_first(desc=f"features of {split}"):
            found[split] = rows.map(
                lambda batch: {"features": _features_of(batch, head, collator, args.device)},
                batched=True,
                remove_columns=[name for name in rows.column_names if name not in kept],
                features=Features(kept | {"features": Array(Value("float32"))}),
                new_fingerprint=fingerprint,
                cache_file_name=str(folder / f"{split}-{fingerprint}.arrow"),
                desc=f"features of {split}",
            ).with_format("numpy", columns=["features"], output_all_columns=True)
    return found


def _features_of(
    rows: Mapping[str, Sequence[Any]],
    head: FrozenFeatureHead,
    collator: Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]],
    device: torch.device,
) -> list[np.ndarray]:
    """The features of some rows, each `(paths * layers * n_embd,)`, computed in batches of rows of like length."""
    found: list[Any] = [[] for _ in rows["length"]]
    for numbers in length_sorted_batches(np.array(rows["length"]), _TOKENS_PER_BATCH):
        trees = [{name: rows[name][number] for name in TREE_FEATURES} for number in numbers]
        batch = {name: value.to(device) for name, value in collator(trees).items()}
        states = head.features(**batch)
        for number, row, is_path in zip(numbers, states, batch["classify_index"].ge(0), strict=True):
            found[number] = row[is_path].flatten().cpu().numpy()
    return found
