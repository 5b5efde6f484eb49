# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Who made an object of the cluster, and what goes because nothing declares it any more.

Every object that ironspan applies says by two labels which layer of which site it belongs to. What has them
and is declared no longer is found by a list for each kind, and deleted. Objects without them are never
deleted, and neither are those that a layer only changes a part of (``SHARED``).
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.errors import (
    ApiError,
    ClusterError,
)

if t.TYPE_CHECKING:  # documents are rendered without a client
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api

Object = dict[str, t.Any]
LAYER, SITE = "ironspan.io/layer", "ironspan.io/site"
SHARED = "shared"
"""The layer of what others made or have their things in: it stays, whatever is declared."""
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
KINDS: Mapping[str, str] = {
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding": f"{_ADMISSION}/mutatingadmissionpolicybindings",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "MutatingAdmissionPolicy": f"{_ADMISSION}/mutatingadmissionpolicies",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "Deployment": "/apis/apps/v1/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "Service": "/api/v1/services",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/networkpolicies",
    "CiliumNetworkPolicy": "/apis/cilium.io/v2/ciliumnetworkpolicies",
    "RoleBinding": f"{_RBAC}/rolebindings",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/roles",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ConfigMap": "/api/v1/configmaps",
    "Secret": "/api/v1/secrets",
    "ServiceAccount": "/api/v1/serviceaccounts",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Namespace": "/api/v1/namespaces",
}
"""Every kind that a layer declares, and where all of it is listed. In this order objects go: what gives
rights and what runs before what it needs, and last what takes other things with it."""
FORMER: Mapping[str, Sequence[str]] = {
    "identity": ("RoleBinding", "ClusterRoleBinding", "ClusterRole"),
    "admission": (*list(KINDS)[:4], "ConfigMap"),
}
"""Layers whose objects releases before 0.4 knew by the labels below, and deleted by them."""
_DATA = ("CustomResourceDefinition", "Namespace", "PersistentVolumeClaim")
_PEOPLE = ("Group", "User")


class Owned(t.NamedTuple):
    """An object that a layer made.

    Args:
        layer: which one.
        kind: its kind.
        where: its namespace, empty for the whole cluster.
        name: its name.
        uid: what no other object ever has.
        loss: what goes with it: ``data``, somebody's ``access``, a namespace's ``isolation``, or nothing.
    """

    layer: str
    kind: str
    where: str
    name: str
    uid: str
    loss: str = ""

    @property
    def title(self) -> str:
        """Return kind, namespace and name, as changes are called."""
        return f"{self.kind} {f'{self.where}/' if self.where else ''}{self.name}"

    @property
    def path(self) -> str:
        """Return where the API keeps it."""
        base, _, plural = KINDS[self.kind].rpartition("/")
        return f"{base}/{f'namespaces/{self.where}/' if self.where else ''}{plural}/{self.name}"


def labelled(objects: Sequence[Object], site: str, layer: str) -> list[Object]:
    """Return objects with the labels of who owns them; one that says it is shared keeps that."""
    made = []
    for item in objects:
        metadata = item["metadata"]
        # Ansible's own kind of text cannot be shown as YAML.
        labels = {LAYER: str(layer), SITE: str(site), **(metadata.get("labels") or {})}
        made.append({**item, "metadata": {**metadata, "labels": labels}})
    return made


def found(api: Api, site: str = "") -> list[Owned]:
    """Return everything in the cluster that layers of a site made, in the order in which it goes.

    Args:
        api: the cluster.
        site: its name; empty for whatever site.
    """
    listed: dict[str, Owned] = {}
    selector = f"{LAYER},{SITE}={site}" if site else LAYER
    for kind in KINDS:
        for owned in _listed(api, kind, selector):
            listed[owned.path] = owned
        for layer, kinds in FORMER.items():
            if kind in kinds:
                former = f"app.kubernetes.io/managed-by=ironspan,app.kubernetes.io/component={layer}"
                for owned in _listed(api, kind, former, layer):
                    listed.setdefault(owned.path, owned)
    return list(listed.values())


def _listed(api: Api, kind: str, selector: str, layer: str = "") -> Iterator[Owned]:
    try:
        items = api.get(KINDS[kind], labelSelector=selector)["items"]
    except ApiError as error:
        if error.status != 404:
            raise
        items = []  # a cluster without this kind has none of it
    for item in items:
        metadata = item["metadata"]
        yield Owned(
            layer or metadata["labels"][LAYER],
            kind,
            str(metadata.get("namespace") or ""),
            str(metadata["name"]),
            str(metadata.get("uid") or ""),
            _loss(kind, item),
        )


def _loss(kind: str, item: Object) -> str:
    if kind in _DATA:
        return "data"
    if kind == "NetworkPolicy":
        return "isolation"
    people = [one for one in item.get("subjects") or () if one.get("kind") in _PEOPLE]
    return "access" if people else ""


def undeclared(there: Sequence[Owned], layer: str, declared: Sequence[Object]) -> list[Owned]:
    """Return what a layer made and does not declare any more.

    Args:
        there: everything that layers made.
        layer: the layer.
        declared: all that it declares now.
    """
    keep = {
        (str(item["kind"]), str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"]))
        for item in declared
    }
    return [one for one in there if one.layer == layer and (one.kind, one.where, one.name) not in keep]


def remove(api: Api, gone: Sequence[Owned]) -> list[str]:
    """Delete objects, each only if it still is the one that was found.

    Returns:
        What was deleted, by kind and name.

    Raises:
        ClusterError: one was recreated meanwhile, or the API refuses.
    """
    removed = []
    for one in gone:
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": one.uid}}
        try:
            there = api.delete(one.path, body)
        except ApiError as error:
            if error.status != 409:
                raise
            raise ClusterError(
                f"{one.title} was recreated while this ran.", "See who makes it, and run this again."
            ) from None
        if there:
            removed.append(one.title)
    return removed
