"""What transformers, peft, accelerate and TRL expect of every model class: arguments, configurations, vocabularies."""

import copy
import inspect
import json
import logging

import pytest
import torch
from datasets import Dataset
from torch.nn.functional import pad
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GenerationConfig,
    Trainer,
    TrainingArguments,
)
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.quantizers_utils import should_convert_module
from transformers.trainer_pt_utils import LabelSmoother

from hf_gpt import (
    GPTForCausalLM,
    GPTForMaskedLM,
    GPTForMultipleChoice,
    GPTForQuestionAnswering,
    GPTForSequenceClassification,
    GPTForTokenClassification,
    GPTModel,
)
from hf_gpt.evaluation.zero_shot import ZeroShotScorer
from hf_gpt.model.configuration_gpt import AUTO_MAP
from hf_gpt.model.modeling_gpt import HEADS as MODEL_HEADS

from ..support.tiny import CLASSIFY, DELIMITER, PAD, START, VOCABULARY

IDS = torch.tensor([[5, 3, 1, 4, 1, 15, 9], [2, 7, 1, 8, 2, 8, 18]])
TEXTS = torch.tensor([[START, 3, 1, 4, CLASSIFY], [START, 2, 7, 1, CLASSIFY]])
SPECIALS = [START, DELIMITER, CLASSIFY]
HEADS = (GPTForMultipleChoice, GPTForSequenceClassification)
each_class = pytest.mark.parametrize("model_class", [GPTModel, GPTForCausalLM, *HEADS])
each_head = pytest.mark.parametrize("model_class", HEADS)


def inputs_of(model_class) -> torch.Tensor:
    return TEXTS.unsqueeze(0) if model_class is GPTForMultipleChoice else TEXTS


def settings(folder, **overrides) -> TrainingArguments:
    values = {"output_dir": str(folder), "report_to": "none", "use_cpu": True, "disable_tqdm": True}
    return TrainingArguments(**{**values, "max_steps": 1, "per_device_train_batch_size": 2, **overrides})


# Smoothed labels


def smoothed(logits, targets, share, kept):
    """Cross-entropy with a share for the kept rows alike."""
    log_probs = logits[..., kept].log_softmax(-1)
    places = {row: place for place, row in enumerate(kept)}
    own = torch.tensor([[places[int(target)] for target in row] for row in targets])
    right = log_probs.gather(-1, own.unsqueeze(-1)).squeeze(-1)
    return -((1 - share) * right + share * log_probs.mean(-1)).mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("untrained", [None, SPECIALS], ids=["padding", "untrained"])
def test_log_probabilities_are_finite(tiny_model, untrained, dtype):
    model = tiny_model(GPTForCausalLM, untrained_token_ids=untrained).to(dtype)
    logits = model(IDS).logits
    assert logits.dtype == dtype
    assert logits.log_softmax(-1).sum(dtype=torch.float32).isfinite()
    assert not logits.softmax(-1)[..., model.excluded_token_ids].any()


