# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers in Ironic: from a BMC's address to an inspected, compared, clean one, and to one that runs.

Only servers of the expected inventory are looked at. None is ever removed, and nothing that Ironic has beside
them is touched.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import ironic_states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.compare import compare
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import (
    Account,
    KnownHosts,
    config_drive,
    insist_on_image,
    instance_info,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    expected_servers,
    racks_of,
    server_of,
    wanted_node,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.facts import labels_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.handover import (
    Standing,
    standings_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.index import Index
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.inventory_file import InventoryFile
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_errors import explained
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.login import CLOUD, CLOUDS, login_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import read_inspection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node_state import (
    corrections,
    differences_of,
    found_state,
    node_of,
    wanted_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import (
    FIELDS,
    Compared,
    Deployed,
    Record,
    compared_fields,
    deployed_fields,
    digest_of,
    place_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.way import way
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import ironic_login
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
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of

NODE, RACKS = "site_bare_metal_node", "site_bare_metal_racks"
IMAGE, ACCOUNT, KNOWN_HOSTS = (
    "site_bare_metal_image",
    "site_bare_metal_account",
    "site_bare_metal_known_hosts",
)
TOGETHER, INSPECT = "site_bare_metal_at_once", "site_bare_metal_inspect"
INVENTORY, EXPECTED, MAPPING = "site_bare_metal_inventory", "ironspan_expected", "ironspan_mapping"
VARIABLES = (
    "site", CLOUD, CLOUDS, NODE, RACKS, IMAGE, ACCOUNT, KNOWN_HOSTS, TOGETHER, INSPECT, INVENTORY,
    EXPECTED, MAPPING,
    *ironic_login.VARIABLES,
)  # fmt: skip
_ENDS = ("provide", "active", "rebuild")
"""What must not be done with a server that differs from what was declared."""
_COMPARE = Step("compare", "compare it with what was declared", seconds=1)


def declared(variables: Mapping[str, t.Any], arguments: Mapping[str, t.Any]) -> dict[str, State | None]:
    """Return the servers that are expected and asked for.

    Raises:
        RemoteError: the file of expected servers or the site's settings have problems.
    """
    servers = expected_servers(
        str(value_of(arguments, EXPECTED)),
        str(value_of(arguments, MAPPING) or ""),
        [str(name) for name in value_of(arguments, "ironspan_servers")],
    )
    racks = racks_of(variables.get(RACKS) or {})
    image = variables.get(IMAGE) or {}
    if image:
        insist_on_image(
            image, Account.of(variables.get(ACCOUNT) or {}), str(variables.get(KNOWN_HOSTS) or "")
        )
    node, inspect = variables.get(NODE) or {}, bool(variables.get(INSPECT, True))
    logins = BmcLogins.of(variables)
    return {
        server.name: wanted_node(server, logins.node(node, server.serial), racks, image, inspect)
        for server in servers
    }


def opened(variables: Mapping[str, t.Any]) -> BareMetalServer:
    """Return the kind; Ironic is asked once something is.

    Raises:
        RemoteError: openstacksdk is not installed, or ``clouds.yaml`` has no such cloud.
    """
    file, mapping = str(variables.get(EXPECTED) or ""), str(variables.get(MAPPING) or "")
    inventory = str(variables.get(INVENTORY) or "")
    return BareMetalServer(
        lambda: connected(**login_of(variables)),
        Account.of(variables.get(ACCOUNT) or {}),
        KnownHosts(str(variables.get(KNOWN_HOSTS) or "")),
        int(variables.get(TOGETHER) or AT_ONCE),
        InventoryFile(inventory, lambda: expected_servers(file, mapping)) if inventory else None,
        BmcLogins.of(variables),
    )


class BareMetalServer:
    """The kind.

    Args:
        connect: returns Ironic.
        account: who may log in to what is deployed.
        known: where keys of hosts are recorded.
        at_once: how many servers of a rack are worked on at the same time.
        inventory: the file that hands servers over; None for none.
        logins: the accounts of BMCs that Ironic is given.
    """

    name = "bare_metal_server"
    consent = ""

    def __init__(
        self,
        connect: Callable[[], IronicApi],
        account: Account,
        known: KnownHosts,
        at_once: int = AT_ONCE,
        inventory: InventoryFile | None = None,
        logins: BmcLogins | None = None,
    ) -> None:
        self._logins = logins or BmcLogins()
        self.at_once = at_once
        self._connect = connect
        self._account = account
        self._known = known
        self._inventory = inventory
        self._standings: dict[str, Standing] = {}
        self._api: IronicApi | None = None
        self._uuids: dict[str, str] = {}
        self._index = Index(())

    def find(self, wanted: Mapping[str, State | None]) -> dict[str, Found]:
        """Ask for all nodes and all ports, one request a thousand of each."""
        states = {name: state for name, state in wanted.items() if state is not None}
        self._index = Index([server_of(state["expected"]) for state in states.values()])
        api = self._api = self._connect()
        fields = sorted({key for state in states.values() for key in state["node"]} - {"properties"})
        entries = api.entries(*fields, *FIELDS)
        self._standings = standings_of(entries)
        ports = api.ports() if any(state["macs"] for state in states.values()) else {}
        found = {}
        for name, state in states.items():
            if name not in entries:
                found[name] = Found(None)
                continue
            entry, node = entries[name]
            uuid = self._uuids[name] = str(entry["uuid"])
            there = found_state(entry, node, state, ports.get(uuid, set()), self._standings[name].record)
            held = way(node_of(there), wanted_of(state)).held
            found[name] = Found(there, uuid, f"{held.reason}; {held.remedy}" if held else "")
        return found

    def steps(self, name: str, wanted: State | None, found: State | None) -> list[Step]:
        """Work out the steps.

        Raises:
            RemoteError: there is no way, or a person has to do something first.
        """
        if wanted is None:
            return []
        journey = way(node_of(found), wanted_of(wanted))
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
        after = {**(found or {}), "state": wanted["goal"], "node": wanted["node"], "macs": wanted["macs"]}
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
            api.change(uuid, self._logins.changed(changed, wanted["expected"]["serial"]))
        elif step.verb == "compare":
            self._compare(api, uuid, name, wanted)
        else:
            deployed = None
            if step.verb in ("active", "rebuild"):
                deployed = self._deploy(api, uuid, name, wanted, step.verb)
            elif step.verb != "wait":
                api.take(uuid, step.verb)
            node = api.settled(uuid, say, wanted_of(wanted).patience_s)
            self._stands(name, node.state, deployed=deployed)
            _insist(step, node)

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
        compared = Compared(digest_of(server), labels_of(server)) if "compare" in verbs else None
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
        record = Record(compared or known.record.compared, deployed or known.record.deployed)
        self._standings[name] = Standing(state or known.state, record)

    def lane(self, name: str, wanted: State | None) -> str:
        """Return its rack and its group of conductors."""
        if wanted is None:
            return ""
        return f"{wanted['expected']['rack']}/{wanted['node'].get('conductor_group', '')}"

    def _compare(self, api: IronicApi, uuid: str, name: str, wanted: State) -> None:
        """Refuse a server that differs from what was declared."""
        said = api.inspection(uuid)
        source: t.Literal["in band", "out of band"] = (
            "in band" if wanted["node"].get("inspect_interface") == "agent" else "out of band"
        )
        read = [read_inspection(source, said, api.firmware(uuid))] if said is not None else []
        findings = compare(server_of(wanted["expected"]), read, self._index)
        if findings:
            raise RemoteError(
                f"it differs from what was declared, and is held: {'; '.join(map(str, findings))}"
            )
        server = server_of(wanted["expected"])
        api.change(uuid, compared_fields(server, read))
        self._stands(name, compared=Compared(digest_of(server), labels_of(server, read)))

    def _deploy(self, api: IronicApi, uuid: str, name: str, wanted: State, verb: str) -> Deployed:
        """Ask for the operating system; the keys of the host are recorded before it can have them."""
        nic = wanted["expected"]["nics"][0]
        deployed = _deployed(wanted, api.changed_at(uuid))
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


def _insist(step: Step, node: Node) -> None:
    """Refuse a step that failed, in the conductor's own words."""
    state = ironic_states.STATES.get(node.state or "")
    failed = state is not None and state.sort == "failed" and step.verb != "abort"
    if failed or (step.verb == "manage" and node.state == "enroll"):
        raise RemoteError(f"'{step.what}' ended in '{node.state}'{explained(node.last_error)}")
