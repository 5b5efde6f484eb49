# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Waits until Cilium's agents and operator run as the site declares them."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import (
    ClusterAction,
    Result,
    seconds,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import rollout
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.cilium_rollout``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "patience": {"type": "int", "default": 600},
    }

    def visit(self, session: Session, arguments: dict[str, t.Any]) -> Result:
        """Wait; only for sites that have Cilium, or are about to."""
        limit = seconds(arguments["patience"], "patience")
        if session.site.cni != "cilium" and not session.site.migration_cidr:
            return {"changed": False, "silent": [], "msg": "This site's pod network is not Cilium."}
        if self._task.check_mode:
            return {"changed": False, "silent": [], "msg": "Not waited for: in a check nothing was changed."}
        found = rollout.wait(session.api(), limit, self.say)
        result: Result = {"changed": False, "silent": list(found.silent)}
        if found.silent:
            self.say(f"not waited for, their kubelets do not report: {', '.join(found.silent)}")
        return result
