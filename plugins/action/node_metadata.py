# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Gives nodes the labels and taints that the inventory declares, and takes away those it no longer does."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import nodes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session, declared_nodes
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import listed


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.node_metadata``."""

    CHANGES_THE_SITE = True
    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {"hosts": {"type": "list", "elements": "str"}}

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Compare all nodes in one request, change those that differ."""
        declared = declared_nodes(session.site)
        if self.planned is not None:
            declared = {name: nodes.Declared(**entry) for name, entry in self.planned["nodes"].items()}
        declared = {name: entry for name, entry in declared.items() if self.is_about(name, session.site)}
        only = arguments["hosts"]
        if only is not None:
            declared = {name: declared[name] for name in only if name in declared}
        api, named = session.api(), only is not None
        if self.planned is not None:
            would = nodes.declare(api, declared, dry_run=True, one_by_one=named)
            listed.insist_on_nodes(self.planned, would)
        changes = nodes.declare(api, declared, dry_run=self._task.check_mode, one_by_one=named)
        return {
            "changed": bool(changes),
            "nodes": [change.node for change in changes],
            "diff": [
                {
                    "before_header": change.node,
                    "after_header": change.node,
                    "before": json.dumps(change.before, indent=2, sort_keys=True) + "\n",
                    "after": json.dumps(change.after, indent=2, sort_keys=True) + "\n",
                }
                for change in changes
            ],
        }
