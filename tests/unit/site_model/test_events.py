# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Sites whose events cannot have the etcd that they ask for."""

from __future__ import annotations

import pytest

from .conftest import Example

ALL = "group_vars/all.yml"
ON = "etcd_events_enabled: true"
OVERRIDES = 'control_plane_api_server_args:\n  etcd-servers-overrides: "/events#https://10.0.0.1:2381"'


def test_the_defaults_are_accepted(example: Example) -> None:
    assert example.site().events_servers == []
    example.append(ALL, ON + "\n")
    assert len(example.site().events_servers) == 3


@pytest.mark.parametrize(
    ("lines", "at", "says"),
    [
        (
            "etcd_events_peer_port: 2379",
            "etcd_events_peer_port",
            "port 2379 of host az-1 is that of etcd, clients",
        ),
        (
            "etcd_events_client_port: 2390",
            "etcd_events_client_port",
            "is that of etcd for events, members (etcd_events_peer_port, by default)",
        ),
        (
            "etcd_metrics_port: 2391",
            "etcd_metrics_port",
            "port 2391 of host az-1 is that of etcd for events, metrics (etcd_events_metrics",
        ),
        (OVERRIDES, "etcd-servers-overrides", "says where events go, and so does etcd_events_enabled"),
        ("etcd_events_quota_bytes: 9", "etcd_events_quota_bytes", "outside 67108864 to 8589934592"),
    ],
)
def test_refused(example: Example, lines: str, at: str, says: str) -> None:
    example.append(ALL, f"{lines}\n")
    if "quota" not in lines:
        assert example.problems() == []
    example.append(ALL, f"{ON}\n")
    problem = example.problems()[0]
    assert says in str(problem)
    assert problem.remedy
    assert (problem.file, problem.line) == (str(example.folder / ALL), example.line(ALL, at))


def test_hosts_do_not_differ(example: Example) -> None:
    example.append(ALL, f"{ON}\n")
    example.append("host_vars/az-1.yml", "etcd_events_enabled: false\n")
    assert any("etcd_events_enabled" in str(problem) for problem in example.problems())
