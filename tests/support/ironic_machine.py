# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Prints the state machine of an installed Ironic as JSON; run with that installation's Python."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import typing as t


def recorded() -> dict[str, t.Any]:
    """Return Ironic's version, its states, failure states, verbs of the API and transitions."""
    from ironic.common import state_machine, states  # type: ignore[import-not-found]

    machine = state_machine.machine
    transitions = [[source, event, jump.name] for source, event, jump in machine_edges(machine)]
    names = {value for key, value in vars(states).items() if key.isupper() and isinstance(value, str)}
    return {
        "version": importlib.metadata.version("ironic"),
        "states": sorted(states.ALL_STATES),
        "machine": sorted(machine.states),
        "failed": sorted(states.FAILURE_STATES),
        "stable": sorted(states.STABLE_STATES),
        "unstable": sorted(states.UNSTABLE_STATES),
        "verbs": dict(sorted(states.VERBS.items())),
        "faults": sorted(importlib.import_module("ironic.common.faults").VALID_FAULTS),
        "delete_allowed": sorted(states.DELETE_ALLOWED_STATES),
        "power": sorted(names & {"power on", "power off", "rebooting", "soft rebooting", "soft power off"}),
        "transitions": sorted(transitions),
    }


def machine_edges(machine: t.Any) -> list[tuple[str, str, t.Any]]:
    """Return every transition: from, event, target."""
    return [
        (source, event, jump)
        for source, jumps in machine._transitions.items()
        for event, jump in jumps.items()
    ]


if __name__ == "__main__":
    json.dump(recorded(), sys.stdout, indent=1)
    print()
