"""Adapters of every method on both heads: saving, loading, merging, what is trained, virtual tokens."""

import peft
import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification

from hf_gpt import GPTForCausalLM, adapter_config, load_adapter
from hf_gpt.adapters import HEAD_CONFIG, adapted_config, is_adapter, merge_adapter, virtual_tokens
from hf_gpt.adapters.methods import BitFitConfig, HoulsbyConfig

from ..support import adapters as support
from ..support.adapters import HEADS, VARIANTS, VIRTUAL, adapted, load_base, logits_of, save_adapter, tree_batch
from ..support.tensors import assert_close
from ..support.tiny import CLASSIFY, DELIMITER, START

every_head = pytest.mark.parametrize("head", HEADS)
every_variant = pytest.mark.parametrize("variant", VARIANTS)
NAMES = {0: "quiet", 1: "loud", 2: "neither"}
AUTO_CLASSES = {
    "multiple-choice": (AutoModelForMultipleChoice, peft.AutoPeftModel),
    "classification": (AutoModelForSequenceClassification, peft.AutoPeftModelForSequenceClassification),
}


@every_head
@every_variant
def test_saved_and_loaded(variant, head, base, tmp_path):
    """
    The same logits to the bit, by peft, in one line and by Auto classes, which know head and labels, from files that
    hold the trained numbers and no others.
    """
    overrides = {"id2label": NAMES} if head == "classification" else {}
    model, batch = adapted(variant, head, base, **overrides), tree_batch(head)
    expected = logits_of(model, batch)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert trained == model.get_nb_trainable_parameters()[0]
    save_adapter(model, tmp_path)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert sum(tensor.numel() for tensor in saved.values()) == trained
    loaded = PeftModel.from_pretrained(load_base(head, base), tmp_path)
    assert torch.equal(logits_of(loaded, batch), expected)
    assert not any(parameter.requires_grad for parameter in loaded.get_base_model().parameters())
    assert not torch.allclose(logits_of(load_base(head, base), batch), expected, atol=1e-3)
    in_one_line = load_adapter(tmp_path)
    assert (type(in_one_line.get_base_model()), in_one_line.training) == (HEADS[head][0], False)
    found = [in_one_line]
    if variant not in VIRTUAL:
        found += [kind.from_pretrained(pretrained_model_name_or_path=tmp_path) for kind in AUTO_CLASSES[head]]
    for loaded in found:
        assert torch.equal(logits_of(loaded, batch), expected)
        assert loaded.config.id2label == adapted_config(tmp_path).id2label == model.config.id2label


def test_language_model_with_special_tokens(base, tmp_path):
    model = GPTForCausalLM.from_pretrained(base)
    model = support.moved(get_peft_model(model, adapter_config("lora", model.config, task_type="CAUSAL_LM")))
    batch = {"input_ids": torch.tensor([[START, 1, 2, DELIMITER, 3]])}
    expected = logits_of(model, batch)
    model.save_pretrained(tmp_path)
    loaded = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(logits_of(loaded.eval(), batch), expected)
    assert loaded.generate(torch.tensor([[1, 2]]), max_new_tokens=2).shape == (1, 4)
    plain = merge_adapter(loaded)
    assert plain.lm_head.weight is plain.transformer.embed_tokens.weight
    assert_close(logits_of(plain, batch), expected)


def test_arguments_of_load_adapter(saved_lora, base):
    model = load_adapter(saved_lora, base_model=base, is_trainable=True, attn_implementation="eager")
    assert model.get_nb_trainable_parameters()[0] > 0
    assert model.config._attn_implementation == "eager"
    assert (is_adapter(saved_lora), is_adapter(base), adapted_config(saved_lora).num_labels) == (True, False, 3)
    with pytest.raises(ValueError, match=HEAD_CONFIG):
        load_adapter(base)


