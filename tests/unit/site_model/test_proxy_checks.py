# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Modes of kube-proxy, and families of addresses that are not there yet."""

from __future__ import annotations

import pytest

from .conftest import Example

ALL = "group_vars/all.yml"
PODS, SERVICES = "site_pod_cidr: 10.244.0.0/16", "site_service_cidr: 10.96.0.0/16"


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("ipvs", "'ipvs' is deprecated since Kubernetes 1.35"),
        ("userspace", "was taken out of Kubernetes in 1.26"),
        ("nftable", "'nftable' is not one of nftables, iptables"),
    ],
)
def test_modes_without_a_future(example: Example, mode: str, says: str) -> None:
    line = f"control_plane_kube_proxy_mode: {mode}"
    example.append(ALL, line + "\n")
    (problem,) = example.problems()
    assert says in problem.message and problem.remedy.startswith("write nftables")
    assert (problem.file, problem.line) == (str(example.folder / ALL), example.line(ALL, line))


@pytest.mark.parametrize("mode", ["nftables", "iptables"])
def test_modes(example: Example, mode: str) -> None:
    example.append(ALL, f"control_plane_kube_proxy_mode: {mode}\n")
    assert example.problems() == []


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (PODS, 'site_pod_cidr: "10.244.0.0/16,fd00:10:244::/56"', "names two networks"),
        (SERVICES, 'site_service_cidr: "10.96.0.0/16,fd00:10:96::/112"', "names two networks"),
        (PODS, "site_pod_cidr: fd00:10:244::/56", "is IPv6"),
        (SERVICES, "site_service_cidr: fd00:10:96::/112", "is IPv6"),
    ],
)
def test_other_families(example: Example, before: str, after: str, says: str) -> None:
    example.replace(ALL, before, after)
    (problem,) = example.problems()
    assert says in problem.message and "IPv4" in problem.remedy
    assert problem.line == example.line(ALL, after)
