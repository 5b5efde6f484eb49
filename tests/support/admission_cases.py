# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Pods, services and namespaces with what an admission policy is to say of them.

Every case changes a pod that obeys all rules. ``rule`` is the one that must refuse it, empty when it is
taken. ``team`` is an ordinary namespace, ``jobs`` a high-risk one, ``monitoring`` exempt from some rules.
"""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Iterator, Mapping

Object = dict[str, t.Any]
DIGEST = "@sha256:" + "ab" * 32
GOOD = f"registry.example.com/ml/job{DIGEST}"
TAGGED = "registry.example.com/ml/job:1.4"
QUEUE = "kueue.x-k8s.io/queue-name"
C0 = "spec.containers.0"
CONTEXT = f"{C0}.securityContext"
GPU = {f"{C0}.resources": {"limits": {"nvidia.com/gpu": "1"}}}
NO_GPU = {f"{C0}.resources": {"limits": {"nvidia.com/gpu": "0"}, "requests": {"nvidia.com/gpu": "0"}}}
QUEUED = {"metadata.labels": {QUEUE: "research"}}

POLICY = """\
version: 1
rules:
  registries:
    scope: everywhere
    allowed: [registry.example.com, registry.k8s.io/, "registry.example.com:5000/tools"]
  sandbox_annotations:
    allowed: [dev.gvisor.spec.rootfs.type]
  token_audiences:
    allowed: [vault]
  volumes:
    csi_drivers: [secrets-store.csi.k8s.io]
exemptions:
  - namespace: monitoring
    rules: [host_access, volumes, user_namespaces, placement]
    owner: platform team
    reason: the node exporter reads the host's files
