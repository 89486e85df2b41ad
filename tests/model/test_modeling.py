"""The transformer and its language model: against stock models, and against themselves in other arrangements."""

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import (
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    StaticCache,
)

from hf_gpt import GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification, GPTModel
from hf_gpt.trees.collators import collate_trees
from hf_gpt.trees.token_tree import TokenTree

from ..support.tiny import CLASSIFY, DELIMITER, PAD, START, VOCABULARY

IDS = torch.tensor([[START, 3, 1, 4, 1, 5, 9], [START, 2, 7, 1, 8, 2, CLASSIFY]])
FORWARDS = [GPTModel, GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification]


def assert_close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def stock_openai():
    dropout = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 0.0)
    config = OpenAIGPTConfig(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=2, **dropout)
    return OpenAIGPTLMHeadModel(config), "tokens_embed", "positions_embed", {}


def stock_gpt2():
    dropout = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 0.0)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=2, **dropout)
    return GPT2LMHeadModel(config), "wte", "wpe", {"norm_first": True, "final_norm": True}


@pytest.fixture(params=[stock_openai, stock_gpt2], ids=["openai-gpt", "gpt2"])
def stock_and_ours(request, tiny_model):
    """A stock language model and one of ours with its weights, and our names of the stock parameters."""
    stock, tokens, positions, overrides = request.param()
    ours = tiny_model(GPTForCausalLM, pad_token_id=None, **overrides)
    names = {tokens: "embed_tokens", positions: "embed_positions"}
    theirs = dict(stock.transformer.named_parameters())
    renamed = {}
    for name in theirs:
        module, _, rest = name.partition(".")
        renamed[name] = f"transformer.{names.get(module, module)}.{rest}"
    with torch.no_grad():
        state = dict(ours.named_parameters())
        assert sorted(renamed.values()) == sorted(state)
        for name, parameter in theirs.items():
            value = state[renamed[name]]
            # Their Conv1D stores a matrix input-by-output.
            parameter.copy_(value.T if ".c_" in name and value.ndim == 2 else value)
    return stock.eval(), ours, renamed


def test_equals_stock_model(stock_and_ours):
    stock, ours, renamed = stock_and_ours
    expected = stock(IDS, labels=IDS, output_hidden_states=True)
    found = ours(IDS, labels=IDS, output_hidden_states=True)
    assert_close(found.logits, expected.logits)
    assert_close(found.loss, expected.loss)
    assert_close(found.hidden_states[-1], expected.hidden_states[-1])
    assert_close(found.hidden_states[1], expected.hidden_states[1])
    wanted, gradient = gradients(stock, expected.loss), gradients(ours, found.loss)
    for name, our_name in renamed.items():
        value = gradient[our_name]
        assert_close(value.T if ".c_" in name and value.ndim == 2 else value, wanted[f"transformer.{name}"])


def padded(sequences, side, width=None):
    """Ids and mask of sequences padded on one side."""
    width = width or max(map(len, sequences))
    rows, mask = [], []
    for sequence in sequences:
        gap = width - len(sequence)
        rows.append([PAD] * gap + sequence if side == "left" else sequence + [PAD] * gap)
        mask.append([0] * gap + [1] * len(sequence) if side == "left" else [1] * len(sequence) + [0] * gap)
    return torch.tensor(rows), torch.tensor(mask)


SEQUENCES = [[START, 3, 1, 4, 1], [START, 5], [9]]


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_changes_nothing(tiny_model, attention, side, is_causal):
    model = tiny_model(GPTForCausalLM, attention, is_causal=is_causal)
    ids, mask = padded(SEQUENCES, side, width=6)
    logits = model(ids, attention_mask=mask).logits
    for row, present, sequence in zip(logits, mask.bool(), SEQUENCES, strict=True):
        assert_close(row[present], model(torch.tensor([sequence])).logits[0])


@torch.no_grad()
def test_position_ids_alone_tell_packed_sequences(tiny_model, attention):
    model = tiny_model(GPTForCausalLM, attention)
    ids = torch.tensor([[token for sequence in SEQUENCES for token in sequence]])
    positions = torch.tensor([[depth for sequence in SEQUENCES for depth in range(len(sequence))]])
    logits = model(ids, position_ids=positions).logits[0]
    alone = [model(torch.tensor([sequence])).logits[0] for sequence in SEQUENCES]
    assert_close(logits, torch.cat(alone))


