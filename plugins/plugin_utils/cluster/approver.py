# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the approver of kubelets' serving certificates may do: read requests, and decide about one signer's.

Kubelets renew these certificates for as long as they live, long after the run that joined them: somebody has
to look at the requests all the time, and that somebody shall not be an administrator of the cluster.
"""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.kubeconfig import APPROVER

NAME = "ironspan:kubelet-serving-approver"
_GROUP = "certificates.k8s.io"
_RBAC = "rbac.authorization.k8s.io"


def permissions() -> list[Object]:
    """Return the role and its binding; certificate requests have no namespace, so both are cluster-wide."""
    requests = "certificatesigningrequests"
    rules: list[Object] = [
        {"apiGroups": [_GROUP], "resources": [requests], "verbs": ["get", "list"]},
        {"apiGroups": [_GROUP], "resources": [f"{requests}/approval"], "verbs": ["update"]},
        {
            "apiGroups": [_GROUP],
            "resources": ["signers"],
            "resourceNames": ["kubernetes.io/kubelet-serving"],
            "verbs": ["approve"],
        },
    ]
    role: Object = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": NAME},
        "rules": rules,
    }
    binding: Object = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": NAME},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": name} for name in APPROVER.organizations],
    }
    return [role, binding]
