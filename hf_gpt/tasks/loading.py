"""From a `TaskSpec` to data sets: sources are read into an Arrow cache, and parts that are missing held out."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
from datasets.exceptions import DatasetGenerationError

from ..files import write_text
from .catalogue import get_task
from .held_out import contradictions, hold_out, shared_texts
from .labels import doubtful_classes, inferred_labels
from .rows import RowReader
from .sources import Source, find_sources
from .spec import SPLITS, TaskSpec

# Part of every cache key: raise it when the normalised rows themselves change.
ROW_FORMAT = 2


@dataclass(frozen=True)
class TaskData:
    """
    A task's rows: the task, with the label names that were inferred where it declared none; its splits `train`,
    `validation` and, unless its file is missing, `test`; by split a note on how it was made; and warnings, what is
    likely to be wrong with the data.
    """

    spec: TaskSpec
    splits: datasets.DatasetDict
    notes: dict[str, str]
    warnings: tuple[str, ...] = ()


def load_task(
    task: str | TaskSpec,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    seed: int | None = None,
    splits: Sequence[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> TaskData:
    """
    Reads and checks a task's rows; they lie in an Arrow cache on disk, never whole in memory.

    Args:
        data_dir (path, *optional*): the folder with the publisher's files. Without it, the package's own data, or the
            Hub.
        seed (`int`, *optional*, defaults to the task's own): for a validation part that has to be cut.
        splits (sequence of `str`, *optional*): read only these, and fail if one is missing. By default all are read,
            and a test file that is not there is noted and left out.
        cache_dir (path, *optional*): where the rows are cached; `datasets`' own folder by default.

    Raises:
        `FileNotFoundError`, `ConnectionError`, `ValueError`: when a file is missing, the Hub cannot be reached, there
            is no such task, or something in a file is wrong, naming file and line.
    """
    spec = get_task(task) if isinstance(task, str) else task
    unknown = [split for split in splits or () if split not in SPLITS]
    if unknown:
        raise ValueError(f"There is no split {unknown[0]!r}: a task has {', '.join(SPLITS)}.")
    wanted = tuple(splits or SPLITS)
    directory = data_dir if data_dir is not None else spec.default_dir
    folder = None if directory is None else Path(directory).expanduser()
    sources, cuts = find_sources(spec, folder, wanted, splits is not None, cache_dir)
    warnings: list[str] = []
    if spec.infers_labels:
        labels, warnings = inferred_labels(spec, sources["train"])
        spec = replace(spec, label_names=labels)

    parts, notes = {}, {}
    for split, source in sources.items():
        parts[split], notes[split] = _read_split(spec, source, split, cache_dir)
    if "train" in parts:
        for split, cut in cuts.items():
            hold_out(split, cut, parts, notes, seed, spec)
    if "test" in wanted and "test" not in parts:
        names = " or ".join(spec.files["test"])
        notes["test"] = f"left out: there is no {names}" if names else "left out: none was named"
    ordered = {split: parts[split] for split in SPLITS if split in wanted and split in parts}
    kept = {split: notes[split] for split in SPLITS if split in wanted and split in notes}
    if "train" in ordered:
        warnings += [*doubtful_classes(spec, ordered["train"]), *contradictions(spec, ordered["train"])]
        given = {split: rows for split, rows in ordered.items() if split not in cuts}
        warnings += shared_texts(spec, given) if len(given) > 1 else []
    return TaskData(spec, datasets.DatasetDict(ordered), kept, tuple(warnings))


def _read_split(
    spec: TaskSpec, source: Source, split: str, cache_dir: str | os.PathLike[str] | None
) -> tuple[datasets.Dataset, str]:
    fingerprint = _fingerprint(spec, source, split)
    cache = Path(cache_dir or datasets.config.HF_DATASETS_CACHE)
    counts_file = cache / "hf_gpt_tasks" / f"{fingerprint}.json"

    def generate() -> Iterator[dict[str, Any]]:
        reader = RowReader(spec, source.layout, split)
        yield from reader.rows(source.records())
        if not reader.counts["rows"]:
            raise reader.bad_rows[0] if reader.bad_rows else source.without_rows(split, reader.counts["records"])
        bad_rows = [error.summary for error in reader.bad_rows]
        named = {"bad_rows": bad_rows, "empty_rows": reader.empty_rows}
        write_text(counts_file, json.dumps(reader.counts | named))

    try:
        # Our own fingerprint: hashing the generator would hash code objects, which differ between Python versions,
        # and with it every later `map` over the rows would be cached afresh.
        settings = {"cache_dir": str(cache), "split": datasets.NamedSplit(split), "fingerprint": fingerprint}
        rows = datasets.Dataset.from_generator(generate, features=spec.features, **settings)
    except DatasetGenerationError as error:
        cause = error.__cause__
        if isinstance(cause, ValueError | OSError):
            raise cause from None
        raise
    counts = json.loads(counts_file.read_text(encoding="utf-8")) if counts_file.is_file() else {}
    note = f"{source.name}: {rows.num_rows:,} rows"
    if counts.get("empty"):
        note += f", {counts['empty']:,} more left out for an empty text"
    if counts.get("bad"):
        more = "; and so on" if counts["bad"] > len(counts["bad_rows"]) else ""
        note += f", {counts['bad']:,} more left out as they are wrong ({'; '.join(counts['bad_rows'])}{more})"
    if counts.get("blank"):
        more = "; and so on" if counts["blank"] > len(counts["empty_rows"]) else ""
        note += f", {counts['blank']:,} of them predicted as empty ({'; '.join(counts['empty_rows'])}{more})"
    if counts.get("skipped"):
        note += f", {counts['skipped']:,} more left out for want of a gold label"
    if counts.get("unlabelled"):
        note += f", {counts['unlabelled']:,} of them without a gold label"
    return rows, note


def _fingerprint(spec: TaskSpec, source: Source, split: str) -> str:
    """A key that changes with the files (path, size, time of change), the task's version, and how it is read."""
    identity = [ROW_FORMAT, split, spec.name, spec.version, spec.family, spec.problem_type, spec.label_names]
    identity += [spec.score_range, spec.keep_columns, vars(source.layout), source.stamp]
    return hashlib.sha256(json.dumps(identity, default=_describe, sort_keys=True).encode()).hexdigest()[:32]


def _describe(value: Any) -> Any:
    if isinstance(value, partial):
        return [_describe(value.func), value.args, value.keywords]
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    return dict(value)