@torch.no_grad()
def test_attention_implementations_agree(tiny_model, attention):
    for is_causal in (True, False):
        eager = tiny_model(GPTModel, "eager", is_causal=is_causal)
        other = tiny_model(GPTModel, attention, is_causal=is_causal)
        assert_close(other(IDS).last_hidden_state, eager(IDS).last_hidden_state)


# transformers still passes what torch deprecates.
@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask:DeprecationWarning")
@pytest.mark.slow
@torch.no_grad()
def test_compiled_flex_attention_agrees(tiny_model):
    torch.compiler.reset()
    eager, flex = tiny_model(GPTModel, "eager"), tiny_model(GPTModel, "flex_attention")
    assert_close(flex(IDS).last_hidden_state, eager(IDS).last_hidden_state)


@torch.no_grad()
def test_bidirectional_model_sees_later_tokens(tiny_model):
    changed = IDS.clone()
    changed[:, -1] = 11
    for is_causal in (True, False):
        model = tiny_model(GPTModel, is_causal=is_causal)
        difference = model(IDS).last_hidden_state[:, 0] - model(changed).last_hidden_state[:, 0]
        assert (difference.abs().max() > 1e-3) == (not is_causal)


@torch.no_grad()
def test_bidirectional_model_keeps_packed_sequences_apart(tiny_model, attention):
    model = tiny_model(GPTModel, attention, is_causal=False)
    batch = collate_trees([TokenTree.from_paths(SEQUENCES, share_limit=0)], PAD)
    inputs = {name: batch[name] for name in ("input_ids", "position_ids", "subtree_end")}
    states = model(**inputs).last_hidden_state[0]
    alone = [model(torch.tensor([sequence])).last_hidden_state[0] for sequence in SEQUENCES]
    assert_close(states, torch.cat(alone))


def caches(config):
    return {"dynamic": DynamicCache(config=config), "static": StaticCache(config=config, max_cache_len=10)}


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("steps", [[1] * 7, [3, 4], [2, 1, 3, 1], [7]], ids=["tokens", "two", "chunks", "whole"])
@torch.no_grad()
def test_cached_equals_uncached(tiny_model, attention, steps, cache):
    if attention == "flex_attention" and (cache == "static" or len(steps) > 2):
        pytest.skip("one cached run is enough of the slow one")
    model = tiny_model(GPTForCausalLM, attention)
    past = caches(model.config)[cache]
    found, done = [], 0
    for step in steps:
        found.append(model(IDS[:, done : done + step], past_key_values=past, use_cache=True).logits)
        done += step
        assert past.get_seq_length() == done
    assert_close(torch.cat(found, dim=1), model(IDS).logits)


@torch.no_grad()
def test_cache_with_left_padding(tiny_model):
    model = tiny_model(GPTForCausalLM)
    ids, mask = padded(SEQUENCES, "left")
    first = model(ids[:, :3], attention_mask=mask[:, :3], use_cache=True)
    second = model(ids[:, 3:], attention_mask=mask, past_key_values=first.past_key_values)
    expected = model(ids, attention_mask=mask).logits[:, 3:]
    assert_close(second.logits[mask[:, 3:].bool()], expected[mask[:, 3:].bool()])


def test_cache_is_returned_when_asked_for(tiny_model):
    model = tiny_model(GPTForCausalLM)
    assert isinstance(model(IDS).past_key_values, DynamicCache)
    assert model(IDS, use_cache=False).past_key_values is None
    assert tiny_model(GPTForCausalLM, use_cache=False)(IDS).past_key_values is None


def greedy(model, ids, count):
    for _ in range(count):
        ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    return ids


@pytest.mark.parametrize("cache", ["dynamic", "static", None], ids=["dynamic", "static", "none"])
@torch.no_grad()
def test_greedy_generation(tiny_model, cache):
    model = tiny_model(GPTForCausalLM)
    settings = {"use_cache": False} if cache is None else {"cache_implementation": cache}
    if cache == "static":
        settings["disable_compile"] = True
    found = model.generate(IDS, do_sample=False, max_new_tokens=6, **settings)
    assert torch.equal(found, greedy(model, IDS, 6))


