"""Every page and figure in grey: the larger a number, the darker its place; and what is written can be read."""

import re
from itertools import pairwise

import numpy as np
import pytest

from hf_gpt.analysis.figures import grid_figure, heads_figure, words_figure, write_coloured, write_page
from hf_gpt.files import write_text
from hf_gpt.generation.surprisal import render_page

from ..support.browser import opened

LADDER = np.linspace(0, 1, 11)
WORDS = [f"w{number}" for number in range(len(LADDER))]
BLACK = (0, 0, 0)
# WCAG 2's, level AA.
LEAST_CONTRAST = 4.5
# Of elements that hold text: the ink, and the grounds from the page's to their own.
INKS_AND_GROUNDS = """elements => elements
  .filter(each => each.checkVisibility() && [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
  .map(each => {
    const ink = getComputedStyle(each)[each.closest("svg") ? "fill" : "color"], grounds = [];
    for (let node = each; node; node = node.parentElement) grounds.unshift(getComputedStyle(node).backgroundColor);
    return [ink, ...grounds];
  })"""


def over(ground, colour) -> np.ndarray:
    """A colour of red, green, blue and, if it has one, alpha on an opaque ground, all from 0 to 1."""
    colour = np.asarray(colour, float)
    alpha = colour[..., 3:] if colour.shape[-1] == 4 else 1
    return alpha * colour[..., :3] + (1 - alpha) * np.asarray(ground, float)


def luminance(colour) -> np.ndarray:
    """As WCAG 2 defines it, of a colour on white."""
    shares = over((1, 1, 1), colour)
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def check_darkening(colours) -> None:
    assert len(colours) == 0 or all(lighter > darker for lighter, darker in pairwise(luminance(colours)))


def check_readable(ink, ground) -> None:
    darker, lighter = np.sort([*np.broadcast_arrays(luminance(ink), luminance(ground))], axis=0)
    assert ((lighter + 0.05) / (darker + 0.05) >= LEAST_CONTRAST).all()


def css(text: str) -> np.ndarray:
    """A colour as a browser computes it."""
    red, green, blue, *alpha = map(float, re.findall(r"[\d.]+", text))
    return np.array([red / 255, green / 255, blue / 255, *(alpha or [1.0])])


def test_figures():
    """A grid has its scale next to it, where more is lighter; where words stand in it, more is darker."""
    plain, heads = grid_figure(LADDER[None], "a", "b", "c"), heads_figure(LADDER[None, None, None], "a")
    for figure, way in ((plain, -1), (heads, 1)):
        check_darkening(figure.axes[0].images[0].to_rgba(LADDER)[::way])
    (image,) = words_figure(LADDER[None], [WORDS], WORDS, "a").axes[0].images
    grounds = image.to_rgba(image.get_array())[0]
    check_darkening(grounds)
    check_readable(BLACK, grounds)


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
    if kind == "projection":
        points = np.random.default_rng(0).normal(size=(len(WORDS), 2)).tolist()
        write_page(path, "a", {"unit": "word", "layers": {"0": points}, "contexts": WORDS, "labels": WORDS})
        return "#none"
    write_coloured(folder / kind, "a", [{"words": WORDS, "values": (sign * LADDER).tolist(), "label": "b"}])
    return ".text button"


@pytest.mark.parametrize("kind", ["more", "less", "lens", "attention", "surprisal", "projection"])
def test_pages(kind, tmp_path):
    """The more, the darker; and all that is written can be read."""
    places = write(kind, tmp_path)
    with opened(tmp_path / f"{kind}.html") as page:
        if kind == "attention":
            page.locator("#from button").last.click()
            lines = [line.get_attribute("stroke-opacity") for line in page.locator("#lines line").all()]
            check_darkening([(*BLACK, float(opacity)) for opacity in lines])
        grounds = page.locator(places).evaluate_all("all => all.map(each => getComputedStyle(each).backgroundColor)")
        check_darkening([css(ground) for ground in grounds])
        found = page.locator("main *").evaluate_all(INKS_AND_GROUNDS)
        assert len(found) > 10
        for ink, *grounds in found:
            ground = (1, 1, 1)
            for each in grounds:
                ground = over(ground, css(each))
            check_readable(over(ground, css(ink)), ground)
