# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Power of a server: one call, believed only when everything that can be read of it says the same.

Whoever fences a node relies on this: "off" that is not proven is an error, never an answer.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.bmc import Bmc, Document
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.errors import (
    BmcError,
    Broken,
    Refused,
    Unproven,
    Unreachable,
    plain,
    told,
)

Wanted = t.Literal["on", "off", "graceful", "cycle"]
WANTED: tuple[Wanted, ...] = ("on", "off", "graceful", "cycle")
ON, OFF = "On", "Off"
STANDBY_W = 200.0
"""A server that is off draws less: fans, network adapters and the BMC itself go on."""
WITHIN_S = 60.0
"""How long a server may take to be seen on, or off when it is cut."""
GRACEFUL_S = 600.0
"""How long its operating system may take to shut down."""
HOLDS = 3
"""So many readings one after the other have to say the same."""
_PAUSE_S = 1.0
_MOST_W = 1e6
"""More than any chassis draws."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a server's power at one moment.

    Args:
        system: what the system says.
        chassis: what its chassis say.
        watts: what it draws; None when that is not measured.
    """

    system: str
    chassis: tuple[str, ...] = ()
    watts: float | None = None

    def proves(self, state: str) -> bool:
        """Tell whether everything says this."""
        draws = self.watts is None or state == ON or self.watts < STANDBY_W
        return draws and all(said == state for said in (self.system, *self.chassis))

    def __str__(self) -> str:
        parts = [f"system {self.system or 'nothing'}", *(f"chassis {said}" for said in self.chassis)]
        return ", ".join(parts + ([f"{self.watts:.0f} W"] if self.watts is not None else []))


@dataclasses.dataclass(frozen=True, slots=True)
class PowerReport:
    """What was done.

    Args:
        before: what was read first.
        after: what was read last; it proves what was wanted.
        changed: whether anything was asked of the BMC.
        seconds: how long it took.
    """

    before: Reading
    after: Reading
    changed: bool
    seconds: float


def read_power(bmc: Bmc) -> Reading:
    """Return what can be read of a server's power now.

    Raises:
        BmcError: nothing can.
    """
    system = bmc.system()
    chassis = bmc.chassis(system)
    said = tuple(plain(one["PowerState"]) for one in chassis if isinstance(one.get("PowerState"), str))
    return Reading(plain(system.get("PowerState") or ""), said, _watts(bmc, chassis))


def bring_power(
    bmc: Bmc,
    wanted: Wanted,
    *,
    within_s: float = WITHIN_S,
    graceful_s: float = GRACEFUL_S,
    pause: Callable[[float], None] = time.sleep,
) -> PowerReport:
    """Bring a server's power where it is wanted, and prove it; nothing is asked of one that is there.

    Args:
        bmc: with time enough: ``within_s`` and ``graceful_s`` end before its deadline does.
        wanted: ``off`` cuts it at once, ``graceful`` lets its operating system shut down and does not cut it,
            ``cycle`` cuts it, proves that, and switches it on.
        within_s: how long a server may take to be seen on or off.
        graceful_s: how long its operating system may take.
        pause: waits so many seconds, for tests.

    Raises:
        Unproven: the BMC took the request and the server is not seen where it is wanted, or what can be read
            of it contradicts itself.
        BmcError: it cannot be asked, or refuses.
    """
    began = time.monotonic()
    before = read_power(bmc)
    changed = False
    if wanted != "on":
        patience = graceful_s if wanted == "graceful" else within_s
        kind = "GracefulShutdown" if wanted == "graceful" else "ForceOff"
        changed = _brought(bmc, OFF, kind, patience, pause)
    if wanted in ("on", "cycle"):
        changed = _brought(bmc, ON, "On", within_s, pause) or changed
    return PowerReport(before, read_power(bmc), changed, time.monotonic() - began)


