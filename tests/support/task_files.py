"""Files of tests in the formats that publishers use."""

import gzip
import json
import lzma
from collections import Counter
from pathlib import Path


def write(folder, files):
    for name, content in files.items():
        content = content.encode() if isinstance(content, str) else content
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(Path(name).suffix, open)
        with opener(folder / name, "wb") as file:
            file.write(content)
    return folder


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def choice_row(key, context, choices, label, question=""):
    """A row of multiple choice, as a task gives it."""
    return {"id": key, "context": context, "question": question, "choices": list(choices), "label": label}


def pair_row(key, premise, hypothesis, label):
    """A row of two texts, as a task gives it."""
    return {"id": key, "premise": premise, "hypothesis": hypothesis, "label": label}


def rows_of(data, split="train"):
    return list(data.splits[split])


def label_counts(data, *parts):
    return dict(sum((Counter(data.splits[part]["label"]) for part in parts), Counter()))
