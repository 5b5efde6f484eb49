# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The settings of the agent, as the role nvidia_health writes them."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy import preflight
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import (
    CLASSES,
    Policy,
    PolicyError,
    shipped,
)

from ironspan.gpud.checks import table
from ironspan.gpud.checks.base import Check, Expected
from ironspan.program import settings
from ironspan.program.listen import Listen, listen
from ironspan.program.settings import Section

DEFAULT_PATH = Path("/etc/ironspan/gpud.json")
PORT = 2392
SERVING = "/var/lib/kubelet/pki/kubelet-server-current.pem"
READINGS = tuple(
    """
    uuid name serial pci minor vbios inforom inforom_valid gsp part_number compute max_clock_sm
    power_limit pcie_max_generation pcie_max_width persistence compute_mode mig ecc_mode temperature
    margin memory utilization power energy clock_sm clock_memory pstate pcie_generation pcie_width
    pcie_replays ecc_corrected sram row_histogram retired_pages processes links link_fields fabric
    fields remapped ecc_uncorrected throttle
    """.split()  # noqa: SIM905
)
"""What may be left out when a call of NVML does harm."""
DEMANDED = ("A01", "A02", "A03", "A04", "A06")
"""Tests that a GPU has to have passed where the settings name none: those of the controller's default."""
_TESTS = re.compile(r"A[0-9]{2}(,A[0-9]{2})*")
_ANY = re.compile(r"[^\x00-\x1f\x7f]*")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the agent is told.

    Args:
        node: name of the Node; empty writes nothing to an API server.
        kubeconfig: how the API server is reached, with the kubelet's own identity.
        state: folder of what it remembers.
        kmsg: the kernel's log.
        pod_resources: the kubelet's socket that says which pod has which GPU; empty asks nobody.
        library: folder of libnvidia-ml.so.1; empty for the system's own.
        every_s: seconds between readings of NVML.
        hang_s: seconds after which a call of NVML counts as hung.
        clear_s: seconds for which something must not be found before it counts as over.
        heartbeat_s: seconds between writes of a condition that did not change.
        expected: what the inventory says of the GPUs.
        policy: of the site.
        off: names of checks that are switched off.
        limits: of all checks, by their names.
        left_out: readings that are not made.
        acts: whether the repair controller may have this host's GPUs reset, and the host rebooted.
        mps: whether its GPUs are shared through the MPS daemon of the role nvidia_mps.
        preflight_tests: those that each GPU has to have passed.
        references: what GPUs are known to reach.
        serving: the kubelet's certificate and key for serving, with which this node listens for another one.
        metrics: where they are served.
    """

    node: str = ""
    kubeconfig: Path = Path("/etc/kubernetes/kubelet.conf")
    state: Path = Path("/var/lib/ironspan/gpud")
    kmsg: Path = Path("/dev/kmsg")
    pod_resources: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    library: str = ""
    every_s: float = 2.0
    hang_s: float = 45.0
    clear_s: float = 60.0
    heartbeat_s: float = 300.0
    expected: Expected = field(default_factory=Expected)
    policy: Policy = field(default_factory=shipped)
    off: frozenset[str] = frozenset()
    limits: Mapping[str, Mapping[str, float]] = field(
        default_factory=lambda: {c.name: c.limits for c in table()}
    )
    left_out: tuple[str, ...] = ()
    acts: bool = False
    mps: bool = False
    preflight_tests: tuple[str, ...] = DEMANDED
    references: preflight.References = field(default_factory=preflight.shipped)
    serving: Path = Path(SERVING)
    metrics: Listen = field(default_factory=lambda: Listen("127.0.0.1", PORT))

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks that are on."""
        return tuple(check for check in table() if check.name not in self.off)


def load(path: Path = DEFAULT_PATH) -> Settings:
    """Read and check the settings file.

    Args:
        path: the file, JSON.

    Raises:
        SettingsError: it cannot be read, or something in it is wrong; all problems at once.
    """
    return settings.checked(settings.load(path, "nvidia_health"), path, read)


