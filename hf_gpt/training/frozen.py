"""
Training a task head on frozen features, which are computed once.

    head = FrozenFeatureHead(model)
    cache = cache_features(head, {"train": train, "test": test}, TokenTreeCollator(pad_token_id), args)
    trainer = FrozenFeatureTrainer(
        model=head, args=args, train_dataset=cache.rows["train"], data_collator=cache.collate
    )

A frozen model gives every row the same states each time, so the states at the classify tokens of all rows are kept, in
memory or in a file, and the head is trained on these. Without the cache the same head runs the model in every step.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset, concatenate_datasets
from safetensors import safe_open
from torch import nn
from tqdm import tqdm
from transformers import TrainingArguments
from transformers.utils import SAFE_WEIGHTS_NAME

from ..files import check_space, write_json
from ..model.configuration_gpt import GPTConfig
from ..model.modeling_gpt import GPTTaskModel, GPTTaskOutput
from ..tasks.encoding import TREE_FEATURES
from ..trees.collators import FilledRows, length_sorted_batches
from .trainer import GPTTrainer

# Larger caches are memory-mapped files in this folder of the output folder.
FOLDER = "features"
# File of a checkpoint: numbers of the layers that its head reads.
HEAD_LAYERS = "head_layers.json"
_IN_MEMORY = 2**30
_TOKENS_PER_BATCH = 4096
# Bytes that processes exchange at a time, and batches between two notes of how far a file has come.
_EXCHANGED = 2**26
_BATCHES_PER_NOTE = 200


class FrozenFeatureHead(nn.Module):
    """
    The head of a task model as a model of its own: it reads frozen features, given or computed.

    Parameters, and so checkpoints, are those of the head (`score`, `head_mix`), which it shares with the whole model:
    training the one is training the other. The body is no submodule: nothing trains it, saves it in checkpoints, or
    puts it in training mode, so its dropout never falls.

    Args:
        model (`GPTTaskModel`): the whole model, `GPTForMultipleChoice` or `GPTForSequenceClassification`.
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
        Frozen features, in float32 whatever the mixed precision of the training.

        Args:
            input_ids, classify_index, position_ids, subtree_end: a batch of `TokenTreeCollator`.
            kwargs: what else such a batch holds, which frozen features do not need.

        Returns:
            `torch.Tensor` of shape `(batch, paths, layers, n_embd)`: see `GPTTaskModel.classify_states`.
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
            labels, num_items_in_batch (*optional*): see `GPTTaskModel.forward`.
            features (`torch.Tensor` of shape `(batch, paths, layers, n_embd)`, *optional*): see `features`.
            present (`torch.Tensor` of shape `(batch, paths)`, *optional*): with `features`, False where a row has
                fewer paths than its neighbours.
            tree: instead of both, a batch of `TokenTreeCollator`.
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


class _NumberedRows(FilledRows):
    """Rows of a `FeatureCache` from memory: beside such short steps, reading a table would take long."""

    def __init__(self, rows: Dataset, unit: int):
        super().__init__(rows, unit)
        self._numbers, self._labels = rows["feature_index"][:], rows["label"][:]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        return [
            {"feature_index": self._numbers[index], "label": self._labels[index]}
            if index < len(self._numbers)
            else self.filler
            for index in indices
        ]


class FrozenFeatureTrainer(GPTTrainer):
    """`GPTTrainer` of a `FrozenFeatureHead`: checkpoints hold the head, the output folder gets the whole model."""

    def _filled_rows(self) -> FilledRows:
        if "feature_index" not in self.train_dataset.column_names:
            return super()._filled_rows()
        return _NumberedRows(self.train_dataset, self.args.train_batch_size * self.args.world_size)

    def task_models(self) -> list[GPTTaskModel]:
        """The whole model, whose task loss the head has."""
        return [self.model.whole_model] if isinstance(self.model, FrozenFeatureHead) else super().task_models()

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.args.should_save and isinstance(self.model, FrozenFeatureHead):
            # The parameters do not tell which layer a head reads.
            layers = {"layers": self.model.config.layers_of_head}
            write_json(Path(self.args.output_dir if output_dir is None else output_dir) / HEAD_LAYERS, layers)

    def save_whole_model(self) -> None:
        """Write the whole model and its tokenizer into the output folder, each file whole or not at all."""
        head = self.model
        self.model = head.whole_model
        try:
            super().save_whole_model()
        finally:
            self.model = head


