# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A node of Ironic as the state of a remote thing, and how it differs from what is wanted of it."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import ironic_states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import server_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Goal, Node, Wanted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import Record, digest_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.way import Way, way
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import State, Step

_RUNNING = ("active", "rescue", "rescue failed", "unrescue failed", "service failed", "error")
_CHANGING = ("rebooting", "soft rebooting", "soft power off")


def corrections(wanted: State, found: State | None) -> list[Step]:
    """Return the steps that set what somebody changed by hand, or the site changed since."""
    if found is None:
        return []
    steps = []
    if differences := differences_of(wanted["node"], found["node"]):
        steps.append(Step("change", f"set its {', '.join(sorted(differences))}", seconds=1))
    if missing := sorted(set(wanted["macs"]) - set(found["macs"])):
        steps.append(Step("ports", f"add its ports {', '.join(missing)}", seconds=1))
    return steps


def differences_of(wanted: Mapping[str, t.Any], found: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what has to be set, by its path; what is there beside it stays."""
    differences: dict[str, t.Any] = {}
    for key, value in wanted.items():
        there = found.get(key)
        if isinstance(value, Mapping):
            inner = there if isinstance(there, Mapping) else {}
            differences.update(
                {f"{key}/{name}": one for name, one in value.items() if inner.get(name) != one}
            )
        elif there != value:
            differences[key] = value
    return differences


def found_state(
    entry: Mapping[str, t.Any], node: Node, wanted: State, macs: set[str], record: Record
) -> State:
    """Return what matters of a node: what may change while nobody does anything is no part of it."""
    digest = digest_of(server_of(wanted["expected"]))
    kept = {
        key: {name: (entry.get(key) or {}).get(name) for name in value}
        if isinstance(value, Mapping)
        else entry.get(key)
        for key, value in wanted["node"].items()
    }
    settled = ironic_states.STATES.get(node.state or "")
    failed = settled is not None and (settled.sort == "failed" or node.state == "enroll")
    return {
        **dataclasses.asdict(node),
        "power": node.power if node.power in _CHANGING else None,
        "last_error": node.last_error if failed else "",
        "done": sorted(_done(node, record, wanted)),
        "node": kept,
        "macs": sorted(macs & set(wanted["macs"])),
        "compared": record.compared is not None and record.compared.digest == digest,
    }


def _done(node: Node, record: Record, wanted: State) -> set[str]:
    """Return the chores that need not be done again.

    Whoever has mended a server that is held runs it again: so it is inspected again.
    """
    done = set(node.done)
    if record.differed and node.state == "manageable":
        done.discard("inspect")
    if wanted.get("clean") and record.erased == tuple(wanted["clean"]):
        done.add("clean")
    return done


def node_of(found: State | None) -> Node:
    """Return the node of a state that ``found_state`` made; one that Ironic does not know for None."""
    if found is None:
        return Node(None)
    values = {field.name: found[field.name] for field in dataclasses.fields(Node)}
    return Node(**{**values, "done": frozenset(values["done"])})


def wanted_of(state: State) -> Wanted:
    """Return where the node of a wanted state shall go."""
    return Wanted(
        t.cast("Goal", state["goal"]),
        inspect=bool(state["inspect"]),
        clean=tuple(state.get("clean", ())),
        service=tuple(state.get("service", ())),
        deploy=bool(state.get("redeploy")),
    )


def way_of(found: State | None, wanted: State) -> Way:
    """Return the way of a node.

    One that shall be redeployed and runs is inspected again, because it may stand somewhere else. One that
    does not run any more is on the way already, by a run that was killed.
    """
    node, goal = node_of(found), wanted_of(wanted)
    if goal.deploy and node.state in _RUNNING:
        node = dataclasses.replace(node, done=frozenset())
    elif goal.deploy:
        goal = dataclasses.replace(goal, deploy=False)
    return way(node, goal)
