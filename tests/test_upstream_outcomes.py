"""The plugin of `make test-upstream`: what it counts, and that its list of exceptions is strict."""

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

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


@pytest.fixture
def run_suite(tmp_path):
    """`run_suite(exceptions, skipped=())`: exit status and output of the suite above under the plugin."""

    def run(exceptions, skipped=()):
        (tmp_path / "suite.py").write_text(textwrap.dedent(SUITE), encoding="utf-8")
        (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        entries = f"EXCEPTIONS = {{'suite': {exceptions!r}}}\nSKIPPED = {{'suite': {dict(skipped)!r}}}\n"
        (tmp_path / "exceptions.py").write_text(entries, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "outcomes", "suite.py"],
            env=os.environ
            | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{UPSTREAM}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def counts(output):
    return [int(number) for number in re.search(r"^suite Config +(.*)$", output, re.MULTILINE)[1].split()]


@pytest.mark.parametrize(
    ("exceptions", "skipped", "status", "expected"),
    [
        pytest.param({}, {}, 1, [1, 1, 0, 2], id="none"),
        pytest.param({"Config::test_fails.*": "by design"}, {}, 0, [1, 1, 2, 0], id="excepted"),
        pytest.param({"Config::test_fails.*": "by design", "Config::test_p.*": ""}, {}, 1, [0, 1, 2, 1], id="passes"),
        pytest.param({}, {"Config::test_fails.*": "not ours"}, 0, [1, 3, 0, 0], id="skipped"),
    ],
)
def test_counts(run_suite, exceptions, skipped, status, expected):
    returned, output = run_suite(exceptions, skipped)
    assert (returned, counts(output)) == (status, expected), output


def test_an_exception_that_passes_is_named(run_suite):
    _, output = run_suite({"Config::test_passes": "by design"})
    assert "Passes, but stands in exceptions.py: by design" in output


def test_an_exception_without_a_test_is_refused(run_suite):
    returned, output = run_suite({"Config::test_renamed": "by design"})
    assert returned == 4
    assert "exceptions.py names no test of suite: Config::test_renamed" in output


def test_the_suites_hold_the_mixins_of_transformers_and_run_beside_the_slow_tests():
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in UPSTREAM.glob("transformers_*.py")]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {ast.unparse(base) for each in classes for base in each.bases}
    assert bases >= {"ModelTesterMixin", "PipelineTesterMixin", "TrainingTesterMixin", "GenerationTesterMixin"}
    assert bases >= {"TokenizerTesterMixin", "TokenizersBackendTesterMixin"}
    rules = (UPSTREAM.parents[1] / "Makefile").read_text(encoding="utf-8").split("\n\n")
    ran_by = {rule.split(":")[0] for rule in rules if "tests/upstream/run.py" in rule}
    assert ran_by == {"test-slow", "test-upstream"}