@dataclass
class FeatureCache:
    """
    Frozen features of all rows of a run.

    Args:
        states (`torch.Tensor` of shape `(paths, layers, n_embd)`): float32; the paths of a row stand together.
        starts (`np.ndarray` of shape `(rows + 1,)`): where each row's paths begin.
        rows (`dict[str, datasets.Dataset]`): by split `id`, `label`, `length`, `path_ends`, and `feature_index`, the
            number of the row in `starts`.
    """

    states: torch.Tensor
    starts: np.ndarray
    rows: dict[str, Dataset]

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """
        A batch for `FrozenFeatureHead`.

        Args:
            rows (`Sequence[Mapping]`): with `feature_index` and, optionally, `label`. A row without `feature_index`
                fills up a batch (see `FilledRows`): it has one path, whose features are 0.

        Returns:
            `dict[str, torch.Tensor]`: `features`, `present` and `labels`.
        """
        numbers = np.array([row.get("feature_index", -1) for row in rows])
        is_filler = numbers < 0
        starts = np.where(is_filler, 0, self.starts[numbers])
        counts = np.where(is_filler, 1, self.starts[numbers + 1] - starts)
        paths = np.arange(counts.max())
        present = torch.from_numpy(paths < counts[:, None])
        features = self.states[torch.from_numpy(np.minimum(starts[:, None] + paths, len(self.states) - 1))]
        if is_filler.any() or counts.min() < len(paths):
            features *= (present & torch.from_numpy(~is_filler).unsqueeze(1))[..., None, None]
        batch = {"features": features, "present": present}
        if "label" in rows[0]:
            batch["labels"] = torch.tensor([row["label"] for row in rows])
        return batch


