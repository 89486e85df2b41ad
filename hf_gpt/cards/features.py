"""The card of extracted features: what they are, what was truncated, and how to read them."""

from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from ..files.templates import render_template
from .base import TEMPLATES


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
    """The text of README.md, of what `features.json` holds (see `hf_gpt.features.shards`)."""
    kind, tags = record["format"], ["feature-extraction", "hf_gpt"]
    # So that `load_dataset` takes the folder, and the Hub shows the rows.
    shown = {"configs": [{"config_name": "default", "data_files": f"data/*.{kind}"}]}
    data = DatasetCardData(tags=tags, **(shown if kind in ("parquet", "arrow") else {}))
    text = render_template(
        TEMPLATES / "features.md",
        card_data=data.to_yaml(),
        record=record,
        pooled=record["pooling"] != "none",
        files=", ".join(Path(name).name for name, *_ in record["input_files"]),
        read=describe_rows(record),
        layer=f"layer_{record['layers'][0]}",
        first=f"features-00000-of-{record['shards']:05d}",
    )
    return str(DatasetCard(text))
