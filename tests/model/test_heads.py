"""The task heads: joint loss, problem types, layers, padding, parts of a batch, answers by spans, wrong inputs."""

import itertools

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from transformers.utils.generic import find_labels

from hf_gpt import (
    GPTForCausalLM,
    GPTForMultipleChoice,
    GPTForQuestionAnswering,
    GPTForSequenceClassification,
    GPTForTokenClassification,
)
from hf_gpt.trees.collators import TokenTreeCollator, collate_trees
from hf_gpt.trees.token_tree import TokenTree
from hf_gpt.trees.transforms import InputTransform

from ..support.tensors import assert_close, assert_same_gradients, padded
from ..support.tiny import CLASSIFY, DELIMITER, PAD, START

# (items, choices, length)
ITEMS = [([1, 2], (3, 4)), ([5, 6], (7, 8)), ([9, 6], (1, 2))]
CHOICES = torch.tensor([[[START, *text, DELIMITER, last, CLASSIFY] for last in both] for text, both in ITEMS])
TEXTS = CHOICES[:, 0]
LABELS = torch.tensor([1, 0, 1])
SEQUENCES = [[5, 3, 1, 4], [2, 7, 1, 8, 2, 8], [9]]
WORD_LABELS = [[0, -100, 2, 1], [1, 1, -100, 0, 2, 2], [-100]]
each_head = pytest.mark.parametrize("model_class", [GPTForMultipleChoice, GPTForSequenceClassification])


def inputs_of(model_class):
    return CHOICES if model_class is GPTForMultipleChoice else TEXTS


@pytest.mark.parametrize(("training", "asked"), [(True, None), (True, False), (False, None), (False, True)])
@pytest.mark.parametrize("coefficient", [0, 2])
def test_joint_loss(tiny_model, training, asked, coefficient):
    model = tiny_model(GPTForMultipleChoice, lm_coef=coefficient).train(training)
    outputs = model(CHOICES, labels=LABELS, return_lm_loss=asked)
    assert_close(outputs.task_loss, cross_entropy(outputs.logits, LABELS))
    assert (outputs.lm_loss is not None) == (coefficient > 0 and (training if asked is None else asked))
    expected = outputs.task_loss + (0 if outputs.lm_loss is None else coefficient * outputs.lm_loss)
    assert_close(outputs.loss, expected)
    # Evaluation gathers the logits alone.
    assert set(outputs) - set(model.config.keys_to_ignore_at_inference) == {"loss", "logits"}
    # As the Trainer does in several processes; the terms are logged.
    outputs.loss *= 2
    assert_close(outputs.task_loss, cross_entropy(outputs.logits, LABELS))
    without = model(CHOICES, return_lm_loss=asked)
    assert (without.loss, without.task_loss, without.lm_loss) == (None, None, outputs.lm_loss)


def ordinal_loss(logits, scores):
    # Each score lies between two whole ones, and gives to either what it is nearer (Tai et al., 2015).
    return cross_entropy(logits, (1 - (scores[:, None] - torch.arange(logits.shape[-1])).abs()).clamp(min=0))


# Number and type of the labels, those of three texts, and the loss.
PROBLEMS = {
    "ordinal": (4, "ordinal", [0.5, 3.0, 1.25], ordinal_loss),
    "inferred-regression": (1, None, [0.5, -1.0, 3.0], mse_loss),
    "regression-column": (1, None, [[0.5], [-1.0], [3.0]], mse_loss),
    "regression-of-two": (2, "regression", [[0.5, 1.0], [-1.0, 2.0], [3.0, 0.0]], mse_loss),
    "inferred-single-label": (3, None, [2, 0, 1], cross_entropy),
    "inferred-multi-label": (2, None, [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]], binary_cross_entropy_with_logits),
    "multi-label": (2, "multi_label_classification", [[0, 1], [1, 1], [0, 0]], binary_cross_entropy_with_logits),
}