"""


class Case(t.NamedTuple):
    """One pod, service or namespace, and who refuses it."""

    name: str
    namespace: str
    changes: Mapping[str, t.Any]
    rule: str


def pod(namespace: str, changes: Mapping[str, t.Any] | None = None) -> Object:
    """Return a pod that obeys all rules but for what is changed."""
    body: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "main",
                    "image": GOOD,
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
    return changed(body, changes or {})


def changed(body: Object, changes: Mapping[str, t.Any]) -> Object:
    """Return a copy with values at paths such as ``spec.containers.0.image``; what is on the way is made."""
    body = copy.deepcopy(body)
    for path, value in changes.items():
        *steps, last = path.split(".")
        place: t.Any = body
        for step in steps:
            place = place[int(step)] if step.isdigit() else place.setdefault(step, {})
        place[last] = copy.deepcopy(value)
    return body


def _volume(**source: t.Any) -> Object:
    return {"spec.volumes": [{"name": "data", **source}]}


def _mount(**fields: t.Any) -> Object:
    mount = {"name": "data", "mountPath": "/data", **fields}
    return {"spec.volumes": [{"name": "data", "emptyDir": {}}], f"{C0}.volumeMounts": [mount]}


def _image(text: str) -> Object:
    return {f"{C0}.image": text}


def _init(**fields: t.Any) -> Object:
    return {"spec.initContainers": [{"name": "init", "image": GOOD, **fields}]}


def _token(audience: str) -> Object:
    source = {"serviceAccountToken": {"path": "token", **({"audience": audience} if audience else {})}}
    return _volume(projected={"sources": [source]})


def _cases() -> Iterator[Case]:
    """Yield the table of what is taken and refused."""
    for space in ("team", "jobs", "monitoring", "kube-system"):
        yield Case("a good pod", space, {}, "")
    # runtime_class
    yield Case("runc in an ordinary namespace", "team", {"spec.runtimeClassName": "runc"}, "")
    yield Case("gvisor asked for", "team", {"spec.runtimeClassName": "gvisor"}, "")
    yield Case("gvisor asked for", "jobs", {"spec.runtimeClassName": "gvisor"}, "")
    yield Case("the second class", "jobs", {"spec.runtimeClassName": "gvisor-gpu"}, "")
    yield Case("runc", "jobs", {"spec.runtimeClassName": "runc"}, "runtime_class")
    # host_access
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        yield Case(field, "team", {f"spec.{field}": True}, "host_access")
        yield Case(field, "jobs", {f"spec.{field}": True}, "host_access")
        yield Case(field, "monitoring", {f"spec.{field}": True}, "")
        yield Case(field, "kube-system", {f"spec.{field}": True}, "")
        yield Case(f"{field} false", "team", {f"spec.{field}": False}, "")
    port = {"containerPort": 80}
    yield Case("a port", "team", {f"{C0}.ports": [port]}, "")
    yield Case("a host's port", "team", {f"{C0}.ports": [{**port, "hostPort": 80}]}, "host_access")
    yield Case("an init container's port", "team", _init(ports=[{**port, "hostPort": 80}]), "host_access")
    yield Case("hostPath", "team", _volume(hostPath={"path": "/"}), "volumes")
    yield Case("hostPath", "monitoring", _volume(hostPath={"path": "/proc"}), "")
    probe = {"httpGet": {"port": 80}, "periodSeconds": 5}
    yield Case("a probe of its own", "jobs", {f"{C0}.livenessProbe": probe}, "")
    probe = {"tcpSocket": {"host": "127.0.0.1", "port": 10248}}
    yield Case("a probe of the host", "monitoring", {f"{C0}.livenessProbe": probe}, "")
    # privilege
    yield Case("privileged", "team", {CONTEXT: {"privileged": True}}, "privilege")
    yield Case("privileged", "monitoring", {CONTEXT: {"privileged": True}}, "privilege")
    yield Case("privileged", "kube-system", {CONTEXT: {"privileged": True}}, "")
    yield Case("privileged init", "team", _init(securityContext={"privileged": True}), "privilege")
    for name, rule in (("NET_BIND_SERVICE", ""), ("SYS_ADMIN", "privilege"), ("NET_RAW", "privilege")):
        yield Case(f"adds {name}", "team", {f"{CONTEXT}.capabilities.add": [name]}, rule)
    yield Case("adds ALL", "jobs", {f"{CONTEXT}.capabilities.add": ["ALL"]}, "privilege")
    yield Case("seccomp localhost", "team", {
        f"{CONTEXT}.seccompProfile": {"type": "Localhost", "localhostProfile": "x.json"}}, "")  # fmt: skip
    unconfined = {"type": "Unconfined"}
    yield Case("seccomp", "team", {f"{CONTEXT}.seccompProfile": unconfined}, "privilege")
    yield Case("seccomp of the pod", "team", {"spec.securityContext.seccompProfile": unconfined}, "privilege")
    yield Case("AppArmor", "team", {f"{CONTEXT}.appArmorProfile": unconfined}, "privilege")
    sysctl = {"name": "net.ipv4.tcp_syncookies", "value": "1"}
    yield Case("a safe sysctl", "team", {"spec.securityContext.sysctls": [sysctl]}, "")
    sysctl = {"name": "kernel.msgmax", "value": "1"}
    yield Case("an unsafe sysctl", "team", {"spec.securityContext.sysctls": [sysctl]}, "privilege")
    yield Case("a type of SELinux", "team", {f"{CONTEXT}.seLinuxOptions": {"type": "container_t"}}, "")
    # volumes
    yield Case("emptyDir", "team", _volume(emptyDir={}), "")
    yield Case("configMap", "jobs", _volume(configMap={"name": "x"}), "")
    yield Case("a claim", "jobs", _volume(persistentVolumeClaim={"claimName": "x"}), "")
    yield Case("nfs", "team", _volume(nfs={"server": "10.0.0.1", "path": "/"}), "volumes")
    yield Case("nfs", "monitoring", _volume(nfs={"server": "10.0.0.1", "path": "/"}), "")
    disk = {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:a", "lun": 0}
    yield Case("iscsi", "team", _volume(iscsi=disk), "volumes")
    yield Case("gitRepo", "team", _volume(gitRepo={"repository": "https://example.com/x"}), "volumes")
    yield Case("a driver of CSI", "jobs", _volume(csi={"driver": "secrets-store.csi.k8s.io"}), "")
    # sub_paths
    yield Case("a mount", "jobs", _mount(), "")
    yield Case("subPath", "team", _mount(subPath="a"), "")
    yield Case("subPath", "jobs", _mount(subPath="a"), "sub_paths")
    # latest_tag, registries, digests
    yield Case("a tag", "team", _image(TAGGED), "")
    yield Case("a tag", "jobs", _image(TAGGED), "digests")
    yield Case("a tag and a digest", "jobs", _image(TAGGED + DIGEST), "")
    yield Case("latest and a digest", "jobs", _image(f"registry.example.com/a:latest{DIGEST}"), "")
    yield Case("latest", "team", _image("registry.example.com/a:latest"), "latest_tag")
    yield Case("no tag", "team", _image("registry.example.com/a"), "latest_tag")
    yield Case("the registry has a port", "team", _image("registry.example.com:5000/tools/a"), "latest_tag")
    yield Case("latest", "kube-system", _image("anything:latest"), "")
    yield Case("another registry", "team", _image("docker.example.org/a:1"), "registries")
    yield Case("no registry", "team", _image("nginx:1.29"), "registries")
    yield Case("the second registry", "team", _image("registry.k8s.io/pause:3.10"), "")
    yield Case("a longer host", "team", _image("registry.example.com.evil.org/a:1"), "registries")
    yield Case("a user before the host", "team", _image("registry.example.com@evil.org/a:1"), "registries")
    yield Case("an unlisted port", "team", _image(f"registry.example.com:5000/a{DIGEST}"), "registries")
    yield Case("a short digest", "jobs", _image("registry.example.com/a@sha256:abcd"), "digests")
    yield Case("an init container's tag", "jobs", _init(image=TAGGED), "digests")
    yield Case("an init container's registry", "team", _init(image="x.example.org/a:1"), "registries")
    # gpu_queue
    yield Case("a GPU", "team", GPU, "gpu_queue")
    yield Case("a GPU, queued", "team", {**GPU, **QUEUED}, "")
    yield Case("a GPU, queued", "jobs", {**GPU, **QUEUED}, "")
    yield Case("an empty queue", "team", {**GPU, "metadata.labels": {QUEUE: ""}}, "gpu_queue")
    yield Case("a slice of a GPU", "team", {
        f"{C0}.resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}, "gpu_queue")  # fmt: skip
    yield Case("a GPU of others", "team", {
        f"{C0}.resources": {"limits": {"amd.com/gpu": "1"}}}, "gpu_queue")  # fmt: skip
    yield Case("something that is no GPU", "team", {
        f"{C0}.resources": {"limits": {"amd.com/other": "1"}}}, "")  # fmt: skip
    yield Case("an init container's GPU", "team", _init(
        resources={"limits": {"nvidia.com/gpu": "1"}}), "gpu_queue")  # fmt: skip
    claim = {"spec.resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]}
    yield Case("a claim for a device", "team", claim, "gpu_queue")
    yield Case("a claim for a device, queued", "team", {**claim, **QUEUED}, "")
    # sandbox_annotations
    yield Case("an ordinary annotation", "jobs", {"metadata.annotations": {"example.com/a": "b"}}, "")
    yield Case("a listed one", "jobs", {"metadata.annotations": {"dev.gvisor.spec.rootfs.type": "x"}}, "")
    yield Case("one that begins as a listed one", "jobs", {
        "metadata.annotations": {"dev.gvisor.spec.rootfs.type2": "x"}}, "sandbox_annotations")  # fmt: skip
    # user_namespaces
    yield Case("the host's users", "team", {"spec.hostUsers": True}, "user_namespaces")
    yield Case("the host's users, and none of a GPU", "team", {
        **NO_GPU, "spec.hostUsers": True}, "user_namespaces")  # fmt: skip
    yield Case("none of a GPU, not queued", "team", NO_GPU, "")
    yield Case("users of its own", "team", {"spec.hostUsers": False}, "")
    yield Case("the host's users, in a sandbox", "team", {
        "spec.hostUsers": True, "spec.runtimeClassName": "gvisor"}, "")  # fmt: skip
    yield Case("the host's users, with a GPU", "team", {"spec.hostUsers": True, **GPU, **QUEUED}, "")
    yield Case("the host's users", "monitoring", {"spec.hostUsers": True}, "")
    # placement, resolvers, token_audiences
    toleration = {"key": "example.com/a", "operator": "Exists"}
    yield Case("a toleration", "jobs", {"spec.tolerations": [toleration]}, "")
    yield Case("all tolerations", "team", {"spec.tolerations": [{"operator": "Exists"}]}, "")
    yield Case("a priority of the system", "team", {"spec.priorityClassName": "system-node-critical"}, "")
    yield Case("shared processes", "team", {"spec.shareProcessNamespace": True}, "")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u", "controller": True}
    yield Case("the pod of a job", "jobs", {"metadata.ownerReferences": [owner]}, "")
    yield Case("nodeName", "team", {"spec.nodeName": "rack-1"}, "")
    yield Case("own nameservers", "team", {
        "spec.dnsPolicy": "None", "spec.dnsConfig": {"nameservers": ["192.0.2.1"]}}, "")  # fmt: skip
    yield Case("search domains", "jobs", {"spec.dnsConfig": {"searches": ["example.com"]}}, "")
    yield Case("the API's audience", "jobs", _token(""), "")
    yield Case("a listed audience", "jobs", _token("vault"), "")
    yield Case("another audience", "team", _token("api://elsewhere"), "")


CASES = tuple(_cases())

_CERTIFICATE = {"signerName": "example.com/x", "keyType": "ED25519", "credentialBundlePath": "a"}
CERTIFICATE = Case(
    "certificate for others",
    "jobs",
    _volume(projected={"sources": [{"podCertificate": _CERTIFICATE}]}),
    "token_audiences",
)
"""Needs Kubernetes 1.37; releases before drop the field."""

_NAME = {"spec": {"type": "ExternalName", "externalName": "example.org"}}
SERVICES = (
    Case("ClusterIP", "jobs", {}, ""),
    Case("headless", "jobs", {"spec.clusterIP": "None"}, ""),
    Case("ExternalName", "jobs", _NAME, "services"),
    Case("ExternalName", "team", _NAME, ""),
    Case("NodePort", "jobs", {"spec.type": "NodePort"}, "services"),
    Case("LoadBalancer", "jobs", {"spec.type": "LoadBalancer"}, "services"),
    Case("externalIPs", "jobs", {"spec.externalIPs": ["192.0.2.7"]}, "services"),
)
