# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Kernel settings: written once, of a name that a kernel has, none that takes away what layers need."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once, nearest

VARIABLES = ("base_sysctls", "base_security_sysctls")
FEWEST_NAMESPACES = 1024
"""Each gVisor sandbox and each pod with hostUsers: false has one; a host has some hundred pods at most."""
ROOTS = ("abi", "crypto", "debug", "dev", "fs", "kernel", "net", "sunrpc", "user", "vm", "xen")
"""Folders below /proc/sys."""
_CLUSTER = ("nodes", "control_plane")


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """What a setting may not be.

    Args:
        names: pattern of the whole name.
        forbids: tells it of a value.
        why: what it would break.
        groups: on hosts of one of these; empty for all.
        only: variable of the site -> value with which it counts; True for any that says something.
    """

    names: str
    forbids: Callable[[str], bool]
    why: str
    groups: tuple[str, ...] = ()
    only: tuple[tuple[str, object], ...] = ()

    def counts(self, host: HostDraft) -> bool:
        """Tell whether it is about a host."""
        if self.groups and not set(self.groups) & set(host.groups):
            return False
        values = host.values
        return all(
            bool(values.get(name)) if wanted is True else values.get(name) == wanted
            for name, wanted in self.only
        )


def _not(wanted: str) -> Callable[[str], bool]:
    return lambda value: value.strip() != wanted


def _is(unwanted: str) -> Callable[[str], bool]:
    return lambda value: value.strip() == unwanted


def _below(least: int) -> Callable[[str], bool]:
    return lambda value: value.isdigit() and int(value) < least


def _of_kubelet(name: str, value: str) -> Rule:
    # pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables
    why = f"the kubelet writes {value} at each start, so every run would change it back"
    return Rule(re.escape(name), _not(value), why, _CLUSTER)


_DUAL = (("site_pod_cidr_ipv6", True),)
_HAVE_IPV6 = "pods have IPv6 addresses"
_FORWARDS = "hosts forward the packets of their pods"
_FEW = "it is less than the kernel's own default, and pods need more than a host without them"
RULES: tuple[Rule, ...] = (
    Rule(r"net\.ipv4\.ip_forward", _not("1"), _FORWARDS, _CLUSTER),
    Rule(r"net\.ipv4\.conf\.(all|default)\.forwarding", _not("1"), _FORWARDS, _CLUSTER),
    Rule(r"net\.ipv6\.conf\.(all|default)\.forwarding", _not("1"), _FORWARDS, _CLUSTER, _DUAL),
    Rule(r"net\.ipv6\.conf\.(all|default|lo)\.disable_ipv6", _not("0"), _HAVE_IPV6, _CLUSTER, _DUAL),
    Rule(
        r"net\.bridge\.bridge-nf-call-ip6?tables",
        _not("1"),
        "kube-proxy and network policies would not see what pods of one host send each other",
        _CLUSTER,
        (("site_cni", "flannel"),),
    ),
    Rule(
        r"net\.ipv4\.conf\.(all|default)\.rp_filter",
        _is("1"),
        "a strict filter drops packets of pods that come back another way",
        _CLUSTER,
    ),
    Rule(
        r"net\.ipv4\.conf\.(all|lxc.*|cilium_.*)\.rp_filter",
        _not("0"),
        "Cilium sends answers another way than questions came, and sets 0",
        _CLUSTER,
        (("site_cni", "cilium"),),
    ),
    _of_kubelet("vm.overcommit_memory", "1"),
    _of_kubelet("vm.panic_on_oom", "0"),
    _of_kubelet("kernel.panic", "10"),
    _of_kubelet("kernel.panic_on_oops", "1"),
    _of_kubelet("kernel.keys.root_maxkeys", "1000000"),
    _of_kubelet("kernel.keys.root_maxbytes", "25000000"),
    Rule(r"kernel\.hostname", lambda value: True, "each host has a name of its own"),
    Rule(r"kernel\.pid_max", _below(32_768), _FEW, _CLUSTER),
    Rule(r"fs\.inotify\.max_user_instances", _below(128), _FEW, _CLUSTER),
    Rule(r"fs\.inotify\.max_user_watches", _below(8_192), _FEW, _CLUSTER),
    Rule(r"vm\.max_map_count", _below(65_530), _FEW, _CLUSTER),
    Rule(r"kernel\.modules_disabled", _not("0"), "layers load modules, and only a boot takes it back"),
    Rule(
        r"vm\.nr_hugepages", lambda value: True, "gpu_host_hugepages_2mib_count says how many there are",
        ("gpu",), (("gpu_host_hugepages_2mib_count", True),),
    ),
    Rule(
        r"user\.max_user_namespaces",
        _below(FEWEST_NAMESPACES),
        "every gVisor sandbox lives in a user namespace of its own",
        ("gvisor",),
    ),
    Rule(
        r"kernel\.unprivileged_userns_clone",
        _is("0"),
        "gVisor gives its rights up before it makes namespaces",
        ("gvisor",),
    ),
    Rule(
        r"kernel\.yama\.ptrace_scope",
        _is("3"),
        "gVisor's platform systrap attaches to its own processes",
        ("gvisor",),
    ),
)  # fmt: skip
"""Settings that a host does not live with, and why."""
_CONNECTIONS, _PER_CORE = "net.netfilter.nf_conntrack_max", "control_plane_conntrack_max_per_core"
_FILES = "systemd cannot give a unit more open files than the kernel allows, and it would not start"
_AT_LEAST: Mapping[str, tuple[tuple[str, tuple[str, ...], str], ...]] = {
    "fs.nr_open": (
        ("containerd_limit_nofile", _CLUSTER, _FILES),
        ("etcd_limit_nofile", ("etcd",), _FILES),
    ),
    _CONNECTIONS: (
        ("control_plane_conntrack_min", _CLUSTER, "kube-proxy raises it at each start, each run lowers it"),
    ),
}
"""Setting -> variables that it is not below, on hosts of which groups, and why."""
_PATTERNS = {rule: re.compile(rule.names) for rule in RULES}


