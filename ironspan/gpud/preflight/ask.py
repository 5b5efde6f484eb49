# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""When the agent begins a preflight, and what the Node says of the last one."""

from __future__ import annotations

import datetime
import json
import logging
import subprocess
import sys
import typing as t
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ironspan.gpud.events import rfc3339
from ironspan.gpud.preflight import kept, pair
from ironspan.gpud.preflight.children import environment
from ironspan.gpud.preflight.kept import Attempt, Kept
from ironspan.gpud.preflight.pair import Pairing

LOG = logging.getLogger(__name__)
TAINT, CONDITION = "ironspan.io/gpu-preflight", "GPUPreflight"
ANNOTATION, REPAIR = "ironspan.io/gpu-preflight", "ironspan.io/gpu-repair"
PAIRS = "ironspan.io/gpu-pairs"
UNIT, PAIR_UNIT = "ironspan-gpud-preflight", "ironspan-gpud-pair"
LONGEST_S = 3600
AGAIN_S, MOST_AGAIN_S = 60.0, 3600.0
"""Seconds after a preflight without a verdict until the taint begins the next: twice as many each time."""
START_S = 20.0
Condition = tuple[str, str, str]


def started(verdict: Mapping[str, t.Any]) -> float:
    """Return when a verdict's preflight began, seconds since 1970; 0 for none."""
    try:
        return datetime.datetime.fromisoformat(str(verdict["started"])).timestamp()
    except (KeyError, ValueError, OverflowError):
        return 0.0


def counts(kept: Kept, boot: str, driver: str) -> bool:
    """Say whether there is a verdict of this boot and this driver."""
    return bool(kept.verdict) and kept.verdict.get("boot") == boot and kept.verdict.get("driver") == driver


def killed(attempt: Attempt, running: bool) -> bool:
    """Say whether the last preflight was killed in the middle."""
    return attempt.how == "running" and not running


def due(kept: Kept, boot: str, driver: str, tainted: bool, repair: str, now: float) -> bool:
    """Say whether the taint asks for a preflight that is not there yet.

    Args:
        kept: what is remembered.
        boot: which one this is.
        driver: its version now.
        tainted: whether the Node has the taint.
        repair: annotation of the controller. While it tests a node it names the start of the verdict
            that was there before, which proves nothing about a repair.
        now: seconds since 1970.
    """
    if not tainted or not driver:
        return False
    last = kept.attempt
    if last.boot == boot and last.unfinished:
        pause = min(MOST_AGAIN_S, AGAIN_S * 2 ** min(last.unfinished - 1, 16))
        if 0 <= now - max(last.started, last.ended) < pause:
            return False
    if not counts(kept, boot, driver):
        return True
    try:
        record = json.loads(repair)
        # A second, as the annotation has it.
        return record["state"] in ("testing", "retest") and int(record["tests"]) == int(started(kept.verdict))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return False


def condition(kept: Kept, boot: str, driver: str, running: bool) -> Condition | None:
    """Return status, reason and message of the Node's condition; None where no preflight was ever begun."""
    if counts(kept, boot, driver):
        return kept.condition
    last = kept.attempt
    if running:
        return "Unknown", "Running", "its tests are running"
    if last.boot == boot and killed(last, running):
        return "Unknown", "Killed", "the last preflight was killed in the middle"
    if last.boot == boot and last.how == "yielded":
        return "Unknown", "Yielded", f"ended: {last.why}"
    if kept.verdict:
        return "Unknown", "Outdated", "the last preflight was of another boot or driver"
    return None


class Asking:
    """Begins preflights in a unit of their own, and knows what the last one said.

    Args:
        folder: of what is remembered.
        settings: the settings file.
        boot: which boot this is.
        run: runs a program, and raises what ``subprocess.run`` does.
    """

    def __init__(
        self, folder: Path, settings: Path, boot: str, run: Callable[[Sequence[str]], object] | None = None
    ) -> None:
        self._folder, self._settings, self._boot, self._run = folder, settings, boot, run or _run
        self._driver = ""
        remembered, running = kept.standing(folder)
        if killed(remembered.attempt, running):
            LOG.warning("the preflight of %s was killed in the middle", rfc3339(remembered.attempt.started))

    def begin(self) -> str:
        """Begin one; return why it did not begin, empty where it did."""
        return self._begin(UNIT, "preflight")

    def begin_pair(self, asked: Pairing) -> str:
        """Begin a test with another node; return why it did not begin, empty where it did."""
        told = ["--id", asked.id, "--with", asked.peer, "--address", asked.address, "--port", str(asked.port)]
        return self._begin(PAIR_UNIT, "pair", *told, *(["--listen"] if asked.listens else []))

    def pairs(self) -> str:
        """Return the text of the annotation with the last tests of this node with others, empty for none."""
        found = pair.results(self._folder)
        return json.dumps(found, separators=(",", ":")) if found else ""

    def _begin(self, name: str, *arguments: str) -> str:
        if kept.runs(self._folder):
            return "a preflight is running"
        path = environment()["PYTHONPATH"]
        # Memory and devices are more than the agent's own unit has.
        unit = ["systemd-run", "--collect", "--quiet", f"--unit={name}", f"--setenv=PYTHONPATH={path}"]
        unit += [f"--property=RuntimeMaxSec={LONGEST_S}", "--property=OOMScoreAdjust=500"]
        unit += ["--property=ProtectSystem=strict", f"--property=ReadWritePaths={self._folder}"]
        unit += ["--property=ProtectHome=yes", "--property=PrivateTmp=yes"]
        program = [
            sys.executable,
            "-P",
            "-m",
            "ironspan.gpud",
            *arguments,
            "--settings",
            str(self._settings),
        ]
        try:
            self._run([*unit, *program])
        except (OSError, subprocess.SubprocessError) as error:
            said = " ".join(str(getattr(error, "stdout", None) or error).split())[-160:]
            LOG.error("a preflight cannot be begun: %s", said)
            return f"it cannot be begun: {said}"
        LOG.info("began a preflight: journalctl --unit %s", name)
        return ""

    def tainted(self, node: Mapping[str, t.Any], used: bool, driver: str, now: float) -> None:
        """Begin one where the Node's taint asks for it and no GPU is in use.

        Args:
            node: the Node object.
            used: whether a pod or a process has a GPU.
            driver: its version, empty while it is not known.
            now: seconds since 1970.
        """
        taints = (node.get("spec") or {}).get("taints") or ()
        there = any(taint.get("key") == TAINT for taint in taints)
        repair = str(((node.get("metadata") or {}).get("annotations") or {}).get(REPAIR) or "")
        remembered, running = kept.standing(self._folder)
        if running or used or not due(remembered, self._boot, driver, there, repair, now):
            return
        # A test with another node leaves what is remembered as it is.
        if not kept.runs(self._folder):
            self.begin()

    def said(self, driver: str) -> tuple[Condition | None, str]:
        """Return the Node's condition and the text of its annotation, empty for none.

        Args:
            driver: its version, empty while it is not known.
        """
        self._driver = driver or self._driver
        remembered, running = kept.standing(self._folder)
        found = condition(remembered, self._boot, self._driver, running)
        text = json.dumps(remembered.verdict, separators=(",", ":")) if remembered.verdict else ""
        return found if self._driver else None, text


def _run(command: Sequence[str]) -> None:
    subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=START_S,
    )  # fmt: skip
