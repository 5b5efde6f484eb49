# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a minor version no longer knows: flags, feature gates, settings that stop a component from starting.

Each entry has its source. A name that is not here is not known to be gone, which is no promise.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping

Line = tuple[int, int]

_CHANGES = "CHANGELOG-1.37.md"
_GATES = "pkg/features/kube_features.go and k8s.io/apiserver of 1.36.4 and 1.37.1, compared"
_ETCD = "etcd CHANGELOG-3.7.md; etcd documentation, Upgrade etcd from v3.6 to v3.7"


class Removal(t.NamedTuple):
    """One name that is gone.

    Args:
        since: first minor version without it.
        component: whose it was; ``*`` for every component of Kubernetes.
        sort: ``flag``, ``gate`` (of feature-gates), ``setting`` (of the kubelet's configuration) or ``api``
            (of runtime-config).
        name: its name; a flag that ends in ``*`` stands for all that begin so.
        instead: what to write instead, "" for nothing.
        source: where that is said.
    """

    since: Line
    component: str
    sort: str
    name: str
    instead: str
    source: str


_CADVISOR = (
    "application-metrics-count-limit", "boot-id-file", "container-hints", "containerd",
    "containerd-namespace", "enable-load-reader", "event-storage-age-limit", "event-storage-event-limit",
    "global-housekeeping-interval", "log-cadvisor-usage", "machine-id-file", "storage-driver-*",
)  # fmt: skip
_GONE_GATES = (
    "APIServerTracing", "AnonymousAuthConfigurableEndpoints", "AnyVolumeDataSource",
    "AuthorizeNodeWithSelectors", "AuthorizeWithSelectors", "BtreeWatchCache",
    "ConsistentListFromCache", "JobBackoffLimitPerIndex",
    "JobPodReplacementPolicy", "JobSuccessPolicy", "LogarithmicScaleDown", "OrderedNamespaceDeletion",
    "PodLifecycleSleepAction", "PodLifecycleSleepActionAllowZero", "PreventStaticPodAPIReferences",
    "RelaxedDNSSearchValidation", "ResilientWatchCacheInitialization", "RetryGenerateName",
    "SchedulerQueueingHints", "SidecarContainers", "StreamingCollectionEncodingToJSON",
    "StreamingCollectionEncodingToProtobuf", "StructuredAuthenticationConfiguration",
)  # fmt: skip

REMOVALS: tuple[Removal, ...] = (
    *(Removal((1, 37), "kubelet", "flag", name, "", f"{_CHANGES}, #139870") for name in _CADVISOR),
    Removal(
        (1, 37), "kube-controller-manager", "flag", "concurrent-service-syncs", "", f"{_CHANGES}, #138002"
    ),
    *(
        Removal((1, 37), "kube-proxy", "flag", name, "", f"{_CHANGES}, #139870")
        for name in ("boot-id-file", "machine-id-file")
    ),
    *(Removal((1, 37), "*", "gate", name, "", _GATES) for name in _GONE_GATES),
    *(
        Removal((1, 37), "*", "gate", name, "GenericWorkload", f"{_CHANGES}, #139520")
        for name in ("GangScheduling", "WorkloadAwarePreemption")
    ),
    Removal(
        (1, 37),
        "kube-apiserver",
        "api",
        "scheduling.k8s.io/v1alpha2",
        "scheduling.k8s.io/v1beta1",
        f"{_CHANGES}, #138572 and #140184",
    ),
    Removal(
        (3, 7), "etcd", "flag", "experimental-*", "the name without experimental-, or feature-gates", _ETCD
    ),
    Removal((3, 6), "etcd", "flag", "enable-v2", "", _ETCD),
)
"""Everything that is known."""


def gone(component: str, sort: str, name: str, line: Line) -> Removal | None:
    """Return what is known of a name that a version does not have any more.

    Args:
        component: ``kube-apiserver``, ``kubelet``, ``etcd``, ...
        sort: see ``Removal``.
        name: the name, flags without dashes in front.
        line: the version.
    """
    for removal in REMOVALS:
        if removal.sort != sort or removal.component not in (component, "*") or removal.since > line:
            continue
        # etcd's versions and Kubernetes' have nothing in common.
        if removal.component == "*" and component == "etcd":
            continue
        if removal.name == name or (removal.name.endswith("*") and name.startswith(removal.name[:-1])):
            return removal
    return None


def in_arguments(component: str, arguments: Mapping[str, t.Any], line: Line) -> Iterator[tuple[str, Removal]]:
    """Find what is gone among the flags of a component, the names within their values included.

    Args:
        component: as in ``gone``.
        arguments: flag without dashes -> value.
        line: the version that shall read them.

    Returns:
        (flag, what is gone) for each.
    """
    for flag, value in arguments.items():
        removal = gone(component, "flag", flag, line)
        if removal:
            yield flag, removal
        sort = {"feature-gates": "gate", "runtime-config": "api"}.get(flag)
        for part in str(value).split(",") if sort else ():
            inner = gone(component, sort or "", part.partition("=")[0].strip(), line)
            if inner:
                yield flag, inner


def in_kubelet_settings(settings: Mapping[str, t.Any], line: Line) -> Iterator[tuple[str, Removal]]:
    """Find what is gone in the kubelet's configuration: settings, and its feature gates.

    Args:
        settings: fields of a KubeletConfiguration.
        line: the version that shall read them.
    """
    for name in settings:
        removal = gone("kubelet", "setting", name, line)
        if removal:
            yield name, removal
    gates = settings.get("featureGates")
    for gate in gates if isinstance(gates, Mapping) else ():
        removal = gone("kubelet", "gate", str(gate), line)
        if removal:
            yield "featureGates", removal


def removed_apis(current: Line, wanted: Line) -> list[Removal]:
    """Return the versions of API groups that go away between two versions of Kubernetes."""
    return [r for r in REMOVALS if r.sort == "api" and current < r.since <= wanted]