def cache_features(
    head: FrozenFeatureHead,
    encoded: Mapping[str, Dataset],
    collator: Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]],
    args: TrainingArguments,
    in_memory: int = _IN_MEMORY,
) -> FeatureCache:
    """
    Run the model once over all rows, in batches of rows of like length that the processes share out.

    A cache of more than `in_memory` bytes is a file of each process in `args.output_dir`. A run that was stopped goes
    on with it if model and rows are the same; `remove_features` removes it.

    Args:
        head (`FrozenFeatureHead`): knows the model.
        encoded (mapping of `str` to `datasets.Dataset`): by split, rows of `hf_gpt.tasks.encoding.encode_split`.
        collator (`Callable`): makes a batch of such rows, see `TokenTreeCollator`.
        args (`TrainingArguments`): say where, on which device, and which process this is of how many.
        in_memory (`int`, *optional*, defaults to 1 GiB): bytes that may be kept in memory.

    Returns:
        `FeatureCache`: the same in every process.
    """
    head.to(args.device).eval()
    trees = concatenate_datasets([rows.select_columns([*TREE_FEATURES, "length"]) for rows in encoded.values()])
    counts = np.array([len(ends) for ends in trees["path_ends"][:]], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    shape = (int(starts[-1]), len(head.config.layers_of_head), head.config.n_embd)
    store = _MemoryStore(shape)
    if 4 * math.prod(shape) > in_memory:
        store = _FileStore(shape, Path(args.output_dir) / FOLDER, args.process_index, _digest(head, trees, args))
    batches = list(length_sorted_batches(trees.with_format("numpy")["length"][:], _TOKENS_PER_BATCH))
    own = [(rows, _paths(rows, starts)) for rows in batches[args.process_index :: args.world_size]]
    finished = store.finished
    hidden = args.disable_tqdm or args.process_index > 0
    for rows, paths in tqdm(own[finished:], desc="features", total=len(own), initial=finished, disable=hidden):
        batch = {name: value.to(args.device) for name, value in collator(trees.__getitems__(rows.tolist())).items()}
        store.states[paths] = head.features(**batch)[batch["classify_index"].ge(0)].cpu()
        finished += 1
        store.note(finished, is_last=finished == len(own))
    if args.world_size > 1:
        _exchange(store, np.concatenate([np.empty(0, dtype=np.int64), *(paths for _, paths in own)]), args)
    tables, first = {}, 0
    for split, rows in encoded.items():
        numbers = np.arange(first, first + len(rows))
        table = rows.select_columns(["id", "label", "length", "path_ends"])
        tables[split] = table.add_column("feature_index", numbers)
        first += len(rows)
    return FeatureCache(store.states, starts, tables)


def describe_head(config: GPTConfig) -> str:
    """What a head reads, in words."""
    if config.head_layers == "mix":
        return "a learnt mix of all layers"
    return "the last layer" if config.head_layers is None else f"layer {config.head_layers} of {config.n_layer}"


def describe_frozen(config: GPTConfig, parameters: int, lm_coef: float) -> str:
    """A sentence on what is trained: so many parameters; and on the language-model loss, if `lm_coef` asked for it."""
    text = f"Frozen features: {parameters:,} parameters of the head are trained, which reads {describe_head(config)}."
    if lm_coef > 0:
        text += f" The language-model loss is left out (lm_coef 0, not {lm_coef:g}): it would change none of them."
    return text


def remove_features(output: Path) -> None:
    """Delete the files of `cache_features` in an output folder, if there are any."""
    shutil.rmtree(output / FOLDER, ignore_errors=True)


def head_problem(model: nn.Module, checkpoint: str) -> str | None:
    """
    Why training cannot go on from a checkpoint, whose parameters are others than the model's: the Trainer itself would
    leave out what does not fit.

    Args:
        model (`nn.Module`): a whole model, or a `FrozenFeatureHead`.
        checkpoint (`str`): folder.

    Returns:
        `str` or `None`
    """
    file = Path(checkpoint) / SAFE_WEIGHTS_NAME
    if not file.is_file():
        return None
    with safe_open(file, framework="pt") as weights:
        saved = {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
    ours = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if saved == ours:
        return _other_layers(model, Path(checkpoint) / HEAD_LAYERS)
    is_head, was_head = (not any("embed_tokens" in name for name in names) for names in (ours, saved))
    if is_head != was_head:
        return "it holds a head alone: add --adaptation frozen" if was_head else "it holds a whole model"
    other = sorted(name for name in ours.keys() | saved.keys() if ours.get(name) != saved.get(name))
    return f"it differs from this run's model in {', '.join(other[:3])}"


def _other_layers(model: nn.Module, file: Path) -> str | None:
    """Whether the head of a checkpoint reads other layers than that of this run. Older checkpoints do not say."""
    if not isinstance(model, FrozenFeatureHead) or not file.is_file():
        return None
    layers = json.loads(file.read_text(encoding="utf-8"))["layers"]
    if layers == model.config.layers_of_head:
        return None
    return f"its head reads layer {layers[0]}, this run's reads {describe_head(model.config)}"


def _paths(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Numbers of the paths of some rows, in the rows' order."""
    counts = starts[rows + 1] - starts[rows]
    before = np.cumsum(counts) - counts
    return np.repeat(starts[rows] - before, counts) + np.arange(counts.sum())


def _digest(head: FrozenFeatureHead, trees: Dataset, args: TrainingArguments) -> str:
    """Of everything that a file's features follow from."""
    digest = hashlib.sha256()
    settings = [head.config.layers_of_head, head.config.n_head, args.world_size, _TOKENS_PER_BATCH, torch.__version__]
    digest.update(json.dumps(settings).encode())
    for value in head.whole_model.base_model.parameters():
        digest.update(value.detach().cpu().numpy().tobytes())
    table = trees.with_format("arrow")[:]
    for name in ("length", "path_ends", "input_ids", "parent_index"):
        values = table.column(name).combine_chunks()
        digest.update(np.asarray(values if name == "length" else values.flatten()).tobytes())
    return digest.hexdigest()


class _MemoryStore:
    """Features of `shape`, in memory: a run that is stopped computes them again."""

    finished = 0
    is_whole = False

    def __init__(self, shape: tuple[int, ...]):
        self.states = torch.zeros(shape)

    def note(self, finished: int, is_last: bool = False, is_whole: bool = False) -> None:
        pass


class _FileStore:
    """
    Features of `shape` in a memory-mapped file of this process, with a note of how far they have come.

    Args:
        shape (`tuple[int, ...]`): of the features.
        folder (`Path`): where the file is.
        rank (`int`): number of the process.
        digest (`str`): of what the features follow from; a file of something else is written anew.
    """

    def __init__(self, shape: tuple[int, ...], folder: Path, rank: int, digest: str):
        folder.mkdir(parents=True, exist_ok=True)
        file, self._file_of_note = folder / f"rank-{rank}.f32", folder / f"rank-{rank}.json"
        self._digest = digest
        noted = json.loads(self._file_of_note.read_text()) if self._file_of_note.is_file() else {}
        is_same = noted.get("digest") == digest and file.is_file() and file.stat().st_size == 4 * math.prod(shape)
        self.finished: int = noted["finished"] if is_same else 0
        self.is_whole: bool = is_same and noted["is_whole"]
        if not is_same:
            file.unlink(missing_ok=True)  # another run may still read it
            # The system kills a process that writes to a memory map for which the disk has no room.
            check_space(folder, 4 * math.prod(shape), "The cache of frozen features")
        self._map = np.memmap(file, np.float32, "r+" if is_same else "w+", shape=shape)
        self.states = torch.from_numpy(self._map)

    def note(self, finished: int, is_last: bool = False, is_whole: bool = False) -> None:
        """So many batches are finished; on the disk before the note is."""
        if finished % _BATCHES_PER_NOTE and not is_last:
            return
        self.finished, self.is_whole = finished, is_whole
        self._map.flush()
        write_json(self._file_of_note, {"digest": self._digest, "finished": finished, "is_whole": is_whole})


def _exchange(store: _MemoryStore | _FileStore, own: np.ndarray, args: TrainingArguments) -> None:
    """Fill in what the other processes computed, unless every process has it; `own` paths are this one's."""
    if all(gather_object([store.is_whole])):
        return
    is_own = torch.zeros(len(store.states), dtype=torch.bool)
    is_own[own] = True
    size = max(1, _EXCHANGED // max(1, 4 * store.states[0].numel()))
    for part, mine in zip(store.states.split(size), is_own.split(size), strict=True):
        # A sum of which all terms but one are 0.
        values = torch.where(mine[:, None, None], part, 0).to(args.device)
        torch.distributed.all_reduce(values)
        part.copy_(values)
    store.note(store.finished, is_last=True, is_whole=True)
