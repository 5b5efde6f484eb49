# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Fields of the kubelet and flags of the control plane: there, of the right type, and not set elsewhere."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import component_options as options
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.component_owned import OWN

OLD, NEW, UNKNOWN = (1, 36), (1, 37), (1, 99)
RIGHT: tuple[dict[str, t.Any], ...] = (
    {"imageGCHighThresholdPercent": 100},
    {"imageGCHighThresholdPercent": 90, "imageGCLowThresholdPercent": 70},
    {"shutdownGracePeriod": "1h30m", "shutdownGracePeriodCriticalPods": "0"},
    {"featureGates": {"AllAlpha": False}},
    {"registryPullQPS": 0, "memoryThrottlingFactor": 0.9, "memoryManagerPolicy": "None"},
    {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1Gi": 2}}]},
    {"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m"}},
    {"logging": {"format": "json", "options": {"json": {"infoBufferSize": "0"}}, "vmodule": []}},
    {
        "staticPodURLHeader": {"a": ["b"]},
        "userNamespaces": {"idsPerPod": 65536},
        "tlsMinVersion": "VersionTLS13",
    },
    {"shutdownGracePeriodByPodPriority": [{"priority": 10, "shutdownGracePeriodSeconds": 60}]},
)
WRONG: tuple[tuple[dict[str, t.Any], tuple[str | int, ...], str], ...] = (
    ({"imageGCHighTreshold": 90}, ("imageGCHighTreshold",), "write imageGCHighThresholdPercent"),
    (
        {"ImageGCHighThresholdPercent": 90},
        ("ImageGCHighThresholdPercent",),
        "write imageGCHighThresholdPercent",
    ),
    ({"xyzzy": 1}, ("xyzzy",), "take it out"),
    ({"podsPerCore": "7"}, ("podsPerCore",), "write a whole number, without quotes"),
    ({"podsPerCore": True}, ("podsPerCore",), "write a whole number, without quotes"),
    ({"podsPerCore": -1}, ("podsPerCore",), "write 0 to "),
    ({"seccompDefault": "true"}, ("seccompDefault",), "write true or false"),
    ({"shutdownGracePeriod": 30}, ("shutdownGracePeriod",), "for example 30s"),
    ({"shutdownGracePeriod": "30 s"}, ("shutdownGracePeriod",), "for example 30s"),
    ({"containerLogMaxSize": 10}, ("containerLogMaxSize",), "write a text, in quotes"),
    ({"allowedUnsafeSysctls": "a"}, ("allowedUnsafeSysctls",), "write a list"),
    ({"allowedUnsafeSysctls": ["net.a", 1]}, ("allowedUnsafeSysctls", 1), "write a text"),
    ({"memorySwap": "NoSwap"}, ("memorySwap",), "write for example swapBehavior below it"),
    ({"memorySwap": {"swapBehaviour": "NoSwap"}}, ("memorySwap", "swapBehaviour"), "write swapBehavior"),
    ({"memorySwap": {"swapBehavior": "Some"}}, ("memorySwap", "swapBehavior"), "write NoSwap or LimitedSwap"),
    ({"featureGates": {"NodeSwapp": True}}, ("featureGates", "NodeSwapp"), "write NodeSwap"),
    ({"featureGates": {"NodeSwap": "true"}}, ("featureGates", "NodeSwap"), "write true or false"),
    ({"featureGates": "NodeSwap=true"}, ("featureGates",), "write NAME: true below it"),
    (
        {"imageGCHighThresholdPercent": 80},
        ("imageGCHighThresholdPercent",),
        "write less for Low than for High",
    ),
    ({"evictionSoft": {"memory.available": "1Gi"}}, ("evictionSoft", "memory.available"), "1m30s"),
    ({"maxPods": 40}, ("maxPods",), "node_kubelet_max_pods"),
    ({"authorization": {"mode": "AlwaysAllow"}}, ("authorization",), "take it out"),
    (
        {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "x"}}]},
        ("reservedMemory", 0, "limits", "memory"),
        "1Gi",
    ),
    (
        {"configMapAndSecretChangeDetectionStrategy": "Poll"},
        ("configMapAndSecretChangeDetectionStrategy",),
        "Watch",
    ),
    ({"memoryThrottlingFactor": 2}, ("memoryThrottlingFactor",), "write 0.01 to 1"),
)
FLAGS: tuple[tuple[str, dict[str, t.Any], str], ...] = (
    ("kube-apiserver", {"max-request-inflight": 9}, "write max-requests-inflight"),
    ("kube-apiserver", {"max-requests-inflight": "many"}, "write a whole number"),
    ("kube-apiserver", {"event-ttl": "1 h"}, "for example 30s"),
    ("kube-apiserver", {"profiling": "yes"}, "write true or false"),
    ("kube-apiserver", {"bind-address": "all"}, "write one address"),
    ("kube-apiserver", {"goaway-chance": "a"}, "write a number"),
    ("kube-apiserver", {"feature-gates": "NodeSwap"}, "write NAME=true or NAME=false"),
    ("kube-apiserver", {"feature-gates": "kube:NodeSwapp=true"}, "write NodeSwap"),
    ("kube-apiserver", {"etcd-servers": "http://x"}, "take it out"),
    ("kube-apiserver", {"version": "true"}, "write "),
    ("kube-controller-manager", {"cluster-cidr": "10.0.0.0/8"}, "site_pod_cidr"),
    ("kube-scheduler", {"event-ttl": "1h"}, "take it out"),
    ("kube-scheduler", {"leader-elect": "false"}, "take it out"),
)
RIGHT_FLAGS: tuple[tuple[str, dict[str, t.Any]], ...] = (
    ("kube-apiserver", {"v": 4, "profiling": True, "event-ttl": "1h0m0s", "cors-allowed-origins": ""}),
    ("kube-apiserver", {"feature-gates": "kube:NodeSwap=true,AllAlpha=false", "goaway-chance": 0.02}),
    ("kube-controller-manager", {"bind-address": "0.0.0.0", "node-monitor-grace-period": "50s"}),
    ("kube-scheduler", {"kube-api-qps": 50, "v": "2"}),
)


