"""
Run the walk-throughs of docs/walkthroughs: below each block the page then holds what it printed, and next to the page
stands the same as a notebook.

    python scripts/measure/walkthroughs.py language-model

Without names, all. Blocks run one after another in an empty folder, Python in one process; the pictures that they save
are those that the page shows.
"""

import base64
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat import v4

PAGES = Path(__file__).resolve().parents[2] / "docs" / "walkthroughs"
# A block, what it prints, and a picture that it saves.
BLOCK = re.compile(r"(?s)```(python|bash)\n(.*?)```\n(?:```text\n(.*?)```\n)?(?:\n!\[(.*?)\]\(images/(.*?)\)\n)?")
# The Trainer's logs.
LOG = re.compile(r"^(?:\{'|\[\d{4}-).*\n", re.MULTILINE)
INSTALL = """\
import importlib.util

clone = "../.."  # in Colab: first !git clone ADDRESS hf_gpt, then clone = "hf_gpt"
if importlib.util.find_spec("hf_gpt") is None:
    %pip install -q "{clone}[analysis]\""""


def filled_in(text: str) -> str:
    """The page with what its blocks print when they run, one after another, in the working directory."""
    names = {"__name__": "__main__"}
    # hf-gpt is that of the Python that runs this, whose environment need not be active.
    own = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def block(match: re.Match) -> str:
        kind, code, _, title, picture = match.groups()
        if kind == "bash":
            shell = ["bash", "-e", "-o", "pipefail", "-c", code]
            printed = subprocess.run(shell, stdout=subprocess.PIPE, text=True, env=own, check=True).stdout
        else:
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(code, "page", "exec"), names)
            printed = output.getvalue()
        printed = LOG.sub("", printed).rstrip()
        shown = f"```{kind}\n{code}```\n" + (f"```text\n{printed}\n```\n" if printed else "")
        return shown + (f"\n![{title}](images/{picture})\n" if picture else "")

    return BLOCK.sub(block, text)


def notebook(text: str) -> nbformat.NotebookNode:
    """The page as a notebook, whose pictures are outputs."""
    cells, end = [v4.new_code_cell(INSTALL)], 0
    for match in BLOCK.finditer(text):
        cells.append(v4.new_markdown_cell(text[end : match.start()].strip()))
        kind, code, printed, title, picture = match.groups()
        cells.append(v4.new_code_cell(("%%bash\n" if kind == "bash" else "") + code.rstrip()))
        if printed:
            cells[-1].outputs.append(v4.new_output("stream", name="stdout", text=printed))
        if picture:
            data = {"image/png": base64.b64encode((PAGES / "images" / picture).read_bytes()).decode()}
            cells[-1].outputs.append(v4.new_output("display_data", data | {"text/plain": title}))
        end = match.end()
    cells = [cell for cell in [*cells, v4.new_markdown_cell(text[end:].strip())] if cell.source]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def main() -> None:
    """Run the named pages, or all, and write them, their pictures and their notebooks."""
    os.environ["MPLBACKEND"] = "Agg"
    for page in [PAGES / f"{name}.md" for name in sys.argv[1:]] or sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            text = filled_in(text)
            for picture in re.findall(r"\(images/(.*?)\)", text):
                shutil.copy(picture, PAGES / "images")
        page.write_text(text, encoding="utf-8")
        nbformat.write(notebook(text), page.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
