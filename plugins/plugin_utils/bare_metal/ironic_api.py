# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Ironic's API, as far as it is used: one list of all nodes, one request a step, and waiting.

It runs on openstacksdk (``pip install ironspan[metal]``), which knows every way to log in. The SDK repeats
each 409 for 15 s, also one that will never change; so it is told not to, and this repeats what is worth it.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import ironic_states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_answers import (
    LOOK,
    is_busy,
    node_of_entry,
    path_of,
    said_of,
    unanswered,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_errors import explained
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import quoted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

MICROVERSION = "1.90"
"""Of the API: old enough for Ironic of 2024, new enough for all that is asked."""
BUSY_S = 300.0
"""For how long an Ironic that has no worker left (503), or a node that is locked (409), is asked again."""
PAUSE_S = 1.0
AGAIN = 2
"""How often a question is repeated that gets no answer: an API that has much to do resets connections."""
WAITS_S = (10.0, 120.0)
"""For a connection, and for an answer. A host that is off does not refuse; some steps are checked before they
are taken, which takes an Ironic up to a minute."""
_FIELDS = (
    "uuid", "name", "provision_state", "target_provision_state", "power_state", "maintenance",
    "maintenance_reason", "fault", "last_error", "reservation", "protected", "retired", "automated_clean",
    "properties", "inspection_finished_at",
)  # fmt: skip
_VERBS = {move.verb for moves in ironic_states.MOVES.values() for move in moves}
PROVISION: t.Final = frozenset({*_VERBS, "inspect", "clean", "service", "abort"})
"""Steps that are a target of the provision state."""


class IronicApi:
    """One Ironic.

    Args:
        session: a session of keystoneauth1 (``Connection.baremetal`` of openstacksdk is one).
        clock: monotonic seconds.
        sleep: waits some seconds.
        remedy: what to do when it does not answer, or refuses the login.
    """

    def __init__(
        self,
        session: t.Any,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        remedy: str = LOOK,
    ) -> None:
        self._remedy = remedy
        self._session = session
        self._clock = clock
        self._sleep = sleep

    def nodes(self) -> dict[str, tuple[str, Node]]:
        """Return UUID and node by name (by UUID where it has none), with one request a thousand nodes."""
        return {name: (str(entry["uuid"]), node) for name, (entry, node) in self.entries().items()}

    def entries(self, *more: str) -> dict[str, tuple[Mapping[str, t.Any], Node]]:
        """Return what Ironic says of each node by its name, as ``nodes`` does.

        Args:
            more: fields beside those that every caller needs.
        """
        entries = self._listed("nodes", (*_FIELDS, *more))
        return {str(entry.get("name") or entry["uuid"]): (entry, node_of_entry(entry)) for entry in entries}

    def ports(self) -> dict[str, set[str]]:
        """Return the addresses of ports by the UUID of their node, with one request a thousand ports."""
        found: dict[str, set[str]] = {}
        for entry in self._listed("ports", ("uuid", "address", "node_uuid")):
            found.setdefault(str(entry["node_uuid"]), set()).add(str(entry["address"]).lower())
        return found

    def _listed(self, what: str, fields: Collection[str]) -> Iterator[Mapping[str, t.Any]]:
        path = f"/{what}?fields={','.join(fields)}&limit=1000"
        while path:
            page = self._ask("GET", path)
            yield from page.get(what, ())
            path = path_of(page.get("next"))

    def node(self, uuid: str) -> Node:
        """Return one node."""
        entry = self._ask("GET", f"/nodes/{uuid}?fields={','.join(_FIELDS)}")
        return node_of_entry(entry)

    def times(self, uuid: str) -> dict[str, str]:
        """Return when a node's provision state changed and when it was inspected, "" for never.

        They are as Ironic writes them, by its clock: two are the same, or not.
        """
        names = ("provision_updated_at", "inspection_finished_at")
        entry = self._ask("GET", f"/nodes/{uuid}?fields={','.join(names)}")
        return {name: str(entry.get(name) or "") for name in names}

    def cleaned(self, uuid: str) -> dict[str, t.Any]:
        """Return what Ironic says of a node's last cleaning: steps, times, the conductor's history."""
        fields = (
            "driver,deploy_interface,driver_internal_info,last_error,provision_state,provision_updated_at"
        )
        entry = self._ask("GET", f"/nodes/{uuid}?fields={fields}")
        history = self._ask("GET", f"/nodes/{uuid}/history?detail=True", missing={}).get("history", ())
        return {**{key: entry.get(key) for key in fields.split(",")}, "history": list(history)}

    def conductors(self) -> set[str]:
        """Return the names of the conductors that are alive.

        Whose conductor is which is not asked: Ironic 39.0.0 answers 500 to a list of nodes with that field.
        """
        answer = self._ask("GET", "/conductors")
        return {str(entry["hostname"]) for entry in answer.get("conductors", ()) if entry.get("alive")}

    def enrol(self, name: str, body: Mapping[str, t.Any], macs: Collection[str]) -> str:
        """Make a server known with its ports; what is known already is left as it is.

        Args:
            name: of the node.
            body: its driver, interfaces, ``driver_info`` and ``properties``.
            macs: addresses of its ports.

        Returns:
            The node's UUID.

        Raises:
            RemoteError: Ironic refused, or a port is another node's.
        """
        known = self._ask("GET", f"/nodes/{name}?fields=uuid", missing={})
        uuid = str(
            known["uuid"]
            if known
            else self._ask("POST", "/nodes", {**body, "name": name}, secret=True)["uuid"]
        )
        self.add_ports(uuid, name, macs)
        return uuid

    def add_ports(self, uuid: str, name: str, macs: Collection[str]) -> None:
        """Make ports of a node known; those that are known already are left as they are.

        Args:
            uuid: of the node.
            name: of the node.
            macs: addresses of its ports.

        Raises:
            RemoteError: Ironic refused, or a port is another node's.
        """
        for mac in macs:
            ports = self._ask("GET", f"/ports?address={mac}&fields=uuid,node_uuid,address").get("ports", ())
            if not ports:
                self._ask("POST", "/ports", {"node_uuid": uuid, "address": mac})
            elif ports[0]["node_uuid"] != uuid:
                remedy = "look which node has it, and remove it there"
                raise RemoteError(f"the port {mac} of {name} is another node's", remedy)

    def change(self, uuid: str, values: Mapping[str, t.Any], *, secret: bool = False) -> None:
        """Set fields of a node.

        Args:
            uuid: of the node.
            values: path below the node, with slashes, to value: ``driver_info/redfish_address``.
            secret: whether a value must not be in a log or an error.
        """
        changes = [{"op": "add", "path": f"/{path}", "value": value} for path, value in values.items()]
        self._ask("PATCH", f"/nodes/{uuid}", changes, secret=secret)

    def take(self, uuid: str, verb: str, arguments: Mapping[str, t.Any] | None = None) -> None:
        """Ask for a step, and do not wait for its end.

        Args:
            uuid: of the node.
            verb: as the steps of a way have it.
            arguments: ``clean_steps``, ``service_steps``, ``configdrive`` or ``rescue_password``.
        """
        if verb in PROVISION:
            asked = {"target": verb, **(arguments or {})}
            # A config drive has the host's private key.
            self._ask("PUT", f"/nodes/{uuid}/states/provision", asked, secret="configdrive" in asked)
        elif verb in ("power_on", "power_off"):
            self._ask("PUT", f"/nodes/{uuid}/states/power", {"target": verb.replace("_", " ")})
        elif verb == "end_maintenance":
            self._ask("DELETE", f"/nodes/{uuid}/maintenance")
        elif verb == "retire":
            self.change(uuid, {"retired": True})
        elif verb == "delete":
            self._ask("DELETE", f"/nodes/{uuid}", missing={})
        else:
            raise RemoteError(f"no step '{quoted(verb)}' is known", "correct the plan")

    def settled(self, uuid: str, say: Callable[[str], None], patience_s: float) -> Node:
        """Wait until nothing goes on with a node by itself any more.

        Args:
            uuid: of the node.
            say: told what goes on, whenever it changes.
            patience_s: how long.

        Raises:
            RemoteError: it takes longer.
        """
        until = self._clock() + patience_s
        said = ""
        while True:
            # Before it is asked: who was not let run for a while asks once more.
            over = self._clock() > until
            node = self.node(uuid)
            state = ironic_states.STATES.get(node.state or "")
            moving = state is not None and state.sort in ("moving", "waiting")
            if not moving and not node.reserved_by:
                return node
            if state is not None and state.means != said:
                said = state.means
                say(said)
            if over:
                reason = (
                    f"{said or 'it is locked'}, for longer than {patience_s:g} s{explained(node.last_error)}"
                )
                raise RemoteError(reason, "look at the conductor's log")
            self._sleep(PAUSE_S)

    def inspection(self, uuid: str) -> Mapping[str, t.Any] | None:
        """Return what the last inspection said (``inventory``, ``plugin_data``), None when there was none."""
        return self._ask("GET", f"/nodes/{uuid}/inventory", missing={}) or None

    def firmware(self, uuid: str) -> Mapping[str, t.Any]:
        """Return the components and versions that Ironic knows."""
        return self._ask("GET", f"/nodes/{uuid}/firmware", missing={})

    def _ask(
        self,
        method: str,
        path: str,
        body: t.Any = None,
        missing: Mapping[str, t.Any] | None = None,
        secret: bool = False,
    ) -> Mapping[str, t.Any]:
        """Ask, again while Ironic or the node is busy.

        Args:
            method: of HTTP.
            path: below the endpoint of version 1 of the API.
            body: sent as JSON; None for none.
            missing: what is returned when there is no such thing; None: that is an error.
            secret: whether the body must not be in a log or an error. Ironic repeats bodies in its refusals.
        """
        until = self._clock() + BUSY_S
        while True:
            options = {"json": body} if body is not None else {}
            try:
                answer = self._session.request(
                    path,
                    method,
                    microversion=MICROVERSION,
                    raise_exc=False,
                    status_code_retries=0,
                    # What changes something may have been done already, so it is not asked for twice.
                    connect_retries=AGAIN if method == "GET" else 0,
                    log=not secret,
                    timeout=WAITS_S,
                    **options,
                )
            except Exception as error:  # of keystoneauth1, which is there only where Ironic is used
                raise unanswered(error, self._remedy) from None
            if answer.status_code == 404 and missing is not None:
                return missing
            if answer.status_code < 400:
                return answer.json() if answer.content else {}
            said = said_of(answer)
            if not is_busy(answer.status_code, said) or self._clock() > until:
                asked = f"{method} {path.split('?')[0]} (HTTP {answer.status_code})"
                said = "what it said may repeat a secret, and is left out" if secret else said
                remedy = self._remedy if answer.status_code == 401 else ""
                raise RemoteError(f"Ironic refused {asked}{explained(said)}", remedy)
            self._sleep(PAUSE_S)


def connected(cloud: str = "", clouds: str = "", remedy: str = LOOK, **login: t.Any) -> IronicApi:
    """Return Ironic by a cloud of ``clouds.yaml``, or by what openstacksdk takes instead.

    Args:
        cloud: name in ``clouds.yaml``; "" for none.
        clouds: that file; "" is where openstacksdk looks for it.
        remedy: what to do when Ironic does not answer, or refuses the login.
        login: for example ``auth_type="http_basic"``, ``auth`` (endpoint, username, password),
            ``baremetal_endpoint_override`` and ``cacert``.

    Raises:
        RemoteError: openstacksdk is not installed, or has no such cloud; or the file is not there.
    """
    try:
        import openstack.config
        import openstack.connection
    except ImportError:
        raise RemoteError(
            "openstacksdk is not installed", "install it: pip install 'ironspan[metal]'"
        ) from None
    file = Path(clouds).expanduser()
    if clouds and not file.is_file():
        raise RemoteError(f"{file} is not there", "correct site_bare_metal_clouds")
    try:
        read = openstack.config.OpenStackConfig(config_files=[str(file)] if clouds else None)
        # What openstacksdk asks by itself, before the first request of ours, is small.
        region = read.get_one(cloud=cloud or None, **{"api_timeout": WAITS_S[0], **login})
        return IronicApi(openstack.connection.Connection(config=region).baremetal, remedy=remedy)
    except Exception as error:  # of openstacksdk and of keystoneauth1, which have no common ground
        raise unanswered(error, remedy) from None
