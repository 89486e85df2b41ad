"""Rows of every task as token trees of gpt-mini's tokenizer: whole sequences within length, labels as declared."""

import numpy as np
import pytest
from transformers import AutoTokenizer

import hf_gpt  # noqa: F401 registers the tokenizer
from hf_gpt.tasks import custom_task, load_task
from hf_gpt.tasks.encode import describe_encoded, encode_rows, encode_split
from hf_gpt.trees.transforms import InputTransform, SpecialIds

from ..support.formats import FORMATS
from ..support.runs import REPOSITORY
from ..support.task_files import write

pytestmark = pytest.mark.usefixtures("own_datasets_cache")


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(REPOSITORY / "model_cards" / "gpt-mini", task_template=True)


def transform(family, tokenizer, rule="longest_first"):
    special = SpecialIds(tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id)
    return InputTransform(family, special, 96, rule)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format(name, tokenizer, tmp_path):
    data = load_task(name, write(tmp_path, FORMATS[name][0]), splits=["train"])
    rows, spec = data.splits["train"], data.spec
    layout = transform(spec.family, tokenizer, rule="half")
    encoded = encode_split(rows, spec.text_columns, tokenizer, layout)
    assert describe_encoded(encoded).startswith(f"{len(rows):,} rows, ")
    for row, original in zip(encoded, rows, strict=True):
        assert row["input_ids"][0] == tokenizer.bos_token_id
        assert max(row["position_ids"]) < layout.max_length
        if spec.family == "question-answering":
            continue  # see test_question_answering.py
        assert row["label"] == original["label"]
        if spec.family == "tagging":
            assert (row["words"], len(row["path_ends"])) == (original["words"], len(row["label"]))
            continue
        # Equal sequences share their end.
        assert len(row["path_ends"]) == {"similarity": 2}.get(spec.family, len(original.get("choices", "x")))
        ends = {index for index, token in enumerate(row["input_ids"]) if token == tokenizer.cls_token_id}
        assert set(row["path_ends"]) == ends


def test_question_stands_behind_the_context_and_both_orders_of_a_pair_are_read(tokenizer):
    rows = {"context": ["It rained."], "question": ["Why?"], "choices": [["A cloud.", "A sea."]], "label": [1]}
    encoded = encode_rows(rows, ("context", "question", "choices"), tokenizer, transform("multiple-choice", tokenizer))
    text = tokenizer.decode(encoded["input_ids"][0])
    assert text.index("rained") < text.index("why") < text.index("_delimiter_") < text.index("cloud")
    pair = {"premise": ["Rain."], "hypothesis": ["Snow."], "label": [2.5]}
    encoded = encode_rows(pair, ("premise", "hypothesis"), tokenizer, transform("similarity", tokenizer))
    text = tokenizer.decode(encoded["input_ids"][0])
    assert [word for word in text.split() if word in ("rain", "snow")] == ["rain", "snow", "snow", "rain"]


def test_a_score_of_minus_one_is_a_score(tokenizer, tmp_path):
    write(tmp_path, {"own.csv": "a,b,label\nx,y,-1\nz,w,2.5\n", "test.csv": "a,b\nx,y\n"})
    columns = {"premise_column": "a", "hypothesis_column": "b", "problem_type": "regression"}
    data = load_task(custom_task("similarity", "own.csv", "own.csv", "test.csv", **columns), tmp_path)
    layout, columns = transform("similarity", tokenizer), data.spec.text_columns
    assert encode_split(data.splits["train"], columns, tokenizer, layout)["label"][:] == [-1.0, 2.5]
    assert np.isnan(encode_split(data.splits["test"], columns, tokenizer, layout)["label"][:]).all()
