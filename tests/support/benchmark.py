# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the checks of the CIS benchmark (kube-bench's cis-1.12) come down to in this project's documents.

docs/hardening.md has what is not followed, for operators; kube-bench itself judges a lab in
tests/integration/test_hardening.py.
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable

import yaml

Resources = dict[str, dict[str, t.Any]]


def is_(*values: t.Any) -> Callable[[t.Any], bool]:
    """One of some values."""
    return lambda found: found in values


def at_least(least: int) -> Callable[[t.Any], bool]:
    """A number that is not too small."""
    return lambda found: found is not None and int(found) >= least


def holds(value: str) -> Callable[[t.Any], bool]:
    """A list, separated by commas, that holds a value."""
    return lambda found: value in str(found or "").split(",")


def lacks(value: str) -> Callable[[t.Any], bool]:
    """A list, separated by commas, that does not hold a value."""
    return lambda found: value not in str(found or "").split(",")


def is_set(found: t.Any) -> bool:
    """Anything but nothing."""
    return found not in (None, "", [])


def is_absent(found: t.Any) -> bool:
    """Not there at all."""
    return found is None


def only_root(found: t.Any) -> bool:
    """A resource that nobody but root reads: mode 0600, or less."""
    return root_owns(found) and int(found["mode"], 8) & 0o177 == 0


def root_owns(found: t.Any) -> bool:
    """A resource that is root's, which it is unless it says otherwise."""
    return found is not None and {found.get("owner", "root"), found.get("group", "root")} == {"root"}


def etcd_alone(found: t.Any) -> bool:
    """A folder that nobody but etcd enters."""
    return found is not None and (found["owner"], found["group"], int(found["mode"], 8)) == (
        "etcd",
        "etcd",
        0o700,
    )


@dataclasses.dataclass(frozen=True)
class Check:
    """One check: its number, where in the documents, and what must be there."""

    number: str
    where: str
    """api, manager, scheduler (their flags), kubelet, proxy, etcd (their files), or an id of a resource."""
    what: str
    """Flag, path in the file with dots, or nothing for the resource itself."""
    expected: Callable[[t.Any], bool]

    @property
    def name(self) -> str:
        """Return a name for people."""
        return f"{self.number} {self.where} {self.what}".strip()