@torch.no_grad()
def test_generation_from_a_left_padded_batch(tiny_model):
    model = tiny_model(GPTForCausalLM)
    ids, mask = padded(SEQUENCES, "left")
    found = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=5)
    for row, sequence in zip(found, SEQUENCES, strict=True):
        assert row[ids.shape[1] :].tolist() == greedy(model, torch.tensor([sequence]), 5)[0, len(sequence) :].tolist()


@torch.no_grad()
def test_generation_past_the_context_says_so(tiny_model):
    model = tiny_model(GPTForCausalLM, n_positions=8)
    with pytest.raises(ValueError, match="9 tokens is longer than the context of 8"):
        model.generate(IDS, do_sample=False, max_new_tokens=3)


@torch.no_grad()
def test_logits_to_keep(tiny_model):
    model = tiny_model(GPTForCausalLM)
    whole = model(IDS).logits
    assert_close(model(IDS, logits_to_keep=1).logits, whole[:, -1:])
    assert_close(model(IDS, logits_to_keep=3).logits, whole[:, -3:])
    assert_close(model(IDS, logits_to_keep=torch.tensor([0, 4])).logits, whole[:, [0, 4]])


@pytest.mark.parametrize("final_norm", [False, True], ids=["gpt", "gpt2"])
@torch.no_grad()
def test_hidden_states_and_attentions(tiny_model, final_norm):
    model = tiny_model(GPTForCausalLM, "eager", norm_first=final_norm, final_norm=final_norm)
    ids, mask = padded(SEQUENCES, "right")
    outputs = model(ids, attention_mask=mask, output_hidden_states=True, output_attentions=True)
    transformer = model.transformer
    positions = torch.arange(ids.shape[1])
    assert len(outputs.hidden_states) == 3
    # Padding on the right stands at the last token's position.
    embedded = transformer.embed_tokens(ids) + transformer.embed_positions(positions)
    assert_close(outputs.hidden_states[0][mask.bool()], embedded[mask.bool()])
    last = transformer(ids, attention_mask=mask).last_hidden_state
    assert_close(outputs.hidden_states[-1], last)
    assert len(outputs.attentions) == 2
    for probabilities in outputs.attentions:
        assert probabilities.shape == (3, 2, 5, 5)  # (batch, head, query, key)
        assert_close(probabilities.sum(-1), torch.ones(3, 2, 5))
        assert not probabilities.triu(1).any()
        assert not probabilities[2, :, :1, 1:].any()
    without = model(ids, attention_mask=mask)
    assert without.hidden_states is None
    assert without.attentions is None


@torch.no_grad()
def test_embeddings_instead_of_ids(tiny_model):
    model = tiny_model(GPTForCausalLM)
    embeddings = model.get_input_embeddings()(IDS)
    assert_close(model(inputs_embeds=embeddings).logits, model(IDS).logits)
    generated = model.generate(inputs_embeds=embeddings, do_sample=False, max_new_tokens=3)
    assert torch.equal(generated, greedy(model, IDS, 3)[:, IDS.shape[1] :])


def count_calls(module):
    calls = []
    module.register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "non-reentrant"])
def test_gradient_checkpointing(tiny_model, use_reentrant):
    model = tiny_model(GPTForCausalLM).train()
    calls = count_calls(model.transformer.h[0].mlp)
    expected = gradients(model, model(IDS, labels=IDS).loss)
    assert len(calls) == 1
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": use_reentrant})
    found = gradients(model, model(IDS, labels=IDS).loss)
    assert len(calls) == 3, "the block was not computed anew"
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        assert_close(found[name], gradient, 1e-6)


def tree_batch():
    paths = [[START, 1, 2, DELIMITER, 3, CLASSIFY], [START, 1, 2, DELIMITER, 4, 5, CLASSIFY]]
    return collate_trees([TokenTree.from_paths(paths), TokenTree.from_paths(paths[:1])], PAD)


COMPILED = {
    "causal-lm": (GPTForCausalLM, lambda: {"input_ids": IDS, "use_cache": False}),
    "padded": (
        GPTForCausalLM,
        lambda: dict(zip(("input_ids", "attention_mask"), padded(SEQUENCES, "left"), strict=True)),
    ),
    "tree": (GPTForMultipleChoice, tree_batch),
    "conventional": (GPTForSequenceClassification, lambda: {"input_ids": IDS[1:]}),
}


