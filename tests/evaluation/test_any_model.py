"""Zero-shot answers of models that are not ours: as of candidates alone, and as lm-evaluation-harness gives them."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.special import softmax
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    PreTrainedTokenizerFast,
)

from ..support.stock_models import save_gpt2
from .test_zero_shot import (
    ITEMS,
    assert_choices_are_scored_as_alone,
    assert_words_are_scored_as_alone,
    probabilities,
    write_items,
    zero_shot,
)

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
HARNESS_TASK = """
task: items
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: multiple_choice
doc_to_text: context
doc_to_choice: choices
doc_to_target: label
metric_list: [{metric: acc}]
"""


def save_small(folder, kind="llama", model_class=AutoModelForCausalLM, max_shard_size="5GB", **settings):
    """A model with large weights and a tokenizer as Llama's: a mark of spaces, and a token before every text."""
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    texts = [str(value) for item in ITEMS for value in item.values()]
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=340, special_tokens=special))
    backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **tokens).save_pretrained(folder)
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SMALL | {"vocab_size": 340, "max_position_embeddings": 64} | settings)
    model = model_class.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return folder


@pytest.mark.parametrize(("score", "shards"), [("mean", "30KB"), ("sum", "5GB")], ids=["several files", "one file"])
def test_candidates_are_scored_as_alone(score, shards, tmp_path, own_datasets_cache):
    model = save_small(tmp_path / "model", max_shard_size=shards)
    assert_choices_are_scored_as_alone(model, tmp_path, score)


def test_words_behind_a_prompt(tmp_path, own_datasets_cache):
    assert_words_are_scored_as_alone(save_small(tmp_path / "model"), tmp_path)


def without_a_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("model.norm.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def as_a_pickle(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def with_a_kernel_of_the_hub(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"_attn_implementation": "user/kernel"}))


@pytest.mark.parametrize(
    ("settings", "change", "reason"),
    [
        ({"kind": "mamba"}, None, "MambaForCausalLM cannot hold token trees: its states are recurrent"),
        ({"kind": "bloom"}, None, "BloomForCausalLM cannot hold token trees: .*position_ids"),
        ({"kind": "t5", "model_class": AutoModelForSeq2SeqLM}, None, "Unrecognized configuration class.*T5Config"),
        ({"vocab_size": 300}, None, "The tokenizer has 3.. tokens and .* 300 rows"),
        ({}, without_a_tensor, "model lacks model.norm.weight"),
        ({}, as_a_pickle, "model.safetensors"),
        ({}, with_a_kernel_of_the_hub, "names a kernel of the Hub"),
    ],
    ids=["mamba", "bloom", "t5", "rows", "incomplete", "pickle", "kernel"],
)
def test_what_does_not_answer_says_why(settings, change, reason, tmp_path, own_datasets_cache):
    model = save_small(tmp_path / "model", **settings)
    if change is not None:
        change(model)
    with pytest.raises((ValueError, OSError), match=reason):
        zero_shot(model, tmp_path / "out", write_items(tmp_path))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_accuracy_is_that_of_lm_evaluation_harness(kind, tmp_path, own_datasets_cache):
    lm_eval = pytest.importorskip("lm_eval", reason="needs pip install lm_eval")
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    folder, items = tmp_path / "model", write_items(tmp_path)
    (save_small if kind == "llama" else save_gpt2)(folder)
    (tmp_path / "items.yaml").write_text(HARNESS_TASK.replace("FILE", str(items)), encoding="utf-8")
    results = lm_eval.simple_evaluate(
        model=HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=2),
        tasks=["items"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        bootstrap_iters=0,
    )
    samples = sorted(results["samples"]["items"], key=lambda sample: sample["doc_id"])
    sums = np.array([[score for score, _ in sample["filtered_resps"]] for sample in samples])
    record = zero_shot(folder, tmp_path / "out", items, "--zero_shot_score", "sum")
    np.testing.assert_allclose(probabilities(tmp_path / "out"), softmax(sums, axis=1), rtol=0, atol=1e-4)
    assert record["metrics"]["accuracy"] == results["results"]["items"]["acc,none"]
