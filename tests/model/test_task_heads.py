"""Multiple choice and sequence classification: the joint loss, problem types, dropout, and input that is wrong."""

import numpy as np
import pytest
import torch
from torch import nn

from hf_gpt import GPTConfig, GPTForMultipleChoice, GPTForSequenceClassification, GPTTaskOutput
from hf_gpt.training.arguments import FineTuningArguments
from hf_gpt.training.trainer import GPTTrainer
from hf_gpt.trees.collators import collate_trees
from hf_gpt.trees.token_tree import TokenTree

from ..support.tiny import CLASSIFY, DELIMITER, PAD, START

# (items, choices, length)
CHOICES = torch.tensor(
    [
        [[START, 1, 2, DELIMITER, 3, CLASSIFY], [START, 1, 2, DELIMITER, 4, CLASSIFY]],
        [[START, 5, 6, DELIMITER, 7, CLASSIFY], [START, 5, 6, DELIMITER, 8, CLASSIFY]],
        [[START, 9, 6, DELIMITER, 1, CLASSIFY], [START, 9, 6, DELIMITER, 2, CLASSIFY]],
    ]
)
TEXTS = CHOICES[:, 0]
LABELS = torch.tensor([1, 0, 1])


def assert_close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("coefficient", [0.5, 2, 0.01])
def test_joint_loss(tiny_model, coefficient):
    outputs = tiny_model(GPTForMultipleChoice, lm_coef=coefficient).train()(CHOICES, labels=LABELS)
    assert_close(outputs.loss, outputs.task_loss + coefficient * outputs.lm_loss)
    assert_close(outputs.task_loss, nn.functional.cross_entropy(outputs.logits, LABELS))
    assert outputs.lm_loss > 0


@pytest.mark.parametrize(
    ("training", "asked", "coefficient", "computed"),
    [
        (True, None, 0.5, True),
        (True, False, 0.5, False),
        (False, None, 0.5, False),
        (False, True, 0.5, True),
        (True, None, 0, False),
        (False, True, 0, False),
    ],
    ids=["training", "training-not-asked", "evaluation", "evaluation-asked", "no-coefficient", "asked-no-coefficient"],
)
def test_when_the_language_model_loss_is_computed(tiny_model, training, asked, coefficient, computed):
    model = tiny_model(GPTForMultipleChoice, lm_coef=coefficient).train(training)
    arguments = {} if asked is None else {"return_lm_loss": asked}
    outputs = model(CHOICES, labels=LABELS, **arguments)
    assert (outputs.lm_loss is not None) == computed
    if not computed:
        assert torch.equal(outputs.loss, outputs.task_loss)


@pytest.mark.parametrize("coefficient", [0, 0.5])
def test_scaling_the_loss_leaves_its_terms_alone(tiny_model, coefficient):
    """As the Trainer does in several processes; the terms are logged."""
    model = tiny_model(GPTForSequenceClassification, lm_coef=coefficient).train()
    outputs = model(TEXTS, labels=LABELS)
    before = outputs.task_loss.item()
    outputs.loss *= 2
    assert outputs.task_loss.item() == before


def test_without_labels(tiny_model):
    model = tiny_model(GPTForMultipleChoice)
    outputs = model(CHOICES, return_lm_loss=True)
    assert outputs.loss is None
    assert outputs.task_loss is None
    assert_close(outputs.lm_loss, model(CHOICES, labels=LABELS, return_lm_loss=True).lm_loss)


def test_multiple_choice_needs_one_unit(tiny_model):
    model = tiny_model(GPTForMultipleChoice, num_labels=5)
    assert model.score.weight.shape == (1, 32)
    assert model(CHOICES).logits.shape == (3, 2)


def ordinal_loss(logits, scores):
    # Each score lies between two whole ones, and gives to either what it is nearer (Tai et al., 2015).
    shares = (1 - (scores[:, None] - torch.arange(logits.shape[-1])).abs()).clamp(min=0)  # (batch, bins)
    return nn.functional.cross_entropy(logits, shares)


