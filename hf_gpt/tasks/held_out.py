"""Rows held out of the training part, and texts that two parts share."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence

import datasets
import numpy as np

from .spec import Cut, TaskSpec


def hold_out(
    split: str,
    cut: Cut,
    parts: dict[str, datasets.Dataset],
    notes: dict[str, str],
    seed: int | None,
    spec: TaskSpec,
) -> None:
    """Moves the rows that a rule picks from `train` to another split, and says so in the notes."""
    train = parts["train"]
    seed = cut.seed if seed is None else seed
    held_out = _held_out(train, cut, seed, split, notes["train"], spec)
    parts[split] = train.select(np.flatnonzero(held_out))
    parts["train"] = train.select(np.flatnonzero(~held_out))
    size = int(held_out.sum())
    less = ""
    if cut.size >= 1 and size < int(cut.size) and train.num_rows <= cut.size:
        less = f" instead of {int(cut.size):,}, as there are only {train.num_rows:,}"
    together = f", rows with the same {' and '.join(cut.group_by)} kept together" if cut.group_by else ""
    together += ", whatever their case and white space" if cut.group_by and cut.folded else ""
    notes[split] = f"{size:,} rows{less} cut from the training part (seed {seed}{together})"
    notes["train"] += f"; {size:,} cut off for {split}, {parts['train'].num_rows:,} left"


def _held_out(train: datasets.Dataset, cut: Cut, seed: int, split: str, name: str, spec: TaskSpec) -> np.ndarray:
    """
    Which rows to hold out, as a boolean array.

    Groups are taken in the order of NumPy's legacy permutation as long as they fit. Where every row is its own group
    that picks the rows scikit-learn's `train_test_split(test_size=size, random_state=seed)` picks, which the release
    used for Story Cloze.
    """
    rows = train.num_rows
    size = 0
    if 0 < cut.size < math.inf:
        size = int(cut.size) if cut.size >= 1 else max(1, round(cut.size * rows))
        if cut.size >= rows and not spec.reads_own_files:
            size = rows // 5  # a sample of the publisher's file, to try a task
    if not 0 < size < rows:
        raise ValueError(f"{name}: {size} rows cannot be held out of {rows} for {split}. Provide more rows.")
    groups = np.arange(rows)
    if cut.group_by:
        keys = _text_keys(train, cut.group_by, cut.folded, spec.family == "similarity")
        _, first_rows, groups = np.unique(keys, return_index=True, return_inverse=True)
        groups = np.argsort(np.argsort(first_rows))[groups]  # numbered as they come
    counts = np.bincount(groups)
    chosen = np.zeros(len(counts), dtype=bool)
    room = size
    for group in np.random.RandomState(seed).permutation(len(counts)):
        if counts[group] <= room:
            chosen[group] = True
            room -= counts[group]
        if room == 0:
            break
    if not chosen.any():
        raise ValueError(
            f"{name}: no group of rows with the same {' and '.join(cut.group_by)} is as small as the {size} rows to "
            f"hold out. Hold out more rows (with --task custom, --validation_size), or provide a {split} file."
        )
    return chosen[groups]


def _text_keys(rows: datasets.Dataset, columns: Sequence[str], folded: bool, in_any_order: bool) -> np.ndarray:
    """
    A number for the texts of each row, so that rows with the same texts have the same (but once in 2**64 cases). The
    choices of a row are compared in any order, its words as they come; `folded`: case and white space do not count;
    `in_any_order`: two texts mean the same in either order.
    """

    def fold(text: str) -> str:
        return " ".join(text.split()).casefold() if folded else text

    def key(texts: Iterable[str | list[str]]) -> int:
        parts = [sorted(map(fold, text)) if isinstance(text, list) else fold(text) for text in texts]
        digest = hashlib.blake2b(repr(sorted(parts) if in_any_order else parts).encode(), digest_size=8).digest()
        return int.from_bytes(digest)

    def texts_of(batch: dict[str, list], name: str) -> Iterable[str | list[str]]:
        return map(" ".join, batch[name]) if name == "words" else batch[name]

    batches = rows.select_columns(list(columns)).iter(batch_size=1000)
    keys = (
        key(texts) for batch in batches for texts in zip(*(texts_of(batch, name) for name in columns), strict=True)
    )
    return np.fromiter(keys, np.uint64, rows.num_rows)


def contradictions(spec: TaskSpec, train: datasets.Dataset) -> Iterator[str]:
    """A warning where training rows have the same texts and different labels, naming two of them."""
    if spec.label_names is None or spec.family == "tagging":
        return
    keys = _text_keys(train, spec.text_columns, folded=True, in_any_order=spec.family == "similarity")
    labels, ids = train["label"][:], train["id"][:]
    first: dict[int, int] = {}
    others = [(first.setdefault(key, row), row) for row, key in enumerate(keys.tolist())]
    pairs = [(one, other) for one, other in others if labels[one] != labels[other]]
    if pairs:
        one, other = (ids[row] for row in pairs[0])
        yield (
            f"{len(pairs):,} of the {len(labels):,} training rows have the texts of an earlier row (apart from case "
            f"and white space) and another label, the first {other} those of {one}: which is right?"
        )


def shared_texts(spec: TaskSpec, parts: dict[str, datasets.Dataset]) -> Iterator[str]:
    """A warning for each part some of whose rows have the texts of training rows."""
    keys = {
        split: _text_keys(rows, spec.text_columns, folded=True, in_any_order=spec.family == "similarity")
        for split, rows in parts.items()
    }
    for split in ("validation", "test"):
        count = int(np.isin(keys[split], keys["train"]).sum()) if split in keys else 0
        if count:
            yield (
                f"{count:,} of the {len(keys[split]):,} {split} rows have texts that training rows have too (apart "
                "from case and white space): their scores say little about new texts."
            )
