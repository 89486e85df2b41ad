"""Configuration, initialisation, saving and loading, and the Auto classes."""

import copy
import json
import re
import shutil

import pytest
import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from hf_gpt import (
    GPTConfig,
    GPTForCausalLM,
    GPTForMaskedLM,
    GPTForMultipleChoice,
    GPTForQuestionAnswering,
    GPTForSequenceClassification,
    GPTForTokenClassification,
    GPTModel,
)
from hf_gpt.loading import open_source

from ..support.tiny import CLASSIFY, PAD, START, VOCABULARY

IDS = torch.tensor([[START, 3, 1, 4, 1, CLASSIFY]])
AUTO = {
    AutoModel: GPTModel,
    AutoModelForCausalLM: GPTForCausalLM,
    AutoModelForMultipleChoice: GPTForMultipleChoice,
    AutoModelForSequenceClassification: GPTForSequenceClassification,
}
EVERY = AUTO | {
    AutoModelForMaskedLM: GPTForMaskedLM,
    AutoModelForQuestionAnswering: GPTForQuestionAnswering,
    AutoModelForTokenClassification: GPTForTokenClassification,
}
each_class = pytest.mark.parametrize("model_class", AUTO.values(), ids=lambda model_class: model_class.__name__)


def assert_same_parameters(found, expected):
    found, expected = dict(found.named_parameters()), dict(expected.named_parameters())
    assert set(found) == set(expected)
    for name, parameter in expected.items():
        assert torch.equal(found[name], parameter), name


@pytest.mark.parametrize("head_layers", [None, "mix"])
@pytest.mark.parametrize(("auto", "model_class"), EVERY.items(), ids=[auto.__name__ for auto in EVERY])
def test_auto_class_loads_what_was_saved(tiny_model, tmp_path, auto, model_class, head_layers):
    masked = {"is_causal": False, "mask_token_id": 5} if model_class is GPTForMaskedLM else {}
    saved = tiny_model(model_class, num_labels=3, head_layers=head_layers, **masked)
    saved.save_pretrained(tmp_path)
    loaded, report = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is model_class
    assert not any(report.values()), report
    assert not loaded.training
    assert_same_parameters(loaded, saved)
    assert loaded.config.num_labels == 3
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [model_class.__name__]
    inputs = IDS[None] if model_class is GPTForMultipleChoice else IDS
    with torch.no_grad():
        assert torch.equal(loaded(inputs)[0], saved(inputs)[0])
    # Callers name the argument as transformers does.
    assert_same_parameters(model_class.from_pretrained(pretrained_model_name_or_path=tmp_path), saved)


def test_files_that_are_damaged_or_missing_are_named(tiny_checkpoint, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(tiny_checkpoint, folder)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"model\.safetensors: "):
        AutoModelForCausalLM.from_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(ValueError, match=r"damaged has no tokenizer: there is no tokenizer.json and no vocab.json"):
        open_source(folder).tokenizer()


@pytest.mark.parametrize(("auto", "model_class"), AUTO.items(), ids=[auto.__name__ for auto in AUTO])
def test_auto_class_builds_from_a_configuration(tiny_config, auto, model_class):
    assert type(auto.from_config(tiny_config())) is model_class


@pytest.mark.parametrize("attention", ["eager", "sdpa", "flex_attention"])
def test_attention_is_chosen_when_loading(tiny_model, tmp_path, attention):
    tiny_model(GPTModel).save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path, attn_implementation=attention)
    assert loaded.config._attn_implementation == attention


@pytest.mark.parametrize("source", AUTO.values(), ids=lambda model_class: f"from-{model_class.__name__}")
@pytest.mark.parametrize("target", AUTO.values(), ids=lambda model_class: f"to-{model_class.__name__}")
def test_any_model_loads_any_other(tiny_model, tmp_path, source, target):
    saved = tiny_model(source)
    saved.save_pretrained(tmp_path)
    loaded, report = target.from_pretrained(tmp_path, output_loading_info=True, ignore_mismatched_sizes=True)
    assert_same_parameters(loaded.base_model, saved.base_model)
    kinds = {(False, True): "missing_keys", (True, False): "unexpected_keys", (True, True): "mismatched_keys"}
    expected = kinds.get((hasattr(saved, "score"), hasattr(loaded, "score"))) if source is not target else None
    for kind, names in report.items():
        names = {name if isinstance(name, str) else name[0] for name in names}
        assert names == ({"score.weight", "score.bias"} if kind == expected else set())


def test_a_missing_head_is_newly_initialized(tiny_model, tmp_path):
    tiny_model(GPTModel, n_embd=512, n_head=2, n_layer=1).save_pretrained(tmp_path)
    head = GPTForSequenceClassification.from_pretrained(tmp_path, num_labels=8).score
    assert head.weight.shape == (8, 512)
    assert head.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not head.bias.any()


