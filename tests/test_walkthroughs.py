"""The walk-throughs hold what their blocks print, and the notebooks next to them the same."""

import re

import nbformat
import pytest
import walkthroughs
from nbformat import v4

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


def test_outputs_are_filled_in_and_become_cells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "# T\n\n```python\nx = 2\n```\n\nThen\n\n```python\nprint(x + 1)\n```\n```text\nold\n```\n"
    page += "\n```bash\necho hi\n```\n"
    filled = walkthroughs.filled_in(page)
    assert filled == page.replace("old", "3") + "```text\nhi\n```\n"
    assert walkthroughs.filled_in(filled) == filled
    cells = walkthroughs.notebook(filled).cells
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    assert sources[1:] == ["x = 2", "print(x + 1)", "%%bash\necho hi"]
    assert cells[-1].outputs == [v4.new_output("stream", name="stdout", text="hi\n")]


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
