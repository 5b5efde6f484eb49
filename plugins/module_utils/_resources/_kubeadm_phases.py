# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A changed configuration of a control plane that runs: which phases of kubeadm bring it about, and back."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.module_utils._resources import _kubeadm_config as text
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._kubeadm_reset import running
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._kubeadm_run import (
    init_inputs,
    kubeadm,
)
from ansible_collections.ironspan.hybrid.plugins.module_utils._resources._write import read_text, remove_file
from ansible_collections.ironspan.hybrid.plugins.module_utils._system.types import (
    Change,
    Host,
    ResourceError,
    Spec,
)

MANIFESTS = "/etc/kubernetes/manifests"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
API_SERVER = f"{MANIFESTS}/kube-apiserver.yaml"
API_CERTIFICATE = ("/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/pki/apiserver.key")
CA = "/etc/kubernetes/pki/ca.crt"
CLUSTER_PHASES = (("upload-config", "all"), ("addon", "kube-proxy"))
"""What a changed configuration changes in the cluster itself.

Not the CoreDNS addon: kubeadm would migrate its Corefile, and refuses when it does not know CoreDNS's version
(kubeadm 1.36.4 knows none above 1.14.2); another CoreDNS is an upgrade.
"""
READY_TIMEOUT = 180
"""Seconds: the former API server may take a minute to let go of its connections, the new one to start."""


def changed_configuration(spec: Spec, host: Host) -> t.Optional[Change]:
    """Compare the configuration with the one applied last; only control planes follow it.

    Raises:
        ResourceError: it asks for another version of Kubernetes.
    """
    if spec["role"] != "control_plane" or not spec["phases_on_change"]:
        return None
    if "ClusterConfiguration" not in [kind for kind, _ in text.split_documents(spec["config"])]:
        return None
    former = host.note(spec["id"]).get("config", "")
    if former == spec["config"]:
        return None
    old, new = text.kubernetes_version(former), text.kubernetes_version(spec["config"])
    if former and old != new:
        raise ResourceError(
            f"the configuration asks for Kubernetes {new}, the control plane was set up with {old}",
            "A change of version is an upgrade, one control plane after the other; set the version back.",
        )
    reason = "its configuration changed" if former else "the configuration it runs with is not known"
    return Change("update", {"text": former}, {"text": spec["config"]}, reason)


def cluster_phases(config: str) -> t.Sequence[t.Tuple[str, str]]:
    """Return the phases for the cluster; named on the command line, one comes although it is disabled."""
    return CLUSTER_PHASES[: 1 if "\nproxy:\n  disabled: true\n" in config else 2]


def run_phases(spec: Spec, former: str, host: Host) -> None:
    """Bring a changed configuration about.

    Args:
        spec: the resource.
        former: the configuration applied last, "" if it is not known.
        host: the host.

    Raises:
        ResourceError: a phase failed, or the API server is not ready with the new configuration.
    """
    # Kept for the rollback, which is not told whole texts.
    host.remember(spec["id"], {"config": "", "former": former})
    for component in COMPONENTS:
        host.backup(f"{MANIFESTS}/{component}.yaml")
    manifest = read_text(host, API_SERVER)
    former_processes = running(host, "kube-apiserver")
    with init_inputs(spec["config"], host):
        if former and text.certificate_names(former) != text.certificate_names(spec["config"]):
            for path in API_CERTIFICATE:
                host.backup(path)
                remove_file(host, path)
            kubeadm(host, "init", "phase", "certs", "apiserver")
        for phase in (*cluster_phases(spec["config"]), ("control-plane", "all")):
            kubeadm(host, "init", "phase", *phase)
    if read_text(host, API_SERVER) != manifest:
        wait_until_ready(host, former_processes)
    host.remember(spec["id"], {"config": spec["config"], "former": former})


def give_back(spec: Spec, host: Host) -> None:
    """Give the cluster its former configuration; this host's manifests are back already.

    Args:
        spec: the resource.
        host: the host.
    """
    former = host.note(spec["id"]).get("former")
    if not former:
        return
    # The kubelet notices the manifests within its 20 seconds at most; until then the API server that
    # runs may be the one that is about to go.
    wait_until_ready(host, ())
    with init_inputs(former, host):
        for phase in cluster_phases(former):
            kubeadm(host, "init", "phase", *phase)


def wait_until_ready(host: Host, former: t.Sequence[str]) -> None:
    """Wait until the kubelet has replaced the API server and the new one answers that it is ready.

    Args:
        host: the host.
        former: ids of the processes to be replaced.

    Raises:
        ResourceError: it took longer than ``READY_TIMEOUT``.
    """
    until = time.monotonic() + READY_TIMEOUT
    while time.monotonic() < until:
        if set(running(host, "kube-apiserver")) - set(former) and _is_ready(host):
            return
        time.sleep(1)
    raise ResourceError(
        f"the API server on this host was not ready {READY_TIMEOUT} seconds after its configuration changed",
        "Read its log below /var/log/pods/kube-system_kube-apiserver-*, and correct the configuration.",
    )


def _is_ready(host: Host) -> bool:
    import http.client
    import re
    import ssl

    found = dict(re.findall(r"--(advertise-address|secure-port)=(\S+)", read_text(host, API_SERVER) or ""))
    connection = http.client.HTTPSConnection(
        found.get("advertise-address", "127.0.0.1"),
        int(found.get("secure-port", 6443)),
        timeout=5,
        context=ssl.create_default_context(cafile=host.path(CA)),
    )
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
