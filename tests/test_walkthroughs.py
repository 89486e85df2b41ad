"""The walk-throughs hold what their blocks print, and the notebooks next to them the same."""

import re

import nbformat
import pytest
import walkthroughs

PAGES = sorted(walkthroughs.PAGES.glob("*.md"))
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@each_page
def test_a_notebook_is_its_page(page):
    kept = nbformat.read(page.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(kept)
    assert kept == walkthroughs.notebook(page.read_text(encoding="utf-8"))


@each_page
def test_pictures_exist_and_every_block_printed_or_drew_or_defined(page):
    text = page.read_text(encoding="utf-8")
    assert len(walkthroughs.BLOCK.findall(text)) == len(re.findall(r"^```(?:python|bash)$", text, re.MULTILINE)) >= 4
    for picture in re.findall(r"\(images/(.*?)\)", text):
        assert (walkthroughs.PAGES / "images" / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@each_page
def test_blocks_run_and_print_what_the_page_says(page, tmp_path, monkeypatch):
    """The model's page word for word; other processors train and sample other numbers on the others."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    text = page.read_text(encoding="utf-8")
    found = walkthroughs.filled_in(text)
    assert found.count("False") == text.count("False")
    if page.stem == "model":
        assert found == text
    assert len(found.splitlines()) == pytest.approx(len(text.splitlines()), abs=8)
    for picture in re.findall(r"\(images/(.*?)\)", text):
        assert (tmp_path / picture).stat().st_size > 1000
