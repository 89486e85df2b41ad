"""Every page and figure in grey: the larger a number, the darker its place; and what is written can be read."""

import re
from itertools import pairwise

import numpy as np
import pytest

from hf_gpt.analysis.figures import grid_figure, heads_figure, words_figure
from hf_gpt.analysis.pages import write_coloured, write_page
from hf_gpt.files import write_text
from hf_gpt.generation.inspection import NextToken, Position, render_page

from ..support.browser import opened

LADDER = np.linspace(0, 1, 11)
WORDS = [f"w{number}" for number in range(len(LADDER))]
GUESSES = {"tokens": WORDS, "guesses": [[[[word, share]] for word, share in zip(WORDS, LADDER, strict=True)]]}
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
    assert all(lighter > darker for lighter, darker in pairwise(luminance(colours)))


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


def written(kind: str, folder) -> tuple[str, int]:
    """A page of rising numbers: the elements that have their colours, and how many stand before them."""
    if kind == "inspection":
        token = NextToken("a", True, 0.5)
        positions = [Position(token, 1, 16 * share, (token,)) for share in LADDER]
        write_text(folder / "inspection.html", render_page("a", token, positions))
        return ".text span", 1
    if kind == "lens":
        write_page(folder / "lens.html", "a", GUESSES)
        return "#grid button", 0
    if kind == "attention":
        weights = (1000 * LADDER[None]).repeat(len(WORDS), 0)
        path = {"name": "a", "tokens": WORDS, "weights": [[weights.tolist()]]}
        write_page(folder / "attention.html", "a", {"paths": [path]})
        return "#to div", 0
    sign = -1 if kind == "less" else 1
    write_coloured(folder / kind, "a", [{"words": WORDS, "values": (sign * LADDER).tolist(), "label": "b"}])
    return ".text button", 0


@pytest.mark.parametrize("kind", ["more", "less", "lens", "attention", "inspection"])
def test_pages(kind, tmp_path):
    places, before = written(kind, tmp_path)
    with opened(tmp_path / f"{kind}.html") as page:
        if kind == "attention":
            page.locator("#from button").last.click()
            lines = [line.get_attribute("stroke-opacity") for line in page.locator("#lines line").all()]
            check_darkening([(*BLACK, float(opacity)) for opacity in lines])
            canvas = "document.querySelector('canvas').getContext('2d').getImageData(0, 0, 11, 1).data"
            pixels = page.evaluate(f"[...{canvas}]")
            check_darkening(np.reshape(pixels, (-1, 4)) / 255)
        grounds = page.locator(places).evaluate_all("all => all.map(each => getComputedStyle(each).backgroundColor)")
        check_darkening([css(ground) for ground in grounds[before:]])
        check_page(page)


def test_maps(tmp_path):
    labels = [f"label {number}" for number in range(7)]
    points = np.random.default_rng(0).normal(size=(7, 2)).tolist()
    data = {"unit": "word", "layers": {"0": points}, "names": labels, "contexts": labels, "labels": labels}
    write_page(tmp_path / "projection.html", "a", data)
    with opened(tmp_path / "projection.html") as page:
        check_page(page)


def check_page(page) -> None:
    """All that is written on a page can be read."""
    found = page.locator("main *").evaluate_all(INKS_AND_GROUNDS)
    assert len(found) > 10
    for ink, *grounds in found:
        ground = (1, 1, 1)
        for each in grounds:
            ground = over(ground, css(each))
        check_readable(over(ground, css(ink)), ground)
