# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How servers differ from what is declared of them now: parts, their entry in Ironic, their system."""

from __future__ import annotations

import concurrent.futures
import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.compare import compare_all
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import server_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.findings import Finding
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import IronicApi
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import Inspection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measuring import inspections_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node_state import differences_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import quoted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import (
    FIELDS,
    Record,
    place_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import State

AT_ONCE = 50
"""Servers whose inspection is asked for at the same time."""
Entry = tuple[Mapping[str, t.Any], Node]
_REDEPLOY = "ironspan server redeploy"


def drift_of(api: IronicApi, wanted: Mapping[str, State]) -> list[Finding]:
    """Return how servers differ, in the order of the servers; what was measured is what Ironic has.

    Args:
        api: Ironic.
        wanted: of each server by its name, as the kind ``bare_metal_server`` declares it.

    Raises:
        RemoteError: Ironic cannot be asked.
    """
    fields = sorted({key for state in wanted.values() for key in state["node"]} - {"properties"})
    entries = api.entries(*fields, *FIELDS)
    servers = {name: server_of(state["expected"]) for name, state in wanted.items()}
    known = [name for name in wanted if name in entries]
    measured = _measured(api, {name: wanted[name] for name in known}, entries)
    parts: dict[str, list[Finding]] = {}
    for finding in compare_all([servers[name] for name in known if wanted[name]["inspect"]], measured):
        parts.setdefault(finding.server, []).append(finding)
    found: list[Finding] = []
    for name, server in servers.items():
        entry = entries.get(name)
        found += [*_of_entry(server, wanted[name], entry), *parts.get(name, ())]
    return found


def _measured(
    api: IronicApi, wanted: Mapping[str, State], entries: Mapping[str, Entry]
) -> dict[str, list[Inspection]]:
    asked = {name: state for name, state in wanted.items() if state["inspect"]}
    with concurrent.futures.ThreadPoolExecutor(max(1, min(AT_ONCE, len(asked)))) as pool:
        read = pool.map(
            lambda name: inspections_of(
                api,
                str(entries[name][0]["uuid"]),
                asked[name]["node"],
                firmware=bool(asked[name]["expected"]["firmware"]),
            ),
            asked,
        )
        return dict(zip(asked, read, strict=True))


def _of_entry(server: ExpectedServer, wanted: State, entry: Entry | None) -> Iterator[Finding]:
    """Yield what is not the server's parts: its entry in Ironic, its state, its operating system."""

    def finding(part: str, message: str, remedy: str) -> Finding:
        kind: t.Literal["missing", "differs"] = "missing" if entry is None else "differs"
        return Finding(server.name, server.slot, part, kind, message, remedy)

    if entry is None:
        yield finding("Ironic", "it is not known there", "run ironspan bare-metal for it")
        return
    said, node = entry
    if differences := sorted(differences_of(wanted["node"], said)):
        # Names only: values may be secrets.
        message = f"{', '.join(differences)} declared otherwise than set there"
        yield finding("Ironic", message, "run ironspan bare-metal for it")
    if node.retired:
        yield finding("Ironic", "it is retired, and declared", "take it out of the file of expected servers")
    elif node.state != wanted["goal"]:
        message = f"'{wanted['goal']}' wanted, '{quoted(node.state or '')}' found"
        yield finding("Ironic", message, "run ironspan bare-metal for it")
    deployed = Record.of(said).deployed
    if node.state != "active" or wanted["goal"] != "active":
        return
    if deployed is None:
        yield finding("system", "ironspan has not written what runs on it", f"{_REDEPLOY} {server.name}")
        return
    if deployed.place != place_of(server):
        message = f"declared in {place_of(server)}, its system was written for {quoted(deployed.place)}"
        yield finding("place", message, f"{_REDEPLOY} {server.name}")
    if deployed.image != wanted["image"]["sha256"]:
        message = f"image {wanted['image']['sha256'][:12]} declared, {quoted(deployed.image)[:12]} runs"
        yield finding("system", message, f"{_REDEPLOY} {server.name}")
