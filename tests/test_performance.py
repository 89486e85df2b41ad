"""Fast float32 products and models packed for inference: the same numbers, by other kernels."""

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from hf_gpt import GPTForCausalLM, GPTForSequenceClassification, pack_for_inference, use_fast_float32
from hf_gpt.commands import parse_arguments
from hf_gpt.performance import PACKED_DTYPES
from hf_gpt.training.trainer import choose_products

from .support.runs import ARGUMENTS, finetune
from .support.tiny import CLASSIFY, MULTIPLIES, VOCABULARY, build_model

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture(autouse=True)
def own_setting():
    before = torch.backends.mkldnn.matmul.fp32_precision
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before


@pytest.fixture
def model():
    return build_model(GPTForCausalLM)


def setting():
    return torch.backends.mkldnn.matmul.fp32_precision


def test_products_of_bfloat16_are_not_taken(monkeypatch):
    """As on processors with AMX: however fast it is, it is not float32."""
    plain = nn.functional.linear

    def coarse(states, weight):
        if setting() != "bf16":
            return plain(states, weight)
        return plain(states.bfloat16(), weight.bfloat16()).float()

    monkeypatch.setattr(nn.functional, "linear", coarse)
    monkeypatch.setattr("hf_gpt.performance._LEAST_GAIN", 0.0)
    assert not use_fast_float32()
    assert setting() == "none"


def test_a_run_records_its_products_and_resumes_with_them(tiny_checkpoint, tmp_path):
    flags = ["--task", "questions", "--max_train_rows", 8, "--max_eval_rows", 4, "--output_dir", tmp_path / "out"]
    flags += ["--model_name_or_path", tiny_checkpoint, "--fast_float32", "true"]
    assert finetune(*flags)["fast_float32"]
    assert "products by oneDNN" in (tmp_path / "out" / "README.md").read_text()
    (checkpoint,) = (tmp_path / "out").glob("checkpoint-*")
    state = checkpoint / "trainer_state.json"
    for recorded in (True, False):
        use_fast_float32(not recorded)
        *_, resumed = parse_arguments(ARGUMENTS, ["--output_dir", str(tmp_path), "--use_cpu", "true"])
        choose_products(resumed, str(checkpoint))
        assert resumed.fast_float32 == recorded
        assert setting() == ("bf16" if recorded else "none")
        # Then as a version wrote it that did not know the setting.
        state.write_text(state.read_text().replace('"Products"', '"Unknown"'))


@pytest.mark.parametrize("dtype", PACKED_DTYPES)
@torch.no_grad()
def test_packed_logits(model, dtype):
    if not MULTIPLIES.get(dtype, True):
        pytest.skip("this CPU has no instructions for it")
    ids = torch.randint(20, (3, 12))
    expected = model(ids).logits[..., :20]
    expected_text = model.generate(ids, max_new_tokens=6, do_sample=False)
    found = pack_for_inference(model, dtype)(ids).logits[..., :20]
    bound = {"float32": 1e-6, "bfloat16": 0.02, "int8": 0.05}[dtype]
    assert (found - expected).norm() < bound * expected.norm()
    if dtype == "float32":
        assert torch.equal(model.generate(ids, max_new_tokens=6, do_sample=False), expected_text)
    else:
        assert not torch.equal(found, expected)
    alone = model(ids[1:2]).logits[..., :20]  # what is in the same batch changes nothing
    torch.testing.assert_close(alone, found[1:2], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("model_class", [GPTForCausalLM, GPTForSequenceClassification])
@torch.no_grad()
def test_packed_losses(model_class):
    """That of the language model needs the rows of the vocabulary, which are not packed away."""
    model, ids = build_model(model_class), torch.tensor([[3, 4, 5, CLASSIFY], [6, 7, 8, CLASSIFY]])
    labels = ids if model_class is GPTForCausalLM else torch.tensor([0, 1])
    expected = model(ids, labels=labels).loss
    torch.testing.assert_close(pack_for_inference(model)(ids, labels=labels).loss, expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda model, folder: model.save_pretrained(folder),
        lambda model, folder: model.resize_token_embeddings(VOCABULARY + 2),
        lambda model, folder: get_peft_model(model, LoraConfig(target_modules=["c_fc"])),
        lambda model, folder: model(inputs_embeds=torch.randn(1, 4, 32, requires_grad=True)),
        lambda model, folder: copy.deepcopy(model),
        lambda model, folder: pack_for_inference(model, "bfloat16").transformer.h[0].mlp.c_fc.weight,
    ],
    ids=["save", "resize", "adapt", "train", "copy", "read"],
)
def test_packed_model_is_not_changed(model, tmp_path, change):
    pack_for_inference(model)
    with pytest.raises((RuntimeError, ValueError), match=r"packed for inference|PackedLinear.* not supported"):
        change(model, tmp_path / "saved")
    assert not (tmp_path / "saved" / "model.safetensors").exists()


def test_what_is_not_packed(model, monkeypatch):
    monkeypatch.setattr("torch.cpu._is_vnni_supported", lambda: False)
    with pytest.raises(ValueError, match="no instructions for products of int8"):
        pack_for_inference(model, "int8")
    with pytest.raises(ValueError, match="float32, bfloat16, int8"):
        pack_for_inference(model, "int4")
    packed = pack_for_inference(build_model(GPTForCausalLM))
    with pytest.raises(ValueError, match="packed for inference"):
        pack_for_inference(packed, "bfloat16")
    with pytest.raises(ValueError, match=r"float32 model on the CPU.*bfloat16"):
        pack_for_inference(model.bfloat16())