def check_sysctls(draft: Draft) -> None:
    """Each setting is judged for each kind of host that has it."""
    once, looked_at = Once(draft.problems), set()
    for host in draft.hosts.values():
        rules = [rule for rule in RULES if rule.counts(host)]
        # Nearly all hosts share their lists.
        key = (*(id(host.values.get(variable)) for variable in VARIABLES), *map(id, rules))
        if key in looked_at:
            continue
        looked_at.add(key)
        seen: dict[str, str] = {}
        for variable, index, item in settings_of(host):
            name, value = str(item.get("name")), str(item.get("value"))
            place = draft.inner_place(host, variable, index)
            for why, message, remedy in _wrong(host, name, value, seen, rules):
                once.add(place, f"{variable}[{index}]", message, remedy, what=why)
            seen.setdefault(name, variable)


def _wrong(
    host: HostDraft, name: str, value: str, seen: Mapping[str, str], rules: list[Rule]
) -> Iterator[tuple[str, str, str]]:
    if name in seen:
        yield "twice", f"{name} is also in {seen[name]}", "write it once"
        return
    root = name.partition(".")[0]
    if root not in ROOTS:
        near = nearest(root, ROOTS)
        remedy = f"write {near}.{name.partition('.')[2]}" if near else "take it out"
        yield "unknown", f"kernels have no {name}", remedy
    for rule in rules:
        if _PATTERNS[rule].fullmatch(name) and rule.forbids(value):
            what = (
                f"breaks gVisor on {host.name}" if rule.groups == ("gvisor",) else f"is wrong for {host.name}"
            )
            remedy = (
                "leave it out on hosts of the group gvisor" if rule.groups == ("gvisor",) else "leave it out"
            )
            yield rule.why, f"{name} = {value} {what}: {rule.why}", remedy


def check_against_others(draft: Draft) -> None:
    """A setting is not below what a unit asks for, or what kube-proxy writes at each start."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        for variable, index, item in settings_of(host):
            name, value = str(item["name"]), str(item.get("value"))
            for other, groups, why in _AT_LEAST.get(name, ()) if value.isdigit() else ():
                least = host.values.get(other)
                if not isinstance(least, int) or int(value) >= least or not set(groups) & set(host.groups):
                    continue
                if name == _CONNECTIONS and not _has_kube_proxy(host):
                    continue
                message = f"{name} = {value} is less than {other}, {least}: {why}"
                place = draft.inner_place(host, variable, index)
                once.add(place, f"{variable}[{index}]", message, f"write {least} or more, or leave it out")


def _has_kube_proxy(host: HostDraft) -> bool:
    # 0 leaves the setting alone: cmd/kube-proxy/app/server_linux.go, getConntrackMax
    return host.values.get("site_cni") == "flannel" and host.values.get(_PER_CORE) != 0


def settings_of(host: HostDraft) -> Iterator[tuple[str, int, Mapping[str, object]]]:
    for variable in VARIABLES:
        value = host.values.get(variable)
        for index, item in enumerate(value if isinstance(value, list) else ()):
            if isinstance(item, Mapping) and isinstance(item.get("name"), str):
                yield variable, index, item


CHECKS = (check_sysctls, check_against_others)