@pytest.mark.parametrize(("count", "kind", "labels", "plain"), PROBLEMS.values(), ids=PROBLEMS)
def test_problem_types(tiny_model, count, kind, labels, plain):
    """The loss, in parts of a batch, too, and that of a batch in which a text has no label."""
    model = tiny_model(GPTForSequenceClassification, num_labels=count, problem_type=kind).train()
    labels = torch.tensor(labels)
    outputs = model(TEXTS, labels=labels)
    targets = labels if plain is cross_entropy else labels.float().squeeze(-1)
    assert_close(outputs.task_loss, plain(outputs.logits.squeeze(-1), targets))
    # The mean over texts is the same, whatever the labels of a text are.
    assert_close(outputs.lm_loss, model(TEXTS).lm_loss)
    items = labels.ne(-100).sum()  # as the Trainer counts them
    parts = [model(TEXTS[part], labels=labels[part], num_items_in_batch=items) for part in (slice(2), slice(2, 3))]
    assert_same_gradients(model, sum(part.loss for part in parts), outputs.loss)
    expected = model(TEXTS[[0, 2]], labels=labels[[0, 2]], return_lm_loss=False)
    labels[1] = -100
    assert_same_gradients(model, model(TEXTS, labels=labels, return_lm_loss=False).loss, expected.loss)


@each_head
@pytest.mark.parametrize("name", ["embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop"])
@torch.no_grad()
def test_each_dropout_is_for_training_alone(tiny_model, model_class, name):
    model, inputs = tiny_model(model_class, **{name: 0.5}), inputs_of(model_class)
    expected = tiny_model(model_class)(inputs).logits
    assert torch.equal(model(inputs).logits, expected)
    assert not torch.isclose(model.train()(inputs).logits, expected).all()
    if (model_class, name) == (GPTForMultipleChoice, "clf_pdrop"):
        logits = model(CHOICES[:1, :1].expand(8, 3, -1)).logits  # shared by the choices of a row
        assert_close(logits, logits[:, :1].expand(8, 3))


@each_head
def test_smoothing_is_of_the_task_alone(tiny_model, model_class):
    model, ids = tiny_model(model_class).train(), inputs_of(model_class)
    plain, model.label_smoothing = model(ids, labels=LABELS), 0.3
    found = model(ids, labels=LABELS)
    assert_close(found.task_loss, cross_entropy(plain.logits, LABELS, label_smoothing=0.3))
    assert_close(found.lm_loss, plain.lm_loss)


@torch.no_grad()
def test_the_first_classify_token_is_read(tiny_model):
    model, text = tiny_model(GPTForSequenceClassification), [START, 1, CLASSIFY]
    expected = model(torch.tensor([text])).logits
    assert_close(model(torch.tensor([[*text, 4, CLASSIFY, PAD]])).logits, expected)
    quirky = tiny_model(GPTForSequenceClassification, release_quirks=True)
    first = quirky.transformer(TEXTS[:, :-1]).last_hidden_state[:, 0]
    assert_close(quirky(TEXTS[:, :-1]).logits, quirky.score(first))  # where there is none
    without, place = tiny_model(GPTForSequenceClassification, classify_token_id=None), torch.full((3, 1), 5)
    assert_close(without(TEXTS, classify_index=place).logits, model(TEXTS).logits)


@torch.no_grad()
def test_embeddings_and_positions_that_are_given(tiny_model):
    model = tiny_model(GPTForSequenceClassification)
    embeddings = model.get_input_embeddings()(TEXTS)
    for index in ({}, {"classify_index": torch.full((3, 1), 5)}):
        outputs = model(inputs_embeds=embeddings, labels=LABELS, **index)
        assert_close(outputs.loss, model(TEXTS, labels=LABELS).loss)
    model = tiny_model(GPTForMultipleChoice)
    positions = torch.arange(6).expand_as(CHOICES)
    assert_close(model(CHOICES, position_ids=positions).logits, model(CHOICES).logits)
    assert not torch.isclose(model(CHOICES, position_ids=positions + 1).logits, model(CHOICES).logits).all()


@pytest.mark.parametrize("head_layers", [None, 0, "mix"])
@pytest.mark.parametrize("asked", [[1], [-1, 0], True, None], ids=str)
@torch.no_grad()
def test_hidden_states_with_a_head_on_other_layers(tiny_model, head_layers, asked):
    model = tiny_model(GPTForSequenceClassification, head_layers=head_layers)
    found = model(TEXTS, output_hidden_states=asked)
    expected = model.transformer(TEXTS, output_hidden_states=asked).hidden_states
    assert torch.equal(found.logits, model(TEXTS).logits)
    for ours, theirs in zip(found.hidden_states or (), expected or (), strict=True):
        assert ours is theirs is None or torch.equal(ours, theirs)


TOKEN_HEADS = {"causal": {}, "both sides": {"is_causal": False}, "mixed layers": {"head_layers": "mix"}}