CHECKS = (
    Check("1.1.11", "etcd/data", "", etcd_alone),
    Check("1.1.12", "etcd/data", "", etcd_alone),
    Check("1.1.19", "control_plane/etcd-client", "", root_owns),
    Check("1.1.21", "control_plane/kubernetes-ca-key", "", only_root),
    Check("1.1.21", "control_plane/service-account-key", "", only_root),
    Check("1.2.2", "api", "token-auth-file", is_absent),
    Check("1.2.4", "api", "kubelet-client-certificate", is_set),
    Check("1.2.4", "api", "kubelet-client-key", is_set),
    Check("1.2.5", "api", "kubelet-certificate-authority", is_set),
    Check("1.2.6", "api", "authorization-mode", lacks("AlwaysAllow")),
    Check("1.2.7", "api", "authorization-mode", holds("Node")),
    Check("1.2.8", "api", "authorization-mode", holds("RBAC")),
    Check("1.2.10", "api", "enable-admission-plugins", lacks("AlwaysAdmit")),
    Check("1.2.12", "api", "disable-admission-plugins", lacks("ServiceAccount")),
    Check("1.2.13", "api", "disable-admission-plugins", lacks("NamespaceLifecycle")),
    Check("1.2.14", "api", "enable-admission-plugins", holds("NodeRestriction")),
    Check("1.2.15", "api", "profiling", is_("false")),
    Check("1.2.16", "api", "audit-log-path", is_set),
    Check("1.2.17", "api", "audit-log-maxage", at_least(30)),
    Check("1.2.18", "api", "audit-log-maxbackup", at_least(10)),
    Check("1.2.19", "api", "audit-log-maxsize", at_least(100)),
    Check("1.2.21", "api", "service-account-lookup", is_(None, "true")),
    Check("1.2.22", "api", "service-account-key-file", is_set),
    Check("1.2.23", "api", "etcd-certfile", is_set),
    Check("1.2.23", "api", "etcd-keyfile", is_set),
    Check("1.2.24", "api", "tls-cert-file", is_set),
    Check("1.2.24", "api", "tls-private-key-file", is_set),
    Check("1.2.25", "api", "client-ca-file", is_set),
    Check("1.2.26", "api", "etcd-cafile", is_set),
    Check("1.2.29", "api", "tls-cipher-suites", is_set),
    Check("1.2.30", "api", "service-account-extend-token-expiration", is_("false")),
    Check("1.3.2", "manager", "profiling", is_("false")),
    Check("1.3.3", "manager", "use-service-account-credentials", is_("true")),
    Check("1.3.4", "manager", "service-account-private-key-file", is_set),
    Check("1.3.5", "manager", "root-ca-file", is_set),
    Check("1.3.6", "manager", "feature-gates", lacks("RotateKubeletServerCertificate=false")),
    Check("1.3.7", "manager", "bind-address", is_(None, "127.0.0.1")),
    Check("1.4.1", "scheduler", "profiling", is_("false")),
    Check("1.4.2", "scheduler", "bind-address", is_(None, "127.0.0.1")),
    Check("2.1", "etcd", "client-transport-security.cert-file", is_set),
    Check("2.1", "etcd", "client-transport-security.key-file", is_set),
    Check("2.2", "etcd", "client-transport-security.client-cert-auth", is_(True)),
    Check("2.3", "etcd", "client-transport-security.auto-tls", is_(None, False)),
    Check("2.4", "etcd", "peer-transport-security.cert-file", is_set),
    Check("2.4", "etcd", "peer-transport-security.key-file", is_set),
    Check("2.5", "etcd", "peer-transport-security.client-cert-auth", is_(True)),
    Check("2.6", "etcd", "peer-transport-security.auto-tls", is_(None, False)),
    Check("4.1.1", "node/drop-in", "", only_root),
    Check("4.1.1", "node/unit", "", only_root),
    Check("4.1.2", "node/drop-in", "", root_owns),
    Check("4.1.8", "node/ca", "", root_owns),
    Check("4.1.9", "node/settings", "", only_root),
    Check("4.2.1", "kubelet", "authentication.anonymous.enabled", is_(False)),
    Check("4.2.2", "kubelet", "authorization.mode", is_("Webhook")),
    Check("4.2.3", "kubelet", "authentication.x509.clientCAFile", is_set),
    Check("4.2.4", "kubelet", "readOnlyPort", is_(0)),
    Check("4.2.5", "kubelet", "streamingConnectionIdleTimeout", is_(None)),
    Check("4.2.6", "kubelet", "makeIPTablesUtilChains", is_(None, True)),
    Check("4.2.10", "kubelet", "rotateCertificates", is_(True)),
    Check("4.2.11", "kubelet", "serverTLSBootstrap", is_(True)),
    Check("4.2.12", "kubelet", "tlsCipherSuites", is_set),
    Check("4.2.13", "kubelet", "podPidsLimit", at_least(1)),
    Check("4.2.14", "kubelet", "seccompDefault", is_(True)),
    Check("4.3.1", "proxy", "metricsBindAddress", is_(None, "127.0.0.1:10249")),
)


@dataclasses.dataclass(frozen=True)
class Deviation:
    """A check that kube-bench does not call passed, and why that is so."""

    verdict: t.Literal["FAIL", "WARN"]
    reason: str


_FILE = "Followed: etcd has it from its file, and kube-bench looks at the command line only."
_MERGED = (
    "Followed: the kubelet merges it from /etc/kubernetes/kubelet.conf.d, which kube-bench does not read."
)
_MIRROR = "No pod would start while the mirror is away; who may use which image says the admission policy."
_ENCRYPTION = "Encryption of secrets in etcd is a setting of its own, which a site turns on."

