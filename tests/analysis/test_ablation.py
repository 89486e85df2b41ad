"""Parts that are known to matter are found; models are left as they were; each definition against one by hand."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from hf_gpt import GPTForCausalLM, GPTForSequenceClassification
from hf_gpt.analysis import mean_intervals, removing
from hf_gpt.analysis.ablation import (
    Mask,
    attach,
    effects,
    mean_activations,
    pruning_curve,
    ranking,
    task_errors,
    text_losses,
    units,
    word_effects,
)
from hf_gpt.trees.collators import collate_trees
from hf_gpt.trees.token_tree import TokenTree

from ..support.browser import opened

TEXTS = [[1, 2, 3, 4, 5, 6], [7, 8, 9], [3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8]]
ALL = Mask(((1, 0), (1, 1), (2, 0), (2, 1)), tuple((layer, unit) for layer in (1, 2) for unit in range(16)))


@pytest.fixture(params=[False, True], ids=["gpt", "gpt2"])
def model(request, tiny_model):
    return tiny_model(GPTForCausalLM, norm_first=request.param, final_norm=request.param, n_inner=16)


@torch.no_grad()
def built(model, heads=(), neurons=()):
    """The model with these heads and neurons alone: nothing reads any other."""
    for layer, block in enumerate(model.transformer.h, 1):
        for head in {0, 1} - {head for place, head in heads if place == layer}:
            block.attn.c_proj.weight[:, 16 * head : 16 * (head + 1)] = 0
        off = [unit for unit in range(16) if (layer, unit) not in neurons]
        block.mlp.c_proj.weight[:, off] = 0
    return model


def test_the_head_and_the_neuron_that_matter_are_found(model):
    model = built(model, heads=[(2, 0)], neurons=[(1, 7), (2, 13)])
    measure = text_losses(model, TEXTS, batch_size=3)
    heads, neurons = units(model.config, "heads"), units(model.config, "neurons")
    found = effects(model, heads, measure)
    assert np.flatnonzero(np.abs(found).max(1)).tolist() == [heads.index(Mask(heads=((2, 0),)))]
    needed = [neurons.index(Mask(neurons=(part,))) for part in ((1, 7), (2, 13))]
    assert np.flatnonzero(np.abs(effects(model, neurons, measure)).max(1)).tolist() == needed


def test_rankings_begin_with_what_is_needed_most():
    masks = [Mask(heads=((1, 1),)), Mask(heads=((2, 0),))]
    changes = np.array([[0.1, 0.2, 0.3], [1.0, 1.1, 0.9]])
    first, second = ranking(masks, mean_intervals(changes.T))
    assert (first["name"], first["heads"], first["change"]) == ("layer 2 head 0", (2, 0), pytest.approx(1.0))
    assert second["low"] < second["change"] < second["high"]


def test_losses_are_the_models_own(model):
    losses = text_losses(model, TEXTS, batch_size=3)()
    for loss, ids in zip(losses, TEXTS, strict=True):
        row = torch.tensor([ids])
        assert loss == pytest.approx(model(row, labels=row).loss.item(), rel=1e-5)
    with pytest.raises(ValueError, match="fewer than two tokens"):
        text_losses(model, [[1, 2], [1]])


def test_nothing_changes_nothing_and_nothing_is_left_behind(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    row = torch.tensor(TEXTS[:1])
    logits = model(row).logits
    with removing(attach(model, Mask())):
        assert torch.equal(model(row).logits, logits)
    with removing(attach(model, ALL + Mask(layers=(1,), dimensions=(3,)))):
        assert not torch.equal(model(row).logits, logits)
        with pytest.raises(ValueError, match="input_ids"):
            model()
    mean_activations(model, TEXTS)
    assert torch.equal(model(row).logits, logits)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    # transformers' own, which record hidden states, are on blocks and attentions; ours on none.
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_definitions(model):
    row, transformer = torch.tensor(TEXTS[:1]), model.transformer
    with removing(attach(model, Mask(layers=(1,)))):
        without = model(row).logits
    blocks = transformer.h
    transformer.h = nn.ModuleList([blocks[1]])
    assert torch.equal(model(row).logits, without)
    transformer.h = blocks
    with removing(attach(model, Mask(dimensions=(3, 5)))):
        without = transformer(row).last_hidden_state
    embeds = transformer.embed_tokens(row) + transformer.embed_positions(torch.arange(row.shape[1]))
    embeds[..., [3, 5]] = 0
    embeds = embeds - transformer.embed_positions(torch.arange(row.shape[1]))
    assert torch.allclose(transformer(inputs_embeds=embeds).last_hidden_state, without, atol=1e-5)


def test_means_stand_in(model):
    """Over a text of one token every part is its mean."""
    mask = ALL + Mask(dimensions=tuple(range(32)))
    row = torch.tensor([[5]])
    expected = model(row).logits
    with removing(attach(model, mask, mean_activations(model, [[5]]))):
        assert torch.allclose(model(row).logits, expected, atol=1e-5)
    means = mean_activations(model, TEXTS)
    states = []
    handle = model.transformer.h[1].mlp.c_proj.register_forward_pre_hook(lambda _, args: states.append(args[0][0]))
    for ids in TEXTS:
        model(torch.tensor([ids]))
    handle.remove()
    assert torch.allclose(means["neurons.2"], torch.cat(states).mean(0), atol=1e-5)


def test_words(model):
    ids = TEXTS[2]
    row = torch.tensor([ids])
    for use_mean in (False, True):
        embeds = model.get_input_embeddings()(row).detach()
        filler = embeds.mean(1) if use_mean else 0
        found = word_effects(model, ids, use_mean, batch_size=3)
        for place in range(len(ids)):
            changed = embeds.clone()
            changed[:, place] = filler
            rise = model(inputs_embeds=changed, labels=row).loss - model(row, labels=row).loss
            assert found[place] == pytest.approx(rise.item() * (len(ids) - 1), abs=1e-4)
        assert found[-1] == pytest.approx(0, abs=1e-5)


def test_pruning_curve_and_masks_that_a_model_loads(model, tmp_path):
    measure, heads = text_losses(model, TEXTS), units(model.config, "heads")
    curve = pruning_curve(model, heads, measure)
    both = heads[0] + heads[1]
    both.save(tmp_path / "mask.json")
    handles = attach(model, Mask.load(tmp_path / "mask.json"))
    assert len(curve) == 5
    assert curve[2] == pytest.approx(measure().mean())
    [handle.remove() for handle in handles]
    assert curve[0] == pytest.approx(measure().mean())
    with removing(attach(model, sum(heads, Mask()))):
        assert curve[4] == pytest.approx(measure().mean())
    with pytest.raises(ValueError, match="of another model: it has no layer 3 head 0"):
        attach(model, Mask(heads=((3, 0),)))
    for wrong in (
        '{"heads": [[0]]}',
        "[]",
        json.dumps({**json.loads((tmp_path / "mask.json").read_text()), "first_layer": 0}),
    ):
        (tmp_path / "other.json").write_text(wrong)
        with pytest.raises(ValueError, match=r"other\.json"):
            Mask.load(tmp_path / "other.json")


def test_errors_of_a_classifier(tiny_model):
    model = tiny_model(GPTForSequenceClassification, num_labels=3)
    batch = collate_trees([TokenTree.from_paths([[20, *ids, 22]]) for ids in TEXTS], 23)
    batch["labels"] = torch.tensor([0, 1, 2, 0])
    logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits
    expected = nn.functional.cross_entropy(logits, batch["labels"]).item()
    assert task_errors(model, [batch], "loss")().mean() == pytest.approx(expected, rel=1e-5)
    wrong = (logits.argmax(-1) != batch["labels"]).tolist()
    assert task_errors(model, [batch], "error")().tolist() == wrong


@pytest.mark.parametrize("what", ["heads", "layers", "dimensions"])
def test_ablation_by_command(what, hf_gpt, tiny_checkpoint, tmp_path):
    flags = ("analyze", "ablate", "--model_name_or_path", tiny_checkpoint, "--what", what, "--replacement", "mean")
    status, printed, errors = hf_gpt(*flags, "--output_dir", tmp_path / "out", "--text", "She ran home.", "He slept.")
    assert status == 0, errors
    record = json.loads((tmp_path / "out" / "effects.json").read_text())
    assert len(record["parts"]) == {"heads": 4, "layers": 2, "dimensions": 32}[what]
    assert record["parts"][0]["name"] in printed
    mask = Mask.load(tmp_path / "out" / "mask.json")
    curve = json.loads((tmp_path / "out" / "curve.json").read_text())["curves"]["least needed first"]
    assert curve[len(getattr(mask, what))] <= curve[0] + 0.01
    masked = ("--text", "She ran home.", "--mask", tmp_path / "out" / "mask.json", "--output_dir", tmp_path / "again")
    assert hf_gpt(*flags, *masked)[0] == 0


def test_words_by_command_and_their_page(hf_gpt, tiny_checkpoint, tmp_path):
    flags = ("analyze", "ablate", "--model_name_or_path", tiny_checkpoint, "--what", "words")
    status, printed, errors = hf_gpt(*flags, "--output_dir", tmp_path / "out", "--text", "She ran home.", "<i>He</i>")
    assert status == 0, errors
    assert printed.startswith("she(")
    words = json.loads((tmp_path / "out" / "words.json").read_text())["texts"][0]
    with opened(tmp_path / "out" / "words.html") as page:
        assert page.locator(".text").nth(0).locator("button").all_inner_texts() == words["words"]
        page.keyboard.press("Tab")
        assert page.locator("#read").inner_text().startswith("she: ")
        page.locator(".text button").nth(2).hover()
        assert page.locator("#read").inner_text().startswith(f"{words['words'][2]}: ")
