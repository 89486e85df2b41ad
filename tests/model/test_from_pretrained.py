"""Configuration, initialization, saving and loading, and the Auto classes."""

import copy
import json

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassFieldValidationError
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import hf_gpt
from hf_gpt import GPTConfig, GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification, GPTModel
from hf_gpt.model.configuration_gpt import AUTO_MAP

from ..support.tiny import CLASSIFY, START, VOCABULARY

IDS = torch.tensor([[START, 3, 1, 4, 1, CLASSIFY]])
FEW = [GPTModel, GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification]
NAMES = {auto: reference.partition(".")[2] for auto, reference in AUTO_MAP.items() if "modeling" in reference}


def assert_same_parameters(found, expected):
    torch.testing.assert_close(dict(found.named_parameters()), dict(expected.named_parameters()), rtol=0, atol=0)


@pytest.mark.parametrize("head_layers", [None, "mix"])
@pytest.mark.parametrize(("auto", "name"), NAMES.items())
def test_auto_class_loads_what_was_saved(tiny_model, tmp_path, auto, name, head_layers):
    auto, model_class = getattr(transformers, auto), getattr(hf_gpt, name)
    masked = {"is_causal": False, "mask_token_id": 5} if "Masked" in name else {}
    saved = tiny_model(model_class, num_labels=3, head_layers=head_layers, **masked)
    assert type(auto.from_config(saved.config)) is model_class
    assert list(saved.named_buffers()) == []  # one that is not saved holds garbage after loading
    saved.save_pretrained(tmp_path)
    loaded, report = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is model_class
    assert not any(report.values()), report
    assert not loaded.training
    assert_same_parameters(loaded, saved)
    assert loaded.config.num_labels == 3
    inputs = IDS[None] if model_class is GPTForMultipleChoice else IDS
    with torch.no_grad():
        assert torch.equal(loaded(inputs)[0], saved(inputs)[0])
    # As transformers' own registration for custom code: the files, and every class in `auto_map`.
    assert sorted(path.name for path in tmp_path.glob("*.py")) == ["configuration_gpt.py", "modeling_gpt.py"]
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["auto_map"], config["architectures"]) == (AUTO_MAP, [name])


@pytest.mark.parametrize("source", FEW, ids=lambda model_class: f"from-{model_class.__name__}")
@pytest.mark.parametrize("target", FEW, ids=lambda model_class: f"to-{model_class.__name__}")
def test_any_model_loads_any_other(tiny_model, tmp_path, source, target):
    saved = tiny_model(source)
    saved.save_pretrained(tmp_path)
    loaded, report = target.from_pretrained(tmp_path, output_loading_info=True, ignore_mismatched_sizes=True)
    assert_same_parameters(loaded.base_model, saved.base_model)
    named = {name if isinstance(name, str) else name[0] for names in report.values() for name in names}
    has_head = hasattr(saved, "score") or hasattr(loaded, "score")
    assert named == ({"score.weight", "score.bias"} if has_head and source is not target else set())


def test_size_of_the_release():
    """40,478 + 512 rows and 12 blocks; then the four rows of ours. Built without memory."""
    with torch.device("meta"):
        model = GPTModel(GPTConfig())
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert sum(parameter.numel() for parameter in model.parameters()) == 116_534_784 + 4 * 768


@pytest.mark.parametrize("norm_first", [False, True], ids=["GPT", "GPT-2"])
def test_new_weights(norm_first, tiny_config):
    """Where no norm follows, projections onto the residual stream are smaller (GPT-2's paper, section 2.3)."""
    config = tiny_config(n_embd=512, n_layer=8, initializer_range=0.05, norm_first=norm_first, num_labels=8)
    model = GPTForSequenceClassification(config)
    for name, parameter in model.named_parameters():
        if ".ln_" in name or name.endswith("bias"):
            assert (parameter == float(".ln_" in name and name.endswith("weight"))).all(), name
        else:
            residual = norm_first and name.endswith("c_proj.weight")
            assert parameter.std().item() == pytest.approx(0.05 / 4 if residual else 0.05, rel=0.1), name
            assert abs(parameter.mean().item()) < 0.01, name


