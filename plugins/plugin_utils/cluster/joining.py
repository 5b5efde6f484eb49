# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the cluster has to have for nodes to join and to stay: permissions, and no tokens.

A host joins with a certificate that says which node it is, so nobody needs rights before being a node: a node
may ask for its own certificates by what Kubernetes itself lets nodes do.
"""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import approver
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api, Object

_SECRETS = "/api/v1/namespaces/kube-system/secrets"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def delete_tokens(api: Api) -> list[str]:
    """Delete the bootstrap tokens that earlier releases made for a batch and did not come to delete.

    Returns:
        Their identifiers.
    """
    found = api.get(
        _SECRETS,
        labelSelector="app.kubernetes.io/managed-by=ironspan",
        fieldSelector="type=bootstrap.kubernetes.io/token",
    )
    names = [item["metadata"]["name"] for item in found["items"]]
    return [
        name.removeprefix("bootstrap-token-")
        for name in names
        if name.startswith("bootstrap-token-") and api.delete(f"{_SECRETS}/{name}")
    ]


def missing_permissions(api: Api) -> list[Object]:
    """Return those of the objects for nodes' certificates that the cluster lacks.

    ``kubeadm init`` makes the one for renewals; when someone tidied it away, kubelets wait in vain.
    """
    return [body for body in _permissions() if api.find(_path(body)) is None]


def ensure_permissions(api: Api) -> list[str]:
    """Make what ``missing_permissions`` names.

    Returns:
        Kind and name of each object made.
    """
    made = []
    for body in missing_permissions(api):
        api.apply(_path(body), body)
        made.append(f"{body['kind']} {body['metadata']['name']}")
    return made


def _permissions() -> list[Object]:
    """Return that nodes get their own certificates renewed, and the approver's role."""
    group = "rbac.authorization.k8s.io"
    role = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
    return [
        *approver.permissions(),
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "kubeadm:node-autoapprove-certificate-rotation"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}],
        },
    ]


def _path(body: Object) -> str:
    return f"{_RBAC}/{body['kind'].lower()}s/{body['metadata']['name']}"
