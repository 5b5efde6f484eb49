# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the page of a site shows, as values."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping, Sequence


class Server(t.NamedTuple):
    """A host that holds the cluster together.

    Args:
        name: of it.
        side: ``azure`` or ``on_prem``.
        roles: what it is, for example etcd.
        well: whether everything about it is; None when nobody could be asked.
        wrong: what is wrong.
    """

    name: str
    side: str
    roles: tuple[str, ...]
    well: bool | None
    wrong: str = ""


class Rack(t.NamedTuple):
    """Workers of one rack.

    Args:
        name: of the rack, empty where hosts have none.
        side: ``azure`` or ``on_prem``.
        nodes: how many the inventory has.
        ready: how many are Ready; None when nobody could be asked.
        gpus: that its Ready nodes offer to pods.
    """

    name: str
    side: str
    nodes: int
    ready: int | None
    gpus: int = 0


class Held(t.NamedTuple):
    """A server that is not handed over yet."""

    name: str
    place: str
    state: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """Everything that the page shows.

    Args:
        name: of the site.
        endpoint: of its API.
        now: Unix time at which it was asked.
        report: of a verification without pods, as its JSON has it; None when the cluster could not be asked.
        error: why it could not.
        servers: control planes and members of etcd.
        racks: workers.
        authorities: name -> Unix time at which it ends.
        backups: newest snapshot of each store, as a run from here was told; ``asked`` is when that was.
        running: runs from this controller that go on, as ``run_record.running`` returns them.
        holder: who changes the site now, as its lock says; empty when nobody does.
        runs: records of the runs that ended last, newest first.
        elevation: the racks of expected servers as an SVG element; None where nobody asked for it.
        held: those of them that are no hosts yet.
        found: what else was found, as level, what it is, and what fixes it.
    """

    name: str
    endpoint: str
    now: float
    report: Mapping[str, t.Any] | None = None
    error: str = ""
    servers: Sequence[Server] = ()
    racks: Sequence[Rack] = ()
    authorities: Mapping[str, float] = dataclasses.field(default_factory=dict)
    backups: Sequence[Mapping[str, t.Any]] = ()
    backups_asked: float | None = None
    running: Sequence[Mapping[str, t.Any]] = ()
    holder: str = ""
    runs: Sequence[Mapping[str, t.Any]] = ()
    elevation: str | None = None
    held: Sequence[Held] = ()
    found: Sequence[tuple[str, str, str]] = ()