DEVIATIONS = {
    "1.1.7": Deviation("FAIL", "There is no such file: etcd is a systemd unit, not a static pod."),
    "1.1.8": Deviation("FAIL", "There is no such file: etcd is a systemd unit, not a static pod."),
    "1.2.1": Deviation(
        "WARN", "Without a credential the health paths answer and nothing else; a load balancer needs them."
    ),
    "1.2.3": Deviation(
        "WARN", "Who may create services with external addresses is the admission policy's matter."
    ),
    "1.2.9": Deviation(
        "WARN", "API priority and fairness, which is on, limits who asks too much; events are no exception."
    ),
    "1.2.11": Deviation("WARN", _MIRROR),
    "1.2.27": Deviation("WARN", _ENCRYPTION),
    "1.2.28": Deviation("WARN", _ENCRYPTION),
    "1.3.1": Deviation("WARN", "The default of 12,500 ended pods is in force."),
    "1.1.9": Deviation(
        "WARN",
        "The lock files of host-local; only root enters their folder, whose mode counts here as a file's.",
    ),
    "2.1": Deviation("FAIL", _FILE),
    "2.2": Deviation("FAIL", _FILE),
    "2.4": Deviation("FAIL", _FILE),
    "2.5": Deviation("FAIL", _FILE),
    "2.7": Deviation(
        "WARN", "Followed: etcd has an authority of its own; kube-bench looks at the command line only."
    ),
    "4.1.3": Deviation(
        "WARN", "There is no such file: kube-proxy is a pod, and has its credential from its service account."
    ),
    "4.1.4": Deviation(
        "WARN", "There is no such file: kube-proxy is a pod, and has its credential from its service account."
    ),
    "4.2.9": Deviation(
        "WARN",
        "The kubelet asks for its certificate and renews it by itself; naming files would turn that off.",
    ),
    "4.2.12": Deviation("WARN", _MERGED),
    "4.2.13": Deviation("WARN", _MERGED),
    "4.2.14": Deviation("WARN", _MERGED),
}

KUBEADM: dict[str, dict[str, str]] = {
    "api": {
        "authorization-mode": "Node,RBAC",
        "client-ca-file": "/etc/kubernetes/pki/ca.crt",
        "enable-admission-plugins": "NodeRestriction",
        "etcd-cafile": "/etc/kubernetes/pki/etcd/ca.crt",
        "etcd-certfile": "/etc/kubernetes/pki/apiserver-etcd-client.crt",
        "etcd-keyfile": "/etc/kubernetes/pki/apiserver-etcd-client.key",
        "kubelet-client-certificate": "/etc/kubernetes/pki/apiserver-kubelet-client.crt",
        "kubelet-client-key": "/etc/kubernetes/pki/apiserver-kubelet-client.key",
        "service-account-key-file": "/etc/kubernetes/pki/sa.pub",
        "tls-cert-file": "/etc/kubernetes/pki/apiserver.crt",
        "tls-private-key-file": "/etc/kubernetes/pki/apiserver.key",
    },
    "manager": {
        "bind-address": "127.0.0.1",
        "root-ca-file": "/etc/kubernetes/pki/ca.crt",
        "service-account-private-key-file": "/etc/kubernetes/pki/sa.key",
        "use-service-account-credentials": "true",
    },
    "scheduler": {"bind-address": "127.0.0.1"},
}
"""What kubeadm adds where a site does not (cmd/kubeadm/app/phases/controlplane/manifests.go, 1.36)."""

COMPONENTS = {"api": "apiServer", "manager": "controllerManager", "scheduler": "scheduler"}


def found(check: Check, resources: Resources) -> t.Any:
    """Return what a control plane with a member of etcd has where a check looks.

    Args:
        check: the check.
        resources: the host's document, by id.
    """
    if check.where in COMPONENTS:
        cluster = _document(resources["control_plane/member"]["config"], "ClusterConfiguration")
        extra = {arg["name"]: arg["value"] for arg in cluster[COMPONENTS[check.where]].get("extraArgs", ())}
        return {**KUBEADM[check.where], **extra}.get(check.what)
    if check.where == "proxy":
        tree = _document(resources["control_plane/member"]["config"], "KubeProxyConfiguration")
    elif check.where in ("kubelet", "etcd"):
        identifier = {"kubelet": "node/settings", "etcd": "etcd/config"}[check.where]
        tree = yaml.safe_load(resources[identifier]["content"])
    else:
        return resources.get(check.where)
    for step in check.what.split("."):
        tree = tree.get(step) if tree is not None else None
    return tree


def _document(text: str, kind: str) -> t.Any:
    return next(part for part in yaml.safe_load_all(text) if part and part["kind"] == kind)
