"""Parts that are known to matter are found; models are left as they were; each definition against one by hand."""

import pytest
import torch
from torch import nn
from transformers import AutoTokenizer

from hf_gpt import GPTForSequenceClassification
from hf_gpt.analysis.ablate import attach, load_mask, masked, parts_of, task_errors, text_losses

from ..support.tiny import CLASSIFY, START

TEXTS = [[1, 2, 3, 4, 5, 6], [7, 8, 9], [3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8]]


@torch.no_grad()
def test_the_parts_that_matter_are_found(model):
    """Nothing reads any head or neuron but these."""
    needed = {("heads", 2, 0), ("neurons", 1, 7), ("neurons", 2, 13)}
    for layer, block in enumerate(model.transformer.h, 1):
        for head in {0, 1} - {number for kind, place, number in needed if (kind, place) == ("heads", layer)}:
            block.attn.c_proj.weight[:, 16 * head : 16 * (head + 1)] = 0
        block.mlp.c_proj.weight[:, [unit for unit in range(16) if ("neurons", layer, unit) not in needed]] = 0
    parts = [*parts_of(model.config, "heads"), *parts_of(model.config, "neurons")]
    whole, *changed = masked(model, [[], *([part] for part in parts)], lambda: text_losses(model, TEXTS))
    assert {part for part, losses in zip(parts, changed, strict=True) if (losses != whole).any()} == needed
    for loss, ids in zip(whole, TEXTS, strict=True):
        row = torch.tensor([ids])
        assert loss == pytest.approx(model(row, labels=row).loss.item(), rel=1e-5)


def test_nothing_changes_nothing_and_nothing_is_left_behind(model):
    row, transformer = torch.tensor(TEXTS[:1]), model.transformer
    logits = model(row).logits
    with attach(model, []):
        assert torch.equal(model(row).logits, logits)
    with attach(model, [part for kind in ("heads", "neurons", "layers") for part in parts_of(model.config, kind)]):
        assert not torch.equal(model(row).logits, logits)
    with attach(model, [("layers", 1, 0)]):
        without = model(row).logits
    assert torch.equal(model(row).logits, logits)
    assert not any(module._forward_pre_hooks for module in model.modules())
    transformer.h = transformer.h[1:]
    assert torch.equal(model(row).logits, without)


def test_masks_that_are_of_no_model_or_another(model, tmp_path):
    path = tmp_path / "mask.json"
    for wrong in ('{"parts": [["heads", 1]]}', '{"first_layer": 1, "heads": [[1, 0]]}', "[]"):
        path.write_text(wrong)
        with pytest.raises(ValueError, match=r"mask\.json"):
            load_mask(path)
    for part in (("heads", 3, 0), ("neurons", 1, 16), ("layers", 0, 0)):
        with pytest.raises(ValueError, match=f"of another model: this one has no {part[0]}"):
            attach(model, [part])


def test_errors_of_a_classifier(tiny_model):
    model, labels = tiny_model(GPTForSequenceClassification, num_labels=3), [0, 1, 2, 0]
    rows = [torch.tensor([[START, *ids, CLASSIFY]]) for ids in TEXTS]
    logits = torch.cat([model(row, attention_mask=torch.ones_like(row)).logits for row in rows])
    expected = nn.functional.cross_entropy(logits, torch.tensor(labels), reduction="none").tolist()
    assert task_errors(model, TEXTS, labels).tolist() == pytest.approx(expected, rel=1e-5)
    wrong = (logits.argmax(-1) != torch.tensor(labels)).tolist()
    assert task_errors(model, TEXTS, labels, "error").tolist() == wrong


@pytest.mark.parametrize("what", ["heads", "neurons", "layers"])
def test_ablation_by_command(what, analyzed, tmp_path):
    found, printed = analyzed("ablate", "--what", what, "--text", "She ran home.", "He slept.")
    parts = found["effects"]["parts"]
    assert len(parts) == {"heads": 4, "neurons": 256, "layers": 2}[what]
    assert parts[0]["name"] in printed
    assert all(row["low"] <= row["change"] <= row["high"] for row in parts)
    assert parts == sorted(parts, key=lambda row: -row["change"])
    mask = load_mask(tmp_path / "out" / "mask.json")
    curve = found["curve"]["curves"]["least needed first"]
    assert curve[len(mask)] <= curve[0] + 0.01
    assert curve[1] - curve[0] == pytest.approx(parts[-1]["change"], abs=1e-6)


def test_a_classifier_by_command(analyzed, tiny_checkpoint, tmp_path):
    GPTForSequenceClassification.from_pretrained(tiny_checkpoint, num_labels=2).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path / "model")
    (tmp_path / "rows.csv").write_text("text,label\nShe ran.,LABEL_0\nHe sat.,LABEL_1\n")
    flags = ("--metric", "error", "--file", tmp_path / "rows.csv")
    _, printed = analyzed("ablate", *flags, model=tmp_path / "model")
    assert "error of 2 texts: 0.5000" in printed
    (tmp_path / "rows.csv").write_text("text,label\nShe ran.,a\n")
    _, printed = analyzed("ablate", *flags, model=tmp_path / "model", status=2)
    assert "has the labels LABEL_0, LABEL_1, not a" in printed
