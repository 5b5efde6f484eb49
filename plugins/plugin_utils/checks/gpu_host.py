# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How GPU hosts boot, and which CPUs pods get: values that contradict each other, or leave nothing over."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.newcomer import concerned
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once

Problem = tuple[str, str, str]
"""Variable, what is wrong, what to write instead."""
ARGUMENTS, PAGES_1GIB, PAGES_2MIB = (
    "gpu_host_kernel_arguments",
    "gpu_host_hugepages_1gib_count",
    "gpu_host_hugepages_2mib_count",
)
PODS_IPV6 = "site_pod_cidr_ipv6"
POLICY, RESERVED = "node_kubelet_cpu_manager_policy", "node_kubelet_reserved_cpus"
_OURS = {
    "iommu": "gpu_host_iommu",
    "intel_iommu": "gpu_host_iommu",
    "amd_iommu": "gpu_host_iommu",
    "hugepages": PAGES_1GIB,
    "hugepagesz": PAGES_1GIB,
    "nr_hugepages": PAGES_2MIB,
    "nvidia.NVreg_EnablePCIERelaxedOrderingMode": "gpu_host_relaxed_ordering",
}
_ENDS_BOOT = {"init", "rdinit", "root", "single", "emergency", "rescue"}
"""kernel-parameters.txt, kernel-command-line(7): with these a host comes up without its services, or not."""
_NEEDED = ("containerd", "kubelet", "ssh", "sshd")
_OF_CPUS = ("isolcpus", "nohz_full", "rcu_nocbs")
_HUGE_PAGES = ("always", "madvise", "never")
_UNITS = re.compile(r"(?:emergency|rescue)\.(?:target|service)")
_BLOCKING = ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist")
_MOST_PERCENT = 75
"""Of a host's memory that may be huge pages: the kernel sets them aside before anything else starts."""


def check_hosts(draft: Draft) -> None:
    """Each value is judged once, at the line that has it."""
    once = Once(draft.problems)
    gpus = {host.name for host in draft.members("gpu")}
    found = [(host, problem) for host in draft.hosts.values() for problem in _cpus(host, host.name in gpus)]
    found += [(host, problem) for host in draft.members("kata_gpu") for problem in _isolation(host)]
    booted = concerned(draft, "gpu", ARGUMENTS, PAGES_1GIB, PAGES_2MIB)
    found += [(host, problem) for host in booted for problem in (*_arguments(host), *_pages(host))]
    for host, (variable, message, remedy) in found:
        place = draft.place(host, variable)
        once.add(place, variable, f"{message} ({host.name})", remedy, what=message)


def _arguments(host: HostDraft) -> Iterator[Problem]:
    text = str(host.values.get(ARGUMENTS) or "")
    if re.search(r"[\"']", text):
        yield ARGUMENTS, "has a quote, which the boot loader's file cannot hold", "write it without quotes"
        return
    for word in text.split():
        name, _, value = word.partition("=")
        own = _OURS.get(name)
        if name == "pci" and "disable_acs_redir" in value:
            own = "gpu_host_acs"
        if own:
            yield ARGUMENTS, f"has {word}, for which there is a variable", f"write {own} instead"
        elif message := _harm(host, word):
            yield ARGUMENTS, f"has {word}: {message}", "take it out"


