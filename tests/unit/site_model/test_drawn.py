# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What drawn mistakes (tests/unit/refuse) showed: accepted, named at another line, or without an end."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultSecret
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.settings import OUR_CERTIFICATES_DAYS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.profiles import LEAF_LIFETIME
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.expressions import TooLong, is_too_long
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.yaml_text import is_encrypted

from tests.unit.refuse.writing import vault

from .conftest import Example

GPU = "group_vars/gpu.yml"
JSON = "group_vars/rack_a.json"


def named(example: Example) -> list[tuple[str, int]]:
    return [
        (Path(problem.file).relative_to(example.folder).as_posix(), problem.line)
        for problem in example.problems()
    ]


def test_errors_that_are_each_others_cause() -> None:
    one, other = ValueError(), KeyError()
    one.__context__, other.__context__ = other, one
    assert not is_too_long(one)
    other.__cause__ = TooLong()
    assert is_too_long(one)


def test_a_value_that_refers_to_itself(example: Example) -> None:
    example.append(GPU, 'nvidia_mig_layout: "{{ nvidia_mig_layout }}"\n')
    assert named(example) == [(GPU, example.line(GPU, "nvidia_mig_layout"))]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{\n  "user_a": 1,\n  "base_min_cpus": 0\n}\n', 3),
        ('{\n  "base_sshd_settings":\n    {"$(id)": 1}\n}\n', 2),
        ('{\n  "base_packages": [\n    "kmod",\n    "a;b"\n  ]\n}\n', 4),
        ('{"user_a": 1,\n "base_min_cpu": 1}\n', 2),
        ('{"user_a": 1,\n "dzns_managed": true}\n', 2),
        ('{\n  "base_min_cpus": "{{ nothing }}"\n}\n', 2),
    ],
)
def test_json_has_lines(example: Example, text: str, line: int) -> None:
    example.append(JSON, text)
    assert named(example) == [(JSON, line)]


@pytest.mark.parametrize("item", ["~", "true", "null", ""])
def test_a_value_in_a_list_that_carries_no_place(example: Example, item: str) -> None:
    example.append(GPU, f"base_packages:\n  - kmod\n  - {item}\n")
    assert named(example) == [(GPU, example.line(GPU, "- kmod") + 1)]


@pytest.mark.parametrize("value", ['"5 "', '"1_0"', '" 5"'])
def test_a_number_is_digits(example: Example, value: str) -> None:
    example.append(GPU, f"base_min_cpus: {value}\n")
    assert named(example) == [(GPU, example.line(GPU, "base_min_cpus"))]


@pytest.mark.parametrize(
    "text", ["user_x: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  zz\n", "user_x: {<<: a}\n", "user_x: [1,\n"]
)
def test_the_line_where_it_begins(example: Example, text: str) -> None:
    example.append(GPU, text)
    assert named(example) == [(GPU, example.line(GPU, "user_x"))]


@pytest.mark.parametrize("body", ["", "61\n", "zz\n", "6" * 80 + "\n"])
def test_a_broken_vault_is_named(example: Example, body: str) -> None:
    (example.folder / GPU).write_text("$ANSIBLE_VAULT;1.1;AES256\n" + body)
    assert named(example) == [(GPU, 1)]


def test_another_password(example: Example) -> None:
    text = vault("user_x: 1\n")
    assert is_encrypted(text)
    (example.folder / GPU).write_text(text)
    loader = DataLoader()
    loader.set_vault_secrets([("default", VaultSecret(b"another one"))])
    (problem,) = example.problems(loader=loader)
    assert (problem.file, problem.line) == (str(example.folder / GPU), 1)
    assert "cannot be decrypted" in problem.message


@pytest.mark.parametrize("value", ["0", "", '"a"'])
def test_groups_without_hosts_are_checked(example: Example, value: str) -> None:
    example.append("group_vars/haproxy.yml", f"base_min_cpus: {value}\n")
    assert named(example) == [("group_vars/haproxy.yml", 1)]


def test_what_another_value_hides_is_checked(example: Example) -> None:
    example.append("group_vars/all.yml", "base_min_cpus: 0\n")
    for group in ("azure", "on_prem"):
        example.append(f"group_vars/{group}.yml", "base_min_cpus: 2\n")
    assert named(example) == [("group_vars/all.yml", example.line("group_vars/all.yml", "base_min_cpus"))]


