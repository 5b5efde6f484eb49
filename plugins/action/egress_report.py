# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reports what hosts let their pods reach."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.egress_rules import as_text, report_of

ANSWER = "__ironspan_egress"
LAYER = "egress"


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.egress_report``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {}

    def visit(self, session: Session, arguments: Result) -> Result:
        """Put together what the hosts answered."""
        known = self._variables.get("hostvars") or {}
        found = {name: known[name].get(ANSWER) if name in known else None for name in self._hosts(session)}
        if self._variables.get("ansible_limit"):
            found = {name: answer for name, answer in found.items() if answer}
        report = report_of(found, time.time())
        return {"changed": False, "report": report, "text": as_text(report) or "no host holds its pods back"}

    def _hosts(self, session: Session) -> list[str]:
        """Return the hosts that should have a table."""
        hosts = session.site.hosts.values()
        return [host.name for host in hosts if LAYER in host.layers and host.variables.get("egress_enabled")]
