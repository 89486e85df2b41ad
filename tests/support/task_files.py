"""Files of tests in the formats that publishers use."""

import gzip
import json
import lzma
from pathlib import Path


def write(folder, files):
    for name, content in files.items():
        content = content.encode() if isinstance(content, str) else content
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(Path(name).suffix, open)
        with opener(folder / name, "wb") as file:
            file.write(content)
    return folder


def write_rows(folder, header, *rows, name="own.csv"):
    """A file of comma-separated values, which hold no commas."""
    lines = (",".join(map(str, row)) + "\n" for row in (header, *rows))
    return write(folder, {name: "".join(lines)}) / name


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def choice_row(key, context, choices, label, question=""):
    """A row of multiple choice, as a task gives it."""
    return {"id": key, "context": context, "question": question, "choices": list(choices), "label": label}


def rows_of(data, split="train"):
    return list(data.splits[split])


METRIC = """
import datasets
import evaluate

class Own(evaluate.Metric):
    def _info(self):
        features = datasets.Features(dict.fromkeys(("predictions", "references"), datasets.Value("KIND")))
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return RESULT
"""


def write_metric(path, kind, result):
    """A metric as the library evaluate reads it, of values of a kind; `result` is Python."""
    path.write_text(METRIC.replace("KIND", kind).replace("RESULT", result), encoding="utf-8")
    return str(path)