def test_an_expression_inside_of_classes(example: Example) -> None:
    example.append(GPU, 'gvisor_classes: [{name: a, annotations: ["{{ nothing }}"]}]\n')
    assert (GPU, example.line(GPU, "gvisor_classes")) in named(example)


def test_hosts_may_be_named_like_addresses(example: Example) -> None:
    example.replace("hosts.yml", "gpu-a-01: {ansible_host: 10.30.1.11}", "10.30.1.11:")
    example.append("host_vars/10.30.1.11.yml", "ansible_port: 2222\n")
    assert example.problems() == []


@pytest.mark.parametrize(
    "line",
    [
        "ansible_user:",
        'ansible_user: ""',
        'ansible_user: "a b"',
        'ansible_connection: ""',
        "ansible_user: -l",
    ],
)
def test_how_hosts_are_reached(example: Example, line: str) -> None:
    example.append(GPU, f"{line}\n")
    assert named(example) == [(GPU, example.line(GPU, line))]


@pytest.mark.parametrize("name", ["w-[9:1]", "w-[a:3]", "w-[1:9999999]", "w-[c:a]"])
@pytest.mark.parametrize(
    ("file", "text"), [("more.yml", "user_x:\n  hosts:\n    {}:\n"), ("more", "[user_x]\n\n{}\n")]
)
def test_a_range_that_is_none(example: Example, name: str, file: str, text: str) -> None:
    example.append(file, text.format(name))
    assert named(example) == [(file, 3)]


def test_a_range_and_one_of_its_hosts(example: Example) -> None:
    example.append(
        "more.yml",
        "user_x:\n  hosts:\n    gpu-a-[01:02]: {ansible_port: 2222}\n    gpu-a-02: {ansible_port: 22}\n",
    )
    assert named(example) == [("more.yml", 4)]
    example.append(
        "other", "[user_y]\ngpu-a-[03:04] ansible_port=2222\n[user_z]\ngpu-a-04 ansible_port=2223\n"
    )
    assert named(example) == [("more.yml", 4), ("other", 4)]


def test_hosts_of_a_range_are_at_its_line(example: Example) -> None:
    example.append("more.yml", "user_x:\n  hosts:\n    spare-[1:2]:\n")
    assert set(named(example)) == {("more.yml", 3)}


@pytest.mark.parametrize(
    "line",
    [
        "user_x 1",
        "site_artifacts_index: ~nosuchuser/index.json",
        "control_plane_certificate_days: 20",
        "site_certificate_renew_days: 365",
        "site_pod_cidr_ipv6: fd00:10:244::/48",
        "gpu_repair_windows: [at night]",
        "ironic_media_networks: [10.2.0.0]",
    ],
)
def test_what_was_accepted_or_named_elsewhere(example: Example, line: str) -> None:
    example.append("group_vars/all.yml", f"{line}\n")
    assert ("group_vars/all.yml", example.line("group_vars/all.yml", line)) in named(example)


@pytest.mark.parametrize("url", ["http://m/../x", "http://m/$(id)", "http://m/a b"])
def test_the_path_of_a_mirror(example: Example, url: str) -> None:
    old = "site_mirror_url: http://mirror.racks.example.internal:8080"
    example.replace("group_vars/on_prem.yml", old, f"site_mirror_url: {url}")
    assert named(example) == [("group_vars/on_prem.yml", example.line("group_vars/on_prem.yml", url))]


def test_an_api_server_on_loopback_is_one_of_a_lab(example: Example) -> None:
    example.replace("group_vars/all.yml", "api.example.internal:6443", "127.0.0.1:6443")
    example.replace("group_vars/all.yml", "site_api_address: 10.20.0.10", "site_api_address: 127.0.0.1")
    lines = {
        example.line("group_vars/all.yml", f"{name}:") for name in ("site_api_endpoint", "site_api_address")
    }
    assert {line for _file, line in named(example)} == lines
    example.append("group_vars/all.yml", "site_lab: true\n")
    assert example.problems() == []


def test_how_long_our_certificates_are_valid() -> None:
    assert LEAF_LIFETIME.days == OUR_CERTIFICATES_DAYS
