# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Waits until controllers and kubelets work with what the API serves."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import (
    ClusterAction,
    Result,
    seconds,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.following import (
    CONTROLLERS,
    wait_for_followers,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.cluster_follows``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {"timeout_s": {"type": "int", "default": 180}}

    def visit(self, session: Session, arguments: Result) -> Result:
        """Wait; nodes that do not follow are named, controllers that do not are a failure."""
        limit = seconds(arguments["timeout_s"], "timeout_s")
        if self._task.check_mode:
            return {"changed": False}
        following, silent = wait_for_followers(session.api(patience=60), limit, self.say)
        idle = [name for name in CONTROLLERS if name in silent]
        if idle:
            raise ClusterError(
                f"{', '.join(idle)} did not renew its lease in {limit} s.",
                f"Read its log below /var/log/pods/kube-system_{idle[0]}-* on the control planes, "
                "and run this again.",
            )
        if silent:
            self.say(f"! these nodes do not follow yet: {', '.join(silent)} (journalctl -u kubelet)")
        return {"changed": False, "following": following, "silent": silent}