@pytest.mark.parametrize("settings", RIGHT)
@pytest.mark.parametrize("line", [OLD, NEW, UNKNOWN])
def test_fields_that_there_are(settings: dict[str, t.Any], line: tuple[int, int]) -> None:
    assert list(options.in_kubelet_settings(settings, line)) == []


@pytest.mark.parametrize(("settings", "steps", "remedy"), WRONG)
def test_fields_that_are_wrong(settings: dict[str, t.Any], steps: tuple[str | int, ...], remedy: str) -> None:
    (found,) = options.in_kubelet_settings(settings, NEW)
    assert found.steps == steps
    assert remedy in found.remedy


@pytest.mark.parametrize(("component", "arguments", "remedy"), FLAGS)
def test_flags_that_are_wrong(component: str, arguments: dict[str, t.Any], remedy: str) -> None:
    (found,) = options.in_arguments(component, arguments, OLD)
    assert found.steps == tuple(arguments)
    assert remedy in found.remedy


@pytest.mark.parametrize(("component", "arguments"), RIGHT_FLAGS)
def test_flags_that_there_are(component: str, arguments: dict[str, t.Any]) -> None:
    assert list(options.in_arguments(component, arguments, NEW)) == []


def test_a_version_has_its_own_names() -> None:
    settings = {"defaultPodSysctls": {"net.core.somaxconn": "1024"}}
    assert list(options.in_kubelet_settings(settings, NEW)) == []
    (found,) = options.in_kubelet_settings(settings, OLD)
    assert "KubeletConfiguration of 1.36 has no such field" in found.message


def test_what_is_gone_is_named_once() -> None:
    """upgrade/removed.py says since when, so nothing is said here."""
    assert list(options.in_kubelet_settings({"featureGates": {"SidecarContainers": True}}, NEW)) == []
    assert list(options.in_arguments("kube-controller-manager", {"concurrent-service-syncs": 5}, NEW)) == []
    assert list(options.in_arguments("kube-apiserver", {"feature-gates": "GangScheduling=true"}, NEW)) == []


def test_what_is_ours_is_something_that_there_is() -> None:
    for component, names in OWN.items():
        there = set(options.known(component, NEW)) | {"apiVersion", "kind"}
        assert set(names) <= there, component
    fields = options.known(options.KUBELET, NEW)
    assert set(options._RANGES) <= set(fields)
