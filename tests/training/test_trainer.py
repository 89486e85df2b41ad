"""Training in Python on rows of one's own."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer

import hf_gpt
from hf_gpt import FineTuningArguments, GPTForSequenceClassification, GPTTrainer, TokenTreeCollator, token_trees

ROWS = {
    "multiple-choice": {"choices": [["wet", "dry"], ["a", "b", "c"]], "context": ["it rained", ""], "label": [0, 2]},
    "entailment": {"premise": ["it rained", "no"], "hypothesis": ["it was wet", "yes"], "label": [1, 0]},
    "classification": {"text": ["it rained", "no"], "label": [1, 0]},
}


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint):
    return AutoTokenizer.from_pretrained(tiny_checkpoint)


def test_names_of_training_are_those_of_the_package():
    for name in hf_gpt.__all__:
        assert getattr(getattr(hf_gpt, name), "__name__", name) == name
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        hf_gpt.Trainer  # noqa: B018


@pytest.mark.parametrize("family", ROWS)
def test_the_family_follows_from_the_columns(family, tokenizer):
    trees = token_trees(Dataset.from_dict(ROWS[family]), tokenizer)
    paths = {"multiple-choice": [2, 3], "entailment": [1, 1], "classification": [1, 1]}
    assert [len(ends) for ends in trees["path_ends"]] == paths[family]
    assert trees["label"][:] == ROWS[family]["label"]
    assert trees["id"][:] == ["0", "1"]
    start, delimiter, classify = tokenizer.bos_token_id, tokenizer.sep_token_id, tokenizer.cls_token_id
    for row in trees:
        assert row["input_ids"][0] == start
        assert {row["input_ids"][end] for end in row["path_ends"]} == {classify}
        assert (delimiter in row["input_ids"]) == (family != "classification")


def test_both_orders_and_a_shorter_length(tokenizer):
    rows = Dataset.from_dict(ROWS["entailment"]).remove_columns("label")
    trees = token_trees(rows, tokenizer, family="similarity", max_length=8)
    assert "label" not in trees.column_names
    assert [len(ends) for ends in trees["path_ends"]] == [2, 2]
    assert max(max(row["position_ids"]) for row in trees) < 8


def test_columns_of_no_family(tokenizer):
    for columns, family in (({"sentence": ["a"]}, None), ({"text": ["a"]}, "similarity")):
        with pytest.raises(ValueError, match="give them text, premise and hypothesis, words, choices"):
            token_trees(Dataset.from_dict(columns), tokenizer, family=family)


def test_predictions_are_in_the_order_of_the_rows(tiny_checkpoint, tokenizer, tmp_path):
    """The arguments evaluate every epoch by default: without rows to evaluate nothing is evaluated."""
    texts = ["it rained and it was wet and cold", "no", "it was", "it rained all day and all the night", "wet", "a b"]
    trees = token_trees(Dataset.from_dict({"text": texts, "label": [0, 1, 1, 0, 1, 0]}), tokenizer)
    model = GPTForSequenceClassification.from_pretrained(tiny_checkpoint, num_labels=2)
    collator = TokenTreeCollator(tokenizer.pad_token_id)
    args = FineTuningArguments(str(tmp_path), max_steps=1, per_device_eval_batch_size=2, use_cpu=True)
    trainer = GPTTrainer(model=model, args=args, train_dataset=trees, data_collator=collator)
    trainer.train()
    assert not [line for line in trainer.state.log_history if any(name.startswith("eval_") for name in line)]
    predicted = trainer.predict(trees)
    with torch.no_grad():
        alone = [model.eval()(**collator([row])).logits[0].numpy() for row in trees]
    np.testing.assert_allclose(predicted.predictions, alone, atol=1e-6)
    assert predicted.label_ids.tolist() == trees["label"][:]
    assert trainer.predict(trees.remove_columns("label")).predictions.shape == (6, 2)
