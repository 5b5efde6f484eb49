# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Waits until some nodes are Ready, at their version and address."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import (
    ClusterAction,
    Result,
    seconds,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import replacements
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.node_check import check_named
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session, expected


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.nodes_ready``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "hosts": {"type": "list", "elements": "str", "required": True},
        "timeout_s": {"type": "int"},
        "replaced": {"type": "bool", "default": False},
        "boots": {"type": "dict", "default": {}},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Wait; fails with what is wrong when time is over."""
        names = set(arguments["hosts"])
        if not names:
            return {"changed": False, "ready": []}
        declared = (session.site.hosts[name].variables["site_ready_timeout_seconds"] for name in names)
        limit = seconds(arguments["timeout_s"] or max(declared), "timeout_s")
        if self._task.check_mode:
            return {"changed": False, "msg": "Not checked: in check mode nothing has joined."}
        nodes = [node for node in expected(session.site).nodes if node.name in names]
        boots = {str(name): str(boot) for name, boot in arguments["boots"].items()}
        problems = check_named(session.api(), nodes, limit, self.say, boots)
        if problems:
            return {"failed": True, "msg": "\n".join(problems)}
        if arguments["replaced"]:
            replacements.forget(session.api(), sorted(names))
        return {"changed": False, "ready": [node.name for node in nodes]}