@every_head
@pytest.mark.parametrize("variant", support.MERGING)
def test_merged_is_unmerged(variant, head, base, tmp_path):
    model, batch = adapted(variant, head, base), tree_batch(head)
    expected = logits_of(model, batch)
    model.merge_adapter()
    assert_close(logits_of(model, batch), expected)
    model.unmerge_adapter()
    assert_close(logits_of(model, batch), expected)
    plain = merge_adapter(model)
    assert type(plain) is HEADS[head][0]
    assert plain.state_dict().keys() == load_base(head, base).state_dict().keys()
    assert_close(logits_of(plain, batch), expected)
    plain.save_pretrained(tmp_path)
    assert_close(logits_of(HEADS[head][0].from_pretrained(tmp_path), batch), expected)


@pytest.mark.parametrize(("variant", "message"), [("houlsby", "bitfit"), ("prefix", "Virtual"), ("prompt", "Virtual")])
def test_what_cannot_be_merged_says_so(variant, message, base):
    model, batch = adapted(variant, "classification", base), tree_batch("classification")
    expected = logits_of(model, batch)
    with pytest.raises(ValueError, match=message):
        merge_adapter(model)
    if variant == "houlsby":
        with pytest.raises(ValueError, match=message):
            model.merge_adapter()
    assert torch.equal(logits_of(model, batch), expected)


@pytest.mark.parametrize("variant", ["houlsby", "bitfit"])
def test_a_second_adapter(variant, base):
    """peft adds one that starts from the base model, and switches between both."""
    model, batch = adapted(variant, "classification", base), tree_batch("classification")
    expected = logits_of(model, batch)
    model.add_adapter("two", model.active_peft_config)
    assert torch.equal(logits_of(model, batch), expected)
    model.set_adapter("two")
    without = load_base("classification", base)
    without.score.load_state_dict(model.get_base_model().score.modules_to_save["two"].state_dict())
    assert_close(logits_of(model, batch), logits_of(without, batch), 0.05)
    with model.disable_adapter():
        disabled = logits_of(model, batch)
    without.score.load_state_dict(model.get_base_model().score.original_module.state_dict())
    assert_close(disabled, logits_of(without, batch))
    model.set_adapter("default")
    assert torch.equal(logits_of(model, batch), expected)
    if variant == "houlsby":
        weight = model.get_base_model().transformer.h[0].attn.houlsby_down["two"].weight
        assert (0.005 < weight.std() < 0.01, bool(weight.abs().max() <= 0.02)) == (True, True)
        assert type(model.unload()) is type(without)


@every_head
@every_variant
def test_trees_and_padded_inputs_agree(variant, head, base):
    """What is trained, and nothing else, gets a gradient, the same from trees as from padded rows."""
    model = adapted(variant, head, base).train()
    found = []
    batches = [tree_batch(head), support.padded_batch(head)]
    if variant in VIRTUAL and head == "multiple-choice":  # peft puts virtual tokens before rows of two axes
        batches.pop()
    for batch in batches:
        model.zero_grad()
        outputs = model(**batch, labels=support.LABELS)
        outputs.loss.backward()
        gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
        assert gradients.keys() == {name for name, value in model.named_parameters() if value.requires_grad}
        assert (outputs.lm_loss is None) == (variant == "prompt")
        found.append((outputs, gradients))
    for outputs, gradients in found[1:]:
        for term in ("logits", "task_loss", "loss") + (() if variant == "prompt" else ("lm_loss",)):
            assert_close(outputs[term], found[0][0][term])
        assert_close(gradients, found[0][1], 1e-4)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (peft.LoraConfig(), {"c_attn"}),
        (peft.IA3Config(), {"c_attn", "c_proj"}),
        (peft.LNTuningConfig(), {"ln_1", "ln_2"}),
        (HoulsbyConfig(), {"attn", "mlp"}),
        (BitFitConfig(), {"c_attn", "c_proj", "c_fc", "ln_1", "ln_2"}),
        (peft.AdaLoraConfig(total_step=10), {"c_attn"}),
    ],
)
def test_default_targets(config, names, base):
    """peft's own configuration classes know our modules."""
    model = get_peft_model(load_base("classification", base), config)
    assert {name.rpartition(".")[2] for name in model.targeted_module_names} == names


