# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Join credentials: one short-lived bootstrap token a batch, and the permissions kubeadm gives it."""

from __future__ import annotations

import base64
import datetime
import secrets
import string
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster import approver
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.client import Api, Object

GROUP = "system:bootstrappers:kubeadm:default-node-token"
"""The group kubeadm binds a joining node's permissions to."""
DEFAULT_MINUTES = 30
_SECRETS = "/api/v1/namespaces/kube-system/secrets"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_MARK = {"app.kubernetes.io/managed-by": "ironspan"}
_LETTERS = string.ascii_lowercase + string.digits


class Token(t.NamedTuple):
    """A bootstrap token. ``secret`` is the whole ID.SECRET: it belongs into ``no_log`` parameters only."""

    identifier: str
    secret: str
    expires: str

    def __repr__(self) -> str:
        return f"Token(identifier={self.identifier!r}, expires={self.expires!r})"


def create_token(api: Api, minutes: float = DEFAULT_MINUTES, now: datetime.datetime | None = None) -> Token:
    """Make a bootstrap token that authenticates and nothing more.

    It may not sign the cluster-info config map: hosts find the API by a file they get over SSH, so nothing is
    trusted because of the token. It is deleted after the batch, and by the cluster when it expires.

    Args:
        api: the cluster.
        minutes: lifetime.
        now: current time, for tests.

    Returns:
        The token.
    """
    identifier = "".join(secrets.choice(_LETTERS) for _ in range(6))
    secret = "".join(secrets.choice(_LETTERS) for _ in range(16))
    expires = (now or _now()) + datetime.timedelta(minutes=minutes)
    text = f"{expires:%Y-%m-%dT%H:%M:%SZ}"
    name = f"bootstrap-token-{identifier}"
    api.apply(
        f"{_SECRETS}/{name}",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "kube-system", "labels": _MARK},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "description": "Joins one batch of hosts; made and removed by ironspan.",
                "token-id": identifier,
                "token-secret": secret,
                "expiration": text,
                "usage-bootstrap-authentication": "true",
                "auth-extra-groups": GROUP,
            },
        },
    )
    return Token(identifier, f"{identifier}.{secret}", text)


def delete_token(api: Api, identifier: str) -> bool:
    """Delete a token before it expires; False when it is gone already."""
    return api.delete(f"{_SECRETS}/bootstrap-token-{identifier}")


def delete_expired(api: Api, now: datetime.datetime | None = None) -> list[str]:
    """Delete tokens of ours whose time is over (a cluster whose token cleaner is off keeps them).

    Returns:
        The identifiers of those deleted.
    """
    moment = now or _now()
    found = api.get(
        _SECRETS,
        labelSelector="app.kubernetes.io/managed-by=ironspan",
        fieldSelector="type=bootstrap.kubernetes.io/token",
    )
    deleted = []
    for item in found["items"]:
        expires = _decoded(item, "expiration")
        if not expires or datetime.datetime.fromisoformat(expires) <= moment:
            identifier = item["metadata"]["name"].removeprefix("bootstrap-token-")
            delete_token(api, identifier)
            deleted.append(identifier)
    return deleted


def missing_permissions(api: Api) -> list[Object]:
    """Return those of the objects for joining nodes that the cluster lacks.

    ``kubeadm init`` makes them; when someone tidied them away, joins fail with a text that does not say so.
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
    """Return what kubeadm's bootstrap-token phase makes but for anonymous access, and the approver's role."""
    approve = "system:certificates.k8s.io:certificatesigningrequests"
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "kubeadm:get-nodes"},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
        },
        *approver.permissions(),
        _binding("kubeadm:get-nodes", "kubeadm:get-nodes", GROUP),
        _binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", GROUP),
        _binding("kubeadm:node-autoapprove-bootstrap", f"{approve}:nodeclient", GROUP),
        _binding(
            "kubeadm:node-autoapprove-certificate-rotation", f"{approve}:selfnodeclient", "system:nodes"
        ),
    ]


def _binding(name: str, role: str, group: str) -> Object:
    api_group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{api_group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": api_group, "kind": "Group", "name": group}],
    }


def _path(body: Object) -> str:
    return f"{_RBAC}/{body['kind'].lower()}s/{body['metadata']['name']}"


def _decoded(secret: Object, name: str) -> str:
    return base64.b64decode(secret.get("data", {}).get(name, "")).decode("ascii", "replace")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
