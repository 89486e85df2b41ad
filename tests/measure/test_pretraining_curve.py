"""The curve of a pretraining run: the held-out documents, in the order of what was read, resumable."""

import json
import runpy
import shutil
import sys

import pytest

from ..support.runs import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "measure" / "pretraining.py"


def test_models_of_a_run_are_measured_once_in_their_order(tiny_checkpoint, tmp_path, monkeypatch):
    books = tmp_path / "books"
    books.mkdir()
    for number in range(4):
        words = " ".join(f"the {word} of book {number} was old ." for word in ("house", "river", "door") * 8)
        (books / f"{number}.txt").write_text(words, encoding="utf-8")
    other = tmp_path / "other.txt"
    other.write_text("it rained . " * 50, encoding="utf-8")
    for step in (20, 3):
        shutil.copytree(tiny_checkpoint, tmp_path / f"checkpoint-{step}")
    output = tmp_path / "curve"
    flags = ["--models", *(tmp_path / f"checkpoint-{step}" for step in (20, 3)), "--text_files", books]
    flags += ["--other_files", other, "--hold_out_every", 4, "--tokens_per_step", 100, "--characters", 300]
    flags += ["--zero_shot", "stories", "--rows", 12]
    monkeypatch.setattr(sys, "argv", ["pretraining.py", *map(str, flags), "--output_dir", str(output)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    record = json.loads((output / "curve.json").read_text())
    assert [result["tokens"] for result in record["results"].values()] == [300, 2000]
    assert 60 < record["words"]["held-out documents"] < 100  # of one book, cut
    first, second = (result["perplexity"] for result in record["results"].values())
    assert first == second  # the same weights
    answered = record["results"][str(tmp_path / "checkpoint-3")]["zero_shot"]["stories"]
    assert (answered["metric"], answered["rows"]) == ("accuracy", 12)
    assert answered["value"] * 12 == pytest.approx(round(answered["value"] * 12))
    assert "| 0.0 | " in (output / "curve.md").read_text().splitlines()[-1]
    assert first["other.txt"]["word"] > first["other.txt"]["token"] > 1
    assert (output / "curve.png").stat().st_size > 0

    before = (output / "curve.json").stat().st_mtime_ns
    monkeypatch.setattr(sys, "argv", [*sys.argv[:-1], str(output), "--characters", "200"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert stopped.value.code == 2
    assert (output / "curve.json").stat().st_mtime_ns == before
