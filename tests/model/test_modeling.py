"""The transformer and its language models against themselves in other arrangements."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import DynamicCache, StaticCache

from hf_gpt import GPTForCausalLM, GPTForMaskedLM, GPTForMultipleChoice, GPTModel
from hf_gpt.model.modeling_gpt import HEADS
from hf_gpt.trees.collators import collate_trees
from hf_gpt.trees.token_tree import TokenTree

from ..support.tensors import assert_close, assert_same_gradients, gradients, padded
from ..support.tiny import CLASSIFY, DELIMITER, PAD, START, VOCABULARY

IDS = torch.tensor([[START, 3, 1, 4, 1, 5, 9], [START, 2, 7, 1, 8, 2, CLASSIFY]])
SEQUENCES = [[START, 3, 1, 4, 1], [START, 5], [9]]
MASK = 19
SPECIALS = [START, DELIMITER, CLASSIFY]


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("layout", ["left", "right", "position_ids", "subtree_end"])
@torch.no_grad()
def test_sequences_stay_apart(tiny_model, attention, layout, is_causal):
    """Padded on either side, or packed into a row, as positions alone or a tree say it: as each alone with eager."""
    eager, model = (tiny_model(GPTForCausalLM, name, is_causal=is_causal) for name in ("eager", attention))
    alone = torch.cat([eager(torch.tensor([sequence])).logits[0] for sequence in SEQUENCES])
    if layout in ("left", "right"):
        ids, mask = padded(SEQUENCES, layout)
        assert_close(model(ids, attention_mask=mask).logits[mask.bool()], alone)
        return
    batch = collate_trees([TokenTree.from_paths(SEQUENCES, share_limit=0)], PAD)
    names = ("input_ids", "position_ids", "subtree_end")
    inputs = {name: batch[name] for name in names[: names.index(layout) + 1]}
    assert_close(model(**inputs).logits[0], alone)


@torch.no_grad()
def test_trees_behind_a_cache(tiny_model, attention):
    """Its tokens are above all roots, and positions are by default depths."""
    model = tiny_model(GPTForCausalLM, attention)
    prefix, paths = [START, 7, 3], [[1, 2, 4], [1, 2, 5, 6]]
    tree = TokenTree.from_paths(paths)
    batch = collate_trees([tree], PAD)
    past = model(torch.tensor([prefix])).past_key_values
    found = model(batch["input_ids"], subtree_end=batch["subtree_end"], past_key_values=past).logits[0]
    for number, path in enumerate(paths):
        assert_close(found[list(tree.path(number))], model(torch.tensor([prefix + path])).logits[0, len(prefix) :])


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@torch.no_grad()
def test_cached_equals_uncached(tiny_model, attention, cache):
    if (attention, cache) == ("flex_attention", "static"):
        pytest.skip("one cached run is enough of the slow one")
    model = tiny_model(GPTForCausalLM, attention)
    whole = model(IDS).logits
    for steps in [[3, 4]] if attention == "flex_attention" else [[1] * 7, [3, 4]]:
        static = {"config": model.config} | ({"max_cache_len": 10} if cache == "static" else {})
        past = (StaticCache if cache == "static" else DynamicCache)(**static)
        parts = [
            model(part, **{("past_key_values", "cache")[number % 2]: past}, use_cache=True).logits
            for number, part in enumerate(IDS.split(steps, dim=1))
        ]
        assert past.get_seq_length() == 7
        assert_close(torch.cat(parts, dim=1), whole)
    for keep, expected in ((1, whole[:, -1:]), (3, whole[:, -3:]), (torch.tensor([0, 4]), whole[:, [0, 4]])):
        assert_close(model(IDS, logits_to_keep=keep).logits, expected)


def greedy(model, ids, count):
    for _ in range(count):
        ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    return ids


@pytest.mark.parametrize(
    "arguments",
    [{}, {"cache_implementation": "static", "disable_compile": True}, {"use_cache": False}],
    ids=["dynamic", "static", "none"],
)
@torch.no_grad()
def test_greedy_generation(tiny_model, arguments):
    """Of left-padded prompts what each gives alone, token by token."""
    model = tiny_model(GPTForCausalLM)
    ids, mask = padded(SEQUENCES, "left")
    found = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=5, **arguments)
    for row, sequence in zip(found, SEQUENCES, strict=True):
        assert row[5:].tolist() == greedy(model, torch.tensor([sequence]), 5)[0, len(sequence) :].tolist()


def test_gradient_checkpointing(tiny_model):
    model, calls = tiny_model(GPTForCausalLM).train(), []
    model.transformer.h[0].mlp.register_forward_hook(lambda *_: calls.append(1))
    expected = gradients(model, model(IDS, labels=IDS).loss)
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    found = gradients(model, model(IDS, labels=IDS).loss)
    assert len(calls) == 3, "the block was not computed again"
    for name, gradient in expected.items():
        assert_close(found[name], gradient, 1e-6)
    with pytest.raises(ValueError, match="gradient checkpointing"):
        model(IDS[:, 3:], past_key_values=DynamicCache(config=model.config))
    with pytest.raises(ValueError, match="not both"):
        model(IDS, past_key_values=DynamicCache(), cache=DynamicCache())


BACKENDS = [pytest.param("eager", marks=pytest.mark.whole), pytest.param("inductor", marks=pytest.mark.slow)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_tree", [False, True], ids=["padded", "trees"])
def test_compiled_as_one_graph(tiny_model, backend, is_tree):
    model = tiny_model(GPTForMultipleChoice if is_tree else GPTForCausalLM)
    inputs = dict(zip(("input_ids", "attention_mask"), padded(SEQUENCES, "left"), strict=True))
    if is_tree:
        paths = [[START, 1, 2, DELIMITER, 3, CLASSIFY], [START, 1, 2, DELIMITER, 4, 5, CLASSIFY]]
        inputs = collate_trees([TokenTree.from_paths(paths), TokenTree.from_paths(paths[:1])], PAD)
    torch.compiler.reset()
    found, expected = torch.compile(model, fullgraph=True, backend=backend)(**inputs).logits, model(**inputs).logits
    if not is_tree:
        # What padding that sees nothing gets is not the same in all kernels.
        found, expected = (logits[inputs["attention_mask"].bool()] for logits in (found, expected))
    assert_close(found, expected)
    # Without the logits of the padding row and of absent choices.
    assert_same_gradients(model, *(logits[logits > -60].square().sum() for logits in (found, expected)), 1e-3)


@pytest.mark.parametrize("model_class", HEADS.values(), ids=HEADS)
def test_what_other_tools_look_for(tiny_model, model_class):
    """The Trainer takes arguments with "label" in their names for labels; peft and others exact types of modules."""
    named = [name for name in inspect.signature(model_class.forward).parameters if "label" in name]
    assert named in ([], ["labels"])
    masked = {"is_causal": False} if model_class is GPTForMaskedLM else {}
    types = {type(module) for module in tiny_model(model_class, **masked).modules()}
    own = {kind for kind in types if kind.__module__.startswith("hf_gpt")}
    assert types - own >= {nn.Linear, nn.LayerNorm, nn.Embedding, nn.Dropout}
    assert not any(issubclass(kind, nn.Linear | nn.LayerNorm | nn.Embedding | nn.Dropout) for kind in own)


@pytest.mark.parametrize("quirks", [False, True], ids=["default", "quirks"])
@pytest.mark.parametrize("given_labels", ["none", "unshifted", "shifted"])
def test_shifted_labels_and_parts_of_a_batch(tiny_model, given_labels, quirks):
    """As under context parallelism (both), Ulysses (the same twice), and alone; a row may be divided, too."""
    model = tiny_model(GPTForCausalLM, release_quirks=quirks)
    labels = IDS.clone()
    labels[0, 2:4] = -100
    shifted = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    given = {"none": None, "unshifted": labels, "shifted": shifted}[given_labels]
    whole = model(IDS, labels=labels).loss
    if not quirks:
        assert_close(whole, cross_entropy(model(IDS).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()))
    assert_close(model(IDS, labels=given, shift_labels=shifted).loss, whole)
    items = shifted.ne(-100).sum()
    rows = [model(IDS[[row]], labels=labels[[row]], num_items_in_batch=items).loss for row in range(2)]
    assert_same_gradients(model, sum(rows), model(IDS, labels=labels).loss, 1e-6)
    first = model(IDS[:, :4], shift_labels=shifted[:, :4], num_items_in_batch=items)
    second = model(
        IDS[:, 4:], past_key_values=first.past_key_values, shift_labels=shifted[:, 4:], num_items_in_batch=items
    )
    assert_close(first.loss + second.loss, whole)


def test_loss_without_logits(tiny_model):
    model = tiny_model(GPTForCausalLM, tie_word_embeddings=False)
    weights = torch.ones_like(IDS).float()
    weights[:, 0] = 0
    outputs = model(IDS, labels=IDS, lm_weights=weights)
    assert (outputs.logits, outputs.past_key_values) == (None, None)
    assert_same_gradients(model, outputs.loss, model(IDS, labels=IDS).loss)  # of the untied matrix, too


@pytest.mark.parametrize("untrained", [None, SPECIALS], ids=["padding", "untrained"])
def test_excluded_rows_take_no_part(tiny_model, untrained):
    model, ids = tiny_model(GPTForCausalLM, untrained_token_ids=untrained), IDS % START
    before = model(ids, labels=ids)
    excluded = model.excluded_token_ids
    assert excluded == [*(untrained or ()), PAD]
    assert before.logits.softmax(-1)[..., excluded].max() == 0
    with torch.no_grad():
        model.transformer.embed_tokens.weight[excluded] = 50.0
    after = model(ids, labels=ids)
    assert torch.equal(after.loss, before.loss)
    assert torch.equal(after.logits, before.logits)
    if untrained:
        for labels in ({"labels": IDS}, {"shift_labels": IDS}):
            with pytest.raises(ValueError, match=f"token {START}, whose row is untrained.*= None before training"):
                model(IDS, **labels)


@pytest.mark.parametrize("pad_token_id", [None, START], ids=["none", "shared-with-start"])
def test_row_that_is_not_only_padding_stays_in_the_softmax(tiny_model, pad_token_id):
    assert (tiny_model(GPTForCausalLM, pad_token_id=pad_token_id)(IDS).logits.softmax(-1) > 0).all()


@pytest.mark.parametrize("untrained", [None, SPECIALS], ids=["trained", "untrained"])
def test_masked_language_model(tiny_model, untrained):
    """Labels are those of their own places, later ones are seen; mask, padding, untrained rows are improbable."""
    model = tiny_model(GPTForMaskedLM, is_causal=False, mask_token_id=MASK, untrained_token_ids=untrained)
    without = sorted({MASK, PAD, *(untrained or ())})
    ids = torch.tensor([[5, MASK, 1, 4], [2, 7, MASK, 8]])
    labels = torch.tensor([[-100, 3, -100, -100], [-100, -100, 1, 8]])
    output = model(ids, labels=labels)
    probabilities = output.logits.softmax(-1)
    assert [token for token in range(VOCABULARY) if not probabilities[..., token].any()] == without
    assert not torch.isclose(model(ids[:, :-1]).logits[:, 0, :3], output.logits[:, 0, :3]).any()
    raw = model.transformer(ids).last_hidden_state @ model.lm_head.weight.t()
    raw = raw.index_fill(-1, torch.tensor(without), float("-inf"))
    assert_close(output.loss, cross_entropy(raw.flatten(0, 1), labels.flatten()))
    weighted = model(ids, labels=labels, lm_weights=labels.ne(-100).float())
    assert weighted.logits is None
    assert_close(weighted.loss, output.loss)
    with pytest.raises(ValueError, match=f"labels hold the token {MASK}"):
        model(ids, labels=ids)
    with pytest.raises(ValueError, match="load it with is_causal=False"):
        tiny_model(GPTForMaskedLM)


def test_embedding_dropout(tiny_model):
    """On the sum of each place; that on the rows, the release's, is compared with its recorded masks."""
    model = tiny_model(GPTModel, embd_pdrop=0.5).train()
    ids = torch.tensor([[1, 2, 1], [1, 2, 3]])
    dropped = model(ids, output_hidden_states=True).hidden_states[0]
    doubled = 2 * (model.embed_tokens(ids) + model.embed_positions(torch.arange(3)))
    is_dropped = dropped == 0
    assert_close(dropped, doubled.masked_fill(is_dropped, 0))
    assert is_dropped[0, :2].ne(is_dropped[1, :2]).any()
