"""The head that answers by a span: its scores, its losses, and what transformers expects of such a model."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers.modeling_outputs import QuestionAnsweringModelOutput
from transformers.utils.generic import find_labels

from hf_gpt import GPTForQuestionAnswering
from hf_gpt.trees.collators import TokenTreeCollator
from hf_gpt.trees.transforms import InputTransform, SpecialIds

from ..support.tiny import CLASSIFY, DELIMITER, PAD, START

ROWS = [
    [START, 5, 3, DELIMITER, 1, 4, 2, CLASSIFY],
    [START, 7, DELIMITER, 1, 8, 2, 8, 6, 3, 3, CLASSIFY],
]
PLACES = torch.tensor([[4, 6], [7, 7]])
QUESTION, PASSAGE = [7, 1], [3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 3, 4, 5, 6]


def padded(side):
    width = max(map(len, ROWS))
    fill = [[PAD] * (width - len(row)) for row in ROWS]
    rows = [row + more if side == "right" else more + row for row, more in zip(ROWS, fill, strict=True)]
    shift = torch.tensor([[0 if side == "right" else len(more)] for more in fill])
    return torch.tensor(rows), PLACES + shift


def tree_batch(config, length=12, is_causal=True, **label):
    special = SpecialIds(START, DELIMITER, CLASSIFY)
    transform = InputTransform("question-answering", special, length, share_prefix=is_causal)
    tree = transform({"question": QUESTION, "passage": PASSAGE})
    return TokenTreeCollator(PAD, is_causal)([vars(tree) | label])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "both sides"])
@pytest.mark.parametrize("head_layers", [None, 1, "mix"])
@torch.no_grad()
def test_scores_and_loss(tiny_model, attention, side, is_causal, head_layers):
    model = tiny_model(GPTForQuestionAnswering, attention, is_causal=is_causal, head_layers=head_layers)
    ids, places = padded(side)
    starts, ends = places.unbind(1)
    found = model(ids, attention_mask=ids.ne(PAD).long(), start_positions=starts, end_positions=ends)
    alone = [model(torch.tensor([row])) for row in ROWS]
    expected = 0
    for row, one in enumerate(alone):
        for name, logits in (("start", found.start_logits), ("end", found.end_logits)):
            own = one[f"{name}_logits"]
            torch.testing.assert_close(logits[row, ids[row].ne(PAD)], own[0], rtol=1e-4, atol=1e-5)
            assert torch.isneginf(logits[row, ids[row].eq(PAD)]).all()
            expected += cross_entropy(own, PLACES[row, [int(name == "end")]]) / 4
    torch.testing.assert_close(found.loss, expected, rtol=1e-4, atol=1e-5)


def test_what_the_scores_are(tiny_model):
    model = tiny_model(GPTForQuestionAnswering, "eager", clf_pdrop=0.0)
    ids = torch.tensor([ROWS[0]])
    states = model.transformer(ids).last_hidden_state[0]
    logits = states @ model.score.weight.t() + model.score.bias
    found = model(ids)
    torch.testing.assert_close(torch.stack([found.start_logits[0], found.end_logits[0]], -1), logits)
    assert isinstance(found, QuestionAnsweringModelOutput)
    assert found.loss is None
    assert found.hidden_states is None
    plain = model(ids, output_hidden_states=True, output_attentions=True, return_dict=False)
    assert torch.equal(plain[0], found.start_logits)
    assert torch.equal(plain[1], found.end_logits)
    assert (len(plain[2]), len(plain[3])) == (3, 2)
    # What the Trainer of transformers takes for labels.
    assert find_labels(GPTForQuestionAnswering) == ["start_positions", "end_positions"]


@torch.no_grad()
def test_answers_outside_count_nothing(tiny_model):
    model = tiny_model(GPTForQuestionAnswering)
    ids, _ = padded("right")
    mask = ids.ne(PAD).long()
    both = model(
        ids, attention_mask=mask, start_positions=torch.tensor([[4], [99]]), end_positions=torch.tensor([6, -1])
    )
    first = model(ids[:1], attention_mask=mask[:1], start_positions=PLACES[:1, 0], end_positions=PLACES[:1, 1])
    torch.testing.assert_close(both.loss, first.loss)


@torch.no_grad()
def test_windows_of_a_tree_give_what_each_gives_alone(tiny_model):
    """Every token of the passage is scored once, in the first window that holds it; the question is there once."""
    model = tiny_model(GPTForQuestionAnswering)
    batch = tree_batch(model.config)
    assert batch["classify_index"].shape == (1, len(PASSAGE))
    assert batch["input_ids"][0].tolist().count(DELIMITER) == 1
    found = model(**batch, return_lm_loss=False)
    begin = [START, *QUESTION, DELIMITER]
    space = 12 - len(begin) - 1
    for place in range(len(PASSAGE)):
        first = max(0, -(-(place + 1 - space) // (space // 2))) * (space // 2)
        alone = model(torch.tensor([[*begin, *PASSAGE[first : place + 1]]]))
        for name in ("start_logits", "end_logits"):
            torch.testing.assert_close(found[name][0, place], alone[name][0, -1], rtol=1e-4, atol=1e-5)


def test_joint_loss_of_trees(tiny_model):
    """Labels as the collator gives them; parts of a batch add up to the whole; padding of a batch counts nothing."""
    model = tiny_model(GPTForQuestionAnswering).train()
    one, other = (tree_batch(model.config, length, label=label) for length, label in ((12, [3, 9]), (30, [0, 1])))
    for batch, label in ((one, [3, 9]), (other, [0, 1])):
        outputs = model(**batch)
        logits = torch.stack([outputs.start_logits[0], outputs.end_logits[0]])
        torch.testing.assert_close(outputs.task_loss, cross_entropy(logits, torch.tensor(label)))
        torch.testing.assert_close(outputs.loss, outputs.task_loss + model.config.lm_coef * outputs.lm_loss)
        part = model(**batch, num_items_in_batch=4)
        for term in ("loss", "task_loss", "lm_loss"):
            torch.testing.assert_close(2 * part[term], outputs[term])
    # A filler row (see PaddedDataset) has one label.
    filler = model(**one | {"labels": torch.tensor([[-100]])}, num_items_in_batch=4, return_lm_loss=False)
    assert filler.loss == 0
    model.label_smoothing = 0.1
    assert torch.isfinite(model(**one).loss)


def test_both_sides_read_windows_laid_out_one_by_one(tiny_model):
    model = tiny_model(GPTForQuestionAnswering, is_causal=False, lm_coef=0.0)
    batch = tree_batch(model.config, is_causal=False, label=[3, 9])
    assert batch["input_ids"][0].tolist().count(DELIMITER) > 1
    begin = [START, *QUESTION, DELIMITER]
    space = 12 - len(begin) - 1
    alone = model(torch.tensor([[*begin, *PASSAGE[:space], CLASSIFY]])).start_logits[0, len(begin) : -1]
    torch.testing.assert_close(model(**batch).start_logits[0, :space], alone, rtol=1e-4, atol=1e-5)
