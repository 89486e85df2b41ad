"""Parts that are known to matter are found; models are left as they were; each definition against one by hand."""

import pytest
import torch

from hf_gpt import GPTForCausalLM
from hf_gpt.analysis.ablate import attach, masked_losses, parts_of

TEXTS = [[1, 2, 3, 4, 5, 6], [7, 8, 9], [3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8]]


@torch.no_grad()
def test_the_parts_that_matter_are_found(model):
    """Nothing reads any head but one."""
    needed = {("heads", 2, 0)}
    parts = parts_of(model.config, "heads")
    for _, layer, head in {*parts} - needed:
        model.transformer.h[layer - 1].attn.c_proj.weight[:, 16 * head : 16 * (head + 1)] = 0
    whole, *changed = masked_losses(model, [[], *([part] for part in parts)], TEXTS)
    assert {part for part, losses in zip(parts, changed, strict=True) if (losses != whole).any()} == needed
    for loss, ids in zip(whole, TEXTS, strict=True):
        row = torch.tensor([ids])
        assert loss == pytest.approx(model(row, labels=row).loss.item(), rel=1e-5)


def test_nothing_changes_nothing_and_nothing_is_left_behind(model):
    row, transformer = torch.tensor(TEXTS[:1]), model.transformer
    logits = model(row).logits
    with attach(model, []):
        assert torch.equal(model(row).logits, logits)
    with attach(model, [part for kind in ("heads", "layers") for part in parts_of(model.config, kind)]):
        assert not torch.equal(model(row).logits, logits)
    with attach(model, [("layers", 1, 0)]):
        without = model(row).logits
    assert torch.equal(model(row).logits, logits)
    assert not any(module._forward_pre_hooks for module in model.modules())
    transformer.h = transformer.h[1:]
    assert torch.equal(model(row).logits, without)


def test_masks_of_another_model(model):
    for part in (("heads", 3, 0), ("neurons", 1, 0), ("layers", 0, 0)):
        with pytest.raises(ValueError, match=f"of another model: this one has no {part[0]}"):
            attach(model, [part])


@pytest.mark.parametrize("what", ["heads", "layers"])
def test_ablation_by_command(what, analyzed, tiny_checkpoint):
    found, printed = analyzed("ablate", "--what", what, "--text", "She ran home.", "He slept.")
    parts = found["effects"]["parts"]
    assert len(parts) == {"heads": 4, "layers": 2}[what]
    assert parts[0]["name"] in printed
    assert all(row["low"] <= row["change"] <= row["high"] for row in parts)
    assert parts == sorted(parts, key=lambda row: -row["change"])
    mask = found["mask"]["parts"]
    attach(GPTForCausalLM.from_pretrained(tiny_checkpoint), mask)
    curve = found["curve"]["curves"]["least needed first"]
    assert curve[len(mask)] <= curve[0] + 0.01
    assert curve[1] - curve[0] == pytest.approx(parts[-1]["change"], abs=1e-6)
