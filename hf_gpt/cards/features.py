"""The card of extracted features."""

from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from ..files.templates import render_template
from .fine_tuned import TEMPLATES


def describe_rows(record: dict[str, Any]) -> str:
    """What was read, and which rows are not as one may expect; for arguments see `features_card`."""
    text = f"{record['rows']:,} rows, {record['tokens']:,} tokens"
    if record["truncated_rows"]:
        lost = f"{record['truncated_rows']:,} (they lost {record['truncated_tokens']:,} tokens in all)"
        text += f"; rows truncated to {record['max_length']} tokens: {lost}"
    if record["empty_rows"]:
        kind = "no states" if record["pooling"] == "none" else "NaN for states"
        text += f"; rows without any token, which have {kind}: {record['empty_rows']:,}"
    return text


def features_card(record: dict[str, Any]) -> DatasetCard:
    """README.md, of what `features.json` holds (see `hf_gpt.features.shards`)."""
    shown = [{"config_name": "default", "data_files": "data/*.parquet"}]  # for `load_dataset` and the Hub
    data = DatasetCardData(tags=["feature-extraction", "hf_gpt"], configs=shown).to_yaml()
    files = ", ".join(Path(name).name for name, *_ in record["input_files"])
    values = {"record": record, "read": describe_rows(record), "files": files, "card_data": data}
    return DatasetCard(render_template(TEMPLATES / "features.md", **values))
