# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Gives people the roles that the site declares."""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.declared import Identity
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.identity.enforce import enforce
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.objects import diff_of, name_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan import listed

LAYER = "identity"


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.identity_roles``."""

    CHANGES_THE_SITE = True

    def visit(self, session: Session, arguments: Result) -> Result:
        """Remove, compare and apply."""
        identity = session.site.part(Identity)
        declared = identity.objects() if identity else []
        if self.planned is not None:
            declared = self.planned["objects"].get(LAYER, [])
            would = enforce(session.api(), declared, check=True)
            whole = [(name_of(item), item) for item in declared]
            listed.insist_on_objects(self.planned, would.changes, whole, would.removed)
        done = enforce(session.api(), declared, check=self._task.check_mode)
        return {
            "changed": bool(done.changes or done.removed),
            "objects": [change.name for change in done.changes],
            "removed": done.removed,
            "diff": [diff_of(change) for change in done.changes],
        }
