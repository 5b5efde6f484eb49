# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Deletes Nodes whose kubelets have stopped."""

from __future__ import annotations

import concurrent.futures
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import (
    ClusterAction,
    Result,
    seconds,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import replacements
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import dead_node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import node_path
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.stuck import add_stuck
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.render.run_folder import RunFolder

REMOVED_GROUP = "__ironspan_removed"
_PARALLEL = 16
_PATIENCE_SECONDS = 60


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.node_delete``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "hosts": {"type": "list", "elements": "str", "required": True},
        "replacing": {"type": "bool", "default": False},
        "timeout_s": {"type": "int", "default": 20},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Delete the Nodes whose kubelets do not answer; the others are stuck."""
        limit = seconds(arguments["timeout_s"], "timeout_s")
        api = session.api(_PATIENCE_SECONDS)
        names = arguments["hosts"]
        with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
            found = dict(zip(names, pool.map(lambda name: api.find(node_path(name)), names), strict=True))
            notes = replacements.noted(api) if arguments["replacing"] else {}
            present = {
                name: node
                for name, node in found.items()
                if node is not None and not replacements.is_new(notes, node)
            }
            answers = {}
            if not self._task.check_mode:
                answers = dict(
                    zip(present, pool.map(lambda node: _stops(node, limit), present.values()), strict=True)
                )
        running = {name: present[name] for name, stopped in answers.items() if not stopped}
        deleted = [name for name in present if name not in running]
        if not self._task.check_mode:
            if arguments["replacing"]:
                replacements.note(api, {name: str(present[name]["metadata"]["uid"]) for name in deleted})
            _delete(api, deleted)
        stuck = {name: [_reason(node)] for name, node in running.items()}
        add_stuck(RunFolder().path, stuck)
        for name in names:
            if name not in running:
                self.add_host(name, parent_group_names=[REMOVED_GROUP])
        return {"changed": bool(deleted), "deleted": deleted, "stuck": stuck}


def _stops(node: Object, limit: float) -> bool:
    """Wait for a kubelet to stop answering; tells whether it did."""
    end = time.monotonic() + limit
    while dead_node.kubelet_answers(node):
        if time.monotonic() > end:
            return False
        time.sleep(1)
    return True


def _delete(api: Api, names: list[str]) -> None:
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        list(pool.map(lambda name: api.delete(node_path(name)), names))


def _reason(node: Object) -> str:
    address, port = dead_node.kubelet_endpoint(node)
    return (
        f"its kubelet still answers at {address}:{port}, so the Node is kept; reset that machine or power it "
        "off, and run this again"
    )
