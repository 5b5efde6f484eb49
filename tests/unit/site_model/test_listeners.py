# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Two programs at one port of a host are named, with both places; two that only look so are not."""

from __future__ import annotations

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.listeners import (
    ANY,
    CLIENTS,
    HOST,
    LOOPBACK,
    Listener,
    all_listeners,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import load_specification

from tests.support.playbooks import ROOT

from .conftest import Example
from .mutations import ALL, HOSTS

_BACKUP = "etcd_backup_stores: [{kind: file, path: /srv/etcd-backup}]\n"
_ROWS = [*all_listeners()]
_OF_CLOUDS = "kube-proxy, health"
"""Asked by a cloud's load balancers for services of that type, which a site has none of."""


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        (
            "etcd_peer_port: 2379",
            "etcd_peer_port",
            "port 2379 of host az-1 is that of etcd, clients (etcd_client_port, by",
        ),
        ("etcd_client_port: 6443", "etcd_client_port", "that of API server (control_plane_port, by default)"),
        ("etcd_metrics_port: 10257", "etcd_metrics_port", "that of controller manager, which has no other"),
        ("control_plane_port: 10250", "control_plane_port", "that of kubelet, which has no other"),
        ("etcd_client_port: 22", "etcd_client_port", "that of SSH, which has no other"),
        (
            _BACKUP + "etcd_backup_metrics_port: 2381",
            "etcd_backup_metrics_port",
            "etcd, metrics (etcd_metrics_port, by default); leave it out, or write another port: the def",
        ),
        (
            _BACKUP + "etcd_backup_metrics_address: '::'\netcd_backup_metrics_port: 2380",
            "etcd_backup_metrics_port",
            "is that of etcd, members",
        ),
        (
            "nvidia_health_enabled: true\nnvidia_health_metrics_port: 10248",
            "nvidia_health_metrics_port",
            "kubelet, health",
        ),
        (
            "nvidia_health_enabled: true\nnvidia_health_metrics_port: 10256",
            "nvidia_health_metrics_port",
            "kube-proxy, health, which has no other",
        ),
    ],
)
def test_one_port_twice(example: Example, text: str, at: str, says: str) -> None:
    example.append(ALL, f"\n{text}\n")
    problems = [problem for problem in example.problems() if problem.path == at]
    everything = "\n".join(map(str, example.problems()))
    assert says in everything
    assert [(problem.file, problem.line) for problem in problems] == [
        (str(example.folder / ALL), example.line(ALL, f"{at}:"))
    ], everything


def test_both_places_are_named(example: Example) -> None:
    example.append(ALL, "\netcd_client_port: 4001\n")
    example.replace(
        HOSTS, "az-2: {ansible_host: 10.20.0.12}", "az-2: {ansible_host: 10.20.0.12, etcd_peer_port: 4001}"
    )
    first = example.line(ALL, "etcd_client_port: 4001")
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (
        str(example.folder / HOSTS),
        example.line(HOSTS, "etcd_peer_port"),
    )
    assert "port 4001 of host az-2 is that of etcd, clients (etcd_client_port, " in problem.message
    assert f"{ALL}:{first})" in problem.message


@pytest.mark.parametrize(
    "text",
    [
        "etcd_metrics_port: 2380",  # on the loopback interface, and members on the host's address
        "etcd_events_client_port: 2379",  # nothing of it is there
        "etcd_backup_metrics_port: 2379",  # nor of this
        "flannel_port: 10250",  # another protocol
        "nvidia_health_metrics_port: 2379\nnvidia_health_enabled: true",  # on other hosts
    ],
)
def test_one_port_at_two_places(example: Example, text: str) -> None:
    example.append(ALL, f"\n{text}\n")
    assert example.problems() == []


def test_an_address_of_another_host(example: Example) -> None:
    example.append(ALL, "\nnvidia_health_enabled: true\nnvidia_health_metrics_address: 10.30.1.11\n")
    (problem,) = example.problems()
    line = example.line(ALL, "nvidia_health_metrics_address")
    assert (problem.file, problem.line) == (str(example.folder / ALL), line)
    assert (
        "10.30.1.11 is the address of host gpu-a-01, and host gpu-a-02 would listen there" in problem.message
    )


def test_the_table_names_what_there_is() -> None:
    options, layers = load_specification().options, all_layers().layers
    for row in _ROWS:
        assert row.layer in layers, row
        assert row.protocol in ("tcp", "udp"), row
        assert isinstance(row.port, int) or row.port in options, row
        assert row.address in (ANY, HOST, LOOPBACK) or row.address in options, row
        assert all(name in options for name, _wanted in row.needed), row
        assert set(row.groups) <= set(all_layers().groups), row
        # What others reach is reached by somebody: no firewall would open it otherwise.
        assert set(row.clients) <= set(CLIENTS), row
        assert bool(row.clients) is (row.address != LOOPBACK and row.what != _OF_CLOUDS), row


def test_every_variable_that_is_a_port_is_in_the_table() -> None:
    in_table = {row.port for row in _ROWS}
    assert {name for name in load_specification().options if name.endswith("_port")} - in_table == set()


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs" / "ports.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert rows == [line_of(row) for row in _ROWS]


def line_of(row: Listener) -> str:
    """Return a row of the page."""
    default = load_specification().defaults.get(str(row.port))
    port = (
        str(row.port) if isinstance(row.port, int) else f"`{row.port}`" + (f", {default}" if default else "")
    )
    address = row.address if row.address in (ANY, HOST, LOOPBACK) else f"`{row.address}`"
    needed = ", ".join(f"`{name}`" for name, _wanted in row.needed) or "always"
    clients = ", ".join(row.clients) or "itself"
    return f"| {row.what} | {row.layer} | {port} | {row.protocol} | {address} | {clients} | {needed} |"
