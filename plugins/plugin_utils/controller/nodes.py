# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The nodes of a workflow: made, changed, linked and removed until they are as they are wanted."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller import states
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.api import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.controller.reading import Reader

Content = Mapping[str, t.Any]
_NODES = "workflow_job_template_nodes"


class NodeWriter:
    """Writes nodes.

    Args:
        api: of the controller.
        reader: of the same.
    """

    def __init__(self, api: Api, reader: Reader) -> None:
        self._api, self._reader = api, reader

    def bring(self, workflow: int, wanted: list[Content]) -> None:
        """Make the nodes of a workflow as they are wanted: first all nodes, then the links between them.

        Args:
            workflow: its number.
            wanted: nodes as ``states.found_nodes`` has them.
        """
        raw, approvals = self._reader.raw_nodes(workflow)
        numbers = {str(node["identifier"]): int(node["id"]) for node in raw}
        templates = {str(node["identifier"]): node["unified_job_template"] for node in raw}
        found = {str(node["identifier"]): node for node in states.found_nodes(raw, approvals)}
        for name in found.keys() - {str(node["identifier"]) for node in wanted}:
            self._api.delete(f"{_NODES}/{numbers.pop(name)}/")
        for node in wanted:
            name = str(node["identifier"])
            if name not in found:
                body = {"identifier": name, "workflow_job_template": workflow, **self._body(node)}
                numbers[name] = int(self._api.post(f"{_NODES}/", body)["id"])
            elif any(node[key] != found[name][key] for key in ("runs", "extra_data")):
                self._api.patch(f"{_NODES}/{numbers[name]}/", self._body(node))
            self._approval(numbers[name], templates.get(name), node, found.get(name, {}))
        for node in wanted:
            self._link(numbers, node, found.get(str(node["identifier"]), {}))

    def _body(self, node: Content) -> dict[str, t.Any]:
        if not node["runs"]:
            return {}
        return {
            "unified_job_template": self._reader.number("template", node["runs"]),
            "extra_data": dict(node["extra_data"]),
        }

    def _approval(self, number: int, template: int | None, node: Content, found: Content) -> None:
        wanted = node["approval"]
        if not wanted or wanted == found.get("approval"):
            return
        if found.get("approval"):
            self._api.patch(f"workflow_approval_templates/{template}/", wanted)
        else:
            self._api.post(f"{_NODES}/{number}/create_approval_template/", wanted)

    def _link(self, numbers: Mapping[str, int], node: Content, found: Content) -> None:
        for link in states.LINKS:
            path = f"{_NODES}/{numbers[str(node['identifier'])]}/{link}/"
            before = {name for name in found.get(link, ()) if name in numbers}
            for name in sorted(before - {*node[link]}):
                self._api.post(path, {"id": numbers[name], "disassociate": True})
            for name in node[link]:
                if name not in before:
                    self._api.post(path, {"id": numbers[name]})
