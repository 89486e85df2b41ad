"""Features as a CSV file: the shards' numbers, a line per text, word or token."""

import json

import numpy as np
import pandas as pd
import pytest
from datasets import load_dataset

from hf_gpt.commands import parse_arguments
from hf_gpt.features.shards import CSV, FeatureArguments, extract

from ..support.runs import SAME_PRODUCTS

# The second shard of two rows has no token.
TEXTS = ["She didn't open the door.", 'He said: "No, never!"', "", "", "a, b\nNA"]
# Of a kind its flags, and its columns besides those of all kinds.
KINDS = {
    "texts": ([], []),
    "words": (
        ["--pooling", "none", "--unit", "word"],
        ["sequence", "word_start", "word_end", "word_tokens", "word"],
    ),
    "tokens": (["--pooling", "none"], ["input_ids"]),
}


@pytest.fixture
def run(tiny_checkpoint, tmp_path, own_datasets_cache):
    """Extracts layers 0 and 2 of the texts, in three shards, into the folder `out`, which it returns."""
    file, output = tmp_path / "texts.jsonl", tmp_path / "out"
    lines = [json.dumps({"text": text, "label": f"no. {row}", "list": [row]}) for row, text in enumerate(TEXTS)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def run(*flags):
        words = ["--model_name_or_path", tiny_checkpoint, "--input_files", file, "--output_dir", output]
        words += ["--layers", 0, 2, "--rows_per_shard", 2, "--keep_columns", "label", "--use_cpu", "true"]
        extract(parse_arguments((FeatureArguments,), [*map(str, words), *SAME_PRODUCTS, *flags])[0])
        return output

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_the_rows_of_the_shards(kind, run):
    flags, of_units = KINDS[kind]
    output = run("--csv", "true", *flags)
    rows = load_dataset(str(output), split="train").to_pandas()
    if flags:
        rows = rows.explode([*of_units, "layer_0", "layer_2"]).dropna()
    columns = ["row", "tokens", "truncated", "label", *of_units]
    names = [f"layer_{layer}_{index}" for layer in (0, 2) for index in range(32)]
    found = pd.read_csv(output / CSV, keep_default_na=False, na_values=dict.fromkeys(names, ""))
    assert [*found.columns] == columns + names
    for name in columns:
        assert found[name].tolist() == rows[name].tolist()
    expected = np.concatenate([np.stack(rows[name]) for name in ("layer_0", "layer_2")], axis=1)
    np.testing.assert_array_equal(found.iloc[:, len(columns) :].to_numpy(np.float32), expected)


def test_csv_of_finished_features_is_made_later_and_leaves_with_them(run):
    shards = [path.stat().st_mtime_ns for path in sorted(run().glob("data/*"))]
    assert not (run() / CSV).exists()
    output = run("--csv", "true")
    assert [path.stat().st_mtime_ns for path in sorted(output.glob("data/*"))] == shards
    assert (output / CSV).read_text().startswith('"row",')
    assert not (run("--overwrite_output_dir", "--pooling", "last") / CSV).exists()


def test_kept_lists_are_refused_before_anything_is_written(run, tmp_path):
    with pytest.raises(ValueError, match="--keep_columns list: CSV has no lists"):
        run("--csv", "true", "--keep_columns", "label", "list")
    assert not (tmp_path / "out").exists()