@pytest.mark.parametrize("untrained", [None, SPECIALS], ids=["padding", "untrained"])
def test_smoothing_has_the_gradient_that_it_has_without_the_rows(tiny_model, untrained):
    model = tiny_model(GPTForCausalLM, untrained_token_ids=untrained)
    kept = [row for row in range(VOCABULARY) if row not in model.excluded_token_ids]
    logits = model(IDS).logits
    found = LabelSmoother(0.1)({"logits": logits}, IDS, shift_labels=True)
    expected = smoothed(logits[:, :-1], IDS[:, 1:], 0.1, kept)
    assert 0 < found - expected < 0.1 * 150
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = [torch.autograd.grad(loss, weights, retain_graph=True) for loss in (found, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_plain_trainer_smooths_shifted_labels(tiny_model, tmp_path):
    model = tiny_model(GPTForCausalLM).train()
    rows = Dataset.from_dict({"input_ids": IDS.tolist(), "labels": IDS.tolist()})
    args = settings(tmp_path, label_smoothing_factor=0.2, logging_nan_inf_filter=False, logging_steps=1)
    expected = LabelSmoother(0.2)({"logits": model(IDS).logits}, IDS, shift_labels=True).item()
    trainer = Trainer(model=model, args=args, train_dataset=rows, eval_dataset=rows)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-4)
    trainer.train()
    logged = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert logged == [pytest.approx(expected, abs=1e-4)]


# Labels that are shifted already


@pytest.mark.parametrize("quirks", [False, True], ids=["default", "quirks"])
@pytest.mark.parametrize("with_labels", ["none", "unshifted", "shifted"])
def test_shifted_labels(tiny_model, with_labels, quirks):
    """As under context parallelism (both), Ulysses (the same twice), and alone."""
    model = tiny_model(GPTForCausalLM, release_quirks=quirks)
    labels = IDS.clone()
    labels[0, 2:4] = -100
    shifted = pad(labels, (0, 1), value=-100)[:, 1:]
    given = {"none": None, "unshifted": labels, "shifted": shifted}[with_labels]
    found = model(IDS, labels=given, shift_labels=shifted).loss
    torch.testing.assert_close(found, model(IDS, labels=labels).loss)
    part = model(IDS, labels=given, shift_labels=shifted, num_items_in_batch=5).loss
    torch.testing.assert_close(part, model(IDS, labels=labels, num_items_in_batch=5).loss)


def test_parts_of_a_row_with_shifted_labels(tiny_model):
    """Of a row that is divided, the last token of a part predicts the first one of the next."""
    model = tiny_model(GPTForCausalLM)
    shifted = pad(IDS, (0, 1), value=-100)[:, 1:]
    past = model(IDS[:, :4], use_cache=True).past_key_values
    second = model(IDS[:, 4:], past_key_values=past, shift_labels=shifted[:, 4:], num_items_in_batch=12).loss
    first = model(IDS[:, :4], shift_labels=shifted[:, :4], num_items_in_batch=12).loss
    torch.testing.assert_close(first + second, model(IDS, labels=IDS).loss)


def test_shifted_labels_of_a_tree(tiny_model):
    with pytest.raises(ValueError, match="leave out parent_index and lm_weights"):
        tiny_model(GPTForCausalLM)(IDS, shift_labels=IDS, parent_index=IDS)


# Rows that no loss has trained


@torch.no_grad()
def test_untrained_rows_take_no_part(tiny_model):
    model = tiny_model(GPTForCausalLM, untrained_token_ids=SPECIALS)
    before = model(IDS, labels=IDS)
    batch = {
        "input_ids": IDS,
        "position_ids": torch.arange(7).expand(2, 7),
        "lm_weights": torch.ones(2, 7).index_fill(1, torch.tensor([0]), 0),
        "classify_index": torch.tensor([[6], [6]]),
    }
    scores = ZeroShotScorer(model, "choices")(**batch)["logits"]
    torch.testing.assert_close(-scores.mean(), before.loss)
    model.transformer.embed_tokens.weight[SPECIALS] = 50.0
    after = model(IDS, labels=IDS)
    assert torch.equal(after.loss, before.loss)
    assert torch.equal(after.logits, before.logits)
    assert torch.equal(ZeroShotScorer(model, "choices")(**batch)["logits"], scores)
    kept = before.logits[..., :START].log_softmax(-1)
    torch.testing.assert_close(before.logits.log_softmax(-1)[..., :START], kept)


def test_untrained_targets_are_refused(tiny_model):
    model = tiny_model(GPTForCausalLM, untrained_token_ids=SPECIALS)
    for labels in ({"labels": TEXTS}, {"shift_labels": TEXTS}):
        with pytest.raises(
            ValueError, match=f"token {START}, whose row is untrained.*untrained_token_ids = None before training"
        ):
            model(TEXTS, **labels)
    model.config.untrained_token_ids = None
    assert model(TEXTS, labels=TEXTS).loss.isfinite()


@each_head
def test_task_heads_take_no_notice_of_untrained_rows(tiny_model, model_class):
    model, plain = tiny_model(model_class, untrained_token_ids=SPECIALS), tiny_model(model_class)
    ids = inputs_of(model_class)
    labels = torch.zeros(len(ids), dtype=torch.long)
    for mode in (False, True):
        found, expected = (each.train(mode)(ids, labels=labels, return_lm_loss=True) for each in (model, plain))
        assert torch.equal(found.loss, expected.loss)
        assert torch.equal(found.lm_loss, expected.lm_loss)


@pytest.mark.parametrize("kept", ["no-coefficient", "frozen", None])
def test_training_declares_the_rows_trained(tiny_model, tmp_path, kept):
    model = tiny_model(
        GPTForSequenceClassification, untrained_token_ids=SPECIALS, lm_coef=0 if kept == "no-coefficient" else 0.5
    )
    if kept == "frozen":
        model.base_model.requires_grad_(False)
    model.declare_rows_trained()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.excluded_token_ids == ([*SPECIALS, PAD] if kept else [PAD])


@pytest.mark.parametrize("model_class", MODEL_HEADS.values(), ids=MODEL_HEADS)
def test_no_forward_changes_the_configuration(tiny_model, model_class):
    changes = {"is_causal": False, "mask_token_id": 6} if model_class is GPTForMaskedLM else {}
    model = tiny_model(model_class, "eager", untrained_token_ids=SPECIALS, head_layers="mix", **changes)
    before, settings_before = copy.deepcopy(vars(model.config)), model.config.to_json_string(use_diff=False)
    ids = IDS if model_class in (GPTModel, GPTForCausalLM, GPTForMaskedLM) else inputs_of(model_class)
    labels = {
        GPTModel: {},
        GPTForCausalLM: {"labels": ids},
        GPTForMaskedLM: {"labels": ids},
        GPTForTokenClassification: {"labels": ids % 2},
        GPTForQuestionAnswering: {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([2, 3])},
    }.get(model_class, {"labels": torch.zeros(len(ids), dtype=torch.long)})
    for mode in (False, True):
        outputs = model.train(mode)(ids, **labels, output_attentions=True, output_hidden_states=True)
        outputs[0].sum().backward()
        assert vars(model.config) == before
        assert model.config.to_json_string(use_diff=False) == settings_before


@pytest.mark.parametrize("ids", [[-1], [VOCABULARY], list(range(VOCABULARY))], ids=["below", "above", "all"])
def test_untrained_rows_are_checked(tiny_config, ids):
    with pytest.raises(ValueError, match="untrained_token_ids"):
        tiny_config(untrained_token_ids=ids)


@each_class
def test_every_folder_suppresses_special_tokens(tiny_model, tmp_path, model_class):
    model = tiny_model(model_class)
    with torch.no_grad():
        model.base_model.embed_tokens.weight[SPECIALS] *= 20  # by far the likeliest, or unlikeliest
        model.save_pretrained(tmp_path)
        assert GenerationConfig.from_pretrained(tmp_path).suppress_tokens == [*SPECIALS, PAD]
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
        written = loaded.generate(TEXTS, do_sample=False, max_new_tokens=8)[:, TEXTS.shape[1] :]
    assert not torch.isin(written, torch.tensor([*SPECIALS, PAD])).any()


def test_an_end_of_text_token_is_not_suppressed(tiny_model):
    assert tiny_model(GPTForCausalLM, eos_token_id=CLASSIFY).generation_config.suppress_tokens == [
        START,
        DELIMITER,
        PAD,
    ]


# Keyword arguments


@each_class
@torch.no_grad()
def test_arguments_of_the_libraries(tiny_model, model_class):
    model, ids = tiny_model(model_class), inputs_of(model_class)
    passed = {
        **dict.fromkeys(("output_attentions", "output_hidden_states", "use_cache"), False),
        **dict.fromkeys(("cache_position", "num_items_in_batch", "kernel_options", "margin")),
        **dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")),
    }
    expected, found = model(ids), model(ids, **passed, return_dict=True)
    first = "last_hidden_state" if model_class is GPTModel else "logits"
    assert torch.equal(found[first], expected[first])


@each_head
@pytest.mark.parametrize("use_cache", [False, True])
def test_heads_take_use_cache(tiny_model, model_class, use_cache):
    model, ids = tiny_model(model_class), inputs_of(model_class)
    outputs = model(ids, use_cache=use_cache)
    assert torch.equal(outputs.logits, model(ids).logits)
    assert "past_key_values" not in outputs


# Attention


@pytest.mark.whole
def test_continuous_batching(tiny_model):
    model = GPTForCausalLM(tiny_model(GPTForCausalLM).config).eval()
    wanted = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1, pad_token_id=PAD)
    prompts = [[5, 3, 1, 4], [2, 7]]
    found = model.generate_batch(inputs=prompts, generation_config=wanted)
    for prompt, result in zip(prompts, found.values(), strict=True):
        expected = model.generate(torch.tensor([prompt]), generation_config=wanted)[0, len(prompt) :].tolist()
        assert result.generated_tokens == expected


