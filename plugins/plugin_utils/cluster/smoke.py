# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The smoke pods: small workloads on every node that prove the cluster network from where workloads are.

One namespace holds them all: a runc pod on every node, a gVisor pod on every node that has it, a service over
the control plane's pods and one over the workers'. Every pod has two containers: one serves its name over
HTTP, the other (probe.sh) asks for names, services and all its peers and leaves the result in its termination
message, so that one list of pods gathers all results.
"""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Object
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.pods import MANAGED_BY

IMAGE = "docker.io/library/busybox:1.37.0"
GVISOR_RUNTIME_CLASS = "gvisor"
PORT = 8080
GROUP_SIZE = 16
"""Pods a headless service names. 16 A records fit a DNS answer over UDP (512 bytes, about 28 records), and
with two groups a pod no pod asks more than 32 peers, however large the site."""
SERVICE_ACCOUNT = "probe"
CONTROL_PLANE, WORKERS = "control-plane", "workers"
_NOBODY = 65534


class SmokePod(t.NamedTuple):
    """Where one pod shall run and whom it asks.

    ``asks`` is the service across the site: workers ask the control plane's pods, those ask the workers'.
    """

    name: str
    node: str
    runtime: str
    control_plane: bool
    group: int
    peer_groups: tuple[int, ...]
    peers: int
    asks: str


class SmokeNode(t.NamedTuple):
    """What of a host matters here."""

    name: str
    control_plane: bool
    gvisor: bool


def lay_out(nodes: Sequence[SmokeNode]) -> list[SmokePod]:
    """Decide which pods there are and which ask which.

    Up to 32 pods all ask each other; more are put into groups of 16, and each asks its own group and the next
    one, so that the groups form a ring.

    Args:
        nodes: the site's nodes.

    Returns:
        The pods, control plane first.
    """
    ordered = sorted(nodes, key=lambda node: (not node.control_plane, node.name))
    wanted = [(node, runtime) for node in ordered for runtime in ("runc", "gvisor")[: 1 + node.gvisor]]
    groups = max(1, -(-len(wanted) // GROUP_SIZE))
    sizes = [len(wanted[group::groups]) for group in range(groups)]
    both = len({node.control_plane for node in nodes}) == 2
    pods = []
    for index, (node, runtime) in enumerate(wanted):
        # Dealt out like cards, so that a group spans both ends of the link.
        group = index % groups
        peer_groups = tuple(dict.fromkeys((group, (group + 1) % groups)))
        peers = sum(sizes[number] for number in peer_groups)
        name = f"{runtime}-{index:04d}"
        across = not node.control_plane if both else node.control_plane
        asks = CONTROL_PLANE if across else WORKERS
        pods.append(SmokePod(name, node.name, runtime, node.control_plane, group, peer_groups, peers, asks))
    return pods


def namespace(name: str, annotations: dict[str, str]) -> Object:
    """Return the namespace; pods in it must obey the restricted Pod Security Standard."""
    labels = {**MANAGED_BY, "pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def service_account(space: str) -> Object:
    """Return an account without any right; the namespace's default one comes only some time after it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": SERVICE_ACCOUNT, "namespace": space, "labels": MANAGED_BY},
        "automountServiceAccountToken": False,
    }


def services(space: str, pods: Sequence[SmokePod]) -> list[Object]:
    """Return the two services with an address and one without for each group of peers."""
    made = [_service(space, name, {"role": name}) for name in (CONTROL_PLANE, WORKERS)]
    for group in sorted({pod.group for pod in pods}):
        made.append(_service(space, f"peers-{group}", {"group": str(group)}, {"clusterIP": "None"}))
    return made


def _service(space: str, name: str, selector: dict[str, str], more: Object | None = None) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": space, "labels": MANAGED_BY},
        "spec": {
            "selector": selector,
            "ports": [{"name": "http", "port": PORT}],
            # A pod whose probe has ended is not ready any more, but it serves on, and slower ones ask for it.
            "publishNotReadyAddresses": True,
            **(more or {}),
        },
    }


def pod(
    smoke: SmokePod, space: str, domain: str, addresses: dict[str, str], seconds: int, image: str = IMAGE
) -> Object:
    """Return one smoke pod.

    Args:
        smoke: the pod.
        space: its namespace.
        domain: the cluster's DNS domain.
        addresses: cluster addresses of the two services.
        seconds: how long the probe tries; the pod ends itself a minute later, controller or not.
        image: a busybox.
    """
    suffix = f"{space}.svc.{domain}."
    variables = {
        "DEADLINE": str(seconds),
        "PORT": str(PORT),
        "CLUSTER_NAME": f"kubernetes.default.svc.{domain}.",
        "SERVICE_NAME": f"{smoke.asks}.{suffix}",
        "SERVICE_ADDRESS": addresses[smoke.asks],
        "PEER_GROUPS": " ".join(f"peers-{group}.{suffix}" for group in smoke.peer_groups),
        "PEERS": str(smoke.peers),
    }
    serve = f'mkdir -p /tmp/www && echo "$HOSTNAME" >/tmp/www/name && exec httpd -f -p {PORT} -h /tmp/www'
    script = Path(__file__).with_name("probe.sh").read_text(encoding="utf-8")
    spec: Object = {
        "serviceAccountName": SERVICE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": seconds + 60,
        "affinity": _on_node(smoke.node),
        # Any taint: what is asked here is whether the node works, not whether it takes everybody's pods.
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            _container("serve", image, serve, {}),
            _container("probe", image, script, variables),
        ],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}],
    }
    if smoke.runtime == "gvisor":
        spec["runtimeClassName"] = GVISOR_RUNTIME_CLASS
    labels = {
        **MANAGED_BY,
        "role": CONTROL_PLANE if smoke.control_plane else WORKERS,
        "group": str(smoke.group),
    }
    metadata = {"name": smoke.name, "namespace": space, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(name: str, image: str, script: str, variables: dict[str, str]) -> Object:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "resources": {
            "requests": {"cpu": "10m", "memory": "16Mi"},
            "limits": {"cpu": "1", "memory": "128Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }


def _on_node(name: str) -> Object:
    """Return the affinity that a DaemonSet's pods have: the scheduler places the pod, on this node only."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
