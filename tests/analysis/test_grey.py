"""Every page in grey: the larger a number, the darker its place."""

import re
from itertools import pairwise

import numpy as np
import pytest

from hf_gpt.analysis.figures import write_page
from hf_gpt.files import write_text
from hf_gpt.generation.surprisal import render_page

from ..support.browser import opened

LADDER = np.linspace(0, 1, 11)
WORDS = [f"w{number}" for number in range(len(LADDER))]


def luminance(colour: str) -> float:
    """As WCAG 2 defines it, of a colour on white as a browser computes it: red, green, blue and, below 1, alpha."""
    *colour, alpha = [*map(float, re.findall(r"[\d.]+", colour)), 1.0][:4]
    shares = 1 - alpha * (1 - np.array(colour) / 255)
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def write(kind: str, folder) -> str:
    """A page of rising numbers; the elements that have their colours."""
    path, sign = folder / f"{kind}.html", -1 if kind == "less" else 1
    if kind == "surprisal":
        row = {"word": "w", "word_number": 1, "start": 0, "end": 1, "entropy": 1.0, "rank": 1, "likeliest": []}
        rows = [row | {"surprisal": 20 * share} for share in LADDER]
        write_text(path, render_page("a", [("b", "w " * len(rows))], rows, "bits"))
        return ".text span"
    if kind == "lens":
        guesses = [[[word, share]] for word, share in zip(WORDS, LADDER, strict=True)]
        write_page(path, "a", {"tokens": WORDS, "guesses": [guesses]})
        return "#grid button"
    if kind == "attention":
        weights = (1000 * LADDER[None]).repeat(len(WORDS), 0)
        write_page(path, "a", {"tokens": WORDS, "weights": [[weights.tolist()]]})
        return "#to div"
    texts = [{"words": WORDS, "values": sign * LADDER, "label": "b"}]
    write_page(path, "a", {"texts": texts}, "coloured")
    return ".text button"


@pytest.mark.parametrize("kind", ["more", "less", "lens", "attention", "surprisal"])
def test_pages(kind, tmp_path):
    places = write(kind, tmp_path)
    with opened(tmp_path / f"{kind}.html") as page:
        if kind == "attention":
            page.locator("#from button").last.click()
        grounds = page.locator(places).evaluate_all("all => all.map(each => getComputedStyle(each).backgroundColor)")
        assert len(grounds) == len(LADDER)
        assert all(lighter > darker for lighter, darker in pairwise(map(luminance, grounds)))