def read(top: Section) -> Settings:
    """Take the settings from the section that is the whole file."""
    off, limits = _checks(top.section("checks", default={}))
    tested, references = _preflight(top.section("preflight", default={}))
    return Settings(
        node=top.text("node", _NAME, "the name of this Node", default="", other=re.compile("")),
        kubeconfig=Path(top.path("kubeconfig", default="/etc/kubernetes/kubelet.conf")),
        state=Path(top.path("state", default="/var/lib/ironspan/gpud")),
        kmsg=Path(top.path("kmsg", default="/dev/kmsg")),
        pod_resources=top.path("pod_resources", default=""),
        library=top.path("library", default=""),
        every_s=float(top.number("every_seconds", 2, 1, 60)),
        hang_s=float(top.number("hang_seconds", 45, 2, 3600)),
        clear_s=float(top.number("clear_seconds", 60, 0, 86400)),
        heartbeat_s=float(top.number("heartbeat_seconds", 300, 1, 86400)),
        expected=_expected(top.section("expected", default={})),
        policy=_policy(top, "overrides"),
        off=off,
        limits=limits,
        left_out=_left_out(top.section("readings", default={})),
        acts=top.flag("acts", False),
        mps=top.flag("mps", False),
        preflight_tests=tested,
        references=references,
        serving=Path(top.path("serving", default=SERVING)),
        metrics=listen(top.section("metrics", default={}), PORT),
    )


def _expected(section: Section) -> Expected:
    count, links = section.number("count", -1, -1, 64), section.number("links", -1, -1, 36)
    ports = section.number("ports", -1, -1, 64)
    found = Expected(
        count=None if count < 0 else count,
        model=section.text("model", _ANY, "a GPU's name", default=""),
        driver=section.text("driver", _ANY, "a driver's version", default=""),
        mig=section.flag("mig", False),
        compute_mode=section.number("compute_mode", 0, 0, 3),
        links=None if links < 0 else links,
        ports=None if ports < 0 else ports,
        peermem=section.flag("peermem", False),
        iommu=section.text("iommu", _ANY, "passthrough, disabled or nothing", default=""),
        direct=section.flag("direct", False),
    )
    section.end()
    return found


def _checks(section: Section) -> tuple[frozenset[str], dict[str, Mapping[str, float]]]:
    off: set[str] = set()
    limits: dict[str, Mapping[str, float]] = {}
    for check in table():
        part = section.section(check.name, default={})
        if part.flag("off", False):
            off.add(check.name)
        limits[check.name] = {
            name: float(part.number(name, int(value), -1_000_000, 1_000_000_000))
            for name, value in check.limits.items()
        }
        part.end()
    section.end()
    return frozenset(off), limits


def _policy(top: Section, name: str) -> Policy:
    section = top.section(name, default={})
    entries: list[dict[str, t.Any]] = []
    for event, value in section.every(
        _ANY, re.compile(r"A[0-5] .+"), "a class and its reason: A2 why"
    ).items():
        action, _, reason = value.partition(" ")
        entries.append({"event": event, "class": action, "reason": reason})
    try:
        return shipped().with_overrides(entries)
    except PolicyError as error:
        top.problem(name, f"is wrong: {error}; classes are {', '.join(CLASSES)}")
        return shipped()


def _preflight(section: Section) -> tuple[tuple[str, ...], preflight.References]:
    text = section.text("tests", _TESTS, "tests with commas, such as A01,A03", default=",".join(DEMANDED))
    found = tuple(text.split(","))
    if unknown := [name for name in found if name not in preflight.tests()]:
        section.problem("tests", f"{unknown[0]} is not known; write some of {', '.join(preflight.tests())}")
    entries = []
    for about, value in (
        section.section("references", default={})
        .every(re.compile(r"A[0-9]{2} .+"), re.compile(r"[0-9]+ .+"), "a figure and its reason: 4100 why")
        .items()
    ):
        test, _, model = about.partition(" ")
        figure, _, reason = value.partition(" ")
        entries.append({"test": test, "model": model, "value": int(figure), "reason": reason})
    references = preflight.shipped()
    try:
        references = references.with_overrides(entries)
    except PolicyError as error:
        section.problem("references", f"is wrong: {error}")
    section.end()
    return found, references


def _left_out(section: Section) -> tuple[str, ...]:
    found = tuple(name for name in READINGS if not section.flag(name, True))
    section.end()
    return found
