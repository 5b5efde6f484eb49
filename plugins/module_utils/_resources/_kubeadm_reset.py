# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Taking away what kubeadm, the kubelet and the network plugins put on a host, and nothing else.

etcd is never kubeadm's here. ``kubeadm reset`` without an etcd manifest takes /var/lib/etcd for its own and
empties it (kubeadm 1.36, cmd/phases/reset/removeetcdmember.go), so that phase is always skipped; and its
certificate folder is pointed elsewhere, because the CA files in it belong to other resources.
"""

from __future__ import annotations

import os
import re
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import (
    read_text,
    remove_file,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import Host, ResourceError

RESET = (
    "kubeadm",
    "reset",
    "--force",
    "--skip-phases=remove-etcd-member",
    "--cert-dir=/run/ironspan/no-certificates",
    # Not admin.conf: asking a cluster that is half set up only costs time.
    "--kubeconfig=/run/ironspan/no-kubeconfig",
    "--cri-socket=unix:///run/containerd/containerd.sock",
)
KUBECONFIGS = tuple(
    f"/etc/kubernetes/{name}.conf"
    for name in ("admin", "super-admin", "kubelet", "bootstrap-kubelet", "controller-manager", "scheduler")
)
CERTIFICATES = tuple(
    f"/etc/kubernetes/pki/{name}.{ending}"
    for name in ("apiserver", "apiserver-kubelet-client", "front-proxy-client")
    for ending in ("crt", "key")
)
"""What kubeadm signs itself with the CA keys it is given; made again by the next init or join."""
KUBELET_FILES = (
    "config.yaml",
    "instance-config.yaml",
    "kubeadm-flags.env",
    "cpu_manager_state",
    "memory_manager_state",
)
KUBELET_FOLDERS = ("pki", "pods", "plugins", "plugins_registry", "device-plugins", "checkpoints")
MANIFESTS = "/etc/kubernetes/manifests"
MANIFEST_NAMES = ("kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml")
RUN_FILES = ("/run/ironspan/discovery.conf", "/run/ironspan/kubeadm.yaml")
ATTEMPT_FILES = ("/var/lib/ironspan/kubeadm-attempt.json", "/run/ironspan/join.key")
"""What outlives one attempt of a join, for the next."""
INTERFACES = ("cni0", "flannel.1", "flannel-v6.1", "kube-ipvs0")
NETWORK_FILES = ("/etc/cni/net.d/10-flannel.conflist", "/run/flannel/subnet.env")
TABLES = ("kube-proxy", "flannel-ipv4", "flannel-ipv6")
CHAINS = re.compile(r"\b(KUBE-|CNI-|FLANNEL-)")


def clean_attempt(host: Host) -> None:
    """Take away what a cut-off or failed init or join left; certificates of other resources stay.

    Args:
        host: the host.
    """
    end_orphans(host)
    # It stops the kubelet, removes its pods through containerd, unmounts and empties the kubelet's folder.
    try:
        host.run(RESET, check=False, timeout=300)
    except ResourceError:
        # Without kubeadm there was no attempt that went far; the files below are enough.
        host.run(["systemctl", "stop", "kubelet.service"], check=False)
    for path in (
        *KUBECONFIGS,
        *CERTIFICATES,
        *RUN_FILES,
        *(f"{MANIFESTS}/{name}" for name in MANIFEST_NAMES),
    ):
        if not host.owned(path):
            remove_file(host, path)
    for name in KUBELET_FILES:
        remove_file(host, f"/var/lib/kubelet/{name}")


def end_orphans(host: Host) -> None:
    """End a kubeadm that outlived the run that started it, so that it does not undo the repair.

    Args:
        host: the host.
    """
    orphans = running(host, "kubeadm", RUN_FILES[1])
    for process in orphans:
        host.run(["kill", "-KILL", process], check=False)
    until = time.monotonic() + 10
    while any(process in running(host, "kubeadm", RUN_FILES[1]) for process in orphans):
        if time.monotonic() > until:
            raise ResourceError(
                f"kubeadm of an earlier run does not end (process {', '.join(orphans)})",
                "It waits for a device: look for a disk or mount that does not answer, or reboot the host.",
            )
        time.sleep(0.1)


def running(host: Host, program: str, argument: str = "") -> t.List[str]:
    """Return the ids of the processes that run a program.

    Args:
        host: the host.
        program: the last part of the program's path.
        argument: only those that were given this argument.
    """
    found = []
    for name in os.listdir(host.path("/proc")):
        if name.isdigit():
            words = (read_text(host, f"/proc/{name}/cmdline") or "").split("\0")
            if os.path.basename(words[0]) == program and (not argument or host.path(argument) in words):
                found.append(name)
    return found


def leftovers(host: Host) -> t.List[str]:
    """Name what a cluster left on this host; a bare host has none.

    Args:
        host: the host.
    """
    paths = [*KUBECONFIGS, *CERTIFICATES, *NETWORK_FILES, *RUN_FILES]
    paths += [f"{MANIFESTS}/{name}" for name in MANIFEST_NAMES]
    paths += [f"/var/lib/kubelet/{name}" for name in (*KUBELET_FILES, *KUBELET_FOLDERS)]
    paths += ["/var/lib/cni/networks", *ATTEMPT_FILES]
    found = [path for path in paths if os.path.lexists(host.path(path))]
    found += [
        f"interface {name}" for name in INTERFACES if os.path.exists(host.path(f"/sys/class/net/{name}"))
    ]
    found += [f"nftables table {family} {name}" for family, name in _tables(host)]
    found += [
        f"{program} chains"
        for program in ("iptables", "ip6tables")
        if CHAINS.search(_saved_rules(host, program))
    ]
    return found


def reset(host: Host) -> None:
    """Leave a host as if it had never been part of a cluster; etcd and containerd stay as they are.

    Args:
        host: the host.
    """
    clean_attempt(host)
    for path in (*ATTEMPT_FILES, *NETWORK_FILES):
        remove_file(host, path)
    for path in [f"/var/lib/kubelet/{name}" for name in KUBELET_FOLDERS] + ["/var/lib/cni/networks"]:
        if os.path.isdir(host.path(path)):
            host.run(["rm", "-rf", "--one-file-system", "--", host.path(path)])
    for name in INTERFACES:
        if os.path.exists(host.path(f"/sys/class/net/{name}")):
            host.run(["ip", "link", "delete", name])
    for family, name in _tables(host):
        host.run(["nft", "delete", "table", family, name])
    for program in ("iptables", "ip6tables"):
        rules = _saved_rules(host, program)
        if CHAINS.search(rules):
            kept = "".join(line for line in rules.splitlines(keepends=True) if not CHAINS.search(line))
            host.run([f"{program}-restore"], stdin=kept.encode())


def _tables(host: Host) -> t.List[t.Tuple[str, str]]:
    words = [line.split() for line in _output(host, ["nft", "list", "tables"]).splitlines()]
    return [
        (line[1], line[2]) for line in words if len(line) == 3 and line[0] == "table" and line[2] in TABLES
    ]


def _saved_rules(host: Host, program: str) -> str:
    return _output(host, [f"{program}-save"])


def _output(host: Host, argv: t.List[str]) -> str:
    try:
        status, output, _ = host.run(argv, check=False)
    except ResourceError:
        # Without the program there is nothing it could have set up.
        return ""
    return output if status == 0 else ""