@pytest.mark.parametrize("tied", [True, False])
def test_output_matrix_is_tied_or_not(tiny_model, tmp_path, tied):
    model = tiny_model(GPTForCausalLM, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    assert ("lm_head.weight" in load_file(tmp_path / "model.safetensors")) == (not tied)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_same_parameters(loaded, model)
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype="bfloat16")
    resized = copy.deepcopy(loaded)
    resized.resize_token_embeddings(VOCABULARY + 6)
    for each in (model, loaded, half, resized.half()):
        assert (each.lm_head.weight is each.transformer.embed_tokens.weight) == tied
        assert each.get_output_embeddings().weight is each.lm_head.weight


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"n_embd": 30, "n_head": 4}, r"n_embd \(30\) must be a multiple of n_head \(4\)"),
        ({"vocab_size": 0}, "vocab_size must be at least 1"),
        ({"n_head": -2}, "n_head must be at least 1"),
        ({"attn_pdrop": 1.0}, "attn_pdrop must be at least 0 and less than 1, not 1.0"),
        ({"clf_pdrop": -0.1}, "clf_pdrop must be at least 0"),
        ({"head_layers": 3}, "head_layers is 3; the layers are 0 to 2"),
        ({"classify_token_id": 24}, "classify_token_id is 24, outside the vocabulary of 24 rows"),
        ({"pad_token_id": -1}, "pad_token_id is -1, outside the vocabulary"),
        ({"vocab_size": 10}, "token_id is 2., outside the vocabulary of 10 rows: set it together with vocab_size"),
        ({"untrained_token_ids": [VOCABULARY]}, "untrained_token_ids"),
        ({"untrained_token_ids": list(range(VOCABULARY))}, "name some, not all"),
        *(({name: value}, name) for name, value in {"afn": "tanh", "n_layer": "2", "norm_first": "yes"}.items()),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_wrong_configuration(tiny_config, overrides, message):
    with pytest.raises((ValueError, StrictDataclassFieldValidationError), match=message):
        tiny_config(**overrides)


def with_config(tiny_model, folder, overrides):
    """A saved model whose configuration says something else."""
    tiny_model(GPTForCausalLM).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | overrides))
    return folder


SIZES = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner", "num_labels", "hidden_size")
DAMAGED = {"to_dict": 5, "dtype": "../x", "quantization_config": "x", "id2label": [1], "configuration_files": 7}
DAMAGED |= {"n_embd": "x", "max_position_embeddings": None}
WRONG = [*DAMAGED.items(), ("hidden_size", 1e308), ("num_labels", "x"), *((name, 1 << 31) for name in SIZES)]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_damaged_configuration_names_its_folder(tiny_model, tmp_path, name, value):
    """Sizes that no model has are refused by each class that reads them, before anything of the size is made."""
    with_config(tiny_model, tmp_path, {name: value})
    is_size = value == 1 << 31
    for kind in (GPTForCausalLM, GPTConfig):
        with pytest.raises(ValueError, match=f"config.json of {tmp_path}" + ": .* must be .*at most" * is_size):
            kind.from_pretrained(tmp_path)
    for kind in (AutoConfig, AutoModelForCausalLM, AutoTokenizer) if is_size else ():
        with pytest.raises(OverflowError, match=r"must be .*at most"):
            kind.from_pretrained(tmp_path)


@pytest.mark.whole
@pytest.mark.parametrize(
    "overrides", [{"n_layer": 900, "n_embd": 256}, {"n_embd": 65536}, {"vocab_size": 1 << 24}], ids="-".join
)
def test_a_configuration_of_more_than_the_weights_file_holds(tiny_model, tmp_path, overrides):
    with pytest.raises(ValueError, match=r"model.safetensors holds .* its config.json asks for"):
        GPTForCausalLM.from_pretrained(with_config(tiny_model, tmp_path, overrides))
