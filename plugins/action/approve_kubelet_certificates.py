# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Approves the kubelets' serving certificates that match the inventory, and denies all others."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import (
    ClusterAction,
    Result,
    insist_on_nodes,
    seconds,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import csr
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import (
    Session,
    all_node_addresses,
)


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.approve_kubelet_certificates``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "hosts": {"type": "list", "elements": "str", "default": None},
        "timeout": {"type": "int", "default": 120},
        "wait": {"type": "bool", "default": True},
    }

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Approve and wait; in check mode decide once and tell nobody."""
        # All nodes: a request of one that is not known here is denied.
        addresses = all_node_addresses(session)
        wanted = list(addresses) if arguments["hosts"] is None else list(arguments["hosts"])
        insist_on_nodes(wanted, addresses)
        api = session.api() if arguments["wait"] else session.approver_api()
        if self._task.check_mode or not arguments["wait"]:
            outcome = csr.approve_pending(api, addresses, dry_run=bool(self._task.check_mode))
        else:
            limit = seconds(arguments["timeout"], "timeout")
            outcome = (
                csr.approve_until_all_serve(api, addresses, wanted, limit, self.say)
                if wanted
                else csr.finish_joins(api, addresses, limit, self.say)
            )
        return {
            "changed": bool(outcome.approved or outcome.denied),
            "approved": sorted(verdict.node for verdict in outcome.approved),
            "denied": [
                {"request": verdict.request, "node": verdict.node, "reason": verdict.reason}
                for verdict in outcome.denied
            ],
        }