def assert_compiled_equals_eager(tiny_model, name, **kwargs):
    model_class, inputs = COMPILED[name]
    model, inputs = tiny_model(model_class), inputs()
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, **kwargs)
    found, expected = compiled(**inputs).logits, model(**inputs).logits
    if "attention_mask" in inputs:
        # What padding that sees nothing gets is not the same in all kernels.
        found, expected = (logits[inputs["attention_mask"].bool()] for logits in (found, expected))
    assert_close(found, expected)
    # Without the logits of the padding row and of absent choices.
    wanted = gradients(model, expected[expected > -60].square().sum())
    gradient = gradients(model, found[found > -60].square().sum())
    for parameter in wanted:
        assert_close(gradient[parameter], wanted[parameter], 1e-3)


@pytest.mark.whole
@pytest.mark.parametrize("name", ["tree", "padded", "conventional"])
def test_is_one_graph(tiny_model, name):
    assert_compiled_equals_eager(tiny_model, name, backend="eager")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tree", "causal-lm"])
def test_compiled_code(tiny_model, name):
    assert_compiled_equals_eager(tiny_model, name)


@pytest.mark.parametrize("model_class", FORWARDS)
def test_forward_names_labels_once(model_class):
    """The Trainer takes every argument with "label" in its name for one that evaluation needs."""
    named = [name for name in inspect.signature(model_class.forward).parameters if "label" in name]
    assert named == ([] if model_class is GPTModel else ["labels"])


