# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Brings the firmware of servers that run to what is declared, by a service step of Ironic."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import firmware, ironic_states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import server_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.firmware_served import (
    Served,
    asked_of,
    missing_files,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import IronicApi
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_errors import explained
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import read_inspection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node_state import (
    found_state,
    way_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import quoted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import Record
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import (
    AT_ONCE,
    Found,
    RemoteError,
    State,
    Step,
)

PATIENCE_S = 7500.0
"""Ironic ends an update itself after 7200 s (``[redfish] firmware_update_overall_timeout``)."""
_RUNNING = ("active", "service failed", "servicing", "service wait")
_GOES_ON = ("servicing", "service wait")


class BareMetalFirmware:
    """The kind.

    Args:
        connect: returns Ironic.
        at_once: how many servers of a rack are worked on at the same time.
        most_failures: how many servers of a rack may fail before no other of it is begun; 0 for any number.
        served: says what is against fetching a file.
    """

    name = "bare_metal_firmware"
    consent = ""

    def __init__(
        self,
        connect: Callable[[], IronicApi],
        at_once: int = AT_ONCE,
        most_failures: int = 0,
        served: Served | None = None,
    ) -> None:
        self.at_once, self.most_failures = at_once, most_failures
        self._served = served or asked_of()
        self._connect = connect
        self._api: IronicApi | None = None
        self._uuids: dict[str, str] = {}

    def find(self, wanted: Mapping[str, State | None]) -> dict[str, Found]:
        """Ask for all nodes, and for the versions of those that have some declared, one request each."""
        states = {name: state for name, state in wanted.items() if state is not None}
        api = self._api = self._connect()
        entries = api.entries("extra", "firmware_interface")
        self._uuids = {name: str(entries[name][0]["uuid"]) for name in states if name in entries}
        asked = [name for name in self._uuids if states[name]["firmware"]]
        with concurrent.futures.ThreadPoolExecutor(max(1, min(AT_ONCE, len(asked)))) as pool:
            versions = dict(
                zip(asked, pool.map(lambda name: _versions(api, self._uuids[name]), asked), strict=True)
            )
        files = [
            one["url"] for name in asked for one in firmware.due(states[name]["firmware"], versions[name])
        ]
        missing = missing_files(files, self._served)
        found = {}
        for name, state in states.items():
            if name not in entries:
                found[name] = Found(None, fault="Ironic does not know it; run ironspan bare-metal for it")
                continue
            entry, node = entries[name]
            there = _state(entry, node, state, versions.get(name, {}))
            fault = _fault(there, state, str(entry.get("firmware_interface") or ""), missing)
            found[name] = Found(there, self._uuids[name], f"{_slot(state)}: {fault}" if fault else "")
        return found

    def steps(self, name: str, wanted: State | None, found: State | None) -> list[Step]:
        """Work out the steps: what ends a failed service, the update, and the proof of it.

        An update that a killed run began is not asked for again: its step waits for it.

        Raises:
            RemoteError: there is no way, or a person has to do something first.
        """
        if wanted is None or found is None or _is_done(found, wanted):
            return []
        journey = way_of(found, wanted)
        if journey.held:
            raise RemoteError(f"{name}: {journey.held.reason}", journey.held.remedy)
        missing = firmware.due(wanted["firmware"], found["firmware"])
        what = f"bring its firmware to what is declared: {firmware.said_of(missing, found['firmware'])}"
        steps = []
        for step in journey.steps:
            if step.verb == "wait" and missing and found["state"] in _GOES_ON:
                continue
            steps.append(dataclasses.replace(step, what=what) if step.verb == "service" else step)
        confirm = [Step("confirm", "compare the versions that run then", seconds=1)] if missing else []
        return [*steps, *confirm]

    def after(self, name: str, wanted: State | None, found: State | None) -> State | None:
        """Return the server as it will be."""
        if wanted is None or found is None:
            return found
        runs = {one["component"]: one["version"] for one in wanted["firmware"]}
        return {**found, "state": "active", "firmware": {**found["firmware"], **runs}}

    def do(
        self, name: str, step: Step, wanted: State | None, found: State | None, say: Callable[[str], None]
    ) -> None:
        """Take one step, and wait for its end.

        Raises:
            RemoteError: Ironic or the BMC refused it, it failed, or another version runs in the end.
        """
        api = self._api
        if wanted is None or api is None:
            return
        uuid = self._uuids[name]
        if step.verb == "confirm":
            self._confirm(api, uuid, wanted)
            return
        if step.verb == "service":
            node = api.settled(uuid, say, PATIENCE_S)
            missing = firmware.due(wanted["firmware"], _versions(api, uuid))
            if node.state == "active" and missing:
                api.change(uuid, firmware.asked_fields(missing))
                api.take(uuid, "service", firmware.service_steps(missing))
        elif step.verb != "wait":
            api.take(uuid, step.verb)
        node = api.settled(uuid, say, PATIENCE_S)
        state = ironic_states.STATES.get(node.state or "")
        if step.verb != "end_maintenance" and (state is None or state.sort == "failed"):
            said = explained(firmware.own_words(node.last_error or node.maintenance_reason))
            raise RemoteError(
                f"{_slot(wanted)}: its firmware was not updated, '{quoted(node.state or '')}'{said}",
                "the next run tries again; before that, ironspan bmc log shows what its BMC wrote",
            )

    def lane(self, name: str, wanted: State | None) -> str:
        """Return its rack."""
        return str(wanted["expected"]["rack"]) if wanted else ""

    def _confirm(self, api: IronicApi, uuid: str, wanted: State) -> None:
        """Refuse a server that still runs another version."""
        versions = _versions(api, uuid)
        if still := firmware.due(wanted["firmware"], versions):
            runs = ", ".join(
                f"{one['component']} {quoted(versions.get(one['component']) or '?')} runs, "
                f"{one['version']} is declared"
                for one in still
            )
            raise RemoteError(
                f"{_slot(wanted)}: the update ended well, and {runs}",
                "compare the version that is declared with what the file brings, and look at its BMC "
                "(ironspan bmc log); it is held",
            )


def _versions(api: IronicApi, uuid: str) -> dict[str, str]:
    """Return what Ironic has read of a node's firmware, by component."""
    return dict(read_inspection("out of band", {}, api.firmware(uuid)).firmware)


def _state(
    entry: Mapping[str, t.Any], node: Node, wanted: State, versions: Mapping[str, str]
) -> dict[str, t.Any]:
    runs = {
        one["component"]: versions[one["component"]]
        for one in wanted["firmware"]
        if one["component"] in versions
    }
    there = dict(found_state(entry, node, {**wanted, "node": {}, "macs": []}, set(), Record()))
    for key in ("node", "macs", "compared"):
        del there[key]
    done = ["service"] if not firmware.due(wanted["firmware"], versions) else []
    return {**there, "done": done, "firmware": runs, "asked_at": firmware.asked_at(entry)}


def _is_done(there: State, wanted: State) -> bool:
    """Tell whether what is declared runs, and no update that was asked for here goes on or has failed."""
    asked = bool(there["asked_at"]) and there["state"] in (*_GOES_ON, "service failed")
    return not asked and not firmware.due(wanted["firmware"], there["firmware"])


def _fault(there: State, wanted: State, interface: str, absent: Mapping[str, str]) -> str:
    """Return why nothing is done with a server, "" when something can be."""
    if _is_done(there, wanted):
        return ""
    missing = firmware.due(wanted["firmware"], there["firmware"])
    if there["state"] not in _RUNNING:
        return (
            f"it is '{quoted(there['state'] or '')}', and firmware is updated on servers that run; "
            "ironspan bare-metal deploys it"
        )
    if reason := firmware.obstacle(missing, there["firmware"], interface):
        return reason
    if reason := firmware.not_served(missing, absent):
        return reason
    held = way_of(there, wanted).held
    return f"{held.reason}; {held.remedy}" if held else ""


def _slot(wanted: State) -> str:
    return server_of(wanted["expected"]).slot
