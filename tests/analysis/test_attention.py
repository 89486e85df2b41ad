"""Attention of texts against the eager implementation's; statistics of patterns that are known."""

import json

import numpy as np
import pytest
import torch

from hf_gpt import GPTForMultipleChoice
from hf_gpt.analysis.attention import attention_of, head_statistics

from ..support.browser import opened

IDS = [20, 1, 2, 3, 21, 4, 5, 22]


@pytest.mark.parametrize("gpt2", [False, True], ids=["gpt", "gpt2"])
def test_attention_is_that_of_the_eager_implementation(gpt2, attention, tiny_model):
    shape = {"norm_first": gpt2, "final_norm": gpt2}
    eager, model = (tiny_model(GPTForMultipleChoice, name, **shape) for name in ("eager", attention))
    expected = eager.base_model(torch.tensor([IDS]), output_attentions=True).attentions
    assert torch.allclose(attention_of(model, IDS), torch.cat(expected), atol=1e-6)
    assert model.config._attn_implementation == attention


def test_statistics_of_known_heads():
    """Heads that look at the first token, at the one before, and at all alike."""
    length = 6
    first, alike = torch.zeros(length, length), torch.ones(length, length).tril()
    first[:, 0] = 1
    previous = torch.eye(length).roll(-1, 1).tril()
    previous[0, 0] = 1
    weights = torch.stack([first, previous, alike / alike.sum(1, keepdim=True)])[None]
    entropy, distance, on_first, on_previous = head_statistics(weights)[:, 0]
    counts = np.arange(2, length + 1)
    assert entropy == pytest.approx([0, 0, np.log2(counts).mean()])
    assert distance == pytest.approx([3, 1, ((counts - 1) / 2).mean()])
    assert on_first == pytest.approx([1, 1 / 5, (1 / counts).mean()])
    assert on_previous == pytest.approx([1 / 5, 1, (1 / counts).mean()])


def test_attention_by_command(analyzed, tmp_path):
    found, printed = analyzed("attention")
    assert "most on the previous token: layer " in printed
    assert np.allclose(np.array(found["attention"]["weights"]).sum(-1), 1, atol=1e-5)
    first = found["statistics"]["first"]
    assert (np.array(first["low"]) <= np.array(first["mean"])).all()
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"attention.png", "attention.html"}


def test_heads_are_chosen_by_mouse_and_keyboard(analyzed, tmp_path):
    analyzed("attention", "--text", "It rained on Tom. He was <b>wet</b>.")
    data = json.loads((tmp_path / "out" / "attention.html").read_text().split('id="data">')[1].split("</script>")[0])
    tokens, weights = data["tokens"], data["weights"]
    with opened(tmp_path / "out" / "attention.html") as page:
        heading = page.locator("#name")
        page.click('[data-layer="1"][data-head="0"]')
        assert heading.inner_text() == "Layer 2, head 0"
        assert page.locator("#lines line").count() == sum(each >= 10 for row in weights[1][0] for each in row)
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowUp")
        assert heading.inner_text() == "Layer 1, head 1"
        # From the grid, whose heads are one stop of the Tab key, to the first words.
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.locator('#from [aria-pressed="true"]').inner_text() == tokens[2]
        assert page.locator("#lines line").count() == sum(each >= 10 for each in weights[0][1][2])
