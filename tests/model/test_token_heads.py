"""Heads that answer at every token: token classification and the masked language model."""

import logging

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    TokenClassificationPipeline,
    pipeline,
)
from transformers.modeling_outputs import MaskedLMOutput

from hf_gpt import (
    GPTForCausalLM,
    GPTForMaskedLM,
    GPTForMultipleChoice,
    GPTForSequenceClassification,
    GPTForTokenClassification,
    GPTTaskOutput,
)
from hf_gpt.trees.collators import collate_trees
from hf_gpt.trees.token_tree import TokenTree

from ..support.tiny import CLASSIFY, DELIMITER, PAD, START

SEQUENCES = [[5, 3, 1, 4], [2, 7, 1, 8, 2, 8], [9]]
LABELS = [[0, -100, 2, 1], [1, 1, -100, 0, 2, 2], [-100]]
MASK = 19
HEADS = {
    "tokens": (GPTForTokenClassification, {"num_labels": 3}),
    "bidirectional tokens": (GPTForTokenClassification, {"num_labels": 3, "is_causal": False}),
    "mixed layers": (GPTForTokenClassification, {"num_labels": 3, "head_layers": "mix"}),
    "a layer below": (GPTForTokenClassification, {"num_labels": 3, "head_layers": 1}),
    "masked": (GPTForMaskedLM, {"is_causal": False, "mask_token_id": MASK}),
}
each_head = pytest.mark.parametrize("head", HEADS)


def build(tiny_model, head, attention="sdpa", **overrides):
    model_class, settings = HEADS[head]
    return tiny_model(model_class, attention, **settings, **overrides)


def padded(rows, side, filler):
    width = max(map(len, rows))
    fillers = [[filler] * (width - len(row)) for row in rows]
    both = zip(rows, fillers, strict=True)
    return torch.tensor([row + fill if side == "right" else fill + row for row, fill in both])


@each_head
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(tiny_model, attention, head, side):
    model = build(tiny_model, head, attention)
    ids, labels = padded(SEQUENCES, side, PAD), padded(LABELS, side, -100)
    with torch.no_grad():
        found = model(ids, attention_mask=ids.ne(PAD).long(), labels=labels)
        alone = [model(torch.tensor([row])).logits[0] for row in SEQUENCES]
    for row, present, expected in zip(found.logits, ids.ne(PAD), alone, strict=True):
        torch.testing.assert_close(row[present], expected, rtol=1e-4, atol=1e-5)
    flat = torch.tensor([label for row in LABELS for label in row])
    torch.testing.assert_close(found.loss, cross_entropy(torch.cat(alone), flat), rtol=1e-4, atol=1e-5)


@each_head
@pytest.mark.parametrize("told_by", ["position_ids", "subtree_end"])
@torch.no_grad()
def test_packed_sequences_stay_apart(tiny_model, attention, head, told_by):
    model = build(tiny_model, head, attention)
    batch = collate_trees([TokenTree.from_paths(SEQUENCES, share_limit=0)], PAD)
    names = ("input_ids", "position_ids", "subtree_end")
    inputs = {name: batch[name] for name in names[: names.index(told_by) + 1]}
    alone = [model(torch.tensor([row])).logits[0] for row in SEQUENCES]
    torch.testing.assert_close(model(**inputs).logits[0], torch.cat(alone), rtol=1e-4, atol=1e-5)


