"""`hf-gpt analyze WHAT`: the analyses, their help, what they refuse, and what all share."""

import json

import numpy as np
import pytest

from hf_gpt.analysis import SENTENCES, Example, read_examples
from hf_gpt.analysis.figures import cells_figure, write_figure, write_page
from hf_gpt.commands.analyze import ANALYSES


def test_list_of_analyses(hf_gpt):
    status, printed, _ = hf_gpt("analyze")
    assert status == 0
    assert all(f"\n  {name} " in printed for name in ANALYSES)
    wrong = (2, "hf-gpt analyze: there is no analysis atention; did you mean attention?\n")
    assert hf_gpt("analyze", "atention")[::2] == wrong


@pytest.mark.parametrize("what", ANALYSES)
def test_every_analysis_refuses(what, hf_gpt, tiny_checkpoint, tmp_path):
    (tmp_path / "full" / "file").mkdir(parents=True)
    needed = {"compare": ("--other", tiny_checkpoint)}
    needed["patch"] = ("--text", "She ran.", "--corrupted", "She sat.", *ANSWERS)
    out, other = ("--output_dir", tmp_path / "out"), needed.get(what, ())
    # Agreement reads pairs, probe texts with labels, and patch two prompts.
    empty = () if what in ("agreement", "probe", "patch") else ("--text", "She ran.", " ")
    empty += ("--unit", 1, 0) if what == "neurons" else ()
    calls = [
        (("--model_name_or_path", "no/such/folder", *out), "no/such/folder"),
        (("--model_name_or_path", "no/such/folder", "--output_dir", tmp_path / "full"), "--overwrite"),
        *([(("--model_name_or_path", tiny_checkpoint, *out, *empty), "write")] if empty else []),
    ]
    for flags, message in calls:
        status, _, errors = hf_gpt("analyze", what, *other, *flags)
        assert (status, errors.count("\n"), message in errors) == (2, 1, True), errors
        assert errors.startswith("hf-gpt analyze: ")
    assert not (tmp_path / "out").exists()


FILES = {"rows.txt": "One.\nTwo.\n", "rows.csv": "text,label\nOne.,a\nTwo.,b\n"}
ANSWERS = ("--answers", "day", "night")
FILES |= {"three.csv": f"{FILES['rows.csv']}Six.,c\n", "none.csv": "text,label\n"}


@pytest.mark.parametrize(
    ("what", "flags", "message"),
    [
        ("importance", ("--choices", "a", "b", "--text", "c"), "--choices does not go with"),
        ("importance", ("--class_name", "a"), "--class_name does not go with"),
        ("importance", ("--next_word", " "), "has no token"),
        ("importance", ("--text", "a", "--next_word", "b " * 900), "more than the model's context"),
        ("project", ("--words", "a"), "--words are words in context: add --unit word"),
        ("project", ("--text", "One.", "Two."), "2 vectors make no map"),
        ("project", ("--text", "One.", "--file", "rows.csv"), "Give one of --text, --file"),
        ("project", ("--file", "none.csv"), "the file has no rows"),
        ("importance", ("--choices", "a", "--text", "b"), "--choices takes two or more, and one --text"),
        ("probe", ("--tasks", "tense"), "--tasks are those of a treebank"),
        ("probe", ("--file", "rows.txt"), "no text has a label"),
        ("agreement", ("--file", "no.tsv"), "No such file"),
        ("neurons", ("--file", "rows.txt"), "two labels or more"),
        ("neurons", ("--file", "three.csv"), "not by 3 classes"),
        ("neurons", ("--file", "rows.csv", "--unit", 3, 0), "there are layers 1 to 2 of 128 units"),
        ("neurons", ("--file", "rows.csv", "--unit", 2), "two numbers"),
        ("lens", ("--tuned", "true", "--text_files", "no.txt"), "no.txt"),
        ("patch", (*ANSWERS, "--corrupted", "She sat."), "Give one clean prompt"),
        ("patch", ("--answers", "", "night", "--text", "She ran.", "--corrupted", "She sat."), "and two words"),
        ("patch", (*ANSWERS, "--text", "She ran.", "--corrupted", "She"), "has 3 tokens, the corrupted one 1"),
        ("patch", (*ANSWERS, "--text", "She ran.", "--corrupted", "She ran."), "the same preference"),
    ],
)
def test_wrong_flags(what, flags, message, hf_gpt, tiny_checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    model = ("--model_name_or_path", tiny_checkpoint, "--output_dir", tmp_path / "out")
    status, _, errors = hf_gpt("analyze", what, *model, *flags)
    assert (status, message in errors.splitlines()[-1]) == (2, True), errors
    assert not (tmp_path / "out").exists()


def test_examples_of_files(tmp_path):
    assert {example.label for example in read_examples(SENTENCES)} == {"positive", "negative"}
    (tmp_path / "lines.txt").write_text("One.\nTwo.\n")
    assert read_examples(tmp_path / "lines.txt") == [Example("One."), Example("Two.")]
    (tmp_path / "table.csv").write_text("text,label\nOne.,a\n,b\n")
    with pytest.raises(ValueError, match=r"table\.csv.*3.*no text in the column 'text'"):
        read_examples(tmp_path / "table.csv")


def test_pages_hold_their_data_as_text(tmp_path):
    evil = "</script><script>alert(1)</script>"
    data = {"tokens": [evil], "weights": [[[[float("nan")]]]]}
    write_page(tmp_path / "attention.html", evil, data)
    page = (tmp_path / "attention.html").read_text()
    assert ("alert(1)</script>" in page, "default-src 'none'" in page) == (False, True)
    held = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(held) == {"tokens": [evil], "weights": [[[[None]]]]}


def test_figures_show_words_as_they_are(tmp_path):
    """Dollars are no formula, and what the font lacks is no error."""
    words = ["$$", "$x$", "\x08", "語"]
    figure = cells_figure(np.full((1, 4), 0.5), [words], words, "a")
    write_figure(tmp_path / "grid.png", figure, {"grid": words})
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "grid.json").read_text()) == {"grid": words}