PROBLEMS = {
    "ordinal": ({"num_labels": 4, "problem_type": "ordinal"}, torch.tensor([0.5, 3.0, 1.25]), ordinal_loss),
    "inferred-regression": ({"num_labels": 1}, torch.tensor([0.5, -1.0, 3.0]), nn.MSELoss()),
    "regression-column": ({"num_labels": 1}, torch.tensor([[0.5], [-1.0], [3.0]]), nn.MSELoss()),
    "regression-whole-numbers": ({"num_labels": 1}, torch.tensor([0, 2, 3]), nn.MSELoss()),
    "regression-of-two": (
        {"num_labels": 2, "problem_type": "regression"},
        torch.tensor([[0.5, 1.0], [-1.0, 2.0], [3.0, 0.0]]),
        nn.MSELoss(),
    ),
    "inferred-single-label": ({"num_labels": 3}, torch.tensor([2, 0, 1]), nn.CrossEntropyLoss()),
    "single-label": (
        {"num_labels": 3, "problem_type": "single_label_classification"},
        torch.tensor([2, 0, 1]),
        nn.CrossEntropyLoss(),
    ),
    "inferred-multi-label": (
        {"num_labels": 2},
        torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]),
        nn.BCEWithLogitsLoss(),
    ),
    "multi-label": (
        {"num_labels": 2, "problem_type": "multi_label_classification"},
        torch.tensor([[0, 1], [1, 1], [0, 0]]),
        nn.BCEWithLogitsLoss(),
    ),
}


@pytest.mark.parametrize(("overrides", "labels", "plain"), PROBLEMS.values(), ids=PROBLEMS)
def test_problem_types(tiny_model, overrides, labels, plain):
    model = tiny_model(GPTForSequenceClassification, **overrides)
    outputs = model(TEXTS, labels=labels, return_lm_loss=True)
    logits = outputs.logits if outputs.logits.shape[-1] > 1 else outputs.logits.view_as(labels)
    expected = plain(logits, labels if isinstance(plain, nn.CrossEntropyLoss) else labels.float())
    assert_close(outputs.task_loss, expected)
    # The mean over texts is the same, whatever the labels of a text are.
    assert_close(outputs.lm_loss, model(TEXTS, return_lm_loss=True).lm_loss)
    assert_close(outputs.loss, expected + 0.5 * outputs.lm_loss)


def test_ordinal_learns_the_mean(tiny_model):
    model = tiny_model(GPTForSequenceClassification, num_labels=6, problem_type="ordinal")
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scores = torch.tensor([0.0, 2.5, 4.8])
    for _ in range(60):
        optimizer.zero_grad()
        model(TEXTS, labels=scores).loss.backward()
        optimizer.step()
    found = model(TEXTS).logits.softmax(-1).detach().numpy() @ np.arange(6)
    np.testing.assert_allclose(found, scores, atol=0.2)
    without_label = model(TEXTS, labels=torch.tensor([-100.0, 2.5, -100.0]))
    assert_close(without_label.loss, model(TEXTS[1:2], labels=scores[1:2]).loss)


@pytest.mark.parametrize(("overrides", "labels", "plain"), PROBLEMS.values(), ids=PROBLEMS)
def test_accumulated_parts_are_the_whole_batch(tiny_model, overrides, labels, plain):
    model = tiny_model(GPTForSequenceClassification, **overrides).train()
    expected = gradients(model, model(TEXTS, labels=labels).loss)
    items = labels.ne(-100).sum()  # as the Trainer counts them
    parts = [model(TEXTS[part], labels=labels[part], num_items_in_batch=items) for part in (slice(2), slice(2, 3))]
    found = gradients(model, sum(part.loss for part in parts))
    for name, gradient in expected.items():
        assert_close(found[name], gradient)


def test_accumulated_choices_are_the_whole_batch(tiny_model):
    model = tiny_model(GPTForMultipleChoice).train()
    whole = model(CHOICES, labels=LABELS)
    parts = [
        model(CHOICES[part], labels=LABELS[part], num_items_in_batch=torch.tensor(3))
        for part in (slice(1), slice(1, 3))
    ]
    for name in ("loss", "task_loss", "lm_loss"):
        assert_close(parts[0][name] + parts[1][name], whole[name])
    expected = gradients(model, whole.loss)
    found = gradients(model, parts[0].loss + parts[1].loss)
    for name, gradient in expected.items():
        assert_close(found[name], gradient)


