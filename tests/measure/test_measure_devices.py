"""The table of layouts: what it shows, what it refuses, and a run of it."""

import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def script(monkeypatch):
    from scripts.measure import devices

    return devices


@pytest.fixture
def measure(script, monkeypatch):
    """Runs the script's `main` with flags."""

    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["devices.py", *map(str, flags)])
        script.main()

    return run


def test_table(script):
    one = {"seconds of the steps": [9.0, 2.0, 1.0], "rows a second": 8.0, "peak bytes": [3_000_000_000]}
    two = {"seconds of the steps": [4.0], "rows a second": 4.0, "peak bytes": [1_000_000_000, 2_000_000_000]}
    lines = script.table({"layouts": {"one process": one, "two processes, DDP": two}}).splitlines()
    assert lines[2:] == [
        "| one process | 2.00 s | 8.00 | 3.00 GB | 3.00 GB |",
        "| two processes, DDP | 4.00 s | 4.00 | 2.00 GB | 3.00 GB |",
    ]


def test_every_layout_has_the_same_global_batch(script):
    for name, (launcher, flags) in script.LAYOUTS.items():
        values = dict(zip(flags[::2], flags[1::2], strict=True))
        processes = 2 if launcher else 1
        rows = int(values["--per_device_train_batch_size"]) * int(values.get("--gradient_accumulation_steps", 1))
        assert rows * processes == script.GLOBAL_BATCH, name
        assert not launcher or (SCRIPTS / "configs" / "accelerate" / launcher[0]).is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--layouts", "three processes"], "unknown layout 'three processes'"),
        (["--size", "huge"], "unknown size huge"),
        (["--steps", "2"], "at least 3"),
        (["--threads", "3"], "must be even"),
    ],
)
def test_wrong_arguments(measure, tmp_path, flags, message, capsys):
    with pytest.raises(SystemExit):
        measure(*flags, "--output_dir", tmp_path / "out")
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_layouts_are_measured_once(measure, tmp_path, capsys):
    flags = ["--size", "mini", "--steps", "3", "--output_dir", tmp_path / "out"]
    measure(*flags, "--layouts", "one process")
    first = json.loads((tmp_path / "out" / "results.json").read_text())["layouts"]
    assert list(first) == ["one process"]
    measure(*flags, "--layouts", "two processes, DDP", "one process")
    both = json.loads((tmp_path / "out" / "results.json").read_text())["layouts"]
    assert list(both) == ["one process", "two processes, DDP"]
    assert both["one process"] == first["one process"]
    for result in both.values():
        assert len(result["peak bytes"]) == result["processes"]
        assert len(result["seconds of the steps"]) == 2
        # More than the weights, gradients and moments of 3.9 million parameters.
        assert all(size > 4 * 4 * 3.9e6 for size in result["peak bytes"])
    assert "| two processes, DDP |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        measure(*flags[:-4], "--steps", "4", "--output_dir", tmp_path / "out")
    assert "holds results of other settings" in capsys.readouterr().err