def test_missing_parameter_leaves_the_rest_of_its_module(tiny_model, tmp_path):
    saved = tiny_model(GPTForMultipleChoice)
    saved.save_pretrained(tmp_path)
    missing = ["transformer.h.0.ln_1.bias", "transformer.h.1.attn.c_attn.bias", "score.bias"]
    weights = load_file(tmp_path / "model.safetensors")
    for name in missing:
        del weights[name]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded, report = GPTForMultipleChoice.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == set(missing)
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, torch.zeros_like(parameter) if name in missing else saved.get_parameter(name))


@each_class
def test_no_buffers(tiny_model, model_class):
    """A buffer that is not saved holds garbage after loading."""
    assert list(tiny_model(model_class).named_buffers()) == []


@each_class
def test_can_be_built_without_memory(tiny_config, model_class):
    with torch.device("meta"):
        model = model_class(tiny_config())
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


def test_parameter_names(tiny_model):
    block = [
        f"{module}.{name}"
        for module in ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
        for name in ("weight", "bias")
    ]
    transformer = ["embed_tokens.weight", "embed_positions.weight", *(f"h.0.{name}" for name in block)]
    assert [name for name, _ in tiny_model(GPTModel, n_layer=1).named_parameters()] == transformer
    with_norm = [name for name, _ in tiny_model(GPTModel, n_layer=1, final_norm=True).named_parameters()]
    assert with_norm == [*transformer, "ln_f.weight", "ln_f.bias"]
    headed = [name for name, _ in tiny_model(GPTForMultipleChoice, n_layer=1).named_parameters()]
    assert headed == [*(f"transformer.{name}" for name in transformer), "score.weight", "score.bias"]


def test_size_of_the_release():
    """The paper's model: 40,478 + 512 rows and 12 blocks have 116,534,784 parameters; then the four rows of ours."""
    with torch.device("meta"):
        model = GPTModel(GPTConfig())
    assert sum(parameter.numel() for parameter in model.parameters()) == 116_534_784 + 4 * 768


@pytest.mark.parametrize("norm_first", [False, True], ids=["GPT", "GPT-2"])
def test_residual_projections_start_smaller_where_no_norm_follows(norm_first, tiny_config, tmp_path):
    """GPT-2's paper, section 2.3: by the root of the number of residual layers, two in a block."""
    model = GPTForCausalLM(tiny_config(n_embd=128, n_layer=8, initializer_range=0.05, norm_first=norm_first))
    drawn = {name: value.std().item() for name, value in model.named_parameters() if value.ndim == 2}
    residual = 0.05 / 4 if norm_first else 0.05
    expected = {name: residual if name.endswith("c_proj.weight") else 0.05 for name in drawn}
    assert drawn == pytest.approx(expected, rel=0.05)
    with torch.no_grad():
        model.transformer.h[0].mlp.c_proj.weight.fill_(3.0)
    model.save_pretrained(tmp_path)
    assert (GPTForCausalLM.from_pretrained(tmp_path).transformer.h[0].mlp.c_proj.weight == 3).all()


@each_class
def test_new_weights(tiny_config, model_class):
    model = model_class(tiny_config(n_embd=256, initializer_range=0.05, final_norm=True))
    for name, parameter in model.named_parameters():
        if ".ln_" in f".{name}":
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith("bias"):
            assert not parameter.any(), name
        else:
            assert parameter.std().item() == pytest.approx(0.05, rel=0.2), name
            assert abs(parameter.mean().item()) < 0.01, name


def assert_tied(model):
    assert model.lm_head.weight is model.transformer.embed_tokens.weight
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert sum(1 for name, _ in model.named_parameters() if "lm_head" in name) == 0


def test_output_matrix_stays_tied(tiny_model, tmp_path):
    model = tiny_model(GPTForCausalLM)
    assert_tied(model)
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_tied(loaded)
    assert_tied(copy.deepcopy(loaded))
    assert_tied(AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16))
    loaded.resize_token_embeddings(VOCABULARY + 6)
    assert_tied(loaded)
    assert_tied(loaded.to(torch.float64))
    assert_tied(loaded.half())


def test_untied_output_matrix_is_saved(tiny_model, tmp_path):
    model = tiny_model(GPTForCausalLM, tie_word_embeddings=False)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_same_parameters(loaded, model)
    assert not torch.equal(loaded.lm_head.weight, loaded.transformer.embed_tokens.weight)


@each_class
def test_resized_vocabulary(tiny_model, model_class):
    model = tiny_model(model_class)
    before = model.base_model.embed_tokens.weight.clone()
    model.resize_token_embeddings(VOCABULARY + 3)
    assert model.config.vocab_size == VOCABULARY + 3
    assert torch.equal(model.base_model.embed_tokens.weight[:VOCABULARY], before)
    if model_class is GPTForCausalLM:
        ids = torch.tensor([[START, VOCABULARY + 2, 1]])
        outputs = model(ids, labels=ids)
        assert outputs.logits.shape == (1, 3, VOCABULARY + 3)
        assert outputs.loss.isfinite()
        assert not outputs.logits.softmax(-1)[..., PAD].any()


