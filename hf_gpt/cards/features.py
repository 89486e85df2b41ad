"""The card of extracted features: what they are, what was cut, and how to read them."""

from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from .base import cell, read_template

_POOLED = {
    "mean": "per text, the mean over its tokens",
    "last": "per text, that of its last token",
    "classify": "per text, that of its `_classify_` token",
}
_PER_UNIT = {
    ("token", "mean"): "per token (`input_ids`)",
    ("token", "last"): "per token (`input_ids`)",
    ("word", "mean"): "per word, the mean over its tokens",
    ("word", "last"): "per word, that of its last token",
}
_WORDS = "A word is the characters `word_start` to `word_end` of the text (of a pair: of the text `sequence`, 0 or 1)."

_READ_TABLE = """from datasets import load_dataset

rows = load_dataset("{format}", data_files="data/*.{format}")["train"]
states = rows.with_format("numpy")[0]["{layer}"]"""
_READ_NPY = """import numpy

states = numpy.load("data/{stem}.npy")"""
_READ_SAFETENSORS = """from safetensors.torch import load_file

states = load_file("data/{stem}.safetensors")["{layer}"]"""
_CODE = {"parquet": _READ_TABLE, "arrow": _READ_TABLE, "npy": _READ_NPY, "safetensors": _READ_SAFETENSORS}


def describe_rows(record: dict[str, Any]) -> str:
    """What was read, and which rows are not as one may expect; for arguments see `card_text`."""
    text = f"{record['rows']:,} rows, {record['tokens']:,} tokens"
    if record["truncated_rows"]:
        text += (
            f"; rows truncated to {record['max_length']} tokens: {record['truncated_rows']:,} (they lost "
            f"{record['truncated_tokens']:,} tokens in all)"
        )
    if record["empty_rows"]:
        kind = "no states" if record["pooling"] == "none" else "NaN for states"
        text += f"; rows without any token, which have {kind}: {record['empty_rows']:,}"
    return text


def card_text(record: dict[str, Any]) -> str:
    """
    The text of README.md.

    Args:
        record (`dict`): what `features.json` holds (see `hf_gpt.features.shards`).
    """
    kind, pooling = record["format"], record["pooling"]
    # So that `load_dataset` takes the folder, and the Hub shows the rows.
    shown = {"configs": [{"config_name": "default", "data_files": f"data/*.{kind}"}]}
    tags = ["feature-extraction", "hf_gpt"]
    data = DatasetCardData(tags=tags, **(shown if kind in ("parquet", "arrow") else {}))
    card = DatasetCard.from_template(
        data,
        template_str=read_template("features"),
        record=record,
        model=record["model_name_or_path"],
        files=cell(", ".join(Path(name).name for name, *_ in record["input_files"])),
        read=describe_rows(record),
        special_tokens="`_start_` and `_classify_` around a text" if record["task_template"] else "none",
        unit=_POOLED[pooling] if pooling in _POOLED else _PER_UNIT[record["unit"], record["word_pooling"]],
        code=_CODE[kind].format(
            format=kind, layer=f"layer_{record['layers'][0]}", stem=f"features-00000-of-{record['shards']:05d}"
        ),
        shape=_shape(record),
        limits=_limits(record),
    )
    return str(card)


def _limits(record: dict[str, Any]) -> list[str]:
    limits = [
        "A state knows its token and those before it, none after it; the embedding (layer 0) knows its token alone.",
        "States tell much of what the texts say: treat them like the texts, whose licence and privacy hold for them.",
        "Another model, revision or precision gives other numbers; features of different models cannot be mixed.",
        "English only; all text is lower-cased.",
        "They carry the biases of the texts that the model was trained on.",
    ]
    if record["truncated_rows"]:
        limits.insert(0, "Rows that were truncated have states of what was left of them alone.")
    return limits


def _shape(record: dict[str, Any]) -> str:
    if record["format"] == "npy":
        return "`states` is `(rows, layers, width)`; `.rows.npy` holds the numbers of the rows."
    pooled = record["pooling"] != "none"
    if record["format"] == "safetensors":
        parts = "" if pooled else "; those of text i are `offsets[i]` to `offsets[i + 1]`"
        text = f"`states` is `({'rows' if pooled else 'states'}, width)`{parts}."
    else:
        text = "`states` is `(width,)`." if pooled else "`states` is `(states, width)`."
    return f"{text} {_WORDS}" if record["unit"] == "word" else text
