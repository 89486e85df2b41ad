"""Minimal pairs: what is read, what is made, who is right, and the same numbers however they are read."""

import json

import numpy as np
import pytest

from hf_gpt.analysis.agreement import CONDITIONS, MinimalPair, accuracies, agreement_pairs, read_sets

ROW = {"sentence_good": "She was here.", "sentence_bad": "She were here.", "linguistics_term": "verbs", "UID": "x"}


def test_made_pairs_follow_their_rule():
    pairs = agreement_pairs(count=40, seed=3)
    assert len(set(pairs)) == len(pairs) == 2 * len(CONDITIONS) * 40
    assert {pair.phenomenon.removesuffix(", nonce") for pair in pairs} == set(CONDITIONS)
    for pair in pairs:
        good, bad = pair.good.removesuffix(".").split(), pair.bad.removesuffix(".").split()
        assert good[:-1] == bad[:-1]
        plural = good[1].endswith("s")
        assert good[-1].endswith("s") != plural == bad[-1].endswith("s")
        attractors = [good[place + 1] for place, word in enumerate(good) if word == "the"]
        assert len(attractors) == {"simple": 0, "two attractors": 2}.get(pair.phenomenon.removesuffix(", nonce"), 1)
        assert all(noun.endswith("s") == (plural == ("same" in pair.phenomenon)) for noun in attractors)
    assert agreement_pairs(10, seed=1) == agreement_pairs(10, seed=1) != agreement_pairs(10, seed=2)
    # There are only so many of the simplest ones.
    assert sum(pair.phenomenon.startswith("simple") for pair in agreement_pairs(600)) == 2 * 2 * 16 * 16


def test_ties_are_not_right():
    scores = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1], [1, 1]])
    (found,) = accuracies([MinimalPair("a", "b", "verbs")] * 5, {"it": scores})
    assert (found["name"], found["pairs"], found["accuracy"], found["ties"]) == ("verbs", 5, 0.6, 1)


def test_sets_of_files_and_folders(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "was.jsonl").write_text(json.dumps(ROW) + "\n")
    (tmp_path / "own.jsonl").write_text('{"sentence_good": "They were.", "sentence_bad": "They was."}\n')
    assert read_sets(tmp_path / "data") == [MinimalPair("She was here.", "She were here.", "verbs")]
    assert [pair.phenomenon for pair in read_sets(tmp_path)] == ["verbs", "own"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty: no \.jsonl file is in the folder"):
        read_sets(tmp_path / "empty")


def test_agreement_by_command(analyzed, hf_gpt, tiny_checkpoint, tmp_path):
    """Of a file the accuracy is that of score."""
    found, printed = analyzed("agreement", "--max_pairs", 3)
    assert {row["of"] for row in found["agreement"]} == {tiny_checkpoint.name, "random weights"}
    assert all(name in printed for name in CONDITIONS)
    swapped = ROW | {"sentence_good": ROW["sentence_bad"], "sentence_bad": ROW["sentence_good"]}
    (tmp_path / "was.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in (ROW, ROW, swapped)))
    found, _ = analyzed("agreement", "--file", tmp_path / "was.jsonl")
    own, random = found["agreement"]
    assert [(row["name"], row["pairs"]) for row in (own, random)] == [("verbs", 3)] * 2
    scored = hf_gpt("score", "--model_name_or_path", tiny_checkpoint, "--pairs", tmp_path / "was.jsonl")[1]
    assert scored.startswith(f"accuracy: {own['accuracy']:.4f} (3 pairs")
    found, _ = analyzed("agreement", "--file", tmp_path / "was.jsonl", "--max_pairs", 2)
    assert found["agreement"][0]["pairs"] == 2
