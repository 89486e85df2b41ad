"""The lens of the last layer is the model; of those before what its definition says."""

import numpy as np
import pytest
import torch

from hf_gpt.analysis.lens import lens, lens_statistics, tuned_lens

from ..support.browser import opened

IDS = [3, 1, 4, 1, 5, 9]


@torch.no_grad()
def test_lens(model):
    seen, row = lens(model, IDS), torch.tensor([IDS])
    outputs = model(row, output_hidden_states=True)
    assert torch.allclose(seen[-1], outputs.logits[0].log_softmax(-1), atol=1e-5)
    state = outputs.hidden_states[1]
    logits = model.token_logits(model.transformer.ln_f(state) if model.config.final_norm else state)
    assert torch.allclose(seen[1], logits[0].log_softmax(-1), atol=1e-5)
    surprisal, agreement, divergence = lens_statistics(seen, IDS).mean(-1)
    assert surprisal[-1] == pytest.approx(model(row, labels=row).loss.item() / np.log(2), rel=1e-4)
    assert (agreement[-1], divergence[-1]) == (1, 0)
    last, first = seen[-1, :-1], seen[0, :-1]
    expected = torch.nn.functional.kl_div(first, last, reduction="none", log_target=True).sum(-1).mean() / np.log(2)
    assert divergence[0] == pytest.approx(expected.item(), rel=1e-4)


def test_tuned_lens(model):
    """Nearer to the model on texts that it was not trained on; its last layer is the model; a seed gives its maps."""
    texts = torch.randint(16, (80, 12), generator=torch.Generator().manual_seed(0)).tolist()
    maps, again = (tuned_lens(model, texts[:60], steps=60, learning_rate=1e-2) for _ in range(2))
    assert all(map(torch.equal, maps.parameters(), again.parameters()))
    tuned, plain = (
        np.mean([lens_statistics(lens(model, ids, own), ids)[2] for ids in texts[60:]], (0, 2)) for own in (maps, None)
    )
    assert (tuned[:-1] < 0.9 * plain[:-1]).all()
    assert tuned[-1] == 0
    assert torch.equal(lens(model, IDS, maps)[-1], lens(model, IDS)[-1])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_tuned_lens_by_command(analyzed, tmp_path):
    (tmp_path / "story.txt").write_text("She opened the door and ran home. " * 20)
    flags = ("--tuned", "true", "--text_files", tmp_path / "story.txt", "--steps", 2)
    found, printed = analyzed("lens", "--text", "She ran home.", *flags)
    layers = found["layers"]
    assert layers["tuned_divergence"]["mean"][-1] == layers["divergence"]["mean"][-1] == 0
    assert (np.array(layers["tuned_divergence"]["mean"])[:-1] < np.array(layers["divergence"]["mean"])[:-1]).all()
    assert "tuned_divergence" in printed


def test_lens_by_command_and_its_page(analyzed, tmp_path):
    found, printed = analyzed("lens", "--text", "She ran <b>home</b>.", "the door " * 200)
    assert len(printed.splitlines()) == 6
    assert printed.startswith("Of 1 of 2 texts only the first ")
    assert found["layers"]["agreement"]["mean"][-1] == 1
    shown = found["lens"]
    with opened(tmp_path / "out" / "lens.html") as page:
        assert page.locator("#grid button").count() == 3 * len(shown["tokens"])
        assert page.locator("#name").inner_text() == "Layer 2, after “she”"
        for key in ("Tab", "ArrowUp", "ArrowRight"):
            page.keyboard.press(key)
        assert page.locator("#name").inner_text() == "Layer 1, after “she ran”"
        assert page.locator("#guesses td").nth(4).inner_text() == shown["guesses"][1][1][2][0]
        page.locator("#grid button").first.click()
        assert page.locator("#name").inner_text() == "Layer 0, after “she”"