REFUSED = [
    (lambda config: adapter_config("lore", config), "lora, ia3"),
    (lambda config: adapter_config("ia3", config, 4), "have a size"),
    (lambda config: adapter_config("lora", config, 0), "at least 1"),
    (lambda config: adapter_config("prefix", config, 32), "context of 32"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_refusals(build, message, base):
    with pytest.raises(ValueError, match=message):
        build(GPTForCausalLM.from_pretrained(base).config)


def test_refusals_of_biases(base):
    with pytest.raises(TypeError, match="act"):
        get_peft_model(load_base("classification", base), BitFitConfig(target_modules=["act"]))
    model = get_peft_model(load_base("classification", base), BitFitConfig())
    model.add_adapter("two", BitFitConfig())
    model.base_model.set_adapter(["default", "two"])
    with pytest.raises(ValueError, match="one bias"):
        logits_of(model, tree_batch("classification"))


def test_position_of_bottlenecks(base):
    """After attention and after the feed-forward layer, before the residual addition (Houlsby et al., figure 2)."""
    model, batch = adapted("houlsby", "classification", base), tree_batch("classification")
    states = model(**batch, output_hidden_states=True).hidden_states
    block = model.get_base_model().transformer.h[1]

    def through(layer, inputs):
        return inputs + layer.houlsby_up["default"](nn.functional.gelu(layer.houlsby_down["default"](inputs)))

    attended = through(block.attn, block.attn.base_layer(states[1])[0])
    middle = block.ln_1(states[1] + attended)
    assert_close(block.ln_2(middle + through(block.mlp, block.mlp.base_layer(middle))), states[2])
    eager = adapted("houlsby", "classification", base, attn_implementation="eager")
    assert len(eager(**batch, output_attentions=True).attentions) == 2


@torch.no_grad()
def test_virtual_tokens_are_what_peft_says(base):
    """A prefix is a cache of keys and values, and a prompt embeddings before the text."""
    batch = tree_batch("classification")
    model = adapted("prefix", "classification", base)
    plain, cache = model.get_base_model(), model.get_prompt(batch_size=2)
    positions = batch["position_ids"] + 3
    states = plain.transformer(batch["input_ids"], position_ids=positions, past_key_values=cache).last_hidden_state
    expected = plain.score(states[torch.arange(2), batch["classify_index"][:, 0]])
    assert_close(logits_of(model, batch), expected)
    model = adapted("prompt", "classification", base)
    plain = model.get_base_model()
    embeddings = torch.cat([model.get_prompt(2), plain.get_input_embeddings()(batch["input_ids"])], dim=1)
    expected = plain(inputs_embeds=embeddings, classify_index=batch["classify_index"] + 3).logits
    assert_close(logits_of(model, batch), expected)


def test_virtual_tokens_take_positions(base):
    model = adapted("prefix", "multiple-choice", base)
    assert virtual_tokens(model) == 3
    assert virtual_tokens(adapted("lora", "multiple-choice", base)) == virtual_tokens(model.get_base_model()) == 0
    with pytest.raises(ValueError, match="context of 32"):
        model(input_ids=torch.tensor([[*[1] * 29, CLASSIFY]]))
    model.get_base_model().activation_checkpointing_enable()
    with pytest.raises(ValueError, match="gradient checkpointing"):
        model.train()(**tree_batch("multiple-choice"))


@pytest.mark.parametrize("variant", VIRTUAL)
@torch.no_grad()
def test_trees_with_virtual_tokens(variant, base):
    """Every choice of a tree has the logit of its path alone, and a prefix keeps the language-model loss."""
    model, batch = adapted(variant, "multiple-choice", base), tree_batch("multiple-choice")
    found = model(**batch, return_lm_loss=True)
    assert (found.lm_loss is None) == (variant == "prompt")
    for item, logits in zip(support.ITEMS, found.logits, strict=True):
        for path, logit in zip(item, logits.tolist(), strict=False):
            assert_close(model(input_ids=torch.tensor([path])).logits[0, 0], torch.tensor(logit))
