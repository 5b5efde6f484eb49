# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One thing that is written in two ways is named with both lines; layers of variables are not."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, AZURE, GPU, HOSTS, ON_PREM

_GPU = "        gpu-a-01: {ansible_host: 10.30.1.11}"
_GROUP = "    gvisor:\n      children:\n        rack_c:\n"
_OTHER = "    gvisor:\n      children:\n        rack_c:\n    user_old:\n      hosts:\n        {}\n"


def refused(example: Example, file: str, line: str, *says: str) -> None:
    """Insist on one problem, at a line, that names another one."""
    problems = example.problems()
    everything = "\n".join(map(str, problems))
    assert [(problem.file, problem.line) for problem in problems] == [
        (str(example.folder / file), example.line(file, line))
    ], everything
    assert all(part in everything for part in says), everything


@pytest.mark.parametrize(
    "variable", ["ansible_host: 10.30.9.9", "site_address: 10.30.9.9", "site_rack: b", "ansible_port: 2222"]
)
def test_inline_in_two_groups(example: Example, variable: str) -> None:
    name = variable.partition(":")[0]
    if name != "ansible_host":
        example.replace(
            HOSTS, "{ansible_host: 10.30.1.11}", f"{{ansible_host: 10.30.1.11, {name}: {_first(name)}}}"
        )
    example.replace(HOSTS, _GROUP, _OTHER.format(f"gpu-a-01: {{{variable}}}"))
    at = example.line(HOSTS, "10.30.1.11")
    found = [
        problem
        for problem in example.problems()
        if problem.path == name and "gpu-a-01, and" in problem.message
    ]
    assert [problem.line for problem in found] == [example.line(HOSTS, f"gpu-a-01: {{{variable}}}")]
    assert f"{HOSTS}:{at}" in found[0].message


def _first(name: str) -> str:
    return {"site_address": "10.30.1.11", "site_rack": "a", "ansible_port": "22"}[name]


def test_inline_and_in_host_vars(example: Example) -> None:
    example.append("host_vars/gpu-a-01.yml", "ansible_host: 10.30.9.9\n")
    refused(
        example, "host_vars/gpu-a-01.yml", "10.30.9.9", "is 10.30.9.9 for host gpu-a-01, and 10.30.1.11 in "
    )


def test_in_ini(example: Example) -> None:
    (example.folder / "more.ini").write_text("[user_old]\ngpu-a-01 ansible_host=10.30.9.9\n")
    refused(example, "more.ini", "10.30.9.9", "10.30.9.9", "10.30.1.11", HOSTS)


@pytest.mark.parametrize(
    "text",
    ["ansible_host: 10.30.1.11\n", "ansible_host: '{{ user_x }}'\nuser_x: 10.30.1.11\n", "user_a: 1\n"],
)
def test_the_same_again(example: Example, text: str) -> None:
    example.append("host_vars/gpu-a-01.yml", text)
    assert example.problems() == []


def test_another_variable_of_a_host(example: Example) -> None:
    example.replace(
        HOSTS, "{ansible_host: 10.30.1.11}", "{ansible_host: 10.30.1.11, node_kubelet_max_pods: 50}"
    )
    example.append("host_vars/gpu-a-01.yml", "node_kubelet_max_pods: 60\n")
    assert example.problems() == []


def test_a_value_of_the_site_inline_and_in_a_file(example: Example) -> None:
    example.append(HOSTS, "  vars:\n    site_wan_mtu: 1300\n")
    problems = example.problems()
    assert [problem.path for problem in problems] == ["site_wan_mtu"], problems
    assert "only one of them counts" in problems[0].message
    both = str(problems[0])
    assert f"{HOSTS}:{example.line(HOSTS, 'site_wan_mtu')}" in both
    assert f"{ALL}:{example.line(ALL, 'site_wan_mtu')}" in both


def test_a_value_of_the_site_in_a_group_that_is_hidden(example: Example) -> None:
    """Nothing is in the group yet; whoever is put into it would have another value."""
    example.append(AZURE, "\nsite_wan_mtu: 1400\n")
    example.append("group_vars/haproxy.yml", "site_wan_mtu: 1300\n")
    refused(example, "group_vars/haproxy.yml", "site_wan_mtu", "for the group haproxy", AZURE)


@pytest.mark.parametrize("text", ["flannel_port: 8473", "flannel_vni: 7"])
def test_hosts_that_would_not_find_each_other(example: Example, text: str) -> None:
    example.append(GPU, f"\n{text}\n")
    refused(example, GPU, text, "for host", "write it once")


def test_api_servers_at_two_ports(example: Example) -> None:
    example.append("host_vars/az-2.yml", "control_plane_port: 7443\n")
    refused(example, "host_vars/az-2.yml", "7443", "is 7443 for host az-2 and 6443 for host az-1, in ")


@pytest.mark.parametrize("group", ["control_plane", "azure", "all"])
def test_all_of_a_group_at_another_port(example: Example, group: str) -> None:
    example.append(f"group_vars/{group}.yml", "\ncontrol_plane_port: 7443\n")
    assert not [problem for problem in example.problems() if problem.path == "control_plane_port"]


@pytest.mark.parametrize("file", [AZURE, ON_PREM])
def test_the_same_value_of_the_site_twice(example: Example, file: str) -> None:
    example.append(file, "\nsite_wan_mtu: 1400\n")
    assert example.problems() == []


def test_a_group_says_otherwise_than_all(example: Example) -> None:
    """As sites do that share a file: all hosts are in groups that say the same."""
    for file in (AZURE, ON_PREM):
        example.append(file, "\nsite_wan_mtu: 1300\n")
    assert example.problems() == []


def test_of_two_halves_the_one_with_the_default_is_right(
    example: Example,
) -> None:
    example.replace("hosts.yml", "            cpu-c-02:\n", "")
    example.replace("hosts.yml", "              ansible_host: 192.168.50.32\n", "")
    example.replace("hosts.yml", "              site_address: 10.30.3.12\n", "")
    files = [
        "group_vars/azure.yml",
        *(f"host_vars/{host}.yml" for host in ("gpu-a-01", "gpu-a-02", "gpu-b-01")),
    ]
    for file in files:
        example.append(file, "site_cluster_domain: other.local\n")
    found = [(problem.file, problem.path) for problem in example.problems()]
    assert sorted(found) == sorted((str(example.folder / file), "site_cluster_domain") for file in files)


@pytest.mark.parametrize("rack", ["a", "A", "rack-a", "Rack-A"])
def test_a_rack_is_the_one_of_the_group_that_its_name_becomes(example: Example, rack: str) -> None:
    """``ironspan bare-metal`` writes both, the rack as the file of expected servers calls it."""
    example.replace(HOSTS, "{ansible_host: 10.30.1.11}", f"{{ansible_host: 10.30.1.11, site_rack: {rack}}}")
    assert list(map(str, example.problems())) == []
