"""Zero-shot answers of models that are not ours: as of candidates alone, and as lm-evaluation-harness gives them."""

import json
import shutil

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

from ..support.runs import evaluation, predictions
from ..support.stock_models import save_gpt2

CHOICES = ("a", "b", "c")
ITEMS = [
    {"context": "She didn't open the door, but", "a": "the window.", "b": "he did.", "c": "it rained", "label": 1},
    {"context": "The rain fell all night.", "a": "Streets were wet", "b": "It was dry", "c": "he", "label": 0},
    {"context": "Ünder the größte Brücke", "a": "the the", "b": "über", "c": "the door the door", "label": 2},
    {"context": "He opened", "a": "door", "b": "the door", "c": "all the windows", "label": 2},
]
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


def save_small(folder, kind="llama", model_class=AutoModelForCausalLM, **settings):
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
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def items(tmp_path):
    """The items as a file of their own."""
    file = tmp_path / "items.jsonl"
    rows = [item | {"choices": [item[name] for name in CHOICES]} for item in ITEMS]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def zero_shot(model, output, file, *flags) -> dict:
    columns = ["--task", "custom", "--context_column", "context", "--choice_columns", *CHOICES, "--test_file", file]
    return evaluation("--zero_shot", "--model_name_or_path", model, "--output_dir", output, *columns, *flags)


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_accuracy_is_that_of_lm_evaluation_harness(kind, items, tmp_path, own_datasets_cache):
    lm_eval = pytest.importorskip("lm_eval", reason="needs pip install lm_eval")
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    folder = tmp_path / "model"
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
    found = [[float(row[f"p({number})"]) for number in range(3)] for row in predictions(tmp_path / "out")]
    np.testing.assert_allclose(found, softmax(sums, axis=1), rtol=0, atol=1e-4)
    assert record["metrics"]["accuracy"] == results["results"]["items"]["acc,none"]
