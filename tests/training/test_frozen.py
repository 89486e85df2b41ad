"""Heads on frozen features: what they read, features that are computed once."""

import numpy as np
import pytest
import torch
from datasets import Dataset

from hf_gpt.model.modeling_gpt import GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.tasks.encode import TREE_FEATURES
from hf_gpt.training.arguments import FineTuningArguments
from hf_gpt.training.frozen import FeatureCollator, FrozenFeatureHead, cache_features
from hf_gpt.trees.collators import TokenTreeCollator
from hf_gpt.trees.token_tree import TokenTree

from ..support.tiny import CLASSIFY, DELIMITER, PAD, START

HEADS = {"choices": GPTForMultipleChoice, "classes": GPTForSequenceClassification}
BOTH = pytest.mark.parametrize("head", HEADS)


def encoded_rows(choices: list[int], seed: int = 0) -> Dataset:
    """Rows of token trees with so many choices each."""
    generator, trees = np.random.default_rng(seed), []
    for count in choices:
        context = [START, *generator.integers(20, size=generator.integers(2, 7)), DELIMITER]
        ends = [generator.integers(20, size=generator.integers(1, 5)) for _ in range(count)]
        trees.append(TokenTree.from_paths([[int(token) for token in [*context, *end, CLASSIFY]] for end in ends]))
    columns = {name: [getattr(row, name) for row in trees] for name in TREE_FEATURES}
    columns |= {"length": [len(row) for row in trees], "label": [0] * len(trees)}
    return Dataset.from_dict({"id": [str(row) for row in range(len(trees))], **columns})


@BOTH
@pytest.mark.parametrize("layers", [0, 1, 2, "mix"])
def test_what_a_head_reads(head, layers, tiny_model):
    """`tiny_model` sets the scalars of the mix and its factor at random, too."""
    model = tiny_model(HEADS[head], head_layers=layers, final_norm=True)
    batch = TokenTreeCollator(PAD)(list(encoded_rows([3, 2])))
    with torch.no_grad():
        outputs, quiet = model(**batch, output_hidden_states=True), model(**batch)
        states = outputs.hidden_states[layers if layers != "mix" else 0]
        if layers == "mix":
            shares = torch.exp(model.head_mix.scalars) / torch.exp(model.head_mix.scalars).sum()
            states = sum(share * each for share, each in zip(shares, outputs.hidden_states, strict=True))
            states = model.head_mix.gamma * states
        pooled = [row[index[index >= 0]] for row, index in zip(states, batch["classify_index"], strict=True)]
        for row, states in enumerate(pooled):
            expected = model.score(states).squeeze(-1) if head == "choices" else model.score(states.sum(0))
            torch.testing.assert_close(outputs.logits[row, : len(expected)], expected, rtol=0, atol=1e-5)
    assert head == "classes" or outputs.logits[1, 2] == float("-inf")
    assert torch.equal(quiet.logits, outputs.logits)
    assert quiet.hidden_states is None
    assert any("mix" in name for name in model.state_dict()) == (layers == "mix")


@BOTH
def test_training_on_cached_features_is_training_the_head_of_the_whole_model(head, tiny_model, tmp_path):
    """Rows of one, two and three paths, and a filler, in a batch of another order: logits, loss and gradients."""
    model = tiny_model(HEADS[head], head_layers="mix", lm_coef=0.0)
    rows = {"train": encoded_rows([2, 3, 1, 2]), "test": encoded_rows([3, 1], seed=1)}
    args = FineTuningArguments(output_dir=str(tmp_path), use_cpu=True, disable_tqdm=True)
    cached = cache_features(model, rows, TokenTreeCollator(PAD), args)
    trained = FrozenFeatureHead(model)
    batch = FeatureCollator(model.config)([cached["test"][0], cached["train"][2], {"label": -100}, cached["train"][1]])
    assert batch["features"].shape == (4, 3, 3, 32)
    assert batch["present"].tolist() == [[True] * 3, [True, False, False], [True, False, False], [True] * 3]
    assert batch["labels"].tolist() == [0, 0, -100, 0]
    whole = model(**TokenTreeCollator(PAD)([rows["test"][0], rows["train"][2], rows["train"][1]]))
    ours, gradients = trained(**batch), []
    torch.testing.assert_close(ours.logits[[0, 1, 3]], whole.logits, rtol=0, atol=1e-6)
    # The filler has no label, so the mean over labels is that of the others.
    torch.testing.assert_close(ours.loss, whole.task_loss, rtol=0, atol=1e-6)
    for loss in (ours.loss, whole.task_loss):
        model.zero_grad()
        loss.backward()
        gradients.append({name: value.grad.clone() for name, value in trained.named_parameters()})
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)
    assert trained.train().clf_dropout.training
    assert not any(module.training for module in model.transformer.modules())
