"""Plugin of pytest: applies `exceptions.py` and counts the outcomes of each suite."""

import re
from collections import Counter, defaultdict

import pytest
from exceptions import EXCEPTIONS, SKIPPED

REASON, NOT_PASSED = pytest.StashKey[str](), pytest.StashKey[bool]()
# Of a test's reports (its phases, its subtests) the worst counts.
RANKS = ("passed", "skipped", "excepted", "failed")
OUTCOMES: dict[str, str] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests that `EXCEPTIONS` and `SKIPPED` name; an entry that names none of its suite is a mistake."""
    for suite in {item.path.stem for item in items}:
        names = {item: item.nodeid.split("::", 1)[1] for item in items if item.path.stem == suite}
        excepted, skipped = (entries.get(suite, {}) for entries in (EXCEPTIONS, SKIPPED))
        for pattern, reason in [*excepted.items(), *skipped.items()]:
            matches = [item for item, name in names.items() if re.fullmatch(pattern, name)]
            if not matches:
                raise pytest.UsageError(f"exceptions.py names no test of {suite}: {pattern}")
            for item in matches:
                if pattern in excepted:
                    item.stash[REASON] = reason
                else:
                    item.add_marker(pytest.mark.skip(reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A strict xfail that also knows subtests: any failing part is expected, none at all is a failure."""
    report = yield
    reason = item.stash.get(REASON, None)
    if reason is None:
        return report
    if not report.passed:
        item.stash[NOT_PASSED] = True
    if report.failed:
        report.outcome, report.wasxfail = "skipped", reason
    elif call.when == "teardown" and not item.stash.get(NOT_PASSED, False):
        report.outcome, report.longrepr = "failed", f"Passes, but stands in exceptions.py: {reason}"
    return report


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    outcome = "excepted" if hasattr(report, "wasxfail") else report.outcome
    OUTCOMES[report.nodeid] = max(OUTCOMES.get(report.nodeid, "passed"), outcome, key=RANKS.index)


def pytest_terminal_summary(terminalreporter):
    counts = defaultdict(Counter)
    for nodeid, outcome in OUTCOMES.items():
        path, suite, *_ = nodeid.split("::")
        counts[f"{path.removesuffix('.py')} {suite}"][outcome] += 1
    terminalreporter.section("suites")
    terminalreporter.line(f"{'suite':50}" + "".join(f"{outcome:>10}" for outcome in RANKS))
    for suite, row in counts.items():
        terminalreporter.line(f"{suite:50}" + "".join(f"{row[outcome]:10}" for outcome in RANKS))
