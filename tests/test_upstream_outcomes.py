"""The plugin of `make test-upstream`: what it counts, and that its list of exceptions is strict."""

import os
import re
import subprocess
import sys
from pathlib import Path

UPSTREAM = Path(__file__).parent / "upstream"
SUITE = """
import unittest

class Config(unittest.TestCase):
    def test_passes(self):
        pass

    def test_fails(self):
        self.fail("really")

    def test_fails_in_part(self):
        for part in "ab":
            with self.subTest(part=part):
                self.assertEqual(part, "a")

    def test_skips(self):
        self.skipTest("elsewhere")
"""
FAILING = {"Config::test_fails.*": "by design"}
# Exceptions, skipped tests, and how many passed, were skipped, excepted, and failed.
SUITES = {
    "none": ({}, {}, [1, 1, 0, 2]),
    "excepted": (FAILING, {}, [1, 1, 2, 0]),
    "passes": (FAILING | {"Config::test_p.*": "wrong"}, {}, [0, 1, 2, 1]),
    "skipped": ({}, FAILING, [1, 3, 0, 0]),
}


def run(folder, exceptions, skipped, suites):
    for suite in suites:
        (folder / f"{suite}.py").write_text(SUITE, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "exceptions.py").write_text(f"EXCEPTIONS, SKIPPED = {exceptions!r}, {skipped!r}\n", encoding="utf-8")
    path = f"{folder}{os.pathsep}{UPSTREAM}"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "outcomes"]
    environment = os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    files = [f"{suite}.py" for suite in suites]
    done = subprocess.run([*command, *files], env=environment, cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_counts_and_strictness(tmp_path):
    exceptions, skipped = ({name: suite[place] for name, suite in SUITES.items()} for place in (0, 1))
    status, output = run(tmp_path, exceptions, skipped, SUITES)
    assert status == 1
    for name, (*_, expected) in SUITES.items():
        assert re.search(rf"^{name} Config +(.*)$", output, re.MULTILINE)[1].split() == list(map(str, expected)), (
            output
        )
    assert "Passes, but stands in exceptions.py: wrong" in output
    status, _ = run(tmp_path, exceptions, skipped, ["excepted", "skipped"])
    assert status == 0
    status, output = run(tmp_path, {"none": {"Config::test_renamed": "by design"}}, {}, ["none"])
    assert status == 4
    assert "exceptions.py names no test of none: Config::test_renamed" in output
