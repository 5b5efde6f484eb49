# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the results of tests mean together, and how the Node says it."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.preflight import References

PASSED, FAILED, INCOMPLETE, STOPPED = "passed", "failed", "incomplete", "yielded"
_DETAIL, _ALL = 120, 1000


@dataclass(frozen=True, slots=True)
class Result:
    """One test of one GPU.

    Args:
        test: its name.
        gpu: UUID; empty for all GPUs of the host.
        passed: None where it could not be run.
        measured: figure, None for none.
        wanted: what it had to reach, None where nothing is known to compare.
        unit: of both.
        way: how it was measured.
        detail: for people.
        seconds: how long it took.
    """

    test: str
    gpu: str
    passed: bool | None
    measured: float | None = None
    wanted: float | None = None
    unit: str = ""
    way: str = ""
    detail: str = ""
    seconds: float = 0.0


def judged(test: str, gpu: str, model: str, found: Mapping[str, t.Any], references: References) -> Result:
    """Return the result of what a test's process wrote, compared with what its model reaches.

    Args:
        test: its name.
        gpu: UUID.
        model: NVML's name of the GPU.
        found: see ``one``.
        references: of the site.
    """
    passed, measured = found.get("passed"), found.get("measured")
    passed = passed if isinstance(passed, bool) else None
    figure = float(measured) if isinstance(measured, int | float) else None
    unit, way, detail = (str(found.get(name) or "") for name in ("unit", "way", "detail"))
    known = references.wanted(model, test, way) if figure is not None else None
    wanted = known[0] if known else None
    if passed and wanted is not None and not (figure is not None and figure >= wanted):
        passed = False
        detail = f"less than {references.percent:g} % of {known[1].value:g}; {detail}" if known else detail
    elif passed and wanted is None and figure is not None and unit.endswith("/s"):
        detail = f"{detail}; no figure is known to compare" if detail else "no figure is known to compare"
    return Result(
        test,
        gpu,
        passed,
        None if figure is None else round(figure, 1),
        None if wanted is None else round(wanted, 1),
        unit,
        way,
        detail[:200],
    )


def outcome(results: Iterable[Result], wanted: Sequence[str], gpus: Sequence[str]) -> str:
    """Return what all results mean: ``passed``, ``failed``, or ``incomplete``.

    A test that could not be run is no failure, but passes no GPU that has to pass it.

    Args:
        results: of tests.
        wanted: names of tests that each GPU has to have passed.
        gpus: UUIDs of all GPUs.
    """
    found = list(results)
    if any(result.passed is False for result in found):
        return FAILED
    passed = {(result.test, result.gpu) for result in found if result.passed}
    whole = bool(gpus) and all({(test, gpu), (test, "")} & passed for test in wanted for gpu in gpus)
    return PASSED if whole else INCOMPLETE


def annotation(
    boot: str, driver: str, started: str, ended: str, results: Sequence[Result], how: str
) -> dict[str, t.Any]:
    """Return what the Node's annotation says.

    Results of tests that were not run stand apart: the controller takes a result that is not passed for
    a failure.
    """
    return {
        "boot": boot,
        "driver": driver,
        "started": started,
        "ended": ended,
        # Neither of both where some were not run: false would be a failure.
        "passed": {PASSED: True, FAILED: False}.get(how),
        "results": [
            {
                "test": each.test,
                "gpu": each.gpu or None,
                "passed": bool(each.passed),
                "measured": each.measured,
                "wanted": each.wanted,
                "unit": each.unit,
                "detail": each.detail[:_DETAIL],
            }
            for each in results
            if each.passed is not None
        ],
        "not_run": [
            {"test": each.test, "gpu": each.gpu or None, "detail": each.detail[:_DETAIL]}
            for each in results
            if each.passed is None
        ],
    }


def condition(how: str, results: Sequence[Result], wanted: Sequence[str]) -> tuple[str, str, str]:
    """Return status, reason and message of the condition GPUPreflight.

    Args:
        how: the outcome.
        results: of tests.
        wanted: names of tests that each GPU has to have passed.
    """
    if how == PASSED:
        return "True", "Passed", f"{', '.join(sorted({each.test for each in results if each.passed}))} passed"
    if how == FAILED:
        bad = [each for each in results if each.passed is False]
        told = "; ".join(f"{each.test}, {each.gpu or 'all GPUs'}: {figures(each)}" for each in bad)
        return "False", f"{bad[0].test}Failed", told[:_ALL]
    lacks = sorted(set(wanted) - {each.test for each in results if each.passed})
    why = sorted({f"{each.test}: {each.detail}" for each in results if each.passed is None})
    return "Unknown", "NotRun", f"not run: {', '.join(lacks)}; {'; '.join(why)}"[:_ALL]


def figures(result: Result) -> str:
    """Return a result's figures and detail for people."""
    words = []
    if result.measured is not None:
        of = "" if result.wanted is None else f" (wanted: {result.wanted:g})"
        words.append(f"{result.measured:g} {result.unit}{of}")
    return ", ".join(filter(None, (*words, result.detail)))
