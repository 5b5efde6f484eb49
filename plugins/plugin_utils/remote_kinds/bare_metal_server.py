# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers in Ironic: from a BMC's address to an inspected, compared, clean one, and to one that runs.

Only servers of the expected inventory are looked at. None is ever removed, and nothing that Ironic has beside
them is touched.
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable, Mapping

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
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.index import Index
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_errors import explained
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.measured import read_inspection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Goal, Node, Wanted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.way import way
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import (
    AT_ONCE,
    Found,
    RemoteError,
    State,
    Step,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of

CLOUD, NODE, RACKS = "site_bare_metal_cloud", "site_bare_metal_node", "site_bare_metal_racks"
IMAGE, ACCOUNT, KNOWN_HOSTS = (
    "site_bare_metal_image",
    "site_bare_metal_account",
    "site_bare_metal_known_hosts",
)
TOGETHER, INSPECT = "site_bare_metal_at_once", "site_bare_metal_inspect"
VARIABLES = (CLOUD, NODE, RACKS, IMAGE, ACCOUNT, KNOWN_HOSTS, TOGETHER, INSPECT)
_ENDS = ("provide", "active", "rebuild")
"""What must not be done with a server that differs from what was declared."""
_CHANGING = ("rebooting", "soft rebooting", "soft power off")


def declared(variables: Mapping[str, t.Any], arguments: Mapping[str, t.Any]) -> dict[str, State | None]:
    """Return the servers that are expected and asked for.

    Raises:
        RemoteError: the file of expected servers or the site's settings have problems.
    """
    servers = expected_servers(
        str(value_of(arguments, "ironspan_expected")),
        str(value_of(arguments, "ironspan_mapping") or ""),
        [str(name) for name in value_of(arguments, "ironspan_servers")],
    )
    racks = racks_of(variables.get(RACKS) or {})
    image = variables.get(IMAGE) or {}
    if image:
        insist_on_image(
            image, Account.of(variables.get(ACCOUNT) or {}), str(variables.get(KNOWN_HOSTS) or "")
        )
    node, inspect = variables.get(NODE) or {}, bool(variables.get(INSPECT, True))
    return {server.name: wanted_node(server, node, racks, image, inspect) for server in servers}


def opened(variables: Mapping[str, t.Any]) -> BareMetalServer:
    """Return the kind; Ironic is asked once something is.

    Raises:
        RemoteError: openstacksdk is not installed, or ``clouds.yaml`` has no such cloud.
    """
    return BareMetalServer(
        lambda: connected(str(variables.get(CLOUD) or "")),
        Account.of(variables.get(ACCOUNT) or {}),
        KnownHosts(str(variables.get(KNOWN_HOSTS) or "")),
        int(variables.get(TOGETHER) or AT_ONCE),
    )


class BareMetalServer:
    """The kind.

    Args:
        connect: returns Ironic.
        account: who may log in to what is deployed.
        known: where keys of hosts are recorded.
        at_once: how many servers of a rack are worked on at the same time.
    """

    name = "bare_metal_server"
    consent = ""

    def __init__(
        self, connect: Callable[[], IronicApi], account: Account, known: KnownHosts, at_once: int = AT_ONCE
    ) -> None:
        self.at_once = at_once
        self._connect = connect
        self._account = account
        self._known = known
        self._api: IronicApi | None = None
        self._uuids: dict[str, str] = {}
        self._index = Index(())

    def find(self, wanted: Mapping[str, State | None]) -> dict[str, Found]:
        """Ask for all nodes and all ports, one request a thousand of each."""
        states = {name: state for name, state in wanted.items() if state is not None}
        self._index = Index([server_of(state["expected"]) for state in states.values()])
        api = self._api = self._connect()
        fields = sorted({key for state in states.values() for key in state["node"]} - {"properties"})
        entries = api.entries(*fields)
        ports = api.ports() if any(state["macs"] for state in states.values()) else {}
        found = {}
        for name, state in states.items():
            if name not in entries:
                found[name] = Found(None)
                continue
            entry, node = entries[name]
            uuid = self._uuids[name] = str(entry["uuid"])
            there = _found_state(entry, node, state, ports.get(uuid, set()))
            held = way(_node(there), _wanted(state)).held
            found[name] = Found(there, uuid, f"{held.reason}; {held.remedy}" if held else "")
        return found

    def steps(self, name: str, wanted: State | None, found: State | None) -> list[Step]:
        """Work out the steps.

        Raises:
            RemoteError: there is no way, or a person has to do something first.
        """
        if wanted is None:
            return []
        journey = way(_node(found), _wanted(wanted))
        if journey.held:
            raise RemoteError(f"{name}: {journey.held.reason}", journey.held.remedy)
        steps = list(journey.steps)
        first = next((at for at, step in enumerate(steps) if step.verb not in ("wait", "enrol")), len(steps))
        steps[first:first] = _corrections(wanted, found)
        ends = next((at for at, step in enumerate(steps) if step.verb in _ENDS), None)
        if wanted["inspect"] and ends is not None:
            steps.insert(ends, Step("compare", "compare it with what was declared", seconds=1))
        return steps

    def after(self, name: str, wanted: State | None, found: State | None) -> State | None:
        """Return the server as it will be."""
        if wanted is None:
            return found
        return {**(found or {}), "state": wanted["goal"], "node": wanted["node"], "macs": wanted["macs"]}

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
            self._uuids[name] = api.enrol(name, wanted["node"], wanted["macs"])
            return
        uuid = self._uuids[name]
        if step.verb == "ports":
            api.add_ports(uuid, name, wanted["macs"])
        elif step.verb == "change":
            api.change(uuid, _differences(wanted["node"], (found or {}).get("node") or {}))
        elif step.verb == "compare":
            self._compare(api, uuid, wanted)
        else:
            if step.verb == "active":
                self._deploy(api, uuid, name, wanted)
            elif step.verb != "wait":
                api.take(uuid, step.verb)
            _insist(step, api.settled(uuid, say, _wanted(wanted).patience_s))

    def lane(self, name: str, wanted: State | None) -> str:
        """Return its rack and its group of conductors."""
        if wanted is None:
            return ""
        return f"{wanted['expected']['rack']}/{wanted['node'].get('conductor_group', '')}"

    def _compare(self, api: IronicApi, uuid: str, wanted: State) -> None:
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

    def _deploy(self, api: IronicApi, uuid: str, name: str, wanted: State) -> None:
        """Ask for the operating system; the keys of the host are recorded before it can have them."""
        host, nic = wanted["host"], wanted["expected"]["nics"][0]
        key = self._known.new_key(host["address"].partition("/")[0], name)
        api.change(uuid, {"instance_info": instance_info(wanted["image"])})
        drive = config_drive(name, host, nic["mac"], key, self._account)
        api.take(uuid, "active", {"configdrive": drive})


def _insist(step: Step, node: Node) -> None:
    """Refuse a step that failed, in the conductor's own words."""
    state = ironic_states.STATES.get(node.state or "")
    failed = state is not None and state.sort == "failed" and step.verb != "abort"
    if failed or (step.verb == "manage" and node.state == "enroll"):
        raise RemoteError(f"'{step.what}' ended in '{node.state}'{explained(node.last_error)}")


def _corrections(wanted: State, found: State | None) -> list[Step]:
    if found is None:
        return []
    steps = []
    if differences := _differences(wanted["node"], found["node"]):
        steps.append(Step("change", f"set its {', '.join(sorted(differences))}", seconds=1))
    if missing := sorted(set(wanted["macs"]) - set(found["macs"])):
        steps.append(Step("ports", f"add its ports {', '.join(missing)}", seconds=1))
    return steps


def _differences(wanted: Mapping[str, t.Any], found: Mapping[str, t.Any]) -> dict[str, t.Any]:
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


def _found_state(entry: Mapping[str, t.Any], node: Node, wanted: State, macs: set[str]) -> State:
    """Return what matters of a node: what may change while nobody does anything is no part of it."""
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
        "done": sorted(node.done),
        "node": kept,
        "macs": sorted(macs & set(wanted["macs"])),
    }


def _node(found: State | None) -> Node:
    if found is None:
        return Node(None)
    values = {field.name: found[field.name] for field in dataclasses.fields(Node)}
    return Node(**{**values, "done": frozenset(values["done"])})


def _wanted(state: State) -> Wanted:
    return Wanted(t.cast("Goal", state["goal"]), inspect=bool(state["inspect"]))
