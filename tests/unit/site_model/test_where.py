# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Where hosts, the mirror and the API are: what cannot be there, and which lines a refusal names."""

from __future__ import annotations

import pytest

from .conftest import Example
from .mutations import ALL, HOSTS, ON_PREM

_GPU_1 = "gpu-a-01: {ansible_host: 10.30.1.11}"
_MANAGED = "ansible_host: 192.168.50.31"

MIRRORS = (
    ("http://mirror.example.internal:0", "has port 0"),
    ("http://http://mirror.example.internal", "has an address behind the name of the host"),
    ("http://api.example.internal:6443", "is where the API answers"),
    ("http://mirror.default.svc.cluster.local", "only pods can resolve"),
    ("http://127.0.0.1:8080", "127.0.0.1 is loopback"),
    ("http://localhost:8080", "is another machine to each host: itself"),
)


@pytest.mark.parametrize(("url", "says"), MIRRORS)
def test_a_mirror_that_is_none(example: Example, url: str, says: str) -> None:
    example.put(ON_PREM, f"site_mirror_url: {url}\n")
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (str(example.folder / ON_PREM), example.line(ON_PREM, url))
    assert says in problem.message


HOST = (
    (_GPU_1, "10.30.1.12: {ansible_host: 10.30.1.11}", "is the address of host gpu-a-02; write 10.30.1.11"),
    (_MANAGED, "ansible_host: localhost", "is the machine that Ansible runs on"),
    (_MANAGED, "ansible_host: 127.0.0.1", "is the machine that Ansible runs on"),
    (_GPU_1, "gpu-a-01: {ansible_host: }", "ansible_host: has no value"),
    (_GPU_1, "gpu-a-01: {ansible_host: [10.30.1.11]}", "ansible_host: must be text, is a list"),
    (_GPU_1, "gpu-a-01: {ansible_host: 10.30.1.11, ansible_port: 02222}", "octal number, 1170; write 2222"),
)


@pytest.mark.parametrize(("old", "new", "says"), HOST)
def test_a_host_that_is_not_there(example: Example, old: str, new: str, says: str) -> None:
    example.replace(HOSTS, old, new)
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (str(example.folder / HOSTS), example.line(HOSTS, new))
    assert says in str(problem)


@pytest.mark.parametrize(
    "new",
    [
        "ansible_host: 127.0.0.1\n              ansible_port: 2201",
        "ansible_host: localhost\n              ansible_ssh_common_args: -J gate.example.internal",
        "ansible_host: 127.0.0.1\n              ansible_ssh_executable: /usr/local/bin/ssh-by-agent",
        "ansible_host: rack-c.example.internal",
    ],
)
def test_a_host_that_is_reached_in_a_way_of_its_own(example: Example, new: str) -> None:
    example.replace(HOSTS, _MANAGED, new)
    assert [str(problem) for problem in example.problems()] == []


def test_hosts_are_named_like_their_addresses(example: Example) -> None:
    example.replace(HOSTS, _GPU_1, "10.30.1.11: {}")
    assert [str(problem) for problem in example.problems()] == []


def test_the_api_is_not_where_a_worker_is_managed(example: Example) -> None:
    example.put(ALL, "site_api_address: 192.168.50.31\n")
    (problem,) = example.problems()
    assert problem.line == example.line(ALL, "192.168.50.31")
    assert "is where Ansible reaches host cpu-c-01" in problem.message


def test_both_lines_of_one_address(example: Example) -> None:
    example.append("host_vars/gpu-a-01.yml", "site_address: 10.30.3.11\n")
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (str(example.folder / HOSTS), example.line(HOSTS, "10.30.3.11"))
    assert "host_vars/gpu-a-01.yml:1)" in problem.message


def test_what_all_say_is_right(example: Example) -> None:
    """Most hosts are in the racks; the line to remove is theirs all the same."""
    example.append(ON_PREM, "site_pod_cidr: 10.245.0.0/16\n")
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (
        str(example.folder / ON_PREM),
        example.line(ON_PREM, "10.245.0.0/16"),
    )
    assert f"{ALL}:{example.line(ALL, 'site_pod_cidr')})" in problem.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("control_plane_port: 06443", "octal number, 3363; write 6443"),
        ("site_mirror_url: [a]", "must be text, is a list"),
        ("site_api_address: [10.20.0.10]", "must be text, is a list"),
    ],
)
def test_one_mistake_is_said_once(example: Example, text: str, says: str) -> None:
    example.put(ALL, f"{text}\n")
    found = [problem for problem in example.problems() if problem.path == text.partition(":")[0]]
    assert [problem.line for problem in found] == [example.line(ALL, text)], found
    assert says in str(found[0])


@pytest.mark.parametrize("text", ["user_mode: 0644", "site_wan_mtu: 0x578", "flannel_port: 8472"])
def test_numbers_that_mean_what_they_say(example: Example, text: str) -> None:
    example.put(ALL, f"{text}\n")
    assert [str(problem) for problem in example.problems()] == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("dns_resolvers=10.0.0.53", 'write NAME=["ONE", "TWO"]'),
        ("site_labels=a", 'write NAME={"KEY": "VALUE"}'),
        ("site_rack=7", """for example "7", on the line of a host in two: '"7"'"""),
    ],
)
def test_remedies_of_ini_are_written_in_ini(example: Example, line: str, says: str) -> None:
    example.append("more", f"[user_x:vars]\n{line}\n[user_x]\naz-1\n")
    found = [problem for problem in example.problems() if problem.file.endswith("more")]
    assert [problem.line for problem in found] == [2], found
    assert says in found[0].remedy


