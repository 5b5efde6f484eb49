# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where hosts and the API are reached, and as whom: what could only fail on the hosts is refused here."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, GPU, HOSTS

_GPU_1 = "gpu-a-01: {ansible_host: 10.30.1.11}"
HOST = (
    (
        "ansible_host: 'root@10.30.1.11', site_address: 10.30.1.11",
        "name or address that SSH connects to",
    ),
    ("ansible_host: '10.30.1.11:22', site_address: 10.30.1.11", "name or address that SSH connects to"),
    ("ansible_host: 0.0.0.0, site_address: 10.30.1.11", "name or address that SSH connects to"),
    ("ansible_host: 10.30, site_address: 10.30.1.11", "must be text"),
    ("ansible_host: '10.30.1', site_address: 10.30.1.11", "name or address that SSH connects to"),
    ("ansible_host: '10.30.1.11:22'", "is not an IP address; write the address alone"),
    ("ansible_host: 10.30.1.11/24", "is not an IP address; write the address alone"),
    ("ansible_host: 'fd00::5'", "is an IPv6 address; write the host's IPv4 address"),
    ("ansible_host: 10.30.1.11, site_address: 'fd00::5'", "is an IPv6 address; write the host's IPv4"),
    ("ansible_host: 0.0.0.5", "0.0.0.5 is a reserved address"),
    ("ansible_host: 10.30.1.11, ansible_ssh_host: 10.30.1.99", "Ansible takes this one; remove it"),
    ("ansible_host: 10.30.1.11, ansible_port: 22, ansible_ssh_port: 2222", "write ansible_port alone"),
    ("ansible_host: 10.30.1.11, ansible_ssh_user: other", "write ansible_user alone"),
    ("ansible_host: 10.30.1.11, ansible_shell_type: powershell", "is no shell of hosts of a site"),
    ("ansible_host: 10.30.1.11, ansible_timeout: -1", "-1 is no time to wait"),
    (
        "ansible_host: 10.30.1.11, ansible_become: false",
        "ironspan is not root on host gpu-a-01",
    ),
    ("ansible_host: 10.30.1.11, ansible_become_user: ironspan", "only root may do what is done on hosts"),
    ("ansible_host: 10.30.1.11, ansible_python_interpreter: bin/python3", "is found from every folder"),
    ("ansible_host: 10.30.1.11, ansible_python_interpreter: /usr/bin/", "is found from every folder"),
)
SITE = (
    ("site_api_endpoint: 10.20.0:6443", "is not NAME:PORT", ""),
    ("site_api_endpoint: api.cluster.local:6443", "which the cluster's own DNS answers for", ""),
    ("site_cluster_domain: example.internal", "is a name in example.internal", "site_api_endpoint"),
    ("site_api_endpoint: az-1:6443", "is a host of the site, at 10.20.0.11 and not at 10.20.0.10", ""),
    ('site_api_address: ""\nsite_api_endpoint: 10.96.0.1:6443', "10.96.0.1 lies in site_service_cidr", ""),
    ('site_api_address: ""\nsite_api_endpoint: 10.30.1.11:6443', "gpu-a-01, which has no API server", ""),
    ("site_api_address: fd00::10", "is an IPv6 address, and the site's hosts have IPv4 addresses", ""),
    ('site_cluster_domain: "10.0"', "is not a DNS domain", ""),
    ("site_cni_migration_cidr: fd00::/48", "is IPv6; write an IPv4 network", ""),
    ("site_labels: {a: {b: c}}", 'is not text; write one text, "" for none', ""),
)
RIGHT = (
    "ansible_host: gate_a.example.com, site_address: 10.30.1.11",
    "ansible_host: 'fe80::1%eth1', site_address: 10.30.1.11",
    "ansible_host: 'fd00::9', site_address: 10.30.1.11",
    "ansible_host: 127.0.0.1, ansible_port: 2201, site_address: 10.30.1.11",
    "ansible_host: 10.30.1.11, ansible_ssh_host: 10.30.1.11",
    "ansible_host: 10.30.1.11, ansible_become: false, ansible_user: root",
    "ansible_host: 10.30.1.11, ansible_become_user: root, ansible_timeout: 60",
    "ansible_host: 10.30.1.11, ansible_python_interpreter: /opt/py/bin/python3.12",
    "ansible_host: 10.30.1.11, ansible_python_interpreter: /usr/bin/env python3",
    "ansible_host: 10.30.1.11, ansible_shell_type: ansible.posix.fish",
)


@pytest.mark.parametrize(("variables", "says"), HOST)
def test_a_host_that_cannot_be_reached(example: Example, variables: str, says: str) -> None:
    example.replace(HOSTS, _GPU_1, f"gpu-a-01: {{{variables}}}")
    found = [problem for problem in example.problems() if says in str(problem)]
    assert [(problem.file, problem.line) for problem in found] == [
        (str(example.folder / HOSTS), example.line(HOSTS, "gpu-a-01:"))
    ], example.problems()


@pytest.mark.parametrize(("lines", "says", "at"), SITE)
def test_an_api_that_cannot_answer(example: Example, lines: str, says: str, at: str) -> None:
    example.put(ALL, lines)
    found = [problem for problem in example.problems() if says in str(problem)]
    assert [(problem.file, problem.line) for problem in found] == [
        (str(example.folder / ALL), example.line(ALL, f"{at}:" if at else lines.splitlines()[-1]))
    ], example.problems()


@pytest.mark.parametrize("variables", RIGHT)
def test_hosts_that_are_reached_in_unusual_ways(example: Example, variables: str) -> None:
    example.replace(HOSTS, _GPU_1, f"gpu-a-01: {{{variables}}}")
    assert example.problems() == []


@pytest.mark.parametrize(
    "lines",
    [
        'site_api_address: ""\nsite_api_endpoint: 10.20.0.10:443',
        "site_api_address: 10.20.0.11\nsite_api_endpoint: az-1:6443",
        "site_api_address: 10.20.0.12\nsite_api_endpoint: api.k8s:7443\ncontrol_plane_port: 7443",
        # Somebody's own proxy may listen beside the API server.
        "site_api_address: 10.20.0.12\nsite_api_endpoint: api.k8s:443",
    ],
)
def test_an_api_that_can_answer(example: Example, lines: str) -> None:
    example.put(ALL, lines)
    assert example.problems() == []


@pytest.mark.parametrize("name", ["not-ready", "unreachable", "disk-pressure"])
def test_taints_of_the_state_of_a_node(example: Example, name: str) -> None:
    example.put(GPU, f"site_taints:\n  - {{key: node.kubernetes.io/{name}, effect: NoSchedule}}")
    (problem,) = example.problems()
    assert "is set and taken away by Kubernetes" in problem.message
    assert problem.line == example.line(GPU, "node.kubernetes.io")