def _harm(host: HostDraft, word: str) -> str:
    """Return why an argument is none, or why no node comes of a host that boots with it; empty otherwise."""
    name, _, value = word.partition("=")
    if not name or name.startswith(("-", "GRUB_")):
        return "that is no argument of a kernel, which is NAME or NAME=VALUE"
    if name in _ENDS_BOOT or (name == "systemd.unit" and _UNITS.fullmatch(value)):
        return "the host would not come up with its services"
    if name in _BLOCKING and any(each.startswith("nvidia") for each in value.split(",")):
        return "the driver would not be loaded"
    if name == "cgroup_disable" and {"memory", "cpu", "cpuset", "pids"} & {*value.split(",")}:
        return "the kubelet does not start without it"
    if name == "systemd.mask" and value.removesuffix(".service") in _NEEDED:
        return f"{value} would not start"
    if name == "pci" and "off" in value.split(","):
        return "the kernel would see no GPU"
    if name in _OF_CPUS and (not value or value.endswith(("-", ","))):
        return "that is no list of CPUs"
    if name == "transparent_hugepage" and value not in _HUGE_PAGES:
        return f"the kernel knows {', '.join(_HUGE_PAGES)}"
    needed = host.values.get("base_kernel_modules")
    taken = {*value.split(",")} & {*map(str, needed if isinstance(needed, list) else ())}
    if name == "module_blacklist" and taken:
        return f"nothing could load {min(taken)}, which base_kernel_modules asks for"
    if name in ("ipv6.disable", "ipv6.disable_ipv6") and value == "1" and host.values.get(PODS_IPV6):
        return f"the host would have no IPv6, and {PODS_IPV6} is set"
    versions = host.values.get("node_cgroup_versions")
    is_off = value.lower() in ("0", "no", "false", "off")
    if (
        name == "systemd.unified_cgroup_hierarchy"
        and is_off
        and isinstance(versions, list)
        and 1 not in versions
    ):
        return "cgroups would have version 1, which node_cgroup_versions refuses"
    return ""


def _isolation(host: HostDraft) -> Iterator[Problem]:
    """Virtual machines get GPUs by the IOMMU, and are isolated from each other by access control."""
    for variable in ("gpu_host_iommu", "gpu_host_acs"):
        if host.values.get(variable) == "disabled":
            message = "is disabled, and hosts of the group kata_gpu hand GPUs to virtual machines"
            instead = "passthrough" if variable == "gpu_host_iommu" else "unmanaged"
            yield variable, message, f"write {instead}, or take the host out of kata_gpu"


def _pages(host: HostDraft) -> Iterator[Problem]:
    large, small = (host.values.get(name) or 0 for name in (PAGES_1GIB, PAGES_2MIB))
    memory = host.values.get("base_min_memory_mib")
    if not all(isinstance(each, int) for each in (large, small, memory)):
        return  # It has been named as no number.
    pages = large * 1024 + small * 2
    if pages * 100 > int(memory or 0) * _MOST_PERCENT:
        yield (
            PAGES_1GIB if large else PAGES_2MIB,
            f"sets {pages} MiB aside, and hosts are only known to have {memory} MiB (base_min_memory_mib)",
            f"write there what these hosts have at least; huge pages may be {_MOST_PERCENT} % of it",
        )


def _cpus(host: HostDraft, has_gpus: bool) -> Iterator[Problem]:
    value = host.values.get
    reserved = str(value(RESERVED) or "")
    if reserved and not _is_ascending(reserved):
        yield (
            RESERVED,
            f"{reserved!r} is no list of CPUs",
            "write ascending numbers and ranges, such as 0-3,64-67",
        )
    if value(POLICY) != "static":
        return
    if not has_gpus:
        remedy = "write it for hosts of the group gpu; on others its state is not changed with it"
        yield POLICY, "is static for a host without GPUs", remedy
    elif not reserved and not _was_refused(host):
        yield (
            POLICY,
            "is static, and no CPUs are reserved",
            f"write into {RESERVED} those that pods never get",
        )


def _was_refused(host: HostDraft) -> bool:
    """Tell whether CPUs are reserved in a form that has been named."""
    return RESERVED in host.settings and host.settings[RESERVED].value not in ("", None)


def _is_ascending(text: str) -> bool:
    last = -1
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part)
        if not found or not last < int(found[1]) <= int(found[2] or found[1]):
            return False
        last = int(found[2] or found[1])
    return True


CHECKS = (check_hosts,)