# Hidden states


@pytest.mark.parametrize("head_layers", [None, 0, 1, "mix"])
@pytest.mark.parametrize("asked", [[1], 1, [-1, 0], [7], True, False, None], ids=str)
@torch.no_grad()
def test_chosen_hidden_states(tiny_model, head_layers, asked):
    model = tiny_model(GPTForSequenceClassification, head_layers=head_layers)
    found = model(TEXTS, output_hidden_states=asked)
    expected = model.transformer(TEXTS, output_hidden_states=asked).hidden_states
    assert torch.equal(found.logits, model(TEXTS).logits)
    if not asked:
        assert found.hidden_states is None
        return
    assert len(found.hidden_states) == len(expected)
    for ours, theirs in zip(found.hidden_states, expected, strict=True):
        assert theirs is None or torch.equal(ours, theirs)


# Configuration, vocabulary, sharding, quantisation


def test_saving_writes_the_code(tiny_model, tmp_path):
    """As transformers' own registration for custom code: three files, and every class in `auto_map`."""
    model = tiny_model(GPTForSequenceClassification)
    assert model.config.auto_map == {}
    model.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.py")) == ["configuration_gpt.py", "modeling_gpt.py"]
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == AUTO_MAP
    for trust in (None, True, False):
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path, trust_remote_code=trust)
        assert type(loaded) is GPTForSequenceClassification


