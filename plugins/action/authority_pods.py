# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Restarts what runs in pods of the platform and reads the cluster's authority only when it starts."""

from __future__ import annotations

import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.actions.cluster import ClusterAction, Result
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates import rotation
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes import rollouts
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import ClusterError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import TRUST

NAMESPACES = ("kube-system", "kube-flannel")


class ActionModule(ClusterAction):
    """The action ``ironspan.hybrid.authority_pods``."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {
        "namespaces": {"type": "list", "elements": "str", "default": list(NAMESPACES)},
        "timeout": {"type": "int", "default": 600},
    }

    def visit(self, session: Session, arguments: Result) -> Result:
        """Wait until pods are given the new authority, then restart; once a generation."""
        wish = rotation.wish_of(self._variables, session.site.hosts)
        state = session.store.generations(wish.name)
        if wish.name != "kubernetes" or state.stage != TRUST:
            return {"changed": False, "msg": "Nothing in pods has to restart for this."}
        if self._task.check_mode:
            return {"changed": False, "msg": "Not checked: the authority is not there yet."}
        api = session.api(patience=60)
        authority = session.store.ca("kubernetes").certificate_pem
        reasons = rollouts.until(lambda: rotation.pods_distrust(api, authority), arguments["timeout"])
        if reasons:
            raise ClusterError(
                rotation.listed(reasons) + ".", "Look at the controller managers: they write it."
            )
        namespaces = [name for name in arguments["namespaces"] if api.find(f"/api/v1/namespaces/{name}")]
        restarted = rollouts.restart(api, namespaces, f"kubernetes-{max(state.trusted)}")
        for path in restarted:
            self.say(f"restarts {path.split('/namespaces/', 1)[1]}")
        rollouts.wait(api, namespaces, arguments["timeout"])
        return {"changed": bool(restarted), "restarted": restarted}
