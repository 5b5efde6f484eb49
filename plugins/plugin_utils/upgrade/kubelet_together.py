# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Fields of a kubelet that are right each by itself, and with which it does not start all the same.

All of it is the kubelet's own validation in Kubernetes 1.36 and 1.37: pkg/kubelet/apis/config/validation, the
managers of CPUs, memory and topology, pkg/kubelet/sysctl, container log rotation.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.component_values import seconds

Fault = tuple[tuple[str | int, ...], str, str]
"""Keys that lead to a field, what is wrong, what to write instead."""
_NAMESPACED = re.compile(
    r"(net|fs\.mqueue)\..+|kernel\.(sem|shm(all|max|mni|_rmid_forced|\*)|msg(max|mnb|mni|\*))", re.ASCII
)
"""k8s.io/component-helpers, node/util/sysctl/namespace.go."""
_ENFORCED = {
    "none": "",
    "pods": "",
    "system-reserved": "systemReservedCgroup",
    "system-reserved-compressible": "systemReservedCgroup",
    "kube-reserved": "kubeReservedCgroup",
    "kube-reserved-compressible": "kubeReservedCgroup",
}  # fmt: skip
"""What a kubelet can enforce, and the field that it needs for it."""
_OPTIONS = {
    "cpuManagerPolicyOptions": (
        "full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket", "distribute-cpus-across-cores",
        "strict-cpu-reservation", "prefer-align-cpus-by-uncorecache",
    ),
    "topologyManagerPolicyOptions": ("prefer-closest-numa-nodes", "max-allowable-numa-nodes"),
}  # fmt: skip
_SHARE = re.compile(r"[0-9]+(\.[0-9]*)?%", re.ASCII)
_SIZE = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[kMGTPE]|[eE][+-]?[0-9]{1,2})?", re.ASCII)


def faults(settings: Mapping[str, object]) -> Iterator[Fault]:
    """Find what keeps a kubelet from starting.

    Args:
        settings: fields of a KubeletConfiguration; those that are not there have their defaults.
    """
    yield from _times(settings)
    yield from _lists(settings)
    yield from _pulls_and_grace(settings)
    yield from _shares(settings)
    size = settings.get("containerLogMaxSize")
    if isinstance(size, str) and not _SIZE.fullmatch(size):
        yield ("containerLogMaxSize",), f"{size!r} is no size", "write for example 10Mi"
    if settings.get("memoryManagerPolicy") == "Static" and not settings.get("reservedMemory"):
        message = "is Static, and the kubelet does not start before it is told what to keep of each NUMA node"
        yield ("memoryManagerPolicy",), message, "write reservedMemory too, or None"
    for field, known in _OPTIONS.items():
        options = settings.get(field)
        for name in options if isinstance(options, Mapping) else ():
            if name not in known:
                near = nearest(str(name), known)
                yield (field, str(name)), "is no such option", f"write {near}" if near else "take it out"


def _duration(settings: Mapping[str, object], name: str, usual: float) -> float:
    value = settings.get(name)
    return seconds(value) if isinstance(value, str) else usual


def _times(settings: Mapping[str, object]) -> Iterator[Fault]:
    whole, critical = "shutdownGracePeriod", "shutdownGracePeriodCriticalPods"
    of_all, of_critical = _duration(settings, whole, 0), _duration(settings, critical, 0)
    if of_critical > of_all:
        message = f"{of_critical:g} s are more than the {of_all:g} s that all pods have ({whole})"
        yield (critical,), message, f"write less, or a longer {whole}"
    for name, value in ((whole, of_all), (critical, of_critical)):
        if 0 < value < 1:
            yield (name,), f"{value:g} s are less than a second", "write 1s or more, or 0s"
    least, most = "imageMinimumGCAge", "imageMaximumGCAge"
    if 0 < _duration(settings, most, 0) <= _duration(settings, least, 120):
        yield (most,), f"is no longer than {least}, which is 2m by default", "write a longer time, or 0s"
    if _duration(settings, "containerLogMonitorInterval", 10) < 3:
        yield ("containerLogMonitorInterval",), "is shorter than 3s", "write 3s or more"
    back_off = settings.get("crashLoopBackOff")
    name = "maxContainerRestartPeriod"
    if isinstance(back_off, Mapping) and not 1 <= _duration(back_off, name, 300) <= 300:
        yield ("crashLoopBackOff", name), "is outside 1s to 300s", "write 300s or less"
    if not 0.001 <= _duration(settings, "cpuCFSQuotaPeriod", 0.1) <= 1:
        yield ("cpuCFSQuotaPeriod",), "is outside 1ms to 1s", "write 100ms, the default"


