# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Moves drained nodes from one pod network to the other, and proves that they carry pods."""

from __future__ import annotations

import concurrent.futures
import ipaddress
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import (
    ClusterAction,
    Result,
    insist_on_nodes,
    seconds,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import proof, turn
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import (
    Session,
    expected,
    node_hosts,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.operations.cni_migrate import way_of

_PARALLEL = 16


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.pod_network``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "hosts": {"type": "list", "elements": "str", "required": True},
        "to": {"type": "str", "choices": ["cilium", "flannel"], "default": "cilium"},
        "timeout_s": {"type": "int", "default": 300},
        "proof_s": {"type": "int", "default": 120},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Turn the nodes over, all at the same time, then run pods on them."""
        names = arguments["hosts"]
        insist_on_nodes(names, {host.name for host in node_hosts(session.site)})
        way = way_of(session.site, arguments["to"])
        limit = seconds(arguments["timeout_s"], "timeout_s")
        if self._task.check_mode:
            return {"changed": bool(names), "msg": "Not checked: in check mode no node was emptied."}
        api = session.api()
        turn.prepare(api, way, limit, self.say)
        with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
            turned = {name: pool.submit(turn.turn, api, name, way, limit, self.say) for name in names}
        problems = [
            f"{name}: {error}" for name, one in turned.items() if (error := one.exception()) is not None
        ]
        if not problems:
            site = session.site
            networks = (ipaddress.IPv4Network(site.pod_cidr), ipaddress.IPv4Network(site.migration_cidr))
            limit = seconds(arguments["proof_s"], "proof_s")
            problems = proof.problems(api, expected(site), names, networks, limit, self.say)
        if problems:
            listed = "\n".join(f"- {problem}" for problem in problems)
            raise ClusterError(
                f"The nodes stay cordoned: {way.to} does not carry their pods as it should:\n{listed}",
                "\nMend that and run the same again; to go back instead: "
                f"-e ironspan_pod_network={'flannel' if way.label else 'cilium'}.",
            )
        return {"changed": bool(names), "turned": names}
