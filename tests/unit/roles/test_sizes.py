# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a size profile changes in documents: nothing in small sites, nothing of the kernel in the lab."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.sizes import profile_for

from tests.support.simulation import settings
from tests.unit.roles.conftest import INVENTORIES, Rendered

Render = Callable[..., Rendered]
LARGE: dict[str, t.Any] = {"site_planned_nodes": 1000, "site_pod_cidr": "10.128.0.0/14"}
FLAGS = ("max-requests-inflight", "max-mutating-requests-inflight")


def neighbours(rendered: Rendered, host: str) -> dict[str, str]:
    """Return the sizes of neighbour tables that a host gets."""
    return {
        item["name"]: item["value"]
        for item in rendered.resources(host).values()
        if item["kind"] == "sysctl" and ".neigh." in item["name"]
    }


def configuration(rendered: Rendered) -> str:
    """Return what the first control plane gives kubeadm."""
    host = rendered.site.group("control_plane")[0].name
    return str(rendered.resources(host)["control_plane/member"]["config"])


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_small_sites_get_what_they_always_got(render: Render, inventory: str) -> None:
    rendered = render(inventory)
    assert not any(flag in configuration(rendered) for flag in FLAGS)
    assert neighbours(rendered, rendered.site.group("nodes")[0].name) == {}


def test_large_sites(render: Render) -> None:
    rendered = render("example", LARGE)
    assert '{name: "max-requests-inflight", value: "1500"}' in configuration(rendered)
    assert '{name: "max-mutating-requests-inflight", value: "500"}' in configuration(rendered)
    assert neighbours(rendered, "gpu-a-01") == {
        f"net.ipv4.neigh.default.gc_thresh{number}": str(value)
        for number, value in ((1, 4096), (2, 8192), (3, 16384))
    }


def test_the_simulation_has_the_flags_of_the_site(render: Render) -> None:
    large = settings.of(render("example", LARGE), profile_for(1000))
    small = settings.of(render("example"), profile_for(1000))
    assert [large.api_server.pop(flag) for flag in FLAGS] == ["1500", "500"]
    assert large.api_server == small.api_server
    assert (large.controller_manager, large.scheduler) == (small.controller_manager, small.scheduler)
    assert large.pod_cidr == LARGE["site_pod_cidr"]
    assert not any(value.startswith("/") for value in large.api_server.values())


def test_what_the_site_says_wins(render: Render) -> None:
    sysctl = {"name": "net.ipv4.neigh.default.gc_thresh3", "value": "20000"}
    rendered = render(
        "example",
        {**LARGE, "base_sysctls": [sysctl], "control_plane_api_server_args": {FLAGS[0]: 2000}},
    )
    assert neighbours(rendered, "gpu-a-01")["net.ipv4.neigh.default.gc_thresh3"] == "20000"
    assert '{name: "max-requests-inflight", value: "2000"}' in configuration(rendered)


def test_hosts_of_the_lab_share_one_kernel(render: Render) -> None:
    assert neighbours(render("lab", LARGE), "rack-1") == {}