@pytest.mark.parametrize("overrides", TOKEN_HEADS.values(), ids=TOKEN_HEADS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_token_classification(tiny_model, attention, overrides, side):
    """Padding changes nothing, and parts of a batch add up to the whole."""
    model = tiny_model(GPTForTokenClassification, attention, num_labels=3, **overrides)
    (ids, mask), (labels, _) = padded(SEQUENCES, side), padded(WORD_LABELS, side, -100)
    with torch.set_grad_enabled(attention == "sdpa"):
        found = model(ids, attention_mask=mask, labels=labels)
        alone = torch.cat([model(torch.tensor([row])).logits[0] for row in SEQUENCES])
    assert_close(found.logits[mask.bool()], alone)
    assert_close(found.loss, cross_entropy(alone, torch.tensor([*itertools.chain(*WORD_LABELS)])))
    if attention == "sdpa":
        items, inputs = labels.ne(-100).sum(), {"input_ids": ids, "attention_mask": mask, "labels": labels}
        rows = [{name: value[[row]] for name, value in inputs.items()} for row in range(3)]
        assert_same_gradients(model, sum(model(**row, num_items_in_batch=items).loss for row in rows), found.loss)


@torch.no_grad()
def test_words_read_at_their_last_tokens(tiny_model):
    """`classify_index` takes these states out of those of all tokens; the language-model loss has the same divisor."""
    model = tiny_model(GPTForTokenClassification, num_labels=3)
    rows = [[2, 7, 1, 8], [5, 3]]
    ends, labels = torch.tensor([[1, 3], [1, -1]]), torch.tensor([[2, 0], [1, -100]])
    batch = collate_trees([TokenTree.from_paths([row]) for row in rows], PAD) | {"classify_index": ends}
    weights = batch.pop("lm_weights")
    found = model(**batch, labels=labels, return_lm_loss=False)
    every = model(batch["input_ids"]).logits
    kept = torch.stack([every[0, 1], every[0, 3], every[1, 1]])
    assert_close(torch.cat([found.logits[0], found.logits[1, :1]]), kept)
    assert_close(found.loss, cross_entropy(kept, torch.tensor([2, 0, 1])))
    joint = model(**batch, labels=labels, lm_weights=weights, return_lm_loss=True)
    matrix = model.get_input_embeddings().weight[:PAD].t()
    states = [model.transformer(torch.tensor([row])).last_hidden_state[0, :-1] for row in rows]
    means = [cross_entropy(own @ matrix, torch.tensor(row[1:])) for own, row in zip(states, rows, strict=True)]
    assert_close(joint.lm_loss, sum(means) / 3)
    assert_close(joint.loss, joint.task_loss + model.config.lm_coef * joint.lm_loss)


QUESTIONS = [[START, 5, 3, DELIMITER, 1, 4, 2, CLASSIFY], [START, 7, DELIMITER, 1, 8, 2, 8, 6, 3, 3, CLASSIFY]]
PLACES = torch.tensor([[4, 6], [7, 7]])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("overrides", TOKEN_HEADS.values(), ids=TOKEN_HEADS)
@torch.no_grad()
def test_question_answering(tiny_model, attention, side, overrides):
    model = tiny_model(GPTForQuestionAnswering, attention, **overrides)
    ids, mask = padded(QUESTIONS, side)
    starts, ends = (PLACES + mask.argmax(1, keepdim=True)).unbind(1)
    found = model(ids, attention_mask=mask, start_positions=starts, end_positions=ends)
    losses = []
    for row, question in enumerate(QUESTIONS):
        alone = model(torch.tensor([question]))
        for place, name in zip(PLACES[row], ("start_logits", "end_logits"), strict=True):
            assert_close(found[name][row, mask[row].bool()], alone[name][0])
            assert torch.isneginf(found[name][row, ~mask[row].bool()]).all()
            losses.append(cross_entropy(alone[name], place[None]))
    assert_close(found.loss, sum(losses) / 4)
    starts[1], ends[1] = 99, -1  # answers outside count nothing
    found = model(ids, attention_mask=mask, start_positions=starts, end_positions=ends)
    assert_close(found.loss, sum(losses[:2]) / 2)
    # What the Trainer of transformers takes for labels.
    assert find_labels(GPTForQuestionAnswering) == ["start_positions", "end_positions"]


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "both sides"])
def test_answers_in_windows_of_a_tree(tiny_model, is_causal):
    """Every token of the passage is scored once, in the first window with it; the question is shared."""
    question, passage = [7, 1], [3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 3, 4, 5, 6]
    model = tiny_model(GPTForQuestionAnswering, is_causal=is_causal, lm_coef=0.5 * is_causal).train()
    special = (START, DELIMITER, CLASSIFY)
    transform = InputTransform("question-answering", special, 12, share_prefix=is_causal)
    tree, _ = transform.fit({"question": question, "passage": passage})
    batch = TokenTreeCollator(PAD, is_causal)([vars(tree) | {"label": [3, 9]}])
    assert (batch["input_ids"][0].tolist().count(DELIMITER) == 1) == is_causal
    outputs = model(**batch)
    begin = [START, *question, DELIMITER]
    space = 12 - len(begin) - 1
    for place in range(len(passage)):
        first = max(0, -(-(place + 1 - space) // (space // 2))) * (space // 2)
        alone = model(torch.tensor([[*begin, *passage[first : first + space], CLASSIFY]]))
        for name in ("start_logits", "end_logits"):
            assert_close(outputs[name][0, place], alone[name][0, len(begin) + place - first])
    logits = torch.stack([outputs.start_logits[0], outputs.end_logits[0]])
    assert_close(outputs.task_loss, cross_entropy(logits, torch.tensor([3, 9])))
    assert_close(2 * model(**batch, num_items_in_batch=4).loss, outputs.loss)
    # A filler row (see PaddedDataset) has one label.
    filler = model(**batch | {"labels": torch.tensor([[-100]])}, num_items_in_batch=4, return_lm_loss=False)
    assert filler.loss == 0


PATHS = [[START, 3, 1, 4, CLASSIFY], [START, 3, 2, CLASSIFY]]
TREE, APART = ({**collate_trees([TokenTree.from_paths(PATHS, share_limit=limit)], PAD)} for limit in (None, 0))
CHAINS = collate_trees([TokenTree.from_paths([path]) for path in PATHS], PAD)
WEIGHTLESS = {name: value for name, value in TREE.items() if name != "lm_weights"}
BOTH_SIDES = {"is_causal": False}
NESTED = ("input_ids", "subtree_end")
SHIFTED = {"input_ids": TEXTS, "shift_labels": TEXTS}
TWICE = {"input_ids": TEXTS, "inputs_embeds": torch.zeros(3, 6, 32), "classify_index": LABELS[:, None]}


@pytest.mark.parametrize(
    ("model_class", "overrides", "arguments", "message"),
    [
        (GPTForCausalLM, {}, {}, "either input_ids or inputs_embeds"),
        (GPTForCausalLM, {}, {"input_ids": torch.zeros(1, 33).long()}, "33 tokens is longer than the context of 32"),
        (GPTForCausalLM, {}, {"input_ids": TEXTS, "position_ids": TEXTS + 40}, "63 tokens is longer"),
        (GPTForCausalLM, {}, dict.fromkeys([*NESTED, "attention_mask"], TEXTS), "leave out attention_mask"),
        (GPTForCausalLM, {}, SHIFTED | {"parent_index": TEXTS}, "leave out parent_index and lm_weights"),
        (GPTForCausalLM, {}, dict.fromkeys(NESTED, TEXTS), r'flash_attention_2 is not.*attn_implementation="sdpa"'),
        (GPTForSequenceClassification, {}, {"input_ids": TEXTS[:, :-1]}, f"no classify token .id {CLASSIFY}"),
        (GPTForSequenceClassification, {"classify_token_id": None}, {"input_ids": TEXTS}, "classify token .id None"),
        (GPTForSequenceClassification, {}, TWICE, "either input_ids or inputs_embeds"),
        (GPTForMultipleChoice, {}, WEIGHTLESS | {"return_lm_loss": True}, "needs lm_weights"),
        (GPTForTokenClassification, {}, {"input_ids": TEXTS, "return_lm_loss": True}, "of words needs lm_weights"),
        (GPTForMultipleChoice, BOTH_SIDES, TREE, "share_prefix=False"),
        (GPTForMultipleChoice, BOTH_SIDES, APART | {"return_lm_loss": True}, "lm_coef to 0"),
        (GPTForSequenceClassification, BOTH_SIDES, CHAINS, "give attention_mask"),
    ],
)
def test_wrong_inputs(tiny_model, model_class, overrides, arguments, message):
    model = tiny_model(model_class, **overrides)
    if "flash" in message:
        model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match=message):
        model(**arguments)
