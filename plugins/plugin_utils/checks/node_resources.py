# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a node keeps for itself, when it evicts pods, which checks of kubeadm are passed over: by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

RESERVED = ("node_kubelet_system_reserved", "node_kubelet_kube_reserved")
EVICTION, PREFLIGHT, CGROUPS = "node_kubelet_eviction_hard", "node_ignore_preflight", "node_cgroup_versions"
_RESOURCES: Mapping[str, tuple[str, str]] = {
    # Resource -> suffixes that mean something for it, and an example.
    "cpu": (r"[0-9.]+m?", "500m"),
    "memory": (r"[0-9.]+([kMGTPE]|[KMGTPE]i)?", "1Gi"),
    "ephemeral-storage": (r"[0-9.]+([kMGTPE]|[KMGTPE]i)?", "1Gi"),
    "pid": (r"[0-9]+", "1000"),
}
"""k8s.io/kubernetes, pkg/kubelet/apis/config/validation/validation_reserved_memory.go and helpers."""
_SIGNALS = (
    "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
    "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available", "pid.available",
)  # fmt: skip
"""k8s.io/kubernetes, pkg/kubelet/eviction/api/types.go."""
_CHECKS = (
    "all", "IsPrivilegedUser", "Firewalld", "Port-10250", "DirAvailable--etc-kubernetes-manifests",
    "Service-Kubelet", "FileContent--proc-sys-net-ipv4-ip_forward", "FileExisting-conntrack",
    "FileAvailable--etc-kubernetes-kubelet.conf", "SystemVerification", "Hostname", "Swap", "HTTPProxy",
    "HTTPProxyCIDR", "ExternalEtcdVersion", "ExternalEtcdClientCertificates", "KubernetesVersion",
    "KubeletVersion", "NumCPU", "Mem", "ImagePull", "CRI", "ContainerRuntimeVersion", "CreateJob",
    "ControlPlaneNodesReady", "StaticPodManifest", "CoreDNSUnsupportedPlugins", "CoreDNSMigration",
)  # fmt: skip
"""k8s.io/kubernetes 1.36.4 and 1.37.1, cmd/kubeadm/app/preflight/checks.go and phases/upgrade: names, and
beginnings of some."""
_FAMILIES = tuple(name.partition("-")[0].lower() + "-" for name in _CHECKS if "-" in name)


def check_reserved(draft: Draft) -> None:
    """Resources that a kubelet can keep, each in its own unit."""
    for variable in RESERVED:
        for host, value in _each(draft, variable):
            for name, quantity in value.items() if isinstance(value, Mapping) else ():
                if name not in _RESOURCES:
                    _unknown(draft, host, variable, str(name), "resource that a kubelet keeps", _RESOURCES)
                elif not re.fullmatch(_RESOURCES[name][0], str(quantity)):
                    message = f"{quantity!r} is no amount of {name}"
                    remedy = f"write for example {_RESOURCES[name][1]}"
                    draft.problems.add(
                        draft.inner_place(host, variable, name), f"{variable}.{name}", message, remedy
                    )


def check_eviction(draft: Draft) -> None:
    """Signals that a kubelet knows."""
    for host, value in _each(draft, EVICTION):
        for name in value if isinstance(value, Mapping) else ():
            if name not in _SIGNALS:
                _unknown(draft, host, EVICTION, str(name), "signal for evictions", _SIGNALS)


def check_lists(draft: Draft) -> None:
    """Checks that kubeadm has, and a version of cgroups at least."""
    for host, value in _each(draft, PREFLIGHT):
        for index, name in enumerate(value if isinstance(value, list) else ()):
            known = {each.lower() for each in _CHECKS}
            if str(name).lower() not in known and not str(name).lower().startswith(_FAMILIES):
                _unknown(draft, host, PREFLIGHT, str(name), "check of kubeadm", _CHECKS, index)
    for host, value in _each(draft, CGROUPS):
        if value == []:
            place = draft.place(host, CGROUPS)
            draft.problems.add(place, CGROUPS, "is empty, so no host would be accepted", "write [2]")


def _each(draft: Draft, variable: str) -> Iterable[tuple[HostDraft, object]]:
    """Return each value once, with a host that has it."""
    found = {
        id(host.values.get(variable)): (host, host.values.get(variable)) for host in draft.hosts.values()
    }
    return found.values()


def _unknown(
    draft: Draft,
    host: HostDraft,
    variable: str,
    name: str,
    what: str,
    known: Iterable[str],
    index: int | None = None,
) -> None:
    near = nearest(name, known)
    place = draft.inner_place(host, variable, name if index is None else index)
    path = f"{variable}.{name}" if index is None else f"{variable}[{index}]"
    draft.problems.add(place, path, f"{name} is no {what}", f"write {near}" if near else "take it out")


CHECKS = (check_reserved, check_eviction, check_lists)
