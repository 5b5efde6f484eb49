# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Gives the site another random identity after its cluster was deleted."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.renew_site_identity``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {}

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Write the new identity into the PKI store."""
        if not self._task.check_mode:
            session.store.renew_site_uid()
        return {"changed": True}
