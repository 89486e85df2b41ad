"""Adapters of every method on both heads: saving, loading, merging, switching, what is trained, virtual tokens."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import peft
import pytest
import torch
from peft import (
    AutoPeftModel,
    AutoPeftModelForCausalLM,
    AutoPeftModelForSequenceClassification,
    IA3Config,
    LNTuningConfig,
    LoraConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptEncoderConfig,
    PromptTuningConfig,
    get_peft_model,
)
from safetensors.torch import load_file
from torch import nn
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DynamicCache,
    pipeline,
)

from hf_gpt import GPTForCausalLM, GPTForSequenceClassification
from hf_gpt.adapters import (
    HEAD_CONFIG,
    METHODS,
    adapted_config,
    adapter_config,
    is_adapter,
    load_adapter,
    load_adapters,
    merge_adapter,
    virtual_tokens,
)
from hf_gpt.adapters.methods import BitFitConfig, HoulsbyConfig

from ..support.adapters import (
    HEADS,
    ITEMS,
    LABELS,
    MERGING,
    VARIANTS,
    VIRTUAL,
    adapted,
    assert_close,
    load_base,
    logits_of,
    padded_batch,
    save_adapter,
    tree_batch,
)
from ..support.tiny import CLASSIFY, DELIMITER, PAD, START

# peft 0.21 asks transformers 5.23 under an old name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

every_head = pytest.mark.parametrize("head", HEADS)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def trained_parameters(variant: str, head: str) -> int:
    width, inner, blocks, size = 32, 128, 2, VARIANTS[variant][1].get("size")
    outputs = 1 if head == "multiple-choice" else 3
    shapes = [(width, 3 * width), (width, width), (width, inner), (inner, width)]
    lora = blocks * sum(size * (fan_in + fan_out) for fan_in, fan_out in shapes) if size else 0
    token_rows, norms = 3 * width, blocks * 2 * 2 * width
    beside_head = {
        "lora": lora + token_rows,
        "dora": lora + blocks * sum(fan_out for _, fan_out in shapes) + token_rows,
        "rslora": lora + token_rows,
        "ia3": blocks * (3 * width + inner),
        "prefix": size and size * blocks * 2 * width,
        "prompt": size and size * width,
        "houlsby": size and blocks * 2 * (2 * width * size + size + width) + norms + token_rows,
        "bitfit": blocks * (sum(fan_out for _, fan_out in shapes) + 2 * width) + token_rows,
        "ln": norms,
    }
    return beside_head[variant] + outputs * (width + 1)


AUTO_CLASSES = {
    "multiple-choice": (AutoModelForMultipleChoice, AutoPeftModel),
    "classification": (AutoModelForSequenceClassification, AutoPeftModelForSequenceClassification),
}


@every_head
@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant not in VIRTUAL])
def test_auto_classes_know_head_and_labels(variant, head, base, saved_adapters, tmp_path):
    folder = Path(shutil.copytree(saved_adapters[variant, head], tmp_path / "adapter"))
    settings = json.loads((folder / HEAD_CONFIG).read_text())
    if head == "classification":
        settings["id2label"] = {"0": "quiet", "1": "loud", "2": "neither"}
        settings["label2id"] = {"quiet": 0, "loud": 1, "neither": 2}
        (folder / HEAD_CONFIG).write_text(json.dumps(settings))
    batch = tree_batch(head)
    expected = load_file(folder / "batch.safetensors")["expected"]
    for auto_class in AUTO_CLASSES[head]:
        model = auto_class.from_pretrained(pretrained_model_name_or_path=folder)
        assert torch.equal(logits_of(model, batch), expected), auto_class
        assert model.config.id2label == adapted_config(folder).id2label


def test_pipeline_of_an_adapter(tiny_checkpoint, tmp_path):
    labels = {0: "quiet", 1: "loud", 2: "neither"}
    model = GPTForSequenceClassification.from_pretrained(tiny_checkpoint, id2label=labels)
    save_adapter(get_peft_model(model, adapter_config("lora", model.config)), tmp_path)
    AutoTokenizer.from_pretrained(tiny_checkpoint, task_template=True).save_pretrained(tmp_path)
    pipe = pipeline("text-classification", model=str(tmp_path))
    answers = {answer["label"]: answer["score"] for answer in pipe("She laughed.", top_k=None)}
    wanted = load_adapter(tmp_path)(**pipe.tokenizer("She laughed.", return_tensors="pt")).logits.softmax(-1)[0]
    assert answers == pytest.approx(dict(zip(labels.values(), wanted.tolist(), strict=True)))


def test_language_models_adapter_by_pefts_auto_class(base, tmp_path):
    model = GPTForCausalLM.from_pretrained(base)
    get_peft_model(model, adapter_config("lora", model.config, size=4, task_type="CAUSAL_LM")).save_pretrained(
        tmp_path
    )
    loaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.generate(torch.tensor([[1, 2]]), max_new_tokens=2).shape == (1, 4)


@every_head
@every_variant
def test_saved_and_loaded(variant, head, base, tmp_path):
    """The same logits to the bit, from files that hold the trained numbers and nothing else."""
    model, batch = adapted(variant, head, base), tree_batch(head)
    expected = logits_of(model, batch)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert trained == model.get_nb_trainable_parameters()[0] == trained_parameters(variant, head)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert sum(tensor.numel() for tensor in saved.values()) == trained
    loaded = PeftModel.from_pretrained(load_base(head, base), tmp_path)
    assert torch.equal(logits_of(loaded, batch), expected)
    assert type(loaded) is type(model)
    assert not any(parameter.requires_grad for parameter in loaded.get_base_model().parameters())
    assert not torch.allclose(logits_of(load_base(head, base), batch), expected, atol=1e-3)


def test_loaded_in_a_fresh_process(saved_adapters):
    code = (
        "import sys, torch\n"
        "from safetensors.torch import load_file, save_file\n"
        "from hf_gpt import load_adapter\n"
        "torch.set_num_threads(1)\n"
        "for folder in sys.argv[1:]:\n"
        "    batch = load_file(f'{folder}/batch.safetensors')\n"
        "    expected = batch.pop('expected')\n"
        "    with torch.no_grad():\n"
        "        assert torch.equal(load_adapter(folder)(**batch).logits, expected), folder\n"
        "print('all equal')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, saved_adapters.values())],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.stdout.endswith("all equal\n"), result.stderr[-3000:]


def test_one_line_knows_head_and_labels(saved_adapters, base, tmp_path):
    model = load_adapter(saved_adapters["lora", "classification"], attn_implementation="eager")
    assert isinstance(model.get_base_model(), GPTForSequenceClassification)
    assert model.config.num_labels == 3
    assert model.config._attn_implementation == "eager"
    assert not model.training
    trainable = load_adapter(saved_adapters["lora", "classification"], base_model=base, is_trainable=True)
    assert trainable.get_nb_trainable_parameters()[0] == trained_parameters("lora", "classification")
    with pytest.raises(ValueError, match=HEAD_CONFIG):
        load_adapter(base)
    with pytest.raises(ValueError, match="base_model="):
        load_adapter(saved_adapters["lora", "classification"], base_model=tmp_path / "nowhere")


@every_head
@pytest.mark.parametrize("variant", MERGING)
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


@every_head
@pytest.mark.parametrize(("variant", "message"), [("houlsby", "bitfit"), ("prefix", "Virtual"), ("prompt", "Virtual")])
def test_what_cannot_be_merged_says_so(variant, message, head, base):
    model, batch = adapted(variant, head, base), tree_batch(head)
    expected = logits_of(model, batch)
    with pytest.raises(ValueError, match=message):
        merge_adapter(model)
    if variant == "houlsby":
        with pytest.raises(ValueError, match=message):
            model.merge_adapter()
    assert torch.equal(logits_of(model, batch), expected)


@every_head
@every_variant
def test_switching_between_adapters(variant, head, base, tmp_path):
    batch = tree_batch(head)
    others = [adapted(variant, head, base, seed=seed) for seed in (1, 2)]
    expected = [logits_of(other, batch) for other in others]
    others[1].save_pretrained(tmp_path)
    model = others[0]
    without = load_base(head, base)
    without.score.load_state_dict(model.get_base_model().score.original_module.state_dict())
    if variant not in VIRTUAL:  # peft's own context manager wants a model that generates there
        with model.disable_adapter():
            assert_close(logits_of(model, batch), logits_of(without, batch))
    model.load_adapter(tmp_path, "second")
    assert torch.equal(logits_of(model, batch), expected[0])
    model.set_adapter("second")
    assert torch.equal(logits_of(model, batch), expected[1])
    model.set_adapter("default")
    assert torch.equal(logits_of(model, batch), expected[0])
    model.set_adapter("second")
    model.delete_adapter("default")
    assert torch.equal(logits_of(model, batch), expected[1])


def two_adapters(variant: str, head: str, base: Path, root: Path, **others) -> tuple[dict[str, Path], dict]:
    """Folders of two adapters, of which the second has settings of its own, and the logits of each alone."""
    folders, expected = {}, {}
    for seed, (name, overrides) in enumerate({"one": {}, "two": others}.items()):
        model = adapted(variant, head, base, seed=seed, **overrides)
        folders[name] = save_adapter(model, root / name)
        expected[name] = logits_of(model, tree_batch(head))
    return folders, expected


@pytest.mark.parametrize(("head", "others"), [("multiple-choice", {}), ("classification", {"num_labels": 5})])
@every_variant
def test_several_adapters_on_one_base(variant, head, others, base, tmp_path):
    """Each with its own head, which may have other labels."""
    batch = tree_batch(head)
    folders, expected = two_adapters(variant, head, base, tmp_path, **others)
    model = load_adapters(folders)
    assert not model.training
    for name in ("one", "two", "one"):
        model.set_adapter(name)
        assert torch.equal(logits_of(model, batch), expected[name])
    assert not torch.allclose(expected["one"][:, :2], expected["two"][:, :2], atol=1e-3)


@every_head
@pytest.mark.parametrize("variant", ["lora", "rslora"])
def test_adapters_within_one_batch(variant, head, base, tmp_path):
    """Every row is answered by its own matrices, token rows and head."""
    folders, expected = two_adapters(variant, head, base, tmp_path)
    model, batch = load_adapters(folders), tree_batch(head)
    with model.disable_adapter():
        expected["__base__"] = logits_of(model, batch)
    for names in (["one", "two"], ["two", "one"], ["two", "two"], ["__base__", "one"]):
        found = logits_of(model, {**batch, "adapter_names": names})
        assert_close(found, torch.stack([expected[name][row] for row, name in enumerate(names)]))


def test_what_cannot_be_mixed_says_so(base, tmp_path):
    for variant in ("dora", "ia3", "prefix", "houlsby"):
        folders, _ = two_adapters(variant, "multiple-choice", base, tmp_path / variant)
        with pytest.raises(ValueError, match="Only LoRA"):
            load_adapters(folders)(**tree_batch("multiple-choice"), adapter_names=["one", "two"])
    folders, _ = two_adapters("lora", "multiple-choice", base, tmp_path / "choices")
    with pytest.raises(ValueError, match="token trees"):
        load_adapters(folders)(**padded_batch("multiple-choice"), adapter_names=["one", "two"])
    folders, expected = two_adapters("lora", "classification", base, tmp_path / "labels", num_labels=5)
    model, batch = load_adapters(folders), tree_batch("classification")
    for names in (["one", "two"], ["__base__", "two"]):
        with pytest.raises(ValueError, match="use set_adapter"):
            model(**batch, adapter_names=names)
    with pytest.raises(ValueError, match="one for each"):
        model(**batch, adapter_names=["one"])
    with pytest.raises(ValueError, match="non-existing"):
        model(**batch, adapter_names=["one", "three"])
    # Nothing of the refused calls is left.
    model.set_adapter("two")
    assert torch.equal(logits_of(model, batch), expected["two"])


def test_adapters_that_do_not_go_together(saved_adapters, base, tmp_path):
    lora, ia3 = (saved_adapters[name, "classification"] for name in ("lora", "ia3"))
    assert is_adapter(lora)
    assert not is_adapter(base)
    assert adapted_config(lora).num_labels == 3
    with pytest.raises(ValueError, match="different methods: LORA and IA3"):
        load_adapters({"one": lora, "two": ia3})
    with pytest.raises(ValueError, match="different heads"):
        load_adapters({"one": lora, "two": saved_adapters["lora", "multiple-choice"]})
    with pytest.raises(ValueError, match="at least one"):
        load_adapters({})
    for name in ("", "v1.0", "lora", "my-score", "c_attn"):
        with pytest.raises(ValueError, match="cannot be called"):
            load_adapters({"one": lora, name: lora})
    moved = tmp_path / "moved"
    shutil.copytree(lora, moved)
    settings = json.loads((moved / "adapter_config.json").read_text())
    (moved / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": "elsewhere"}))
    with pytest.raises(ValueError, match=r"different base models.*base_model="):
        load_adapters({"one": lora, "two": moved})
    model = load_adapters({"one": lora, "two": moved}, base_model=base, attn_implementation="eager")
    assert model.active_adapters == ["one"]
    assert model.config._attn_implementation == "eager"


@every_head
@every_variant
def test_what_is_trained_gets_a_gradient(variant, head, base):
    model = adapted(variant, head, base, resid_pdrop=0.1).train()
    before = {name: value.clone() for name, value in model.get_base_model().state_dict().items()}
    outputs = model(**tree_batch(head), labels=LABELS)
    assert (outputs.lm_loss is None) == (variant == "prompt")
    outputs.loss.backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    torch.optim.SGD([value for value in model.parameters() if value.requires_grad], 0.1).step()
    after = model.get_base_model().state_dict()
    frozen = [name for name in before if name.endswith("base_layer.weight") or "embed_positions" in name]
    assert frozen
    assert all(torch.equal(before[name], after[name]) for name in frozen)


@every_variant
@every_head
def test_trees_and_padded_inputs_agree(variant, head, base):
    if variant in VIRTUAL and head == "multiple-choice":
        pytest.skip("peft puts virtual tokens before rows of two axes")
    model = adapted(variant, head, base).train()
    found = {}
    for kind, batch in (("tree", tree_batch(head)), ("padded", padded_batch(head))):
        model.zero_grad()
        outputs = model(**batch, labels=LABELS)
        outputs.loss.backward()
        gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
        found[kind] = outputs, gradients
    tree, padded = found["tree"], found["padded"]
    for term in ("logits", "task_loss", "loss") + (() if variant == "prompt" else ("lm_loss",)):
        assert_close(tree[0][term], padded[0][term])
    for name, gradient in tree[1].items():
        assert_close(gradient, padded[1][name], 1e-4)


def test_prefix_is_a_cache_of_keys_and_values(base):
    """What peft hands to other models."""
    model, batch = adapted("prefix", "classification", base), tree_batch("classification")
    assert "subtree_end" not in batch
    cache = model.get_prompt(batch_size=2)
    assert isinstance(cache, DynamicCache)
    plain = model.get_base_model()
    with torch.no_grad():
        states = plain.transformer(
            batch["input_ids"], position_ids=batch["position_ids"] + 3, past_key_values=cache
        ).last_hidden_state
        expected = plain.score(states[torch.arange(2), batch["classify_index"][:, 0]])
    assert_close(logits_of(model, batch), expected)


def test_prompt_is_an_embedding_before_the_text(base):
    model, batch = adapted("prompt", "classification", base), tree_batch("classification")
    plain = model.get_base_model()
    with torch.no_grad():
        embeddings = torch.cat([model.get_prompt(2), plain.get_input_embeddings()(batch["input_ids"])], dim=1)
        expected = plain(inputs_embeds=embeddings, classify_index=batch["classify_index"] + 3).logits
    assert_close(logits_of(model, batch), expected)


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
    with torch.no_grad():
        eager = load_base("classification", base, attn_implementation="eager")
        eager = get_peft_model(eager, adapter_config("houlsby", eager.config))
        assert len(eager(**batch, output_attentions=True).attentions) == 2


def test_bottlenecks_start_near_the_model_without_them(base):
    plain, batch = load_base("classification", base).eval(), tree_batch("classification")
    expected = logits_of(plain, batch)
    model = get_peft_model(plain, adapter_config("houlsby", plain.config, size=5)).eval()
    assert_close(logits_of(model, batch), expected, 0.05)
    weight = model.get_base_model().transformer.h[0].attn.houlsby_down["default"].weight
    assert 0.005 < weight.std() < 0.01
    assert weight.abs().max() <= 0.02
    assert_close(logits_of(model.unload(), batch), expected)


def test_bitfit_is_training_the_biases_themselves(base):
    plain = load_base("classification", base)
    model = load_base("classification", base)
    model.score.load_state_dict(plain.score.state_dict())
    model = get_peft_model(model, adapter_config("bitfit", model.config, train_special_tokens=False))
    for name, parameter in plain.named_parameters():
        parameter.requires_grad_((".h." in name and name.endswith(".bias")) or name.startswith("score"))
    batch = tree_batch("classification") | {"labels": LABELS}
    for each in (plain.train(), model.train()):
        optimizer = torch.optim.Adam([value for value in each.parameters() if value.requires_grad], 1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            each(**batch).loss.backward()
            optimizer.step()
    theirs, ours = plain.state_dict(), merge_adapter(model).state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in theirs.items())


def test_bitfit_merges_one_adapter_at_a_time(base, tmp_path):
    model, batch = adapted("bitfit", "classification", base), tree_batch("classification")
    expected = logits_of(model, batch)
    adapted("bitfit", "classification", base, seed=1).save_pretrained(tmp_path)
    model.load_adapter(tmp_path, "second")
    with pytest.raises(ValueError, match="merge one adapter"):
        model.get_base_model().transformer.h[0].ln_1.merge(adapter_names=["default", "second"])
    model.merge_adapter()
    model.unmerge_adapter()
    assert torch.equal(logits_of(model, batch), expected)
    with pytest.raises(TypeError, match="act"):
        get_peft_model(load_base("classification", base), BitFitConfig(target_modules=["act"]))


def test_default_targets(base):
    """peft's own configuration classes know our modules without being told."""
    expected = {
        LoraConfig: {"c_attn"},
        IA3Config: {"c_attn", "c_proj"},
        LNTuningConfig: {"ln_1", "ln_2"},
        HoulsbyConfig: {"attn", "mlp"},
        BitFitConfig: {"c_attn", "c_proj", "c_fc", "ln_1", "ln_2"},
        peft.AdaLoraConfig: {"c_attn"},
    }
    for config_class, names in expected.items():
        options = {"total_step": 10} if config_class is peft.AdaLoraConfig else {}
        model = get_peft_model(load_base("classification", base), config_class(**options))
        assert {name.rpartition(".")[2] for name in model.targeted_module_names} == names


