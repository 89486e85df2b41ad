"""Files of tests in the formats that publishers use."""

import gzip
import json
import lzma
from pathlib import Path


def write(folder, files):
    for name, content in files.items():
        content = content.encode() if isinstance(content, str) else content
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(Path(name).suffix, open)
        with opener(folder / name, "wb") as file:
            file.write(content)
    return folder


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def rows_of(data, split="train"):
    return list(data.splits[split])
