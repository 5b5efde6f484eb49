# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One preflight: all tests one after the other, ended at once when somebody else wants a GPU."""

from __future__ import annotations

import logging
import os
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.preflight import Test, tests

from ironspan.gpud.agent import boot_id
from ironspan.gpud.events import rfc3339
from ironspan.gpud.pods import Pods
from ironspan.gpud.preflight import kept as kept_
from ironspan.gpud.preflight import verdict
from ironspan.gpud.preflight.children import Child, Others, wait_for
from ironspan.gpud.preflight.verdict import Result
from ironspan.gpud.settings import Settings
from ironspan.gpud.watch import read_once
from ironspan.program.errors import ServiceError

LOG = logging.getLogger(__name__)
_ASK_S, _FIRST_LOOK_S = 1.0, 20.0
Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Report:
    """What came out of a preflight.

    Args:
        how: ``passed``, ``failed``, ``incomplete`` or ``yielded``.
        why: it was ended, empty for its own end.
        results: of each test and GPU.
        said: what the Node's annotation says.
        condition: status, reason and message of the Node's condition.
    """

    how: str
    why: str
    results: tuple[Result, ...]
    said: Mapping[str, t.Any]
    condition: tuple[str, str, str]


def preflight(
    chosen: Settings, ended: Callable[[], bool], tell: Tell, quick: bool = False, boot: str = ""
) -> Report:
    """Run the tests and remember what came out.

    Args:
        chosen: the settings.
        ended: whether this process has to end.
        tell: called with a line for people before each test.
        quick: shorter, less is seen, and it counts for nothing.
        boot: which boot this is; empty asks the kernel.

    Raises:
        Refused: another one runs, or its folder cannot be used.
        ServiceError: NVML does not answer.
    """
    boot = boot or boot_id()
    with kept_.held(chosen.state):
        return _alone(chosen, ended, tell, quick, boot)


class Cards(t.NamedTuple):
    """What NVML says before tests begin: the GPUs' models by UUID, whether one is divided, the driver."""

    gpus: dict[str, str]
    parted: bool
    driver: str


def cards(chosen: Settings) -> Cards:
    """Ask NVML for the GPUs of this host.

    Raises:
        ServiceError: it does not answer, or names none.
    """
    reading = read_once(chosen.hang_s, chosen.left_out, chosen.library).get("reading") or {}
    gpus = {str(gpu["uuid"]): str(gpu.get("name")) for gpu in reading.get("gpus", ()) if gpu.get("uuid")}
    if not gpus:
        raise ServiceError("NVML names no GPU.", "ironspan-gpud check says more.", retryable=True)
    parted = any((gpu.get("mig") or [0])[0] for gpu in reading["gpus"])
    return Cards(gpus, parted, str((reading.get("system") or {}).get("driver") or ""))


def _alone(chosen: Settings, ended: Callable[[], bool], tell: Tell, quick: bool, boot: str) -> Report:
    before = kept_.read(chosen.state)
    if before.attempt.how == kept_.RUNNING:
        tell("the last preflight was killed in the middle; this is a new one")
    gpus, parted, driver = cards(chosen)
    start = time.time()
    now = kept_.begun(before, boot, start)
    if not quick:
        kept_.write(chosen.state, now)
    results, why = _parted(gpus) if parted else _all(chosen, gpus, ended, tell, quick)
    end = time.time()
    if why:
        how, said = verdict.STOPPED, ("Unknown", "Yielded", f"ended: {why}")
    else:
        how = verdict.outcome(results, chosen.preflight_tests, list(gpus))
        said = verdict.condition(how, results, chosen.preflight_tests)
    told = verdict.annotation(boot, driver, rfc3339(start), rfc3339(end), results, how)
    if not quick:
        attempt = replace(now.attempt, how=kept_.STOPPED if why else kept_.DONE, ended=end, why=why)
        # One that was ended says nothing about the GPUs: the verdict before it stays.
        finished = replace(now, verdict=told, condition=said, attempt=replace(attempt, unfinished=0))
        kept_.write(chosen.state, replace(now, attempt=attempt) if why else finished)
    return Report(how, why, tuple(results), told, said)