@pytest.mark.parametrize(
    ("overrides", "labels"),
    [
        ({"num_labels": 3}, torch.tensor([2, -100, 1])),
        ({"num_labels": 1}, torch.tensor([0.5, -100.0, 3.0])),
        ({"num_labels": 2}, torch.tensor([[0.0, 1.0], [-100.0, -100.0], [1.0, 0.0]])),
    ],
    ids=["single-label", "regression", "multi-label"],
)
def test_ignored_labels(tiny_model, overrides, labels):
    model = tiny_model(GPTForSequenceClassification, **overrides)
    known = torch.tensor([0, 2])
    found = model(TEXTS, labels=labels)
    expected = model(TEXTS[known], labels=labels[known])
    assert_close(found.task_loss, expected.task_loss)
    wanted, gradient = gradients(model, expected.loss), gradients(model, found.loss)
    for name, value in wanted.items():
        assert_close(gradient[name], value)


def test_choices_share_their_dropout(tiny_model):
    model = tiny_model(GPTForMultipleChoice, clf_pdrop=0.5).train()
    one = CHOICES[:1, :1]
    logits = model(one.expand(8, 3, -1)).logits
    assert_close(logits, logits[:, :1].expand(8, 3))
    assert logits[:, 0].unique().numel() > 1
    whole = model.eval()(one).logits
    assert not torch.isclose(logits, whole).any()


@pytest.mark.parametrize("model_class", [GPTForMultipleChoice, GPTForSequenceClassification])
@pytest.mark.parametrize("name", ["embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop"])
@torch.no_grad()
def test_each_dropout_is_for_training_alone(tiny_model, model_class, name):
    model = tiny_model(model_class, **{name: 0.5})
    inputs = CHOICES if model_class is GPTForMultipleChoice else TEXTS
    expected = tiny_model(model_class)(inputs).logits
    assert torch.equal(model(inputs).logits, expected)
    assert not torch.isclose(model.train()(inputs).logits, expected).all()


@torch.no_grad()
def test_first_classify_token_is_read(tiny_model):
    model = tiny_model(GPTForSequenceClassification, num_labels=2)
    text = [START, 1, CLASSIFY]
    expected = model(torch.tensor([text])).logits
    assert_close(model(torch.tensor([[*text, 4, CLASSIFY, PAD]])).logits, expected)


@torch.no_grad()
def test_quirk_sequence_without_classify_token_is_read_at_its_start(tiny_model):
    model = tiny_model(GPTForSequenceClassification, release_quirks=True)
    states = model.transformer(TEXTS[:, :-1]).last_hidden_state
    assert_close(model(TEXTS[:, :-1]).logits, model.score(states[:, 0]))


@torch.no_grad()
def test_embeddings_instead_of_ids(tiny_model):
    model = tiny_model(GPTForSequenceClassification, num_labels=3)
    embeddings = model.get_input_embeddings()(TEXTS)
    outputs = model(inputs_embeds=embeddings, classify_index=torch.full((3, 1), 5), labels=LABELS)
    assert_close(outputs.logits, model(TEXTS).logits)
    assert_close(outputs.loss, model(TEXTS, labels=LABELS).loss)


@torch.no_grad()
def test_output(tiny_model):
    model = tiny_model(GPTForMultipleChoice, "eager")
    outputs = model(CHOICES, labels=LABELS, output_hidden_states=True, output_attentions=True)
    assert isinstance(outputs, GPTTaskOutput)
    assert list(outputs) == ["loss", "logits", "task_loss", "hidden_states", "attentions"]
    assert [states.shape for states in outputs.hidden_states] == [(6, 6, 32)] * 3
    assert [weights.shape for weights in outputs.attentions] == [(6, 2, 6, 6)] * 2
    loss, logits, task_loss = model(CHOICES, labels=LABELS, return_dict=False)
    assert torch.equal(logits, outputs.logits)
    assert torch.equal(loss, task_loss)


