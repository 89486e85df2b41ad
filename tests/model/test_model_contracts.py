"""What transformers, peft, accelerate and TRL expect of every model class."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.quantizers_utils import should_convert_module
from transformers.trainer_pt_utils import LabelSmoother
from transformers.utils.generic import find_labels

from hf_gpt import GPTForCausalLM, GPTForMaskedLM, GPTForMultipleChoice, GPTForSequenceClassification
from hf_gpt.model.modeling_gpt import HEADS

from ..support.tensors import assert_same_gradients
from ..support.tiny import CLASSIFY, DELIMITER, PAD, START, VOCABULARY

IDS = torch.tensor([[5, 3, 1, 4, 1, 15, 9], [2, 7, 1, 8, 2, 8, 18]])
TEXTS = torch.tensor([[START, 3, 1, 4, CLASSIFY], [START, 2, 7, 1, CLASSIFY]])
SPECIALS = [START, DELIMITER, CLASSIFY]
each_class = pytest.mark.parametrize("model_class", HEADS.values(), ids=HEADS)


def inputs_of(model_class) -> torch.Tensor:
    return TEXTS.unsqueeze(0) if model_class is GPTForMultipleChoice else TEXTS


def build(tiny_model, model_class, attention="sdpa", **overrides):
    masked = {"is_causal": False, "mask_token_id": 6} if model_class is GPTForMaskedLM else {}
    return tiny_model(model_class, attention, **masked, **overrides)


@pytest.mark.parametrize("untrained", [None, SPECIALS], ids=["padding", "untrained"])
def test_smoothed_labels(tiny_model, untrained):
    """The gradient is that without the excluded rows, whose log-probabilities are finite in any precision."""
    model = tiny_model(GPTForCausalLM, untrained_token_ids=untrained)
    found = LabelSmoother(0.1)({"logits": model(IDS).logits}, IDS, shift_labels=True)
    kept = [row for row in range(VOCABULARY) if row not in model.excluded_token_ids]
    rows, targets = model(IDS).logits[:, :-1, kept].flatten(0, 1), IDS[:, 1:].flatten()
    plain = torch.nn.functional.cross_entropy(rows, targets, reduction="none")
    expected = (0.9 * plain - 0.1 * rows.log_softmax(-1).mean(-1)).mean()
    assert_same_gradients(model, found, expected, 1e-4)
    for dtype in (torch.bfloat16, torch.float16):
        half = model.to(dtype)(IDS).logits
        assert half.dtype == dtype
        assert LabelSmoother(0.1)({"logits": half}, IDS, shift_labels=True).isfinite()


@pytest.mark.parametrize("kept", ["no-coefficient", "frozen", None])
def test_training_declares_the_rows_trained(tiny_model, tmp_path, kept):
    coefficient = 0 if kept == "no-coefficient" else 0.5
    model = tiny_model(GPTForSequenceClassification, untrained_token_ids=SPECIALS, lm_coef=coefficient)
    model.base_model.requires_grad_(kept != "frozen")
    model.declare_rows_trained()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.excluded_token_ids == ([*SPECIALS, PAD] if kept else [PAD])


@each_class
def test_no_forward_changes_the_configuration(tiny_model, model_class):
    model = build(tiny_model, model_class, "eager", untrained_token_ids=SPECIALS, head_layers="mix")
    before, settings_before = copy.deepcopy(vars(model.config)), model.config.to_json_string(use_diff=False)
    ids = inputs_of(model_class)
    per_token = model_class in (GPTForCausalLM, GPTForMaskedLM, HEADS["token-classification"])
    labels = dict.fromkeys(find_labels(model_class), torch.zeros(ids.shape if per_token else len(ids)).long())
    for mode in (False, True):
        outputs = model.train(mode)(ids, **labels, output_attentions=True, output_hidden_states=True)
        outputs[0].sum().backward()
        assert vars(model.config) == before
        assert model.config.to_json_string(use_diff=False) == settings_before


@each_class
def test_every_folder_suppresses_special_tokens(tiny_model, tmp_path, model_class):
    model = build(tiny_model, model_class)
    with torch.no_grad():
        model.base_model.embed_tokens.weight[SPECIALS] *= 20  # by far the likeliest, or unlikeliest
    model.save_pretrained(tmp_path)
    suppressed = [*SPECIALS, PAD] if model_class is not GPTForMaskedLM else [6, *SPECIALS, PAD]
    assert GenerationConfig.from_pretrained(tmp_path).suppress_tokens == suppressed
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, is_causal=True)
    written = loaded.generate(TEXTS, do_sample=False, max_new_tokens=8)[:, TEXTS.shape[1] :]
    assert not torch.isin(written, torch.tensor(suppressed)).any()
    with_end = tiny_model(GPTForCausalLM, eos_token_id=CLASSIFY)
    assert with_end.generation_config.suppress_tokens == [START, DELIMITER, PAD]


@pytest.mark.parametrize("rows", [VOCABULARY + 3, PAD, START, 10])
def test_resized_vocabulary(tiny_model, tmp_path, rows):
    model = tiny_model(GPTForCausalLM, untrained_token_ids=SPECIALS, eos_token_id=[3, CLASSIFY])
    kept = model.base_model.embed_tokens.weight[:rows].clone()
    model.resize_token_embeddings(rows)
    assert torch.equal(model.base_model.embed_tokens.weight[: len(kept)], kept)
    names = ("start_token_id", "delimiter_token_id", "classify_token_id", "pad_token_id", "bos_token_id")
    for name, token in zip(names, [*SPECIALS, PAD, START], strict=True):
        assert getattr(model.config, name) == (token if token < rows else None)
    assert model.config.untrained_token_ids == ([token for token in SPECIALS if token < rows] or None)
    assert model.config.eos_token_ids == [token for token in (3, CLASSIFY) if token < rows]
    model.save_pretrained(tmp_path)
    loaded, ids = GPTForCausalLM.from_pretrained(tmp_path), IDS % 10
    outputs = loaded(ids, labels=ids)
    assert outputs.logits.shape[-1] == rows
    assert outputs.loss.isfinite()
    assert loaded.generate(ids, max_new_tokens=3, do_sample=False).max() < rows


@each_class
def test_sharding_plan_matches_modules(tiny_model, model_class):
    model = build(tiny_model, model_class, final_norm=True)
    parts = (name.split(".") for name, _ in model.named_modules())
    names = {".".join("*" if part.isdecimal() else part for part in path) for path in parts}
    assert set(model.fsdp_plan) <= names
    assert any(rule.endswith("h.*") for rule in model.fsdp_plan)


@pytest.mark.parametrize("head_layers", [None, "mix"])
@pytest.mark.parametrize("model_class", [GPTForMultipleChoice, GPTForSequenceClassification])
def test_heads_in_few_bits(tiny_model, tmp_path, model_class, head_layers):
    """Quantization leaves the new head alone, and half precision changes little."""
    model, ids = tiny_model(model_class, head_layers=head_layers), inputs_of(model_class)
    skipped = HfQuantizer.get_modules_to_not_convert(model, None, model._keep_in_fp32_modules)
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    assert {name for name in linear if not should_convert_module(name, skipped)} == {"score"}
    model.save_pretrained(tmp_path)
    for dtype in (torch.float16, torch.bfloat16):
        for half in (model_class.from_pretrained(tmp_path, dtype=dtype), copy.deepcopy(model).to(dtype)):
            torch.testing.assert_close(half(ids).logits.float(), model(ids).logits, rtol=0.1, atol=0.1)