def _parted(gpus: Mapping[str, str]) -> tuple[list[Result], str]:
    """Return the results of GPUs in MIG mode: a part of one reaches no figure of the whole."""
    return [Result(test, uuid, None, detail="MIG is on") for test in tests() for uuid in gpus], ""


def _all(
    chosen: Settings, gpus: Mapping[str, str], ended: Callable[[], bool], tell: Tell, quick: bool
) -> tuple[list[Result], str]:
    """Return the results, and why it was ended before all were there."""
    results: list[Result] = []
    with Others(chosen.library) as others:
        others.wait(_FIRST_LOOK_S)
        stop = Stop(chosen, others, ended)
        for test in tests().values():
            seconds = test.quick if quick else test.seconds
            if not seconds:
                continue
            if test.others and len(gpus) == 1:
                results += [Result(test.name, uuid, None, detail="there is one GPU") for uuid in gpus]
                continue
            tell(f"{test.name}  {test.title}")
            why = _one(chosen, test, seconds, gpus, stop, results)
            if why:
                return results, why
            LOG.debug("%s done", test.name)
    return results, ""


def _one(
    chosen: Settings,
    test: Test,
    seconds: float,
    gpus: Mapping[str, str],
    stop: Stop,
    results: list[Result],
) -> str:
    """Add the results of one test; return why it was ended."""
    uuids = list(gpus)
    groups = [uuids] if test.together else [[uuid] for uuid in uuids[: 1 if test.once else None]]
    for group in groups:
        if why := stop():
            return why
        children = []
        for uuid in group:
            seen = [uuid, *(other for other in uuids if other != uuid and test.others)]
            children.append(Child(test.name, seen, seconds, test.deadline, chosen.library))
        stop.ours |= {child.pid for child in children}
        found, why = wait_for(children, stop)
        for child, answer in found.items():
            result = verdict.judged(test.name, child.gpu, gpus[child.gpu], answer, chosen.references)
            gpu = "" if test.once else child.gpu
            results.append(replace(result, gpu=gpu, seconds=float(answer.get("seconds") or 0)))
        if why:
            return why
    return ""


class Stop:
    """Says why the tests have to end: a signal, a pod or a process that has a GPU."""

    def __init__(self, chosen: Settings, others: Others, ended: Callable[[], bool]) -> None:
        self._others, self._ended = others, ended
        self._pods = Pods(chosen.pod_resources) if Path(chosen.pod_resources or "/").is_socket() else None
        self._asked = 0.0
        self.ours: set[int] = {os.getpid()}

    def __call__(self) -> str:
        if self._ended():
            return "it was told to end"
        if pids := self._others.pids(frozenset(self.ours)):
            return f"processes use a GPU: {', '.join(map(str, pids[:5]))}"
        if self._pods is not None and time.monotonic() - self._asked >= _ASK_S:
            self._asked = time.monotonic()
            try:
                self._pods.ask()
            except ServiceError as error:
                LOG.warning("%s", error)
            if self._pods.gpus():
                return "a pod has a GPU"
        return ""


def as_rows(results: Sequence[Result]) -> list[dict[str, t.Any]]:
    """Return the results for ``--json``."""
    return [
        {
            "test": each.test,
            "gpu": each.gpu or None,
            "passed": each.passed,
            "measured": each.measured,
            "wanted": each.wanted,
            "unit": each.unit,
            "way": each.way,
            "seconds": each.seconds,
            "detail": each.detail,
        }
        for each in results
    ]


def as_lines(results: Sequence[Result]) -> list[str]:
    """Return the results for people."""
    words = {True: "passed", False: "FAILED", None: "not run"}
    return [
        f"{each.test}  {words[each.passed]:8}{each.gpu or 'all GPUs':42}{each.seconds:6.1f} s  "
        f"{verdict.figures(each)}".rstrip()
        for each in results
    ]