@pytest.mark.parametrize("name", ["rack_a.yml.yml", "rack_a .yml", "rack_a - Copy.yml", "user_x (1).yml"])
def test_a_file_of_no_group(example: Example, name: str) -> None:
    example.append(f"group_vars/{name}", "node_kubelet_max_pods: 50\n")
    (problem,) = example.problems()
    assert problem.file == str(example.folder / "group_vars" / name)


def test_a_file_of_a_group_that_is_still_empty(example: Example) -> None:
    example.append("group_vars/rack_later.yml", "node_kubelet_max_pods: 50\n")
    assert [str(problem) for problem in example.problems()] == []


def test_a_host_that_was_meant_to_be_another(example: Example) -> None:
    example.replace(HOSTS, "    haproxy: {}\n", "    user_x: {hosts: {gpu-a-1: }}\n    haproxy: {}\n")
    found = [problem for problem in example.problems() if "neither azure nor on_prem" in problem.message]
    assert [problem.remedy.partition(", or")[0] for problem in found] == ["write gpu-a-01"]


def test_both_sides_are_named(example: Example) -> None:
    example.append("more.ini", "[azure]\ngpu-a-01\n")
    (problem,) = example.problems()
    assert "more.ini:2" in problem.message


@pytest.mark.parametrize("name", ["all", "vars", "hosts", "rack_a"])
def test_a_file_of_variables_has_no_groups(example: Example, name: str) -> None:
    example.append("group_vars/rack_a.yml", f"{name}:\n  node_kubelet_max_pods: 50\n")
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (str(example.folder / "group_vars/rack_a.yml"), 1)
    assert "a file of variables has no groups" in problem.remedy


def test_what_is_missing_is_missing_in_its_file(example: Example) -> None:
    (example.folder / ALL).write_text("# to be written\n")
    assert {(problem.file, problem.line) for problem in example.problems()} == {
        (str(example.folder / ALL), 1)
    }


def test_an_inventory_without_hosts_is_named_itself(example: Example) -> None:
    (example.folder / HOSTS).write_text("# later\nall: {}\n")
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (str(example.folder / HOSTS), 2)


def test_a_second_site_is_named(example: Example) -> None:
    example.append("more.yml", "all: {vars: {site_name: other}}\n")
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (str(example.folder / "more.yml"), 1)


def test_a_variable_of_the_shell_is_no_folder(example: Example) -> None:
    example.put(ALL, "site_pki_store: $HOME/pki\n")
    (problem,) = example.problems()
    assert problem.line == example.line(ALL, "$HOME")


def test_a_plugin_that_is_not_installed(example: Example) -> None:
    example.append("nb.yml", "api_endpoint: https://a.example\nplugin: no_such.collection.nb\n")
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (str(example.folder / "nb.yml"), 2)
    assert "install no_such.collection" in problem.remedy


@pytest.mark.parametrize("address", ["169738507", "gpu-a-01.example.internal", "10.30.1"])
def test_a_host_without_an_address_is_no_owner(example: Example, address: str) -> None:
    """What is empty elsewhere is not the address that this host has not."""
    example.replace(HOSTS, _GPU_1, f"gpu-a-01: {{ansible_host: '{address}'}}")
    example.append(ALL, "nvidia_health_enabled: true\n")
    (problem,) = example.problems()
    assert "is not an IP address" in problem.message


@pytest.mark.parametrize("file", [ALL, "group_vars/rack_a.yml"])
def test_the_address_of_a_group_is_nobodys(example: Example, file: str) -> None:
    example.append(file, "ansible_host: 10.30.1.50\n")
    (problem,) = example.problems()
    assert (problem.file, problem.line) == (str(example.folder / file), example.line(file, "10.30.1.50"))


def test_the_address_of_a_group_is_that_of_its_hosts(example: Example) -> None:
    example.append("group_vars/rack_a.yml", 'ansible_host: "{{ user_address }}"\n')
    example.append("host_vars/gpu-b-01.yml", "site_address: 10.30.2.11\n")
    example.replace(HOSTS, "gpu-b-01: {ansible_host: 10.30.2.11}", "gpu-b-01: {ansible_port: 2201}")
    example.replace(HOSTS, "gpu-b-02: {ansible_host: 10.30.2.12}", "gpu-b-02: {site_address: 10.30.2.12}")
    example.append("group_vars/rack_b.yml", "ansible_host: 203.0.113.9\n")
    assert [str(problem) for problem in example.problems()] == []


def test_words_of_ssh_are_one_text(example: Example) -> None:
    example.append(ALL, "ansible_ssh_common_args: [-J, gate.example.internal]\n")
    (problem,) = example.problems()
    assert problem.line == example.line(ALL, "ansible_ssh_common_args")
    assert "must be text, is a list" in problem.message