def test_configuration_round_trip(tiny_config, tmp_path):
    config = tiny_config(
        afn="swish", n_inner=48, norm_first=True, is_causal=False, release_quirks=True, id2label={0: "no", 1: "yes"}
    )
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is GPTConfig
    assert loaded.to_dict() | {"_name_or_path": ""} == config.to_dict()
    assert loaded.id2label == {0: "no", 1: "yes"}
    assert AutoConfig.for_model("hf_gpt", vocab_size=40482).to_dict() == GPTConfig().to_dict()


def test_names_of_transformers():
    config = GPTConfig(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=128)
    assert (config.n_embd, config.n_layer, config.n_head, config.n_positions) == (64, 3, 4, 128)
    config.intermediate_size = 100
    assert config.n_inner == 100


def test_every_field_is_documented():
    own = [name for name in GPTConfig.__annotations__ if name in GPTConfig.__dict__]
    named = re.findall(r"^        ([\w, ]+) \(`", GPTConfig.__doc__, re.MULTILINE)
    documented = [name for names in named for name in names.split(", ")]
    assert set(own) - {"model_type"} <= set(documented)
    assert len(own) > 20


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"n_embd": 30, "n_head": 4}, r"n_embd \(30\) must be a multiple of n_head \(4\)"),
        ({"vocab_size": 0}, "vocab_size must be at least 1"),
        ({"n_layer": 0}, "n_layer must be at least 1"),
        ({"n_head": -2}, "n_head must be at least 1"),
        ({"n_positions": 0}, "n_positions must be at least 1"),
        ({"attn_pdrop": 1.0}, "attn_pdrop must be at least 0 and less than 1, not 1.0"),
        ({"clf_pdrop": -0.1}, "clf_pdrop must be at least 0"),
        ({"classify_token_id": 24}, "classify_token_id is 24, outside the vocabulary of 24 rows"),
        ({"pad_token_id": -1}, "pad_token_id is -1, outside the vocabulary"),
        ({"vocab_size": 10}, "token_id is 2., outside the vocabulary of 10 rows: set it together with vocab_size"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_wrong_configuration(tiny_config, overrides, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(**overrides)


@pytest.mark.parametrize(
    "overrides",
    [{"afn": "tanh"}, {"n_layer": "2"}, {"n_head": 2.5}, {"norm_first": "yes"}, {"lm_coef": "0.5"}],
    ids=lambda value: "-".join(value),
)
def test_wrong_type_in_configuration(tiny_config, overrides):
    with pytest.raises(StrictDataclassFieldValidationError, match=next(iter(overrides))):
        tiny_config(**overrides)


def with_config(tiny_model, folder, overrides):
    """A saved model whose configuration says something else."""
    tiny_model(GPTForCausalLM).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | overrides))
    return folder


@pytest.mark.parametrize(
    "overrides",
    [
        *({name: 1 << 31} for name in ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner")),
        {"num_labels": 1 << 31},
        {"hidden_size": 1 << 31},
        {"n_layer": 1001},
    ],
    ids="-".join,
)
def test_sizes_that_no_model_has(tiny_model, tmp_path, overrides):
    """Refused by each class that reads it, before anything of the size is made."""
    with_config(tiny_model, tmp_path, overrides)
    with pytest.raises(ValueError, match=f"config.json of {tmp_path}: .* must be .*at most"):
        GPTForCausalLM.from_pretrained(tmp_path)
    for kind in (AutoConfig, AutoModelForCausalLM, *([AutoTokenizer] if "num_labels" in overrides else ())):
        with pytest.raises((ValueError, OverflowError), match=r"must be .*at most"):
            kind.from_pretrained(tmp_path)


@pytest.mark.whole
@pytest.mark.parametrize(
    "overrides", [{"n_layer": 900, "n_embd": 256}, {"n_embd": 65536}, {"vocab_size": 1 << 24}], ids="-".join
)
def test_a_configuration_of_more_than_the_weights_file_holds(tiny_model, tmp_path, overrides):
    with pytest.raises(ValueError, match=r"model.safetensors holds .* its config.json asks for"):
        GPTForCausalLM.from_pretrained(with_config(tiny_model, tmp_path, overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        {"to_dict": 5},
        {"dtype": "../x"},
        {"quantization_config": "x"},
        {"architectures": "GPTModel"},
        {"id2label": [1]},
        {"configuration_files": 7},
        {"n_embd": "x"},
        {"max_position_embeddings": None},
        {"hidden_size": 1e308},
        {"num_labels": "x"},
    ],
    ids="-".join,
)
def test_a_damaged_configuration_names_its_folder(tiny_model, tmp_path, overrides):
    with_config(tiny_model, tmp_path, overrides)
    for kind in (GPTForCausalLM, GPTConfig):
        with pytest.raises(ValueError, match=f"config.json of {tmp_path}"):
            kind.from_pretrained(tmp_path)