@each_head
def test_the_gradient_of_parts_is_that_of_the_whole(tiny_model, head):
    model = build(tiny_model, head).train()
    ids, labels = padded(SEQUENCES, "right", PAD), padded(LABELS, "right", -100)
    inputs = {"input_ids": ids, "attention_mask": ids.ne(PAD).long(), "labels": labels}
    names = dict(model.named_parameters())
    weights = [
        value for name, value in names.items() if head != "a layer below" or not name.startswith("transformer.h.1")
    ]
    whole = torch.autograd.grad(model(**inputs).loss, weights, allow_unused=True)
    items = labels.ne(-100).sum()
    parts = [
        model(**{name: value[[row]] for name, value in inputs.items()}, num_items_in_batch=items) for row in range(3)
    ]
    together = torch.autograd.grad(sum(part.loss for part in parts), weights, allow_unused=True)
    for ours, theirs in zip(together, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert all(gradient is not None and gradient.any() for gradient in whole[:2])


@each_head
def test_outputs_are_those_of_transformers(tiny_model, head):
    model = build(tiny_model, head, "eager")
    ids = torch.tensor([SEQUENCES[0]])
    found = model(ids, output_hidden_states=True, output_attentions=True)
    assert type(found) is (MaskedLMOutput if head == "masked" else GPTTaskOutput)
    assert (len(found.hidden_states), len(found.attentions), found.loss) == (3, 2, None)
    assert model(ids).hidden_states is None
    assert torch.equal(model(ids, return_dict=False)[0], found.logits)


@torch.no_grad()
def test_words_read_at_their_last_tokens(tiny_model):
    """`classify_index` takes these states out of those of all tokens; the language-model loss has the same divisor."""
    model = build(tiny_model, "tokens")
    rows = [[2, 7, 1, 8], [5, 3]]
    ends, labels = [[1, 3], [1, -1]], torch.tensor([[2, 0], [1, -100]])
    batch = collate_trees([TokenTree.from_paths([row]) for row in rows], PAD) | {"classify_index": torch.tensor(ends)}
    weights = batch.pop("lm_weights")
    found = model(**batch, labels=labels, return_lm_loss=False)
    every = model(batch["input_ids"]).logits
    kept = torch.stack([every[0, 1], every[0, 3], every[1, 1]])
    torch.testing.assert_close(torch.cat([found.logits[0], found.logits[1, :1]]), kept)
    torch.testing.assert_close(found.loss, cross_entropy(kept, torch.tensor([2, 0, 1])))
    with pytest.raises(ValueError, match="of words needs lm_weights"):
        model(**batch, labels=labels, return_lm_loss=True)
    joint = model(**batch, labels=labels, lm_weights=weights, return_lm_loss=True)
    log_probs = [
        model.transformer(torch.tensor([row])).last_hidden_state[0] @ model.get_input_embeddings().weight.t()
        for row in rows
    ]
    log_probs = [values.index_fill(1, torch.tensor([PAD]), float("-inf")).log_softmax(-1) for values in log_probs]
    means = [-values[range(len(row) - 1), row[1:]].mean() for values, row in zip(log_probs, rows, strict=True)]
    torch.testing.assert_close(joint.lm_loss, sum(means) / 3)
    torch.testing.assert_close(joint.loss, joint.task_loss + model.config.lm_coef * joint.lm_loss)


# Masked language model


@pytest.mark.parametrize("untrained", [None, [START, DELIMITER, CLASSIFY]], ids=["trained", "untrained"])
def test_what_has_no_probability(tiny_model, untrained):
    model = build(tiny_model, "masked", untrained_token_ids=untrained)
    without = sorted({MASK, PAD, *(untrained or ())})
    ids = torch.tensor([[5, MASK, 1, 4], [2, 7, MASK, 8]])
    labels = torch.tensor([[-100, 3, -100, -100], [-100, -100, 1, 8]])
    output = model(ids, labels=labels)
    probabilities = output.logits.softmax(-1)
    assert not probabilities[..., without].any()
    kept = [token for token in range(model.config.vocab_size) if token not in without]
    assert (probabilities[..., kept] > 0).all()
    # Of the logits as they come out of the matrix, without those rows.
    states = model.transformer(ids).last_hidden_state
    raw = (states @ model.lm_head.weight.t()).index_fill(-1, torch.tensor(without), float("-inf"))
    expected = cross_entropy(raw.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(output.loss, expected)
    # With weights no logits are held.
    weighted = model(ids, labels=labels, lm_weights=labels.ne(-100).float())
    assert weighted.logits is None
    torch.testing.assert_close(weighted.loss, expected)
    with pytest.raises(ValueError, match=f"labels hold the token {MASK}"):
        model(ids, labels=ids)


def test_a_causal_model_is_no_masked_one(tiny_model, tmp_path):
    with pytest.raises(ValueError, match="load it with is_causal=False"):
        tiny_model(GPTForMaskedLM)
    tiny_model(GPTForCausalLM).save_pretrained(tmp_path)
    model = GPTForMaskedLM.from_pretrained(tmp_path, is_causal=False, mask_token_id=MASK)
    first, second = torch.tensor([[1, 2, 3]]), torch.tensor([[1, 2, 4]])
    assert not torch.equal(model(first).logits[:, 0], model(second).logits[:, 0])


# Task heads on a model that is not causal


def test_task_heads_refuse_what_a_bidirectional_model_would_get_wrong(tiny_model):
    paths = [[START, 3, 1, 4, CLASSIFY], [START, 3, 2, CLASSIFY]]
    model = tiny_model(GPTForMultipleChoice, is_causal=False)
    shared, apart = (collate_trees([TokenTree.from_paths(paths, share_limit=limit)], PAD) for limit in (None, 0))
    with pytest.raises(ValueError, match="share_prefix=False"):
        model(**shared)
    with pytest.raises(ValueError, match="lm_coef to 0"):
        model(**apart, return_lm_loss=True)
    ids = padded(paths, "right", PAD)[None]
    expected = model(ids, attention_mask=ids.ne(PAD).long()).logits
    torch.testing.assert_close(model(**apart).logits, expected)
    chains = collate_trees([TokenTree.from_paths([path]) for path in paths], PAD)
    with pytest.raises(ValueError, match="give attention_mask"):
        tiny_model(GPTForSequenceClassification, is_causal=False)(**chains)


# Pipelines


@pytest.fixture(scope="module")
def tagger(tiny_checkpoint):
    torch.manual_seed(0)
    labels = {0: "O", 1: "B-PER", 2: "I-PER"}
    return AutoModelForTokenClassification.from_pretrained(tiny_checkpoint, id2label=labels)


def test_pipeline_of_token_classification(tagger, tiny_checkpoint, caplog):
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    text = "Mr. Darcy's sister didn't laugh."
    caplog.set_level(logging.ERROR, "transformers")
    tag = pipeline("token-classification", model=tagger, tokenizer=tokenizer, ignore_labels=[])
    assert isinstance(tag, TokenClassificationPipeline)
    assert not caplog.records
    found = tag(text)
    encoded = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
    offsets = encoded.pop("offset_mapping")[0].tolist()
    assert [[entity["start"], entity["end"]] for entity in found] == offsets
    predicted = tagger(**encoded).logits[0].argmax(-1).tolist()
    assert [entity["entity"] for entity in found] == [tagger.config.id2label[label] for label in predicted]
    assert [text[entity["start"] : entity["end"]] for entity in found][-2:] == ["laugh", "."]


def test_words_to_tokens(tiny_checkpoint):
    """Each given word has tokens, and its last token is where its label belongs."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    words = ["Mr.", "Darcy", "did", "n't", "extemporize", "!"]
    encoded = tokenizer(words, is_split_into_words=True)
    ids = encoded.word_ids()
    assert sorted(set(ids)) == list(range(len(words)))
    assert ids == sorted(ids)
    assert len(ids) > len(words)
