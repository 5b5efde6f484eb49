# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Requests for access where the client sends something a second time, as the first answer was lost."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.access import requests
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError, ClusterError

ASKED = requests.Asked("pod-reader", "ticket 4711", 3600, "team")


class Repeated:
    """An API server that hears every write twice, and whose first answer nobody gets.

    Args:
        me: who asks.
        other: what of the request is another one's when it is heard the second time.
    """

    def __init__(self, me: str, **other: t.Any) -> None:
        self.me, self.other = me, other
        self.there: dict[str, Object] = {}
        self.version = 0

    def request(self, method: str, path: str, body: Object) -> bytes:
        if path.endswith("selfsubjectreviews"):
            return json.dumps({"status": {"userInfo": {"username": self.me}}}).encode()
        name = body["metadata"]["name"]
        assert (method, path) == ("POST", requests.PATH) and name not in self.there
        self._keep(name, {**body, "spec": {**body["spec"], **self.other}})
        raise ApiError(409, "AlreadyExists", f"{name} already exists", f"{method} {path}")

    def find(self, path: str) -> Object | None:
        return copy.deepcopy(self.there.get(path.rpartition("/")[2]))

    def put(self, path: str, item: Object) -> Object:
        name = item["metadata"]["name"]
        assert path == f"{requests.PATH}/{name}/status"
        if item["metadata"]["version"] == self.there[name]["metadata"]["version"]:
            self._keep(name, {**item, **self.other})
        raise ApiError(409, "Conflict", "the object has been modified", f"PUT {path}")

    def _keep(self, name: str, item: Object) -> None:
        self.version += 1
        self.there[name] = {**item, "metadata": {"name": name, "uid": "u", "version": self.version}}


def ask(server: Repeated) -> Object:
    return requests.ask(t.cast("Api", server), ASKED)


def approve(server: Repeated, seen: Object) -> Object:
    return requests.approve(t.cast("Api", server), seen)


def test_a_request_that_was_made_is_not_refused_for_being_there() -> None:
    server = Repeated("ada")
    made = ask(server)
    assert made == server.there[made["metadata"]["name"]]
    assert (made["spec"]["user"], made["spec"]["seconds"]) == ("ada", 3600)


def test_one_of_somebody_else_is_not_taken_for_it() -> None:
    with pytest.raises(ApiError, match="already exists"):
        ask(Repeated("ada", user="max"))


def test_an_approval_that_was_written_is_not_given_twice() -> None:
    seen = ask(Repeated("ada"))
    server = Repeated("bob")
    server.there[seen["metadata"]["name"]] = seen
    assert approve(server, seen)["status"]["approvals"] == ["bob"]
    assert server.version == 1


def test_somebody_elses_approval_is_no_end() -> None:
    seen = ask(Repeated("ada"))
    server = Repeated("bob", status={"approvals": ["eve"]})
    server.there[seen["metadata"]["name"]] = seen
    with pytest.raises(ClusterError, match="changes all the time"):
        approve(server, seen)
