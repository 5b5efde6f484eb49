# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Says whether a pod reaches something, and by which rule. Changes nothing and sends no packet."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session, node_hosts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.ask import CILIUM, ask
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.lookup import Lookup
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.questions import QuestionError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.verdict import as_text

PATIENCE_S = 3.0
"""How long a request to the API is sent again; somebody is waiting for this command."""


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.net_policy``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "source": {"type": "str", "required": True},
        "target": {"type": "str", "required": True},
        "report": {"type": "path", "default": ""},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Read the cluster and let everybody on the way judge."""
        site = session.site
        hosts = {host.address: host.name for host in node_hosts(site)}
        lookup = Lookup(session.api(PATIENCE_S), hosts, cilium=site.cni == CILIUM)
        try:
            report = ask(site, lookup, arguments["source"], arguments["target"], time.time())
        except QuestionError as error:
            return {"failed": True, "refused": True, "msg": str(error)}
        return self.reported(report, as_text(report), arguments["report"])
