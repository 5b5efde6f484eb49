# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Makes the bootstrap token of one batch of joining hosts, and takes it away afterwards."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import bootstrap, dead_node
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.action import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.join_token``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "minutes": {"type": "int", "default": bootstrap.DEFAULT_MINUTES},
        "identifier": {"type": "str", "default": ""},
        "hosts": {"type": "list", "elements": "str", "default": []},
    }

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Make or delete the token; expired ones of ours go in either case."""
        if arguments["state"] == "absent":
            return self._delete(session, arguments["identifier"])
        at_once = session.site.size.joins_at_once
        if self._task.check_mode:
            return {"changed": True, "token": "", "identifier": "", "at_once": at_once}
        # The API server may have started a moment ago.
        api = session.api(patience=60)
        expired = bootstrap.delete_expired(api)
        permissions = bootstrap.ensure_permissions(api)
        stopped = dead_node.declare_stopped(api, arguments["hosts"])
        token = bootstrap.create_token(api, arguments["minutes"])
        return {
            # Callbacks show nothing of this result, whatever the task says.
            "_ansible_no_log": True,
            "changed": True,
            "token": token.secret,
            "identifier": token.identifier,
            "at_once": at_once,
            "expires": token.expires,
            "permissions": permissions,
            "deleted": expired,
            "stopped": stopped,
        }

    def _delete(self, session: Session, identifier: str) -> Result:
        if self._task.check_mode:
            return {"changed": bool(identifier), "deleted": []}
        api = session.api()
        deleted = bootstrap.delete_expired(api)
        if identifier and identifier not in deleted and bootstrap.delete_token(api, identifier):
            deleted.append(identifier)
        return {"changed": bool(deleted), "deleted": deleted}