@each_class
@pytest.mark.parametrize("rows", [PAD, CLASSIFY, START, 10])
def test_shrunken_vocabulary(tiny_model, tmp_path, caplog, model_class, rows):
    model = tiny_model(model_class, untrained_token_ids=SPECIALS, eos_token_id=[3, CLASSIFY])
    with caplog.at_level(logging.WARNING):
        model.resize_token_embeddings(rows)
    names = ("start_token_id", "delimiter_token_id", "classify_token_id", "pad_token_id", "bos_token_id")
    ids = dict(zip(names, [*SPECIALS, PAD, START], strict=True))
    for name, token in ids.items():
        assert getattr(model.config, name) == (token if token < rows else None)
    assert model.config.untrained_token_ids == ([token for token in SPECIALS if token < rows] or None)
    assert model.config.eos_token_ids == [token for token in (3, CLASSIFY) if token < rows]
    model.save_pretrained(tmp_path)
    loaded = model_class.from_pretrained(tmp_path)
    ids = IDS % 10
    if model_class in HEADS:
        position = torch.tensor([[6], [6]])
        found, expected = (each.eval()(ids, classify_index=position).logits for each in (loaded, model))
        # Not the same bits on every CPU: sums may depend on where a matrix lies in memory.
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    elif model_class is GPTForCausalLM:
        assert loaded(ids, labels=ids).loss.isfinite()
        assert loaded.generate(ids, max_new_tokens=3, do_sample=False).max() < rows


@each_class
@pytest.mark.parametrize("final_norm", [False, True], ids=["gpt", "gpt2"])
def test_sharding_plan_matches_modules(tiny_model, model_class, final_norm):
    model = tiny_model(model_class, final_norm=final_norm)
    names = {
        ".".join("*" if part.isdecimal() else part for part in name.split(".")) for name, _ in model.named_modules()
    }
    assert model.fsdp_plan
    assert set(model.fsdp_plan) <= names
    assert any(rule.endswith("h.*") for rule in model.fsdp_plan)


@pytest.mark.parametrize("head_layers", [None, "mix"])
@each_head
def test_quantisation_leaves_the_new_head_alone(tiny_model, model_class, head_layers):
    model = tiny_model(model_class, head_layers=head_layers)
    skipped = HfQuantizer.get_modules_to_not_convert(model, None, model._keep_in_fp32_modules)
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    kept = {name for name in linear if not should_convert_module(name, skipped)}
    assert kept == {"score"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("head_layers", [None, "mix"])
@each_head
def test_half_precision_heads(tiny_model, tmp_path, model_class, head_layers, dtype):
    model, ids = tiny_model(model_class, head_layers=head_layers), inputs_of(model_class)
    model.save_pretrained(tmp_path)
    expected = model(ids).logits
    for half in (model_class.from_pretrained(tmp_path, dtype=dtype), copy.deepcopy(model).to(dtype)):
        torch.testing.assert_close(half(ids).logits.float(), expected, rtol=0.1, atol=0.1)


def test_reward_training(tiny_model, tmp_path):
    """Its `compute_loss` passes `use_cache` and `margin` to the model."""
    trl = pytest.importorskip("trl", reason="needs pip install trl")
    source = inspect.getsource(trl.RewardTrainer.compute_loss)
    assert 'inputs["use_cache"]' in source
    tiny_model(GPTForSequenceClassification, num_labels=1).save_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert model(TEXTS, use_cache=False, margin=torch.zeros(1)).logits.shape == (2, 1)
    loaded = trl.trainer.utils.create_model_from_path(str(tmp_path))
    assert type(loaded) is GPTForCausalLM
