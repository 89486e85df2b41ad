"""The rows of a run: of the task that the arguments name, and as the token trees that its model reads."""

from collections.abc import Sequence

import numpy as np
from datasets import Dataset

from ..model.configuration_gpt import GPTConfig
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks import TaskData, TaskSpec, custom_task, load_task
from ..tasks.encoding import EncodingStatistics, encode_split
from ..trees.transforms import InputTransform, SpecialIds
from .arguments import CustomTaskArguments, DataArguments

# A task's encoded rows with their statistics, by split.
EncodedSplits = dict[str, tuple[Dataset, EncodingStatistics]]


def load_task_data(data: DataArguments, custom: CustomTaskArguments, splits: Sequence[str] | None = None) -> TaskData:
    """
    Rows of the task that the arguments name, of all splits or of these only.

    Raises:
        ValueError, FileNotFoundError: for an unknown task, or files and rows that are not as they should be.
    """
    if data.tasks or data.data_dirs or data.task_rows_cap is not None:
        raise ValueError(
            "--tasks, and --data_dirs and --task_rows_cap with it, are for training several tasks together with "
            "scripts/finetune.py; a single one is named by --task and --data_dir."
        )
    if not data.task:
        raise ValueError("Name a task with --task; --list_tasks prints all.")
    if data.task != "custom":
        return load_task(data.task, data.data_dir, splits=splits)
    if custom.train_file is None and splits is None:
        raise ValueError("--task custom needs --train_file and the names of its columns.")
    return load_task(custom_task(**custom.task_options()), data.data_dir, splits=splits)


def input_transform(data: DataArguments, spec: TaskSpec, config: GPTConfig, reserved: int = 0) -> InputTransform:
    """
    The layout of a task's rows for a model, of whose context `reserved` positions are taken (by virtual tokens).

    Raises:
        ValueError: if `--max_length` is longer than the model's context.
    """
    context = config.n_positions - reserved
    if data.max_length is not None and data.max_length > context:
        raise ValueError(f"--max_length {data.max_length} is longer than the model's context of {context}.")
    return InputTransform(
        family=spec.family,
        special=SpecialIds(config.start_token_id, config.delimiter_token_id, config.classify_token_id),
        max_length=data.max_length or context,
        rule=data.truncation,
        share_prefix=data.share_prefix,
    )


def encode_task(
    task: TaskData,
    data: DataArguments,
    tokenizer: GPTTokenizer,
    transform: InputTransform,
    splits: Sequence[str] | None = None,
) -> EncodedSplits:
    """Encoded splits, all or these, with their statistics; cut to `--max_train_rows` and `--max_eval_rows`."""
    encoded = {}
    for split in splits or task.splits:
        rows = subsample(task.splits[split], data.max_train_rows if split == "train" else data.max_eval_rows)
        encoded[split] = encode_split(
            rows, task.spec.text_columns, tokenizer, transform, data.num_proc, desc=f"tokenizing {split}"
        )
    return encoded


def subsample(rows: Dataset, limit: int | None) -> Dataset:
    """At most so many rows, drawn with a fixed seed and in their order: files are often sorted by label."""
    if limit is None or limit >= len(rows):
        return rows
    return rows.select(np.sort(np.random.default_rng(0).permutation(len(rows))[:limit]))
