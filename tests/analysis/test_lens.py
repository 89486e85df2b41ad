"""The lens of the last layer is the model; of those before what its definition says."""

import json

import numpy as np
import pytest
import torch

from hf_gpt import GPTForCausalLM
from hf_gpt.analysis.lens import lens, lens_statistics

from ..support.browser import opened

IDS = [3, 1, 4, 1, 5, 9]


@pytest.mark.parametrize("gpt2", [False, True], ids=["gpt", "gpt2"])
@torch.no_grad()
def test_lens(gpt2, tiny_model):
    model = tiny_model(GPTForCausalLM, norm_first=gpt2, final_norm=gpt2)
    seen, row = lens(model, IDS), torch.tensor([IDS])
    outputs = model(row, output_hidden_states=True)
    assert torch.allclose(seen[-1], outputs.logits[0].log_softmax(-1), atol=1e-5)
    state = outputs.hidden_states[1]
    logits = model.token_logits(model.transformer.ln_f(state) if gpt2 else state)
    assert torch.allclose(seen[1], logits[0].log_softmax(-1), atol=1e-5)
    surprisal, agreement, divergence = lens_statistics(seen, IDS)
    assert surprisal[-1] == pytest.approx(model(row, labels=row).loss.item() / np.log(2), rel=1e-4)
    assert (agreement[-1], divergence[-1]) == (1, 0)
    last, first = seen[-1, :-1], seen[0, :-1]
    expected = torch.nn.functional.kl_div(first, last, reduction="none", log_target=True).sum(-1).mean() / np.log(2)
    assert divergence[0] == pytest.approx(expected.item(), rel=1e-4)


def test_lens_by_command_and_its_page(analyzed):
    out, printed = analyzed("lens", "--text", "She ran <b>home</b>.", "the door " * 200, "--top_tokens", 3)
    assert len(printed.splitlines()) == 6
    assert printed.startswith("Of 1 of 2 texts only the first ")
    layers = json.loads((out / "layers.json").read_text())
    assert layers["agreement"]["mean"][-1] == 1
    shown = json.loads((out / "lens.json").read_text())
    with opened(out / "lens.html") as page:
        assert page.locator("#grid button").count() == 3 * len(shown["tokens"])
        assert page.locator("#name").inner_text() == "Layer 2, after “she”"
        for key in ("Tab", "ArrowUp", "ArrowRight"):
            page.keyboard.press(key)
        assert page.locator("#name").inner_text() == "Layer 1, after “she ran”"
        assert page.locator("#guesses td").nth(4).inner_text() == shown["guesses"][1][1][2][0]
        page.locator("#grid button").first.click()
        assert page.locator("#name").inner_text() == "Layer 0, after “she”"