def test_evaluation_gathers_logits_alone(tiny_model):
    model = tiny_model(GPTForMultipleChoice, "eager")
    outputs = model(CHOICES, labels=LABELS, return_lm_loss=True, output_hidden_states=True, output_attentions=True)
    kept = set(outputs) - set(GPTConfig.keys_to_ignore_at_inference)
    assert kept == {"loss", "logits"}


def test_tree_without_weights_has_no_language_model_loss(tiny_model):
    model = tiny_model(GPTForMultipleChoice)
    batch = collate_trees([TokenTree.from_paths(item.tolist()) for item in CHOICES], PAD)
    del batch["lm_weights"]
    assert_close(model(**batch).logits, model(CHOICES).logits)
    with pytest.raises(ValueError, match="needs lm_weights"):
        model.train()(**batch)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_ids": TEXTS[:, :-1]}, f"no classify token .id {CLASSIFY}.*task_template"),
        (
            {
                "input_ids": TEXTS,
                "inputs_embeds": torch.zeros(3, 6, 32),
                "classify_index": torch.full((3, 1), 5),
            },
            "either input_ids or inputs_embeds",
        ),
        ({"input_ids": torch.full((1, 2, 40), CLASSIFY)}, "40 tokens is longer than the context of 32"),
    ],
    ids=["no-classify-token", "both", "too-long"],
)
def test_wrong_inputs(tiny_model, arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny_model(GPTForSequenceClassification)(**arguments)


def test_configuration_without_classify_token(tiny_model):
    model = tiny_model(GPTForSequenceClassification, classify_token_id=None)
    with pytest.raises(ValueError, match=r"no classify token \(id None\)"):
        model(TEXTS)
    with torch.no_grad():
        given = model(TEXTS, classify_index=torch.full((3, 1), 5)).logits
        assert_close(given, tiny_model(GPTForSequenceClassification)(TEXTS).logits)


def smoothing_arguments(folder, share):
    never = dict.fromkeys(("eval_strategy", "save_strategy"), "no")
    settings = {"use_cpu": True, "load_best_model_at_end": False, "label_smoothing_factor": share}
    return FineTuningArguments(output_dir=str(folder), **never, **settings)


@pytest.mark.parametrize("model_class", [GPTForMultipleChoice, GPTForSequenceClassification])
def test_trainer_smooths_the_task_and_keeps_the_language_model(tiny_model, tmp_path, model_class):
    inputs = {"input_ids": CHOICES if model_class is GPTForMultipleChoice else TEXTS, "labels": LABELS}
    plain = tiny_model(model_class).train()(**inputs)
    args = smoothing_arguments(tmp_path, 0.3)
    trainer = GPTTrainer(model=tiny_model(model_class).train(), args=args)
    loss, outputs = trainer.compute_loss(trainer.model, dict(inputs), return_outputs=True)
    expected = nn.functional.cross_entropy(plain.logits, LABELS, label_smoothing=0.3)
    assert_close(outputs.task_loss, expected)
    assert_close(loss, expected + 0.5 * plain.lm_loss)
    parts = [
        trainer.compute_loss(trainer.model, {name: value[part] for name, value in inputs.items()}, False, 3)
        for part in (slice(1), slice(1, 3))
    ]
    assert_close(sum(parts), loss)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"problem_type": "ordinal", "num_labels": 4}, "ordinal"),
        ({"problem_type": "regression"}, "regression"),
        ({"num_labels": 1}, "regression"),
    ],
    ids=["ordinal", "regression", "one-output"],
)
def test_smoothing_that_makes_no_sense(tiny_model, tmp_path, overrides, problem):
    args = smoothing_arguments(tmp_path, 0.1)
    with pytest.raises(ValueError, match=f"label_smoothing_factor 0.1.*not in {problem}"):
        GPTTrainer(model=tiny_model(GPTForSequenceClassification, **overrides), args=args)


@torch.no_grad()
def test_given_positions(tiny_model):
    model = tiny_model(GPTForMultipleChoice)
    positions = torch.arange(CHOICES.shape[-1]).expand_as(CHOICES)
    assert_close(model(CHOICES, position_ids=positions).logits, model(CHOICES).logits)
    assert not torch.isclose(model(CHOICES, position_ids=positions + 1).logits, model(CHOICES).logits).all()
