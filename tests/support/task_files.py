"""Files of tests in the formats that publishers use."""

import gzip
import io
import json
import lzma
import tarfile
from collections import Counter
from pathlib import Path

from hf_gpt.tasks import load_task


def write(folder, files):
    for name, content in files.items():
        content = content.encode() if isinstance(content, str) else content
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        # An archive is compressed already.
        opener = open if ".tar" in name else {".gz": gzip.open, ".xz": lzma.open}.get(Path(name).suffix, open)
        with opener(folder / name, "wb") as file:
            file.write(content)
    return folder


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def tsv(*rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def tar(files, mode="w:gz"):
    """The bytes of an archive."""
    archived = io.BytesIO()
    with tarfile.open(fileobj=archived, mode=mode) as archive:
        for name, text in files.items():
            content = text.encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return archived.getvalue()


def rows_of(data, split="train"):
    return list(data.splits[split])


def check_format(name, folder, first, counts):
    """Loads a task from `folder`: its first training row and the rows of each split must be these."""
    data = load_task(name, folder)
    assert dict(data.splits.num_rows) == counts
    assert set(data.notes) == {"train", "validation", "test"}
    assert all(part.features == data.spec.features for part in data.splits.values())
    if first:
        assert rows_of(data)[0] == first
    return data


def label_counts(data, *parts):
    return dict(sum((Counter(data.splits[part]["label"]) for part in parts), Counter()))
