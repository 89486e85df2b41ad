"""Language models in CTranslate2's format: its logits and its greedy text are those of the model."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from hf_gpt import GPTConfig, GPTForCausalLM

from ..support.tiny import with_large_weights

ctranslate2 = pytest.importorskip("ctranslate2")
GPT2 = {"norm_first": True, "final_norm": True}


def save(folder, tiny_checkpoint, **settings):
    """A model with the tiny tokenizer's special tokens, and that tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    config = GPTConfig.from_pretrained(tiny_checkpoint, untrained_token_ids=[tokenizer.cls_token_id], **settings)
    model = with_large_weights(GPTForCausalLM(config), 0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def logits_of(folder, ids):
    generator = ctranslate2.Generator(str(folder))
    rows, lengths = ids.numpy().astype(np.int32), np.full(len(ids), ids.shape[1], dtype=np.int32)
    view = ctranslate2.StorageView.from_array
    return torch.from_numpy(np.array(generator.forward_batch(view(rows), view(lengths)))), generator


@pytest.mark.parametrize("settings", [{}, {"afn": "swish", "n_inner": 40}, GPT2, {"layer_norm_epsilon": 1e-3}])
@torch.no_grad()
def test_logits_and_greedy_text(converted, tiny_checkpoint, tmp_path, settings):
    model, tokenizer = save(tmp_path / "model", tiny_checkpoint, **settings)
    converted(tmp_path / "model", tmp_path / "served", "--to", "ctranslate2")
    ids = torch.randint(3, 20, (2, 12))
    served, generator = logits_of(tmp_path / "served", ids)
    kept = [index for index in range(model.config.vocab_size) if index not in model.excluded_token_ids]
    torch.testing.assert_close(served[..., kept], model(ids).logits[..., kept], atol=5e-5, rtol=0)
    assert served.softmax(-1)[..., model.excluded_token_ids].max() == 0
    assert AutoTokenizer.from_pretrained(tmp_path / "served")("the cat sat") == tokenizer("the cat sat")
    prompt = [tokenizer.convert_ids_to_tokens(ids[0].tolist())]
    found = generator.generate_batch(prompt, max_length=8, sampling_topk=1, include_prompt_in_result=False)
    expected = model.generate(ids[:1], max_new_tokens=8, do_sample=False)
    assert found[0].sequences_ids[0] == expected[0, ids.shape[1] :].tolist()


def test_fewer_bits(converted, tiny_checkpoint, tmp_path):
    save(tmp_path / "model", tiny_checkpoint)
    sizes = []
    for kind in ("float32", "int8"):
        converted(tmp_path / "model", tmp_path / kind, "--to", "ctranslate2", "--quantization", kind)
        sizes.append((tmp_path / kind / "model.bin").stat().st_size)
    assert sizes[1] < 0.5 * sizes[0]
