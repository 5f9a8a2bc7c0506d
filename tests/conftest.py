"""Rules for every test: what needs root runs only as root, and in CI nothing is skipped in silence."""

import os
import sys
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes says nothing on a shared machine. In CI Hypothesis has a profile of its own for that.
settings.register_profile("patient", deadline=None)
if "CI" not in os.environ:
    settings.load_profile("patient")

_skipped: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: minutes of machine time; part of `make test-long`, not of `make test`")
    config.addinivalue_line("markers", "needs_root: starts a local cluster of its own; deselected where it cannot")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if sys.platform == "linux" and os.geteuid() == 0:
        return
    out = [item for item in items if item.get_closest_marker("needs_root")]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _skipped.append(report.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist has ended. What a file skipped as a whole only the worker has seen."""
    _skipped.extend(nodeid for nodeid in getattr(node, "workeroutput", {}).get("skipped", ()) if nodeid not in _skipped)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With CI=true a skipped test fails the run: a missing tool must not look like a passing suite."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["skipped"] = _skipped
    if _skipped and os.environ.get("CI") == "true" and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped and os.environ.get("CI") == "true":
        terminalreporter.section("skipped, which fails the run with CI=true", red=True)
        for nodeid in _skipped:
            terminalreporter.line(nodeid)
