# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What is known of a node in Ironic, and where it shall go."""

from __future__ import annotations

import dataclasses
import typing as t

Goal = t.Literal["manageable", "available", "active", "rescue", "retired", "absent"]
RAMDISK_MIB = 4096
"""Memory with which the agent's ramdisk starts: 500 MB unpacked and 131 MB packed, beside what it does."""
TRIES = 3
"""How often a run tries what failed before it holds the node."""
ERASE = ("deploy.erase_devices",)
"""How a retired server is cleaned where nothing else is said: every disk, by its secure erase if it can."""


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """What Ironic says of a node, and what the run knows beside it.

    Args:
        state: its provision state; None when Ironic does not know the node.
        target: the state that Ironic takes it to.
        power: ``power on``, ``power off`` or None, and states in between.
        maintenance: whether it is in maintenance.
        maintenance_reason: what was said about it.
        fault: why Ironic put it there by itself; "" when a person did.
        last_error: the conductor's.
        reserved_by: the conductor that works on it now; "" for none.
        protected: whether somebody protected it from being taken down.
        retired: whether it is marked as retired.
        automated_clean: whether Ironic erases disks between two uses.
        conductor_alive: whether a conductor looks after it.
        memory_mib: memory that was measured; None when not known.
        in_state_s: for how long it has been in this state, as the run saw it.
        failures: how often this run has seen it fail.
        running: whether a node of the cluster runs on it that was not drained.
        done: the chores that were wanted and are done: inspect, clean, deploy, service.
    """

    state: str | None
    target: str | None = None
    power: str | None = None
    maintenance: bool = False
    maintenance_reason: str = ""
    fault: str = ""
    last_error: str = ""
    reserved_by: str = ""
    protected: bool = False
    retired: bool = False
    automated_clean: bool = True
    conductor_alive: bool = True
    memory_mib: int | None = None
    in_state_s: int = 0
    failures: int = 0
    running: bool = False
    done: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """Where a node shall go, and what shall be done on the way.

    Args:
        goal: the state in which it shall end; ``retired`` is manageable, marked and erased, ``absent`` is
            not known to Ironic.
        inspect: inspect it in band.
        clean: clean steps by hand, with their interfaces.
        deploy: write the operating system even where one runs.
        service: service steps on the node that runs.
        adopt: what runs on it shall stay: it is adopted, and never written to.
        power: ``power on`` or ``power off`` in the end; "" as it is.
        patience_s: how long an agent may be silent, or a conductor busy, in one state.
    """

    goal: Goal
    inspect: bool = False
    clean: tuple[str, ...] = ()
    deploy: bool = False
    service: tuple[str, ...] = ()
    adopt: bool = False
    power: t.Literal["", "power on", "power off"] = ""
    patience_s: int = 3600