def _pulls_and_grace(settings: Mapping[str, object]) -> Iterator[Fault]:
    rate, burst = settings.get("registryPullQPS", 5), settings.get("registryBurst", 10)
    # pkg/kubelet/images/helpers.go: a bucket without room never has a token
    if burst == 0 and isinstance(rate, int) and rate > 0:
        message = f"is 0 beside registryPullQPS {rate}, so that no image is ever pulled"
        yield ("registryBurst",), message, "write 10, the default, or registryPullQPS: 0 for no limit"
    soft, grace = settings.get("evictionSoft"), settings.get("evictionSoftGracePeriod")
    for signal in grace if isinstance(grace, Mapping) else ():
        if signal not in (soft if isinstance(soft, Mapping) else {}):
            message = "is the grace period of a threshold that there is not"
            yield ("evictionSoftGracePeriod", str(signal)), message, f"write evictionSoft.{signal} too"


def _shares(settings: Mapping[str, object]) -> Iterator[Fault]:
    field = "evictionMinimumReclaim"
    amounts = settings.get(field)
    for signal, amount in amounts.items() if isinstance(amounts, Mapping) else ():
        if isinstance(amount, str) and not _SIZE.fullmatch(amount) and not _SHARE.fullmatch(amount):
            yield (field, str(signal)), f"{amount!r} is no amount", "write for example 500Mi, or 5%"
    field = "shutdownGracePeriodByPodPriority"
    others = [
        name for name in ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods") if settings.get(name)
    ]
    if settings.get(field) and others and any(_duration(settings, name, 0) > 0 for name in others):
        yield (field,), f"is beside {others[0]}, and a kubelet takes one of them", f"take {others[0]} out"
    spaces = settings.get("userNamespaces")
    ids = spaces.get("idsPerPod") if isinstance(spaces, Mapping) else None
    if isinstance(ids, int) and ids % 65_536:
        yield ("userNamespaces", "idsPerPod"), f"{ids} is no multiple of 65536", "write 65536, the default"


def _lists(settings: Mapping[str, object]) -> Iterator[Fault]:
    field = "allowedUnsafeSysctls"
    for index, name in enumerate(_list(settings, field)):
        if not _NAMESPACED.fullmatch(name.replace("/", ".")):
            message = f"{name} is not a pod's own: kernels have one for the whole host"
            yield (field, index), message, "take it out, and write it in base_sysctls"
    field = "enforceNodeAllocatable"
    enforced = _list(settings, field)
    for index, name in enumerate(enforced):
        needed = _ENFORCED.get(name)
        if needed is None:
            near = nearest(name, _ENFORCED)
            yield (field, index), f"nothing is called {name}", f"write {near}" if near else "take it out"
        elif name in enforced[:index] or (name == "none" and len(enforced) > 1):
            yield (field, index), f"{name} is there beside {enforced[0]}", "write it once, or none alone"
        elif needed and not settings.get(needed):
            yield (field, index), f"{name} needs {needed}", f"write {needed} too, or pods alone"
        elif name != "none" and settings.get("cgroupsPerQOS") is False:
            yield ("cgroupsPerQOS",), f"is false, and {field} has {name}", "take it out"
            return
    if settings.get("cgroupsPerQOS") is False and field not in settings:
        yield ("cgroupsPerQOS",), f"is false, and {field} has pods by default", f"write '{field}: [none]' too"


def _list(settings: Mapping[str, object], field: str) -> list[str]:
    value = settings.get(field)
    # What is no text is said where types are looked at.
    is_one = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return t.cast(list[str], value) if is_one else []
