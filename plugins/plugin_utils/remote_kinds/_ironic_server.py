# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Brings a server through Ironic, from whatever state it is in: what the kinds of servers have in common."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import ironic_states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.compare import compare
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import (
    Account,
    KnownHosts,
    config_drive,
    instance_info,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    server_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.handover import (
    Standing,
    standings_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.index import Index
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.inventory_file import InventoryFile
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_errors import explained
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import Inspection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measuring import inspections_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node_state import (
    corrections,
    differences_of,
    found_state,
    wanted_of,
    way_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.proof import keep_proof
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import (
    FIELDS,
    Compared,
    Deployed,
    compared_fields,
    compared_of,
    deployed_fields,
    differed_fields,
    erased_fields,
    place_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.way import Way
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.ironic_login import BmcLogins
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import (
    AT_ONCE,
    Found,
    Left,
    RemoteError,
    State,
    Step,
    Thing,
)

_ENDS = ("provide", "active", "rebuild")
"""What must not be done with a server that differs from what was declared."""
_COMPARE = Step("compare", "compare it with what was declared", seconds=1)


class BareMetalServer:
    """The kind.

    Args:
        connect: returns Ironic.
        account: who may log in to what is deployed.
        known: where keys of hosts are recorded.
        at_once: how many servers of a rack are worked on at the same time.
        inventory: the file that hands servers over; None for none.
        logins: the accounts of BMCs that Ironic is given.
        name: of the kind.
        proofs: folder for the proofs that servers were erased; None where none is.
        most_failures: how many servers of a rack may fail before no other of it is begun; 0 for any number.
    """

    consent = ""

    def __init__(
        self,
        connect: Callable[[], IronicApi],
        account: Account,
        known: KnownHosts,
        at_once: int = AT_ONCE,
        inventory: InventoryFile | None = None,
        logins: BmcLogins | None = None,
        name: str = "bare_metal_server",
        proofs: Path | None = None,
        most_failures: int = 0,
    ) -> None:
        self.most_failures = most_failures
        self.name = name
        self._proofs = proofs
        self.at_once = at_once
        self._connect = connect
        self._account = account
        self._known = known
        self._inventory = inventory
        self._logins = logins or BmcLogins()
        self._standings: dict[str, Standing] = {}
        self._api: IronicApi | None = None
        self._uuids: dict[str, str] = {}
        self._index = Index(())
        self._tpms: dict[str, str] = {}

    def find(self, wanted: Mapping[str, State | None]) -> dict[str, Found]:
        """Ask for all nodes and all ports, one request a thousand of each.

        Conductors are asked for only where one of them has something to do.
        """
        states = {name: state for name, state in wanted.items() if state is not None}
        self._index = Index([server_of(state["expected"]) for state in states.values()])
        api = self._api = self._connect()
        fields = sorted({key for state in states.values() for key in state["node"]} - {"properties"})
        entries = api.entries(*fields, *FIELDS)
        self._standings = standings_of(entries)
        # Whose TPM is known already; the entry of a server that was retired says nothing any more.
        self._tpms = {
            record.compared.tpm: name
            for name, (_, node) in entries.items()
            if not node.retired and (record := self._standings[name].record).compared and record.compared.tpm
        }
        ports = api.ports() if any(state["macs"] for state in states.values()) else {}
        there: dict[str, State] = {}
        for name in states.keys() & entries.keys():
            entry, node = entries[name]
            uuid = self._uuids[name] = str(entry["uuid"])
            record = self._standings[name].record
            there[name] = found_state(entry, node, states[name], ports.get(uuid, set()), record)
        busy = any(way_of(found, states[name]) != Way() for name, found in there.items())
        if busy and not api.conductors():
            there = {name: {**found, "conductor_alive": False} for name, found in there.items()}
        return {name: self._found(name, state, there.get(name)) for name, state in states.items()}

    def _found(self, name: str, wanted: State, there: State | None) -> Found:
        if there is None:
            unknown = wanted.get("redeploy") or wanted["goal"] == "retired"
            return Found(None, fault="Ironic does not know it; look at its name" if unknown else "")
        held = way_of(there, wanted).held
        return Found(there, self._uuids[name], f"{held.reason}; {held.remedy}" if held else "")

    def steps(self, name: str, wanted: State | None, found: State | None) -> list[Step]:
        """Work out the steps.

        Raises:
            RemoteError: there is no way, or a person has to do something first.
        """
        if wanted is None:
            return []
        journey = way_of(found, wanted)
        if journey.held:
            raise RemoteError(f"{name}: {journey.held.reason}", journey.held.remedy)
        steps = list(journey.steps)
        first = next((at for at, step in enumerate(steps) if step.verb not in ("wait", "enrol")), len(steps))
        steps[first:first] = corrections(wanted, found)
        ends = next((at for at, step in enumerate(steps) if step.verb in _ENDS), None)
        if wanted["inspect"] and ends is not None:
            steps.insert(ends, _COMPARE)
        elif wanted["inspect"] and not (found or {}).get("compared"):
            steps.append(_COMPARE)
        return steps

    def after(self, name: str, wanted: State | None, found: State | None) -> State | None:
        """Return the server as it will be."""
        if wanted is None:
            return found
        state = "manageable" if wanted["goal"] == "retired" else wanted["goal"]
        after = {**(found or {}), "state": state, "node": wanted["node"], "macs": wanted["macs"]}
        after["retired"] = after.get("retired", False) or wanted["goal"] == "retired"
        return {**after, "compared": bool(wanted["inspect"])}

    def do(
        self, name: str, step: Step, wanted: State | None, found: State | None, say: Callable[[str], None]
    ) -> None:
        """Take one step, and wait for its end.

        Raises:
            RemoteError: Ironic refused it, it failed, or the server is not the declared one.
        """
        api = self._api
        if wanted is None or api is None:
            return
        if step.verb == "enrol":
            body = self._logins.enrolled(wanted["node"], wanted["expected"]["serial"])
            self._uuids[name] = api.enrol(name, body, wanted["macs"])
            self._stands(name, "enroll")
            return
        uuid = self._uuids[name]
        if step.verb == "ports":
            api.add_ports(uuid, name, wanted["macs"])
        elif step.verb == "change":
            changed = differences_of(wanted["node"], (found or {}).get("node") or {})
            api.change(uuid, self._logins.changed(changed, wanted["expected"]["serial"]), secret=True)
        elif step.verb == "compare":
            self._compare(api, uuid, name, wanted)
        else:
            deployed = None
            if step.verb in ("active", "rebuild"):
                deployed = self._deploy(api, uuid, name, wanted, step.verb)
            elif step.verb != "wait":
                api.take(uuid, step.verb, _arguments(step, wanted))
            node = api.settled(uuid, say, wanted_of(wanted).patience_s)
            self._stands(name, node.state, deployed=deployed)
            _insist(step, node)
            if step.verb == "clean" and self._proofs is not None:
                keep_proof(api, uuid, server_of(wanted["expected"]), wanted["clean"], self._proofs)
                api.change(uuid, erased_fields(wanted["clean"]))

    def leave(self, things: Sequence[Thing], check: bool) -> Left | None:
        """Write the hosts that servers have become, all that are expected and not only those of this run."""
        if self._inventory is None:
            return None
        if check:
            for thing in things:
                self._foresee(thing)
        return self._inventory.brought(self._standings, check)

    def _foresee(self, thing: Thing) -> None:
        """Take the steps of a server for done, all of them well."""
        wanted, verbs = thing.wanted, [step.verb for step in thing.steps]
        if wanted is None or thing.found.fault or not verbs:
            return
        server = server_of(wanted["expected"])
        known = self._standings.get(thing.name, Standing(None)).record.compared
        compared = compared_of(server, known=known) if "compare" in verbs else None
        deployed = _deployed(wanted, "") if {"active", "rebuild"} & set(verbs) else None
        self._stands(thing.name, wanted["goal"], compared, deployed)

    def _stands(
        self,
        name: str,
        state: str | None = None,
        compared: Compared | None = None,
        deployed: Deployed | None = None,
    ) -> None:
        """Note what has become of a server; None is what was known already."""
        known = self._standings.get(name, Standing(None))
        record = known.record._replace(
            compared=compared or known.record.compared, deployed=deployed or known.record.deployed
        )
        self._standings[name] = Standing(state or known.state, record)

    def lane(self, name: str, wanted: State | None) -> str:
        """Return its rack and its group of conductors."""
        if wanted is None:
            return ""
        return f"{wanted['expected']['rack']}/{wanted['node'].get('conductor_group', '')}"

    def _compare(self, api: IronicApi, uuid: str, name: str, wanted: State) -> None:
        """Refuse a server that differs from what was declared."""
        server = server_of(wanted["expected"])
        read = inspections_of(api, uuid, wanted["node"], firmware=bool(server.firmware))
        findings = compare(server, read, self._index, others=self._owners_of_tpms(name, server, read))
        if findings:
            api.change(uuid, differed_fields(api.times(uuid)["inspection_finished_at"]))
            raise RemoteError(
                f"it differs from what was declared, and is held: {'; '.join(map(str, findings))}"
            )
        api.change(uuid, compared_fields(server, read))
        self._stands(name, compared=compared_of(server, read))

    def _owners_of_tpms(
        self, name: str, server: ExpectedServer, read: Sequence[Inspection]
    ) -> dict[str, str]:
        """Return the TPMs of a server that another one is known by, with that one's name.

        Of two that are compared at the same time the later one sees the earlier one. A TPM that is declared
        for this server is its own, whoever else has claimed to have it.
        """
        if server.tpm_ek_sha256:
            return {}
        owners = {one.tpm: self._tpms.setdefault(one.tpm, name) for one in read if one.tpm}
        return {tpm: owner for tpm, owner in owners.items() if owner != name}

    def _deploy(self, api: IronicApi, uuid: str, name: str, wanted: State, verb: str) -> Deployed:
        """Ask for the operating system; the keys of the host are recorded before it can have them."""
        nic = wanted["expected"]["nics"][0]
        deployed = _deployed(wanted, api.times(uuid)["provision_updated_at"])
        key = self._known.new_key(deployed.address, name)
        api.change(uuid, {"instance_info": instance_info(wanted["image"]), **deployed_fields(deployed)})
        drive = config_drive(name, wanted["host"], nic["mac"], key, self._account)
        api.take(uuid, verb, {"configdrive": drive})
        return deployed


def _deployed(wanted: State, before: str) -> Deployed:
    server = server_of(wanted["expected"])
    address = str(wanted["host"]["address"]).partition("/")[0]
    return Deployed(
        address, place_of(server), str(wanted["image"]["sha256"]), bool(wanted["inspect"]), before
    )


def _arguments(step: Step, wanted: State) -> dict[str, t.Any]:
    """Return what Ironic is told beside the verb."""
    if step.verb != "clean":
        return {}
    pairs = [name.partition(".") for name in wanted["clean"]]
    return {"clean_steps": [{"interface": interface, "step": called} for interface, _, called in pairs]}


def _insist(step: Step, node: Node) -> None:
    """Refuse a step that failed, in the conductor's own words."""
    state = ironic_states.STATES.get(node.state or "")
    failed = state is not None and state.sort == "failed" and step.verb != "abort"
    if failed or (step.verb == "manage" and node.state == "enroll"):
        raise RemoteError(f"'{step.what}' ended in '{node.state}'{explained(node.last_error)}")
