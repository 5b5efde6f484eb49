# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An Ironic in memory, as a session of keystoneauth1 sees it: what the kinds of servers ask, and no more.

Steps end at once and well, by the moves that are checked against Ironic's own state machine. What a real one
says is tested in tests/integration/test_bare_metal.py.
"""

from __future__ import annotations

import itertools
import json
import typing as t
import urllib.parse

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import ironic_states

_CHORES = {"inspect": ironic_states.INSPECT, "clean": ironic_states.CLEAN}


class Answer:
    """An answer of HTTP."""

    def __init__(self, status: int, body: t.Any) -> None:
        self.status_code = status
        self.content = json.dumps(body).encode() if body is not None else b""
        self.text = self.content.decode()

    def json(self) -> t.Any:
        """Return what it says."""
        return json.loads(self.content)


class MemoryIronic:
    """The session.

    Attributes:
        nodes: by their UUID.
        inventory: what an inspection says, by UUID.
        firmware: what the firmware interface says, by UUID.
        asked: method and path of each request.
        alive: whether a conductor is.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, t.Any]] = {}
        self.inventory: dict[str, t.Any] = {}
        self.firmware: dict[str, t.Any] = {}
        self.asked: list[str] = []
        self.alive = True
        self._clock = itertools.count(1)
        self._ports: list[dict[str, str]] = []

    def request(self, path: str, method: str, **options: t.Any) -> Answer:
        """Answer a request."""
        parts = urllib.parse.urlsplit(path)
        self.asked.append(f"{method} {parts.path}")
        match [method, *parts.path.strip("/").split("/")]:
            case ["GET", "conductors"]:
                return Answer(200, {"conductors": [{"hostname": "here", "alive": self.alive}]})
            case ["GET", "nodes"]:
                return Answer(200, {"nodes": list(self.nodes.values())})
            case ["GET", "ports"]:
                address = urllib.parse.parse_qs(parts.query).get("address")
                ports = [port for port in self._ports if not address or port["address"] in address]
                return Answer(200, {"ports": ports})
            case ["POST", "nodes"]:
                return Answer(201, self._made(options["json"]))
            case ["POST", "ports"]:
                self._ports.append({"uuid": "", **options["json"]})
                return Answer(201, {})
            case [_, "nodes", name, *rest]:
                node = next((one for one in self.nodes.values() if name in (one["uuid"], one["name"])), None)
                return self._of_node(method, node, rest, options.get("json")) if node else Answer(404, {})
        raise AssertionError(path)

    def _made(self, body: t.Any) -> dict[str, t.Any]:
        uuid = f"uuid-{next(self._clock)}"
        self.nodes[uuid] = {
            "extra": {},
            "instance_info": {},
            **body,
            "uuid": uuid,
            "provision_state": "enroll",
        }
        return self.nodes[uuid]

    def _of_node(self, method: str, node: dict[str, t.Any], rest: list[str], body: t.Any) -> Answer:
        match [method, *rest]:
            case ["GET"]:
                return Answer(200, node)
            case ["GET", "inventory"]:
                found = self.inventory.get(node["uuid"])
                return Answer(200, found) if found else Answer(404, {})
            case ["GET", "firmware"]:
                return Answer(200, self.firmware.get(node["uuid"], {"firmware": []}))
            case ["GET", "history"]:
                return Answer(200, {"history": []})
            case ["PATCH"]:
                for change in body:
                    holder, _, key = change["path"].strip("/").rpartition("/")
                    (node.setdefault(holder, {}) if holder else node)[key] = change["value"]
                return Answer(200, node)
            case ["PUT", "states", "provision"]:
                return self._moved(node, body)
        raise AssertionError(rest)

    def _moved(self, node: dict[str, t.Any], body: t.Any) -> Answer:
        verb = body["target"]
        moves = {move.verb: move for move in ironic_states.MOVES.get(node["provision_state"], ())}
        if node["provision_state"] == "manageable":
            moves |= _CHORES
        if verb not in moves:
            return Answer(400, {"error_message": f"{verb} can not be performed on node"})
        node["provision_state"] = moves[verb].to
        if verb == "deleted" and node.get("retired"):
            node["provision_state"] = "manageable"
        node["provision_updated_at"] = f"time-{next(self._clock)}"
        if verb == "inspect":
            node["inspection_finished_at"] = node["provision_updated_at"]
        node[f"asked_{verb}"] = body
        return Answer(202, None)