def test_language_model_loss_is_the_plain_one(tiny_model):
    model = tiny_model(GPTForCausalLM)
    labels = IDS.clone()
    labels[0, 2:4] = -100
    found = model(IDS, labels=labels)
    expected = cross_entropy(found.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    assert_close(found.loss, expected)


@settings(max_examples=20)
@given(st.lists(st.lists(st.sampled_from([-100, 1, 5, 9, START]), min_size=4, max_size=4), min_size=1, max_size=3))
def test_ignored_labels(tiny_model, labels):
    model = tiny_model(GPTForCausalLM)
    labels = torch.tensor(labels)
    ids = labels.masked_fill(labels.eq(-100), 2)
    if labels[:, 1:].eq(-100).all():
        return
    found = model(ids, labels=labels)
    assert_close(found.loss, cross_entropy(found.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()))


def test_roots_of_a_tree_are_not_predicted(tiny_model):
    """Labels with a tree but without weights: the first token of a sequence has nothing before it."""
    model = tiny_model(GPTForCausalLM)
    batch = collate_trees([TokenTree.from_paths([[1, 2, 3], [4, 5]], share_limit=0)], PAD)
    inputs = {name: batch[name] for name in ("input_ids", "position_ids", "subtree_end", "parent_index")}
    loss = model(**inputs, labels=batch["input_ids"]).loss
    sums = [
        cross_entropy(model(torch.tensor([path])).logits[0, :-1], torch.tensor(path[1:]), reduction="sum")
        for path in ([1, 2, 3], [4, 5])
    ]
    assert_close(loss, sum(sums) / 3)


def test_accumulated_parts_are_the_whole_batch(tiny_model):
    model = tiny_model(GPTForCausalLM)
    labels = IDS.clone()
    labels[0, 3:] = -100
    items = labels[:, 1:].ne(-100).sum()
    expected = gradients(model, model(IDS, labels=labels).loss)
    parts = [model(IDS[[row]], labels=labels[[row]], num_items_in_batch=items).loss for row in range(2)]
    found = gradients(model, sum(parts))
    for name, gradient in expected.items():
        assert_close(found[name], gradient, 1e-6)


def test_loss_without_logits(tiny_model):
    model = tiny_model(GPTForCausalLM)
    weights = torch.ones_like(IDS).float()
    weights[:, 0] = 0
    outputs = model(IDS, labels=IDS, lm_weights=weights)
    assert outputs.logits is None
    assert outputs.past_key_values is None
    assert_close(outputs.loss, model(IDS, labels=IDS).loss)


def test_untied_output_matrix_is_the_one_that_is_trained(tiny_model):
    model = tiny_model(GPTForCausalLM, tie_word_embeddings=False)
    assert model.lm_head.weight is not model.transformer.embed_tokens.weight
    found = model(IDS, labels=IDS)
    assert_close(found.loss, cross_entropy(found.logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()))
    assert gradients(model, found.loss)["lm_head.weight"].any()


def test_padding_row_takes_no_part(tiny_model):
    model = tiny_model(GPTForCausalLM)
    before = model(IDS, labels=IDS)
    assert before.logits.softmax(-1)[..., PAD].max() == 0
    with torch.no_grad():
        model.transformer.embed_tokens.weight[PAD] = 50.0
    after = model(IDS, labels=IDS)
    assert torch.equal(after.loss, before.loss)
    assert torch.equal(after.logits, before.logits)


@pytest.mark.parametrize("pad_token_id", [None, 0, START], ids=["none", "unknown", "shared-with-start"])
def test_row_that_is_not_only_padding_stays_in_the_softmax(tiny_model, pad_token_id):
    model = tiny_model(GPTForCausalLM, pad_token_id=pad_token_id)
    assert model.config.excluded_token_id is None
    assert (model(IDS).logits.softmax(-1) > 0).all()


def test_quirk_position_rows_in_the_softmax(tiny_model):
    plain, quirky = tiny_model(GPTForCausalLM), tiny_model(GPTForCausalLM, release_quirks=True)
    states = quirky.transformer(IDS).last_hidden_state
    assert_close(states, plain.transformer(IDS).last_hidden_state)
    rows = torch.cat([quirky.transformer.embed_tokens.weight[:PAD], quirky.transformer.embed_positions.weight])
    expected = cross_entropy((states[:, :-1] @ rows.T).flatten(0, 1), IDS[:, 1:].flatten())
    found = quirky(IDS, labels=IDS).loss
    assert_close(found, expected)
    assert abs(found - plain(IDS, labels=IDS).loss) > 1e-2


@pytest.mark.parametrize("quirks", [False, True], ids=["default", "quirks"])
def test_embedding_dropout(tiny_model, quirks):
    """By default on the sum of each place; with the quirk on the rows, so that equal tokens lose the same."""
    model = tiny_model(GPTModel, embd_pdrop=0.5, release_quirks=quirks).train()
    ids = torch.tensor([[1, 2, 1], [1, 2, 3]])
    dropped = model(ids, output_hidden_states=True).hidden_states[0]
    exact = model.embed_tokens(ids) + model.embed_positions(torch.arange(3))
    if quirks:
        assert torch.equal(dropped[0, :2], dropped[1, :2])
        # Token and position rows are dropped apart: a sum of either, both or none, doubled.
        token, position = 2 * model.embed_tokens(ids), 2 * model.embed_positions(torch.arange(3))
        options = torch.stack([torch.zeros_like(token), token, position.expand_as(token), token + position])
        nearest = (dropped - options).abs().min(0)
        assert nearest.values.max() < 1e-5
        assert set(nearest.indices.unique().tolist()) == {0, 1, 2, 3}
    else:
        assert not torch.equal(dropped[0, :2], dropped[1, :2])
        kept = dropped.ne(0)
        assert 0.2 < kept.float().mean() < 0.8
        assert_close(dropped[kept], 2 * exact[kept])


def test_quirk_dropout_is_the_same_on_the_output_side(tiny_model):
    model = tiny_model(GPTForCausalLM, embd_pdrop=0.5, release_quirks=True).train()
    masks = []
    model.transformer.embd_dropout.register_forward_hook(lambda module, inputs, rows: masks.append(rows))
    loss = model(IDS, labels=IDS).loss
    (rows,) = masks
    with torch.no_grad():
        hidden = rows[IDS] + rows[VOCABULARY + torch.arange(IDS.shape[1])]
        for block in model.transformer.h:
            hidden = block(hidden)
        kept = torch.cat([rows[:PAD], rows[VOCABULARY:]])
        expected = cross_entropy((hidden[:, :-1] @ kept.T).flatten(0, 1), IDS[:, 1:].flatten())
    assert_close(loss, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either input_ids or inputs_embeds"),
        ({"input_ids": IDS, "inputs_embeds": torch.zeros(2, 7, 32)}, "either input_ids or inputs_embeds"),
        ({"input_ids": torch.zeros(1, 33, dtype=torch.long)}, "33 tokens is longer than the context of 32"),
        ({"input_ids": IDS, "position_ids": torch.full((2, 7), 40)}, "41 tokens is longer"),
        (
            {
                "input_ids": IDS,
                "subtree_end": torch.full((2, 7), 7),
                "position_ids": torch.arange(7).expand(2, 7),
                "attention_mask": torch.ones(2, 7),
            },
            "leave out attention_mask",
        ),
    ],
    ids=["nothing", "both", "too-long", "positions-too-far", "tree-and-mask"],
)
def test_wrong_inputs(tiny_model, arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny_model(GPTModel)(**arguments)


def test_flash_attention_refuses_branches(tiny_model):
    model = tiny_model(GPTModel)
    model.config._attn_implementation = "flash_attention_2"
    batch = tree_batch()
    inputs = {name: batch[name] for name in ("input_ids", "position_ids", "subtree_end")}
    with pytest.raises(ValueError, match=r'flash_attention_2 is not.*attn_implementation="sdpa"'):
        model(**inputs)


def test_parts_are_torchs_own_types(tiny_model):
    """As other tools look for them: `type(module) is nn.Linear`."""
    types = {type(module) for model_class in FORWARDS for module in tiny_model(model_class).modules()}
    own = {kind for kind in types if kind.__module__.startswith("hf_gpt")}
    assert types - own >= {nn.Linear, nn.LayerNorm, nn.Embedding, nn.Dropout}
    assert not any(issubclass(kind, nn.Linear | nn.LayerNorm | nn.Embedding | nn.Dropout) for kind in own)


def test_a_cache_does_not_go_with_gradient_checkpointing(tiny_model):
    model = tiny_model(GPTForCausalLM)
    past = model(IDS[:, :3]).past_key_values
    model.train().activation_checkpointing_enable()
    with pytest.raises(ValueError, match="gradient checkpointing"):
        model(IDS[:, 3:], past_key_values=past)


@torch.no_grad()
def test_trees_behind_a_cache(tiny_model, attention):
    """Its tokens are above all roots, and positions are by default depths."""
    model = tiny_model(GPTForCausalLM, attention)
    prefix, paths = [START, 7, 3], [[1, 2, 4], [1, 2, 5, 6]]
    batch = collate_trees([TokenTree.from_paths(paths)], PAD)
    past = model(torch.tensor([prefix])).past_key_values
    found = model(batch["input_ids"], subtree_end=batch["subtree_end"], past_key_values=past).logits[0]
    tree = TokenTree.from_paths(paths)
    for number, path in enumerate(paths):
        expected = model(torch.tensor([prefix + path])).logits[0, len(prefix) :]
        assert_close(found[list(tree.path(number))], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@torch.no_grad()
def test_half_precision(tiny_model, attention, dtype):
    exact = tiny_model(GPTForCausalLM, attention)
    ids, mask = padded(SEQUENCES, "left")
    expected = exact(ids, attention_mask=mask).logits
    found = tiny_model(GPTForCausalLM, attention).to(dtype)(ids, attention_mask=mask).logits
    assert found.dtype == dtype
    assert (found[..., PAD] < found[..., :PAD].amin(-1) - 50).all()
    assert not found.softmax(-1)[..., PAD].any()
    torch.testing.assert_close(
        found.float()[..., :PAD][mask.bool()], expected[..., :PAD][mask.bool()], rtol=0.1, atol=0.3
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_beams": 3},
        {"do_sample": True, "top_k": 0, "temperature": 3.0},
        {"num_return_sequences": 4, "do_sample": True},
    ],
    ids=["beams", "sampling", "several"],
)
@torch.no_grad()
def test_other_generation(tiny_model, arguments):
    model = tiny_model(GPTForCausalLM)
    found = model.generate(IDS, max_new_tokens=8, **{"do_sample": False, **arguments})
    copies = arguments.get("num_return_sequences", 1)
    assert found.shape == (2 * copies, IDS.shape[1] + 8)
    assert torch.equal(found[:, : IDS.shape[1]], IDS.repeat_interleave(copies, 0))
    assert not found.eq(PAD).any()


@torch.no_grad()
def test_tuples_instead_of_outputs(tiny_model):
    model = tiny_model(GPTForCausalLM)
    expected = model(IDS, labels=IDS, use_cache=False)
    loss, logits = model(IDS, labels=IDS, use_cache=False, return_dict=False)
    assert torch.equal(loss, expected.loss)
    assert torch.equal(logits, expected.logits)
