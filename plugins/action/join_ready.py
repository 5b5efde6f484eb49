# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes the cluster ready for one batch of joining hosts."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import joining
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import dead_node


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.join_ready``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "hosts": {"type": "list", "elements": "str", "required": True},
    }

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Put back permissions, take away tokens, and tell the cluster which kubelets have stopped."""
        at_once = session.site.size.joins_at_once
        if self._task.check_mode:
            return {"changed": False, "at_once": at_once}
        # The API server may have started a moment ago.
        api = session.api(patience=60)
        permissions = joining.ensure_permissions(api)
        deleted = joining.delete_tokens(api)
        stopped = dead_node.declare_stopped(api, arguments["hosts"])
        return {
            "changed": bool(permissions or deleted or stopped),
            "at_once": at_once,
            "permissions": permissions,
            "deleted": deleted,
            "stopped": stopped,
        }
