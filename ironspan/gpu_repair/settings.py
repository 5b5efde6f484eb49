# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The settings of the program, as the role gpu_repair writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ironspan.gpu_repair.limits import Limits, Window
from ironspan.gpu_repair.model import MODES, Rule
from ironspan.program import settings
from ironspan.program.listen import Listen, listen
from ironspan.program.settings import Section

DEFAULT_PATH = Path("/etc/ironspan/gpu-repair.json")
NAMESPACE = "ironspan-gpu"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY, _TIME = f"(?:{'|'.join(DAYS)})", "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
WINDOW = re.compile(f"({_DAY}(?:,{_DAY})*) ({_TIME})-({_TIME})")
"""Days and times, UTC, such as ``mon,tue 22:00-04:00``."""
_WINDOWS = re.compile(f"{WINDOW.pattern}(?:; {WINDOW.pattern})*")
_SERVER = re.compile(r"https://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")
_NODE, _RACK = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"), re.compile(r"[^\s]{0,253}")
_EVENT, _CLASS = re.compile(r"(xid|sxid|nvml|dcgm) [A-Za-z0-9_-]+"), re.compile(r"A[0-5]")
_TEST = re.compile(r"A[0-9]{2}(,A[0-9]{2})*")
_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class Settings:
    """What the site says.

    Args:
        server: https://HOST:PORT of the API server.
        ca, certificate, key: files.
        nodes: rack of each GPU node of the inventory.
        tests: that a preflight has to have passed on each GPU.
        policy: the rule of each event.
        mode: ``watch``, ``gate`` or ``repair``.
        empty_dir_data: what a drain does with data in emptyDir volumes: ``refuse`` or ``delete``.
        limits: what may be done at most.
        metrics: where they are served.
    """

    server: str
    ca: str
    certificate: str
    key: str
    nodes: Mapping[str, str]
    tests: tuple[str, ...]
    policy: Mapping[str, Rule]
    mode: str
    empty_dir_data: str
    limits: Limits
    metrics: Listen


def load(path: Path = DEFAULT_PATH) -> Settings:
    """Read and check the settings file. Raises SettingsError with all that is wrong."""
    return settings.checked(settings.load(path, "gpu_repair"), path, _read)


def windows(text: str) -> tuple[Window, ...]:
    """Return the windows that a text names, separated by semicolons; none for an empty one."""
    found = []
    for days, start, end in WINDOW.findall(text):
        numbers = frozenset(DAYS.index(day) for day in days.split(","))
        found.append(Window(numbers, _minutes(start), _minutes(end)))
    return tuple(found)


def _minutes(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def _read(top: Section) -> Settings:
    classes = top.section("classes").every(_EVENT, _CLASS, "A0 to A5")
    again = top.section("again", default={}).every(_EVENT, _CLASS, "A0 to A5")
    return Settings(
        server=top.text("server", _SERVER, "https://ADDRESS:PORT"),
        ca=top.path("ca"),
        certificate=top.path("certificate"),
        key=top.path("key"),
        nodes=top.section("nodes").every(_NODE, _RACK, "the node's rack"),
        tests=tuple(top.text("tests", _TEST, "tests with commas, such as A01,A03").split(",")),
        policy={event: Rule(action, again.get(event, "")) for event, action in classes.items()},
        mode=top.choice("mode", MODES),
        empty_dir_data=top.choice("empty_dir_data", ("refuse", "delete")),
        limits=_limits(top.section("limits")),
        metrics=listen(top.section("metrics", default={}), 2387),
    )


def _limits(section: Section) -> Limits:
    usual = Limits()
    found = Limits(
        most_out=section.number("most_out", usual.most_out, 1, 1000),
        most_out_percent=section.number("most_out_percent", usual.most_out_percent, 1, 50),
        most_at_once=section.number("most_at_once", usual.most_at_once, 1, 100),
        most_per_rack=section.number("most_per_rack", usual.most_per_rack, 1, 100),
        storm=section.number("storm", usual.storm, 1, 1000),
        resets=section.number("resets", usual.resets, 0, 5),
        reboots=section.number("reboots", usual.reboots, 0, 5),
        drain_seconds=section.number("drain_seconds", 7 * _DAY_S, 60, 30 * _DAY_S),
        lost_seconds=section.number("lost_seconds", int(usual.lost_seconds), 0, _DAY_S),
        settle_seconds=section.number("settle_seconds", int(usual.settle_seconds), 0, 3600),
        suspect_seconds=section.number("suspect_seconds", 3 * _DAY_S, 3600, 30 * _DAY_S),
        reset_seconds=section.number("reset_seconds", int(usual.reset_seconds), 30, _DAY_S),
        reboot_seconds=section.number("reboot_seconds", int(usual.reboot_seconds), 60, _DAY_S),
        power_seconds=section.number("power_seconds", _DAY_S, 600, 30 * _DAY_S),
        test_seconds=section.number("test_seconds", int(usual.test_seconds), 60, _DAY_S),
        join_seconds=section.number("join_seconds", _DAY_S, 600, 30 * _DAY_S),
        silent_seconds=section.number("silent_seconds", int(usual.silent_seconds), 10, _DAY_S),
        retest_seconds=section.number("retest_seconds", 7 * _DAY_S, 3600, 366 * _DAY_S),
        most_tested=section.number("most_tested", usual.most_tested, 1, 100),
        power=section.flag("power", usual.power),
        windows=windows(
            section.text("windows", _WINDOWS, "days and times, mon,tue 22:00-04:00", "", re.compile(""))
        ),
    )
    section.end()
    return found
