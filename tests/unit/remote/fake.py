# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A kind with a service in memory: long steps, states on the way, and faults.

A server is made, gets an image (which wipes its disk), and is switched on or off. Each change goes through a
state of its own, as in Ironic, and a service that dies leaves the server in it.
"""

from __future__ import annotations

import threading
import time
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import (
    Found,
    RemoteError,
    State,
    Step,
)

WAY = ("new", "enrolled", "deploying", "deployed")


class KilledError(BaseException):
    """The controller dies here."""


class Service:
    """The service that has the servers.

    Args:
        kill_after: how many requests it takes before the controller dies, None for never.
        fail: names of servers whose steps fail, with the error that the service keeps.
    """

    def __init__(self, kill_after: int | None = None, fail: Mapping[str, str] | None = None) -> None:
        self.servers: dict[str, dict[str, t.Any]] = {}
        self.kill_after = kill_after
        self.fail = dict(fail or {})
        self.log: list[tuple[str, str]] = []
        self.slow_s = 0.0
        self.busy = 0
        self.busiest = 0
        self.lists = 0
        self._made = 0
        self._lock = threading.Lock()

    def request(self, name: str, what: str, change: Mapping[str, t.Any] | None) -> None:
        """Change a server, or die before or after it."""
        with self._lock:
            self.busy += 1
            self.busiest = max(self.busiest, self.busy)
        try:
            time.sleep(self.slow_s)
            with self._lock:
                self._count()
                self.log.append((name, what))
                if change is None:
                    self.servers.pop(name, None)
                elif name not in self.servers:
                    self._made += 1
                    self.servers[name] = {**change, "uid": f"uid-{self._made}"}
                else:
                    self.servers[name] = {**self.servers[name], **change}
                self._count()
        finally:
            with self._lock:
                self.busy -= 1

    def _count(self) -> None:
        if self.kill_after is not None:
            if self.kill_after <= 0:
                raise KilledError
            self.kill_after -= 1


class Servers:
    """The kind."""

    name = "fake_server"
    consent = "ironspan_wipe"
    at_once = 50
    most_failures = 0

    def __init__(self, service: Service) -> None:
        self.service = service

    def find(self, wanted: Mapping[str, State | None]) -> dict[str, Found]:
        """Return all servers by one request."""
        self.service.lists += 1
        there = self.service.servers
        found = {name: Found(None) for name in wanted}
        for name, server in there.items():
            state = {key: value for key, value in server.items() if key != "uid"}
            found[name] = Found(state, server["uid"], self.service.fail.get(f"find {name}", ""))
        return found

    def steps(self, name: str, wanted: State | None, found: State | None) -> list[Step]:
        """Return the steps from any state."""
        if wanted is None:
            return [Step("delete", f"delete {name}", frozenset({"deletes", "wipes"}), seconds=5)]
        if wanted["image"] == "impossible":
            raise RemoteError(f"{name} can never have that image", "write another one")
        made = [] if found else [Step("enrol", f"enrol {name}", costs="1 server", seconds=2)]
        state, image = (found["state"], found["image"]) if found else ("new", "")
        if state != "deployed" or image != wanted["image"]:
            made.append(
                Step("deploy", f"deploy {wanted['image']} on {name}", frozenset({"wipes"}), seconds=120)
            )
        if not found or found["power"] != wanted["power"] or made:
            made.append(Step("power", f"switch {name} {wanted['power']}", seconds=1))
        return made

    def after(self, name: str, wanted: State | None, found: State | None) -> State | None:
        """Return what will be there."""
        if wanted is None:
            return None
        return {"state": "deployed", "image": wanted["image"], "power": wanted["power"]}

    def do(
        self, name: str, step: Step, wanted: State | None, found: State | None, say: Callable[[str], None]
    ) -> None:
        """Take a step by the requests that it needs."""
        if error := self.service.fail.get(name):
            raise RemoteError(f"{name}: the conductor said: {error}", "look at its console")
        if name in self.service.fail.get("mistake", ""):
            raise ZeroDivisionError
        if wanted is None:
            return self.service.request(name, "delete", None)
        say("asked")
        if step.verb == "enrol":
            self.service.request(name, "enrol", {"state": "enrolled", "image": "", "power": "off"})
        elif step.verb == "deploy":
            if self.service.servers[name]["state"] != "deploying":
                self.service.request(name, "deploy", {"state": "deploying", "image": "", "power": "on"})
            self.service.request(name, "wait", {"state": "deployed", "image": wanted["image"]})
        else:
            self.service.request(name, "power", {"power": wanted["power"]})
        return None

    def lane(self, name: str, wanted: State | None) -> str:
        """Return the rack, which begins the name."""
        return name.partition("-")[0]
