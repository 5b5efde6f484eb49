# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Says what a workflow that stopped has left on the cluster, and fails so that the workflow does."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.cordon import (
    cordoned_here,
    is_cordoned,
)

PATIENCE_S = 10.0


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.awx_left``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, object] | None = None) -> Result:
        """Look, and fail in every case."""
        result = super().run(tmp, task_vars)
        said = str(result.get("msg") or "")
        return {**result, "failed": True, "msg": f"The workflow stopped. {said}".strip()}

    def visit(self, session: Session, arguments: Result) -> Result:
        """Read the nodes, and say which are cordoned."""
        nodes = [node for node in session.api(PATIENCE_S).get("/api/v1/nodes")["items"] if is_cordoned(node)]
        ours = sorted(node["metadata"]["name"] for node in nodes if cordoned_here(node))
        others = sorted(node["metadata"]["name"] for node in nodes if not cordoned_here(node))
        parts = []
        if ours:
            parts.append(
                f"Left cordoned by an operation: {', '.join(ours)}. Run the same workflow again: it goes "
                "on, and uncordons them."
            )
        if others:
            parts.append(f"Cordoned by people: {', '.join(others)}. They stay so.")
        if not nodes:
            parts.append("No node is cordoned.")
        parts.append("Run the template doctor to see what else is wrong.")
        return {"cordoned": ours, "cordoned_by_people": others, "msg": " ".join(parts)}