def _brought(bmc: Bmc, state: str, kind: str, within_s: float, pause: Callable[[float], None]) -> bool:
    """Ask for a state and wait until it is proven; False when it was already."""
    if _holds(bmc, state, pause):
        return False
    failed = ""
    try:
        _reset(bmc, kind)
    except (Broken, Unreachable, Refused) as error:
        # It may have done it all the same, or somebody else did: what it is now decides.
        failed = error.message
    until = time.monotonic() + within_s
    reading = read_power(bmc)
    while not (reading.proves(state) and _holds(bmc, state, pause)):
        if time.monotonic() >= until:
            raise _unproven(bmc, state, kind, reading, failed, within_s)
        pause(_PAUSE_S)
        reading = read_power(bmc)
    return True


def _holds(bmc: Bmc, state: str, pause: Callable[[float], None]) -> bool:
    """Tell whether a state is proven several times: a server that is being switched says both for a while."""
    for number in range(HOLDS):
        if number:
            pause(_PAUSE_S)
        if not read_power(bmc).proves(state):
            return False
    return True


def _unproven(bmc: Bmc, state: str, kind: str, reading: Reading, failed: str, within_s: float) -> BmcError:
    if failed:
        return Refused(
            f"{failed}; the server is not {state.lower()} ({reading})",
            "look at the BMC's log: ironspan bmc log",
        )
    if reading.system == state:
        return Unproven(
            f"{bmc.name}: the BMC says that the server is {state.lower()}, and that is not so: {reading}",
            "do not rely on it: look at the server, or cut its feed at the power strip",
        )
    if kind == "GracefulShutdown":
        return Unproven(
            f"{bmc.name}: the operating system did not shut down within {within_s:.0f} s ({reading})",
            "look at its console, or cut the power: ironspan bmc power SERVER off",
        )
    return Unproven(
        f"{bmc.name}: the BMC took the request, and after {within_s:.0f} s the server is still not "
        f"{state.lower()} ({reading})",
        "restart the BMC; if that does not help, cut the feed at the power strip",
    )


def _reset(bmc: Bmc, kind: str) -> None:
    system = bmc.system_of_sushy()
    with told(bmc.name, f"switch the server ({kind})", {bmc.login.password}):
        from sushy import ResetType

        allowed = {str(value.value) for value in system.get_allowed_reset_system_values()}
        if kind == "On" and kind not in allowed and "ForceOn" in allowed:
            kind = "ForceOn"
        if kind not in allowed:
            raise Refused(
                f"{bmc.name}: the BMC cannot do {kind}; it can do {', '.join(sorted(allowed))}",
            )
        system.reset_system(ResetType(kind))


def _watts(bmc: Bmc, chassis: list[Document]) -> float | None:
    """Return what the chassis draw together, None when none of them measures it."""
    found: list[float] = []
    for one in chassis:
        for key, inside in (("EnvironmentMetrics", _of_metrics), ("Power", _of_power)):
            link = one.get(key)
            path = link.get("@odata.id") if isinstance(link, dict) else None
            try:
                value = inside(bmc.get(str(path), "say what it draws")) if path else None
            except (Refused, Broken):
                value = None  # it has a link and nothing behind it
            if value is not None:
                found.append(value)
                break
    return sum(found) if found else None


def _of_metrics(document: Document) -> float | None:
    reading = document.get("PowerWatts")
    return _number(reading.get("Reading")) if isinstance(reading, dict) else None


def _of_power(document: Document) -> float | None:
    controls = document.get("PowerControl")
    entries = [one for one in controls if isinstance(one, dict)] if isinstance(controls, list) else []
    found = [_number(one.get("PowerConsumedWatts")) for one in entries]
    known = [value for value in found if value is not None]
    return sum(known) if known else None


def _number(value: t.Any) -> float | None:
    """Return a reading in watts, None for what is none: below zero it would make up for what others draw."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST_W:
        return None
    return float(value)
