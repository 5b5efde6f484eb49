# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The CEL of every rule about pods: what must be true of them, and what to say if it is not."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission import surroundings
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.cel import (
    HOST_SPACES,
    Validation,
    allowed,
    gpu,
    literal,
    sandboxed,
    shares_host,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.grants import grants
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.admission.policy import Policy, Rule

SAFE_SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
"""Those of the Pod Security Standard "baseline" (pod-security-admission, policy/check_sysctls.go)."""
SE_LINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
"""Those of the same standard (policy/check_seLinuxOptions.go)."""
MIRROR = "kubernetes.io/config.mirror"
_OWNERS = {
    "Node": "'system:nodes' in request.userInfo.groups",
    "DaemonSet": "request.userInfo.username in "
    "['system:serviceaccount:kube-system:daemon-set-controller', 'system:kube-controller-manager']",
}
"""Kinds whose pods drains leave alone -> who makes these pods."""
_SAME_OWNERS = (
    "(oldObject != null && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences)"
)
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"


def validations(policy: Policy, rule: Rule) -> list[Validation]:
    """Return what a rule asks for."""
    return _RULES[rule.name](policy, rule)


def _runtime_class(policy: Policy, rule: Rule) -> list[Validation]:
    classes = allowed(rule)
    message = f"a pod here must have one of the runtime classes {', '.join(classes)}"
    return [Validation(sandboxed(policy, "variables.pod"), message)]


def _host_access(policy: Policy, rule: Rule) -> list[Validation]:
    return [
        *(Validation(f"!variables.pod.?{name}.orValue(false)", f"{name} is refused") for name in HOST_SPACES),
        Validation(
            "variables.containers.all(c, c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0))",
            "hostPort is refused: use a service",
        ),
        Validation(
            f"variables.containers.all(c, {' && '.join(map(_asks_itself, _PROBES))})",
            "a host in probes and hooks is refused: the kubelet would send them from the host's network",
        ),
    ]


_PROBES = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.?postStart", "lifecycle.?preStop")


def _asks_itself(probe: str) -> str:
    kinds = (f"c.?{probe}.?{kind}.?host.orValue('') == ''" for kind in ("httpGet", "tcpSocket"))
    return " && ".join(kinds)


def _privilege(policy: Policy, rule: Rule) -> list[Validation]:
    context = "c.?securityContext"
    capabilities = list(rule.values["capabilities"])
    host_process = ".?securityContext.?windowsOptions.?hostProcess.orValue(false)"
    return [
        Validation(
            f"variables.containers.all(c, !{context}.?privileged.orValue(false))",
            "privileged containers are refused",
        ),
        Validation(
            f"variables.containers.all(c, {context}.?capabilities.?add.orValue([])"
            f".all(n, n in {literal(capabilities)}))",
            f"of capabilities only these may be added: {', '.join(capabilities) or 'none'}",
        ),
        Validation(
            f"variables.containers.all(c, {context}.?procMount.orValue('Default') == 'Default')",
            "procMount other than Default is refused",
        ),
        *(
            Validation(
                f"variables.pod.?securityContext.?{profile}.?type.orValue('') != 'Unconfined' && "
                f"variables.containers.all(c, {context}.?{profile}.?type.orValue('') != 'Unconfined')",
                f"{profile} Unconfined is refused",
            )
            for profile in ("seccompProfile", "appArmorProfile")
        ),
        Validation(
            f"variables.annotations.all(k, !k.startsWith({literal(APP_ARMOR)}) || "
            "variables.annotations[k] != 'unconfined')",
            "AppArmor's annotation unconfined is refused",
        ),
        Validation(
            f"variables.pod.?securityContext.?sysctls.orValue([]).all(s, s.name in {literal(SAFE_SYSCTLS)})",
            "sysctls that are not namespaced and safe are refused",
        ),
        Validation(
            f"{_confined('variables.pod')} && variables.containers.all(c, {_confined('c')})",
            "SELinux users, roles and types other than those of containers are refused",
        ),
        Validation(
            f"!variables.pod{host_process} && variables.containers.all(c, !c{host_process})",
            "hostProcess is refused",
        ),
    ]


def _confined(which: str) -> str:
    options = f"{which}.?securityContext.?seLinuxOptions"
    return (
        f"{options}.?type.orValue('') in {literal(list(SE_LINUX_TYPES))} && "
        f"{options}.?user.orValue('') == '' && {options}.?role.orValue('') == ''"
    )


def _shared_processes(policy: Policy, rule: Rule) -> list[Validation]:
    return [
        Validation(
            "!variables.pod.?shareProcessNamespace.orValue(false)",
            "shareProcessNamespace is refused here",
        )
    ]


def _volumes(policy: Policy, rule: Rule) -> list[Validation]:
    kinds, drivers = allowed(rule), list(rule.values["csi_drivers"])
    return [
        Validation(
            f"variables.volumes.all(v, v.all(k, k == 'name' || k in {literal(kinds)}))",
            f"of volumes only these kinds are allowed: {', '.join(kinds)}",
        ),
        Validation(
            f"variables.volumes.all(v, !has(v.csi) || v.csi.driver in {literal(drivers)})",
            f"of drivers of CSI a pod may name only these itself: {', '.join(drivers) or 'none'}",
        ),
    ]


def _sub_paths(policy: Policy, rule: Rule) -> list[Validation]:
    mounts = "variables.containers.all(c, c.?volumeMounts.orValue([]).all(m, {}))"
    return [
        Validation(
            mounts.format("m.?subPath.orValue('') == '' && m.?subPathExpr.orValue('') == ''"),
            "subPath and subPathExpr are refused here: mount the whole volume",
        ),
        Validation(
            mounts.format("m.?mountPropagation.orValue('None') == 'None'"),
            "mount propagation is refused here",
        ),
    ]


def _latest_tag(policy: Policy, rule: Rule) -> list[Validation]:
    return _images("i.contains('@') || (i.matches(':[^/:]+$') && !i.endsWith(':latest'))",
                   "images need a tag other than latest, or a digest")  # fmt: skip


def _registries(policy: Policy, rule: Rule) -> list[Validation]:
    prefixes = [name if name.endswith("/") else f"{name}/" for name in allowed(rule)]
    return _images(
        f"{literal(prefixes)}.exists(p, i.startsWith(p)) && !i.contains('..')",
        f"images must be written with their registry, one of {', '.join(allowed(rule))}",
    )


def _digests(policy: Policy, rule: Rule) -> list[Validation]:
    return _images("i.matches('@sha256:[0-9a-f]{64}$')", "images need a digest here (IMAGE@sha256:...)")


def _images(right: str, message: str) -> list[Validation]:
    found = f"variables.images.filter(i, !({right}))"
    return [Validation(f"variables.images.all(i, {right})", message, found)]


def _gpu_queue(policy: Policy, rule: Rule) -> list[Validation]:
    return [
        Validation(
            f"!({gpu(policy, 'variables.pod', 'variables.containers')}) || "
            f"variables.labels[?{literal(rule.word)}].orValue('') != ''",
            f"a pod that asks for a GPU needs the label {rule.word}",
        )
    ]


def _sandbox_annotations(policy: Policy, rule: Rule) -> list[Validation]:
    prefixes = literal(list(rule.values["prefixes"]))
    right = f"!{prefixes}.exists(p, k.startsWith(p)) || k in {literal(allowed(rule))}"
    return [
        Validation(
            f"variables.annotations.all(k, {right})",
            "annotations that steer a sandbox or its devices are refused",
            f"variables.annotations.filter(k, !({right}))",
        )
    ]


def _user_namespaces(policy: Policy, rule: Rule) -> list[Validation]:
    pod = "variables.pod"
    free = f"{sandboxed(policy, pod)} || {shares_host(pod)} || {gpu(policy, pod, 'variables.containers')}"
    return [
        Validation(
            f"!{pod}.?hostUsers.orValue(true) || {free}",
            "hostUsers must be false: only pods in a sandbox or with a GPU use the host's users",
        )
    ]


def _placement(policy: Policy, rule: Rule) -> list[Validation]:
    return [
        Validation(
            "request.operation != 'CREATE' || variables.pod.?nodeName.orValue('') == ''",
            "nodeName is refused here: the scheduler chooses",
        ),
        Validation(
            "variables.pod.?tolerations.orValue([]).all(t, t.?key.orValue('') != '' && "
            "!t.key.startsWith('node-role.kubernetes.io/') && t.key != 'node.kubernetes.io/unschedulable')",
            "a toleration of all taints, of the control plane's, or of nodes being drained, is refused here",
        ),
        Validation(
            "!variables.pod.?priorityClassName.orValue('').startsWith('system-')",
            "the priorities of the system are refused here",
        ),
    ]


def _resolvers(policy: Policy, rule: Rule) -> list[Validation]:
    return [
        Validation(
            "variables.pod.?dnsPolicy.orValue('ClusterFirst').startsWith('ClusterFirst') && "
            "variables.pod.?dnsConfig.?nameservers.orValue([]).size() == 0",
            "a pod here must use the cluster's DNS: no nameservers, no dnsPolicy but ClusterFirst",
        )
    ]


def _token_audiences(policy: Policy, rule: Rule) -> list[Validation]:
    audiences = allowed(rule)
    return [
        Validation(
            "variables.volumes.all(v, v.?projected.?sources.orValue([]).all(s, "
            f"s.?serviceAccountToken.?audience.orValue('') in {literal(['', *audiences])}))",
            f"of token audiences only these are allowed: {', '.join(audiences) or 'the API itself'}",
        ),
        Validation(
            "variables.volumes.all(v, v.?projected.?sources.orValue([]).all(s, !has(s.podCertificate)))",
            "pod certificates are refused here",
        ),
    ]


def _mirror_pods(policy: Policy, rule: Rule) -> list[Validation]:
    return [
        Validation(
            f"!({literal(MIRROR)} in variables.annotations) || 'system:nodes' in request.userInfo.groups",
            "only nodes write mirror pods",
        ),
        *(
            Validation(
                f"{_SAME_OWNERS} || !object.metadata.?ownerReferences.orValue([])"
                f".exists(o, o.kind == '{kind}') || {theirs}",
                f"a pod that says it is a {kind}'s is refused",
            )
            for kind, theirs in _OWNERS.items()
        ),
    ]


_RULES: Mapping[str, t.Callable[[Policy, Rule], list[Validation]]] = {
    "runtime_class": _runtime_class,
    "host_access": _host_access,
    "privilege": _privilege,
    "volumes": _volumes,
    "sub_paths": _sub_paths,
    "latest_tag": _latest_tag,
    "registries": _registries,
    "digests": _digests,
    "gpu_queue": _gpu_queue,
    "sandbox_annotations": _sandbox_annotations,
    "user_namespaces": _user_namespaces,
    "placement": _placement,
    "resolvers": _resolvers,
    "token_audiences": _token_audiences,
    "mirror_pods": _mirror_pods,
    "shared_processes": _shared_processes,
    "network_policy": surroundings.network_policy,
    "network_policies": surroundings.network_policies,
    "services": surroundings.services,
    "persistent_volumes": surroundings.persistent_volumes,
    "token_requests": surroundings.token_requests,
    "namespaces": surroundings.namespaces,
    "grants": grants,
}
