"""Our checkpoints in other people's tools; each test is skipped where its tool is not installed."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_gpt import GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification

from ..support.runs import REPOSITORY
from ..support.tiny import CLASSIFY, DELIMITER, PAD, START

TEXTS = ["She opened the door.", "The rain fell all night upon the roofs.", "He did n't answer, and she waited."] * 4
pytestmark = pytest.mark.whole


def test_sft_trainer(tiny_checkpoint, tmp_path, own_datasets_cache):
    """TRL computes the loss from our hidden states and output matrix itself."""
    trl = pytest.importorskip("trl", reason="needs pip install trl")
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint)
    # Texts get the tokenizer's end-of-text token, which the original GPT does not have: one must be named.
    options = {"per_device_train_batch_size": 12, "use_cpu": True, "bf16": False, "activation_checkpointing": False}
    options |= {"output_dir": str(tmp_path), "report_to": [], "eos_token": "_classify_"}
    trainer = trl.SFTTrainer(
        model=model,
        args=trl.SFTConfig(**options),
        train_dataset=Dataset.from_dict({"text": TEXTS}),
        processing_class=tokenizer,
    )
    batch = next(iter(trainer.get_train_dataloader()))
    # It is written after the text as any other word, as no text becomes a special token.
    assert not batch["input_ids"].eq(tokenizer.cls_token_id).any()
    model.eval()
    with torch.no_grad():
        theirs, ours = trainer.compute_loss(model, {**batch}), model(**batch).loss
    # Their softmax runs over the padding row, too: one of 8,004, all alike in a new model.
    torch.testing.assert_close(theirs, ours + np.log(8004 / 8003), rtol=0, atol=1e-4)


class Logits(nn.Module):
    """A model with conventional inputs and one output, as tools that export want it."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


def batch_of(model_class: type, batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences of different lengths with the special tokens of a task, padded on the right."""
    choices = 3 if model_class is GPTForMultipleChoice else 1
    ids = torch.randint(0, START, (batch * choices, length))
    mask = torch.ones_like(ids)
    for row in range(len(ids)):
        end = length - 1 - row % 3
        ids[row, 0], ids[row, 2], ids[row, end] = START, DELIMITER, CLASSIFY
        ids[row, end + 1 :], mask[row, end + 1 :] = PAD, 0
    shape = (batch, choices, length) if choices > 1 else (batch, length)
    return ids.view(shape), mask.view(shape)


# torch's own exporter warns of torch's own tree functions.
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.:FutureWarning")
@pytest.mark.parametrize("model_class", [GPTForCausalLM, GPTForSequenceClassification, GPTForMultipleChoice])
@torch.no_grad()
def test_export(tiny_model, model_class):
    """The batch and the length may change, the number of choices may not."""
    model = Logits(tiny_model(model_class, num_labels=4)).eval()
    last = 2 if model_class is GPTForMultipleChoice else 1
    dimensions = {0: torch.export.Dim("batch", max=64), last: torch.export.Dim("length", min=4, max=32)}
    shapes = {"input_ids": dimensions, "attention_mask": dimensions}
    exported = torch.export.export(model, batch_of(model_class, 4, 12), dynamic_shapes=shapes).module()
    for size in [(2, 9), (3, 14), (1, 32)]:
        inputs = batch_of(model_class, *size)
        torch.testing.assert_close(exported(*inputs), model(*inputs), rtol=0, atol=1e-4)


PAGE = (REPOSITORY / "docs/other-tools.md").read_text(encoding="utf-8")
BLOCKS = {
    section.split("\n", 1)[0]: block
    for section in PAGE.split("\n## ")
    for block in re.findall(r"```py\n(.*?)```", section, flags=re.DOTALL)
}
# Where it is not the heading in small letters.
MODULES = {"lm-evaluation-harness": "lm_eval", "ONNX": "onnxruntime", "TransformerLens": "transformer_lens"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # the tools' own
@pytest.mark.parametrize("tool", BLOCKS)
def test_what_the_page_of_other_tools_says(tool, tmp_path, monkeypatch, own_datasets_cache):
    module = MODULES.get(tool, tool.lower().replace("-", "_"))
    pytest.importorskip(module, reason='needs pip install ".[tools]"')
    monkeypatch.chdir(tmp_path)
    Path("block.py").write_text(BLOCKS[tool], encoding="utf-8")  # nnsight reads its source
    runpy.run_path("block.py")
