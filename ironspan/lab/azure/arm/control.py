# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Commands about the resource manager, for tests and people: see `ironspan.lab.azure.control`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

from ironspan.lab.azure import settings
from ironspan.lab.azure.arm import reach
from ironspan.lab.azure.arm.faults import NAMED, NamedFault
from ironspan.lab.azure.arm.machines import Recorder
from ironspan.lab.azure.arm.rules.access import IDENTITY
from ironspan.lab.azure.arm.service import Arm
from ironspan.lab.azure.arm.state import Settings

_SETTINGS = {one.name for one in fields(Settings)}


class ArmControl:
    """Carries out commands on the resource manager."""

    def __init__(self, arm: Arm) -> None:
        self._arm = arm
        self.commands: dict[str, Callable[..., dict[str, Any]]] = {
            "arm": self._show,
            "arm_set": self._set,
            "arm_fault": self._fault,
            "arm_advance": self._advance,
            "arm_unregister": self._unregister,
            "arm_clear": self._clear,
        }

    def heal(self) -> int:
        """End all named faults; returns how many ended."""
        faults = self._arm.engine.faults
        count = len(faults.active)
        faults.active = []
        return count

    def identity(self, name: str) -> settings.Assigned | None:
        """Return an identity of the estate by its name."""
        for one in self._arm.state.of_type(IDENTITY):
            if str(one.document["name"]).lower() == name.lower():
                about = one.properties
                return settings.Assigned(one.id, about["clientId"], about["principalId"])
        return None

    def _show(self) -> dict[str, Any]:
        """What there is: settings, ids of resources, names, what runs, faults, calls of the driver."""
        state = self._arm.state
        driver = self._arm.driver
        return {
            "settings": asdict(state.settings),
            "resources": sorted(one.id for one in state.resources.values()),
            "names": reach.names(state),
            "budgets": sorted(state.budgets),
            "running": [
                {"kind": one.kind, "target": one.target, "due_s": one.due - state.now()}
                for one in state.operations.values()
                if one.status == "Running"
            ],
            "faults": [one.shown() for one in self._arm.engine.faults.active],
            "fault_codes": sorted(NAMED),
            "machines": [list(one) for one in driver.calls] if isinstance(driver, Recorder) else [],
        }

    def _set(self, **changes: Any) -> dict[str, Any]:
        """Change settings, for example pace=1 or limits={"cores": 8}."""
        unknown = set(changes) - _SETTINGS
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: there are {', '.join(sorted(_SETTINGS))}")
        for name, value in changes.items():
            setattr(self._arm.state.settings, name, value)
        self._arm.state.save()
        return asdict(self._arm.state.settings)

    def _fault(self, **about: Any) -> dict[str, Any]:
        """Let resources meet a fault (fields of NamedFault)."""
        fault = NamedFault(**about)
        self._arm.engine.faults.active.append(fault)
        return fault.shown()

    def _advance(self, seconds: float) -> dict[str, Any]:
        """Move the clock of operations ahead."""
        self._arm.state.offset_s += float(seconds)
        self._arm.engine.advance()
        self._arm.state.save()
        return {"offset_s": self._arm.state.offset_s}

    def _unregister(self, provider: str) -> dict[str, Any]:
        """Let the subscription not be registered for a provider."""
        self._arm.state.registered.discard(provider)
        return {"registered": sorted(self._arm.state.registered)}

    def _clear(self) -> dict[str, Any]:
        """Begin with an empty subscription; faults end, the driver loses no machine that it has."""
        self.heal()
        self._arm.state.clear()
        return {}
