# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a node keeps for itself, when it evicts pods, which checks of kubeadm are passed over: by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once, nearest

RESERVED = ("node_kubelet_system_reserved", "node_kubelet_kube_reserved")
EVICTION, PREFLIGHT, CGROUPS = "node_kubelet_eviction_hard", "node_ignore_preflight", "node_cgroup_versions"
RESOLV, FAIL_V1 = "node_kubelet_resolv_conf", "node_kubelet_fail_cgroup_v1"
SETTINGS, OPTIONS = "node_kubelet_settings", "cpuManagerPolicyOptions"
POLICY = "node_kubelet_cpu_manager_policy"
FEWEST_BYTES = 65_536
MOST_CPUS = 100
"""Nobody keeps so many from pods."""
_STUBS = ("/run/systemd/resolve/stub-resolv.conf", "/lib/systemd/resolv.conf", "/usr/lib/systemd/resolv.conf")
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
                elif why := _amount(str(name), str(quantity)):
                    message = f"{quantity!r} is {why} {name}"
                    remedy = f"write for example {_RESOURCES[name][1]}"
                    draft.problems.add(
                        draft.inner_place(host, variable, name), f"{variable}.{name}", message, remedy
                    )


def _amount(name: str, quantity: str) -> str:
    """Return what a quantity of a resource is, where it is not one that anybody means."""
    if not re.fullmatch(_RESOURCES[name][0], quantity):
        return "no amount of"
    if _in_bytes(name) and is_too_few(quantity):
        return "a handful of bytes of"
    # The m is easily left out.
    if name == "cpu" and not quantity.endswith("m") and float(quantity) >= MOST_CPUS:
        return "more than any host has of"
    return ""


def _in_bytes(name: str) -> bool:
    return name in ("memory", "ephemeral-storage") or (
        name.endswith(".available") and not name.startswith("pid")
    )


def is_too_few(quantity: str) -> bool:
    """Tell whether an amount of bytes is less than any page or file: somebody has left out its unit."""
    return bool(re.fullmatch(r"[0-9]+(\.[0-9]*)?", quantity)) and 0 < float(quantity) < FEWEST_BYTES


def check_eviction(draft: Draft) -> None:
    """Signals that a kubelet knows, at amounts that are not always reached."""
    for host, value in _each(draft, EVICTION):
        for name, amount in value.items() if isinstance(value, Mapping) else ():
            message = ""
            if name not in _SIGNALS:
                _unknown(draft, host, EVICTION, str(name), "signal for evictions", _SIGNALS)
            elif re.fullmatch(r"100(\.0*)?%", str(amount)):
                message = f"{amount} is never free, so that no pod would ever stay"
            elif amount is None:
                message = "has no amount"
            elif _in_bytes(str(name)) and is_too_few(str(amount)):
                message = f"{amount!r} is a handful of bytes"
            if message:
                place = draft.inner_place(host, EVICTION, name)
                draft.problems.add(place, f"{EVICTION}.{name}", message, "write for example 10%, or 1Gi")


def check_resolvers(draft: Draft) -> None:
    """Pods get the file as it is: what is on the host's loopback interface is nothing there."""
    for host, value in _each(draft, RESOLV):
        text = str(value or "")
        if text.endswith("/") or text in _STUBS:
            what = "is a folder" if text.endswith("/") else "names the host's own resolver, which pods lack"
            place = draft.place(host, RESOLV)
            draft.problems.add(place, RESOLV, what, "write /run/systemd/resolve/resolv.conf, or remove it")


def check_cgroups(draft: Draft) -> None:
    """A kubelet starts on some host that is accepted; with 1 and 2 that is one with 2."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        versions = host.values.get(CGROUPS)
        if versions != [1] or not host.values.get(FAIL_V1):
            continue
        message = f"is 1, and there the kubelet refuses to start ({FAIL_V1})"
        once.add(draft.place(host, CGROUPS), CGROUPS, message, f"write [2], or {FAIL_V1}: false")


def check_options_of_cpus(draft: Draft) -> None:
    """The policy none takes no options: the kubelet would not start."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        settings = host.values.get(SETTINGS)
        if not isinstance(settings, Mapping) or not settings.get(OPTIONS):
            continue
        if host.values.get(POLICY) != "static":
            place = draft.inner_place(host, SETTINGS, OPTIONS)
            message = f"are for the policy static, and that of host {host.name} is none ({POLICY})"
            remedy = f"take them out, or write them for hosts with {POLICY}: static"
            once.add(place, f"{SETTINGS}.{OPTIONS}", message, remedy)


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


CHECKS = (
    check_reserved,
    check_eviction,
    check_lists,
    check_resolvers,
    check_cgroups,
    check_options_of_cpus,
)
