# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The Node objects of a cluster, kept up to date by short watches: only what changes is sent."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ApiError

_PATH = "/api/v1/nodes"
_GONE = 410


class Nodes:
    """All nodes, as they were when ``look`` ended.

    Args:
        api: the cluster; its identity may list and watch nodes.
        seconds: how long one look waits for changes.
    """

    def __init__(self, api: Api, seconds: int = 2) -> None:
        self._api, self._seconds = api, seconds
        self._version = ""
        self.found: dict[str, Object] = {}

    def look(self) -> None:
        """Take what has changed since the last look. Raises ClusterError."""
        if not self._version:
            listed = self._api.get(_PATH)
            self.found = {node["metadata"]["name"]: node for node in listed["items"]}
            self._version = str(listed["metadata"]["resourceVersion"])
            return
        query = {
            "watch": "1",
            "resourceVersion": self._version,
            "timeoutSeconds": str(self._seconds),
            "allowWatchBookmarks": "true",
        }
        try:
            answer = self._api.request("GET", _PATH, query=query, patience=0)
        except ApiError as error:
            if error.status == _GONE:
                self._version = ""
            raise
        for line in answer.splitlines():
            if not self._take(json.loads(line)):
                self._version = ""
                return

    def put(self, node: Object) -> None:
        """Take a node as a change has left it, so that the next look at it is not at a former one."""
        self.found[node["metadata"]["name"]] = node

    def _take(self, event: Object) -> bool:
        """Take one event; False when the list has to be read again."""
        kind, node = event["type"], t.cast("Object", event["object"])
        if kind == "ERROR":
            return False
        metadata = node["metadata"]
        self._version = str(metadata["resourceVersion"])
        if kind == "DELETED":
            self.found.pop(metadata["name"], None)
        elif kind in ("ADDED", "MODIFIED"):
            self.found[metadata["name"]] = node
        return True
