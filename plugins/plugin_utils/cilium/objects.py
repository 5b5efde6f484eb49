# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Puts what a site chooses into the manifests that Helm rendered from Cilium's chart.

The chart knows nothing of the site, and the site nothing of Helm: the manifests are the same for every site,
and each choice is one entry of the ConfigMap ``cilium-config`` or one field of a workload. A place that is no
longer there, because another version of the chart has moved it, is an error and never passed over.
"""

from __future__ import annotations

import copy
import hashlib
import json
import typing as t
from collections.abc import Iterator, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cilium import migration

Object = dict[str, t.Any]
CONFIGURATION = ("ConfigMap", "cilium-config")
AGENT = ("DaemonSet", "cilium")
OPERATOR = ("Deployment", "cilium-operator")
KERNEL_SETTINGS = "/proc/sys/kernel"
ANNOTATION = "ironspan.io/configuration"


class Settings(t.TypedDict):
    """What a site chooses; ``objects.yml.j2`` of the role says where it comes from.

    ``api`` is address and port of the API, ``mtu`` in bytes. ``host_table`` tells that packets of pods must
    pass the host's nftables, because the hosts hold pods back too; ``beside`` that flannel carries the pods
    of nodes that have not been moved yet.
    """

    api: Sequence[t.Any]
    pod_cidr: str
    node_cidr_mask: int
    routing: str
    tunnel_port: int
    mtu: int
    operators: int
    hubble: bool
    max_unavailable: str
    host_table: bool
    beside: bool
    capabilities_dropped: Sequence[str]
    kernel_sysctl_folder: str


def configuration(settings: Settings) -> dict[str, str]:
    """Return the entries of ``cilium-config`` that a site decides; Cilium reads all of them as text."""
    chosen = {
        "cluster-pool-ipv4-cidr": settings["pod_cidr"],
        "cluster-pool-ipv4-mask-size": str(settings["node_cidr_mask"]),
        "routing-mode": settings["routing"],
        "mtu": str(settings["mtu"]),
        "enable-hubble": _flag(settings["hubble"]),
        "enable-host-legacy-routing": _flag(settings["host_table"]),
    }
    if settings["routing"] == "native":
        # What lies in it is sent as it is; everything else gets the host's address.
        chosen["ipv4-native-routing-cidr"] = settings["pod_cidr"]
    else:
        chosen["tunnel-port"] = str(settings["tunnel_port"])
    return chosen | (migration.BESIDE if settings["beside"] else {})


def cilium_objects(manifests: Sequence[Object], settings: Settings) -> list[Object]:
    """Return the objects to apply.

    Args:
        manifests: what Helm rendered.
        settings: what the site chooses.

    Raises:
        ValueError: the manifests lack a place that a choice goes to.
    """
    objects = copy.deepcopy(list(manifests))
    data = _of(objects, CONFIGURATION)["data"]
    data.update(configuration(settings))
    if settings["beside"]:
        data.pop(migration.NETWORK_FILE, None)
    agent, operator = _of(objects, AGENT), _of(objects, OPERATOR)
    agent["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = settings["max_unavailable"]
    operator["spec"]["replicas"] = settings["operators"]
    # Both read their configuration once: another configuration is another pod.
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    for workload in (agent, operator):
        template = workload["spec"]["template"]
        metadata = template["metadata"]
        # The chart writes the key without a value where it has no annotation.
        metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: digest}
        _set_api(template["spec"], settings["api"])
    _drop_capabilities(agent["spec"]["template"]["spec"], settings["capabilities_dropped"])
    _move_kernel_settings(agent["spec"]["template"]["spec"], settings["kernel_sysctl_folder"])
    return sorted(objects, key=_order)


def _of(objects: Sequence[Object], key: tuple[str, str]) -> Object:
    kind, name = key
    for item in objects:
        if item["kind"] == kind and item["metadata"]["name"] == name:
            return item
    raise ValueError(f"Cilium's manifests have no {kind} {name}; another version of the chart moved it")


def _containers(pod: Object) -> Iterator[Object]:
    yield from pod.get("initContainers") or ()
    yield from pod["containers"]


def _set_api(pod: Object, api: Sequence[t.Any]) -> None:
    """Name the API's address: the service ``kubernetes`` works only once Cilium does."""
    values = {"KUBERNETES_SERVICE_HOST": str(api[0]), "KUBERNETES_SERVICE_PORT": str(api[1])}
    places = [entry for one in _containers(pod) for entry in one.get("env") or () if entry["name"] in values]
    if not places:
        raise ValueError("Cilium's manifests name no API server; another version of the chart moved it")
    for entry in places:
        entry["value"] = values[entry["name"]]


def _drop_capabilities(pod: Object, names: Sequence[str]) -> None:
    for one in _containers(pod):
        added = one.get("securityContext", {}).get("capabilities", {}).get("add")
        if added:
            added[:] = [name for name in added if name not in names]


def _move_kernel_settings(pod: Object, folder: str) -> None:
    places = [one for one in pod["volumes"] if one.get("hostPath", {}).get("path") == KERNEL_SETTINGS]
    if not places:
        raise ValueError(
            f"Cilium's manifests mount no {KERNEL_SETTINGS}; another version of the chart moved it"
        )
    for one in places:
        one["hostPath"]["path"] = folder


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _order(item: Object) -> int:
    """Return where an object comes: what others refer to first, workloads last."""
    kinds = ("Namespace", "ServiceAccount", "ConfigMap", "Secret")
    if item["kind"] in kinds:
        return kinds.index(item["kind"])
    return 99 if item["kind"] in ("DaemonSet", "Deployment") else len(kinds)
