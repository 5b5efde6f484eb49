# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What all tests share: their order, and the tables that are shown before pytest's own summary."""

from __future__ import annotations

import gc
import os
import pathlib
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from ironspan.cli import environment

# Cases that several files share say what they found, too; only what is not imported yet can.
pytest.register_assert_rewrite("tests.support", "tests.integration", "tests.unit")

from tests.bench.table import Table  # noqa: E402
from tests.support import durations  # noqa: E402

# Tests run ansible-playbook, too. What the user's Ansible is told says nothing about this project.
environment.settle()

# A busy machine is slow, not wrong.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# What is drawn is the same in every run: a change is told what it broke, not what somebody else did.
settings.register_profile("repeatable", PATIENT, derandomize=True, database=None)
settings.register_profile("searching", PATIENT, derandomize=False)
settings.load_profile("repeatable")
# Constants of the modules that happen to be loaded would be drawn too: a file alone drew other values.
providers._get_local_constants = lambda: providers._local_constants
TABLE = pytest.StashKey[Table]()


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest) -> Table:
    """Return the table that this run fills."""
    return request.config.stash.setdefault(TABLE, Table())


@pytest.fixture(autouse=True)
def handlers_of_signals() -> Iterator[None]:
    """Leave them as they were: programs set theirs, and a process that a later test starts inherits them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def blocking_streams() -> Iterator[None]:
    """Leave them so: an ssh that a test kills cannot undo that it does not wait, which Ansible refuses."""
    yield
    for stream in range(3):
        os.set_blocking(stream, True)


def pytest_configure(config: pytest.Config) -> None:
    """Hear interrupts, which a shell that starts the tests in the background ignores; search in long runs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "long" in str(config.getoption("markexpr")):
        settings.load_profile("searching")


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Show all of a text that lacks another one: what failed in a run of a playbook is near its end."""
    if op == "in" and isinstance(left, str) and isinstance(right, str):
        return [f"{left!r} in", *right.splitlines()]
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest file where several run; leave out what is long, unless ``-m`` names it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        listed = durations.load()
        items.sort(key=lambda item: -listed.of(item.nodeid))
    if not os.environ.get("IRONSPAN_LIVE_AZURE"):
        live = pytest.mark.skip(reason="IRONSPAN_LIVE_AZURE names no subscription: docs/azure-live.md")
        for item in items:
            if item.get_closest_marker("live_azure"):
                item.add_marker(live)
    if "long" in str(config.getoption("markexpr")):
        return
    skip = pytest.mark.skip(reason="takes long: make long")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Set what is there now apart from garbage collection: a fork copies, and looks through, 15,000 tests."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what was measured; IRONSPAN_BENCH_RECORD names the page that is written from the costs."""
    if config.getoption("durations") is not None:
        terminalreporter.section("seconds by file: tests/durations.yml")
        measured, listed = spent(terminalreporter), durations.load()
        for line in (*durations.table(measured, listed), *listed.over(measured)):
            terminalreporter.write_line(line)
    filled = config.stash.get(TABLE, None)
    if filled is None or not filled.sections:
        return
    terminalreporter.section("measured costs")
    for line in filled.lines():
        terminalreporter.write_line(line)
    if target := os.environ.get("IRONSPAN_BENCH_RECORD"):
        filled.write(pathlib.Path(target))


def spent(reporter: pytest.TerminalReporter) -> dict[str, float]:
    """Return what the tests of a run took, with their setup: file, or folder of unit tests -> seconds."""
    found: dict[str, float] = {}
    for reports in reporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                path = durations.unit_of(report.nodeid)
                found[path] = found.get(path, 0) + report.duration
    return found
