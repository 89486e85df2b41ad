"""The rows of a run: of the task that the arguments name, and as the token trees that its model reads."""

from collections.abc import Sequence

import numpy as np
from datasets import Dataset

from ..model.configuration_gpt import GPTConfig
from ..model.tokenization_gpt import GPTTokenizer
from ..tasks import TaskData, TaskSpec, load_task
from ..tasks.encode import encode_split
from ..tasks.spec import TEXT_COLUMNS, TEXT_TO_TEXT
from ..trees.collators import IGNORED_LABEL
from ..trees.transforms import InputTransform
from .arguments import DataArguments
from .text_to_text import TargetTransform


def load_task_data(data: DataArguments, splits: Sequence[str] | None = None) -> TaskData:
    """Rows of the task that the arguments name, of all splits or of these; a `ValueError` or `OSError` for others."""
    if data.tasks or data.data_dirs:
        raise ValueError("--tasks and --data_dirs are for finetuning on several tasks together.")
    if not data.task:
        raise ValueError("Name a task with --task; --list_tasks prints all.")
    return load_task(data.spec() if data.task == "custom" else data.task, data.data_dir, splits=splits)


def input_transform(
    data: DataArguments, spec: TaskSpec, config: GPTConfig, tokenizer: GPTTokenizer, reserved: int = 0
) -> InputTransform | TargetTransform:
    """The layout of a task's rows for a model, of whose context `reserved` positions are taken by virtual tokens."""
    context = config.n_positions - reserved
    if data.max_length is not None and data.max_length > context:
        raise ValueError(f"--max_length {data.max_length} is longer than the model's context of {context}.")
    if spec.family == TEXT_TO_TEXT:
        return TargetTransform.of(config, tokenizer, data.max_length or context)
    special = (config.start_token_id, config.delimiter_token_id, config.classify_token_id)
    shared = data.share_prefix and config.is_causal  # seen from both sides, a prefix would see all sequences
    return InputTransform(spec.family, special, data.max_length or context, rule=data.truncation, share_prefix=shared)


def encode_task(
    task: TaskData, data: DataArguments, tokenizer: GPTTokenizer, transform: InputTransform
) -> dict[str, Dataset]:
    """Encoded splits, subsampled to `--max_train_rows` and `--max_eval_rows`."""
    encoded, columns = {}, TEXT_COLUMNS[task.spec.family] + ("label",) * (task.spec.family == TEXT_TO_TEXT)
    for split, rows in task.splits.items():
        rows = subsample(rows, data.max_train_rows if split == "train" else data.max_eval_rows)
        encoded[split] = encode_split(rows, columns, tokenizer, transform, data.num_proc, desc=f"tokenizing {split}")
    return encoded


def token_trees(
    rows: Dataset,
    tokenizer: GPTTokenizer,
    family: str | None = None,
    max_length: int | None = None,
    num_proc: int | None = None,
) -> Dataset:
    """
    Rows of your own as the token trees that `GPTTrainer` and `TokenTreeCollator` take: the fields of a `TokenTree`,
    `id`, `length`, and `label` where the rows have it; a `ValueError` if the columns are those of no family.

    Args:
        rows (`datasets.Dataset`): with the columns `text`; `premise` and `hypothesis`; `words` (a list); or `choices`
            (a list) and, optionally, `context` and `question`; or `question` and `passage`. And with `label`: the
            index of the class or of the right choice, a score, a list of the words' classes, or where the answer
            begins and ends in the passage, in characters; rows without it can be predicted.
        family (`str`, *optional*): see `TaskSpec`; by default the one that takes these columns (of pairs entailment).
        max_length (`int`, *optional*): longest sequence in tokens, by default what the tokenizer says of the model.
    """
    families = {"passage": "question-answering", "choices": "multiple-choice", "hypothesis": "entailment"}
    families |= {"words": "tagging", "text": "classification"}
    family = family or next((name for column, name in families.items() if column in rows.column_names), None)
    needed, count, has_labels = TEXT_COLUMNS.get(family, ()), len(rows), "label" in rows.column_names
    label = {"question-answering": [IGNORED_LABEL] * 2}.get(family, IGNORED_LABEL)
    defaults = {"context": [""] * count, "question": [""] * count, "label": [label] * count}
    defaults["id"] = [str(number) for number in range(count)]
    missing = [name for name in (*needed, "label", "id") if name not in rows.column_names]
    if family is None or not defaults.keys() >= set(missing):
        needed = "text, premise and hypothesis, words, choices with context and question, or question and passage"
        raise ValueError(f"The rows have the columns {', '.join(rows.column_names)}: give them {needed}.")
    if family == "tagging":
        defaults["label"] = [[IGNORED_LABEL] * len(words) for words in rows["words"]]
    for name in missing:
        rows = rows.add_column(name, defaults[name])
    special = (tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id)
    transform = InputTransform(family, special, max_length or tokenizer.model_max_length)
    encoded = encode_split(rows, needed, tokenizer, transform, num_proc)
    return encoded if has_labels else encoded.remove_columns("label")


def subsample(rows: Dataset, limit: int | None) -> Dataset:
    """At most so many rows, chosen with a fixed seed and in their order: files are often sorted by label."""
    if limit is None or limit >= len(rows):
        return rows
    return rows.select(np.sort(np.random.default_rng(0).permutation(len(rows))[:limit]))


def longest_first(rows: Dataset) -> tuple[Dataset, np.ndarray]:
    """Encoded rows whose neighbours have like lengths, for batches with little padding; and where each row went."""
    order = np.argsort(-rows.with_format("numpy")["length"][:], kind="stable")
    return rows.select(order), np.argsort(order)