def test_language_model_with_special_tokens(base, tmp_path):
    model = GPTForCausalLM.from_pretrained(base)
    model = get_peft_model(model, adapter_config("lora", model.config, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    ids = torch.tensor([[START, 1, 2, DELIMITER, 3]])
    expected = logits_of(model.eval(), {"input_ids": ids})
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(GPTForCausalLM.from_pretrained(base), tmp_path)
    assert torch.equal(logits_of(loaded, {"input_ids": ids}), expected)
    plain = merge_adapter(loaded)
    assert plain.lm_head.weight is plain.transformer.embed_tokens.weight
    assert_close(logits_of(plain, {"input_ids": ids}), expected)


def test_refusals(base):
    model = load_base("classification", base)
    for arguments, message in (
        (("lore",), "lora, ia3"),
        (("ia3", 4), "have a size"),
        (("lora", 0), "at least 1"),
        (("prefix", 32), "context of 32"),
        (("ln", None, True), "cannot train embedding rows"),
    ):
        method, *rest = arguments
        with pytest.raises(ValueError, match=message):
            adapter_config(method, model.config, *rest)
    with pytest.raises(ValueError, match="activation"):
        HoulsbyConfig(activation="step")
    with pytest.raises(ValueError, match="at least 1"):
        HoulsbyConfig(bottleneck_size=0)
    assert set(METHODS) == {method for method, _ in VARIANTS.values()}


def test_virtual_tokens_take_positions(base):
    tree = tree_batch("multiple-choice")
    model = adapted("prefix", "multiple-choice", base)
    assert virtual_tokens(model) == 3
    assert virtual_tokens(adapted("lora", "multiple-choice", base)) == virtual_tokens(model.get_base_model()) == 0
    with pytest.raises(ValueError, match="context of 32"):
        model(input_ids=torch.tensor([[*[1] * 29, CLASSIFY]]))
    model.get_base_model().activation_checkpointing_enable()
    with pytest.raises(ValueError, match="gradient checkpointing"):
        model.train()(**tree)


@pytest.mark.parametrize("variant", VIRTUAL)
@torch.no_grad()
def test_trees_with_virtual_tokens(variant, base):
    """Every choice of a tree has the logit of its path alone, and a prefix keeps the language-model loss."""
    model, batch = adapted(variant, "multiple-choice", base), tree_batch("multiple-choice")
    found = model(**batch, return_lm_loss=True)
    assert (found.lm_loss is None) == (variant == "prompt")
    for item, logits in zip(ITEMS, found.logits, strict=True):
        for path, logit in zip(item, logits.tolist(), strict=False):
            assert_close(model(input_ids=torch.tensor([path])).logits[0, 0], torch.tensor(logit))


@pytest.mark.parametrize("config", [PrefixTuningConfig, PromptTuningConfig, PromptEncoderConfig])
@pytest.mark.parametrize("side", ["left", "right"])
def test_peft_settings_of_virtual_tokens(base, config, side):
    """peft's own, on conventional inputs: the same with padding on either side as without."""
    settings = {"encoder_hidden_size": 8} if config is PromptEncoderConfig else {}
    model = load_base("classification", base)
    model = get_peft_model(model, config(task_type="SEQ_CLS", num_virtual_tokens=4, **settings)).eval()
    paths = [item[0] for item in ITEMS]
    rows = [[PAD] * (8 - len(path)) + path if side == "left" else path + [PAD] * (8 - len(path)) for path in paths]
    ids = torch.tensor(rows)
    outputs = model(input_ids=ids, attention_mask=ids.ne(PAD).long(), labels=LABELS)
    alone = torch.cat([model(input_ids=torch.tensor([path])).logits for path in paths])
    assert_close(outputs.logits, alone)
    outputs.loss.backward()
    assert all(value.grad.any() for value in model.prompt_encoder.parameters() if value.requires_grad)


def test_a_prefix_of_the_first_version(base, tmp_path):
    """Its task type was one of its own."""
    model, batch = adapted("prefix", "multiple-choice", base), tree_batch("multiple-choice")
    save_adapter(model, tmp_path)
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    settings |= {"task_type": "GPT_TASK", "modules_to_save": ["score"], "base_model_name_or_path": str(base)}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    assert torch.equal(logits_of(load_adapter(tmp_path), batch), logits_of(model, batch))
