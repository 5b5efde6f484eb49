# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a version no longer knows."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade import removed

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_every_entry_has_a_source_and_none_is_there_twice() -> None:
    assert all(removal.source for removal in removed.REMOVALS)
    names = [(removal.component, removal.sort, removal.name) for removal in removed.REMOVALS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("component", "sort", "name", "line", "known"),
    [
        ("etcd", "flag", "experimental-initial-corrupt-check", (3, 7), True),
        ("etcd", "flag", "experimental-initial-corrupt-check", (3, 6), False),
        ("etcd", "flag", "feature-gates", (3, 7), False),
        ("etcd", "gate", "SidecarContainers", (3, 7), False),
        ("kubelet", "flag", "storage-driver-user", (1, 37), True),
        ("kubelet", "flag", "housekeeping-interval", (1, 37), False),
        ("kubelet", "gate", "SidecarContainers", (1, 37), True),
        ("kube-apiserver", "gate", "SidecarContainers", (1, 38), True),
        ("kube-apiserver", "gate", "SidecarContainers", (1, 36), False),
        ("kube-scheduler", "flag", "concurrent-service-syncs", (1, 37), False),
    ],
)
def test_what_is_gone(component: str, sort: str, name: str, line: removed.Line, known: bool) -> None:
    assert (removed.gone(component, sort, name, line) is not None) == known


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"feature-gates": "A=true, GangScheduling=true"}, ["GangScheduling"]),
        ({"feature-gates": "GangScheduling=1,BtreeWatchCache=0"}, ["GangScheduling", "BtreeWatchCache"]),
        ({"runtime-config": "api/all=true,scheduling.k8s.io/v1alpha2=true"}, ["scheduling.k8s.io/v1alpha2"]),
        ({"audit-log-maxage": 30}, []),
    ],
)  # fmt: skip
def test_values_of_flags_are_read_too(arguments: dict[str, t.Any], names: list[str]) -> None:
    found = removed.in_arguments("kube-apiserver", arguments, (1, 37))
    assert [removal.name for _, removal in found] == names


def test_the_kubelets_feature_gates_are_read() -> None:
    settings = {"maxPods": 10, "featureGates": {"SidecarContainers": True, "KubeletInUserNamespace": True}}
    found = list(removed.in_kubelet_settings(settings, (1, 37)))
    assert [(name, removal.name) for name, removal in found] == [("featureGates", "SidecarContainers")]
    assert list(removed.in_kubelet_settings(settings, (1, 36))) == []


def test_what_ironspan_itself_writes_is_known_to_no_removal() -> None:
    text = (ROOT / "roles/etcd/templates/etcd.yaml.j2").read_text()
    flags = re.findall(r"^([a-z-]+):", text, re.MULTILINE)
    assert len(flags) > 10
    assert [flag for flag in flags if removed.gone("etcd", "flag", flag, (3, 7))] == []
    text = (ROOT / "roles/control_plane/templates/kubeadm.yaml.j2").read_text()
    flags = re.findall(r'"([a-z-]+)":', text)
    assert "profiling" in flags
    for component in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert [flag for flag in flags if removed.gone(component, "flag", flag, (1, 37))] == []


@pytest.mark.parametrize(
    ("current", "wanted", "count"), [((1, 36), (1, 37), 1), ((1, 37), (1, 37), 0), ((1, 35), (1, 36), 0)]
)
def test_api_groups_that_go_away_between_two_versions(
    current: removed.Line, wanted: removed.Line, count: int
) -> None:
    assert len(removed.removed_apis(current, wanted)) == count
