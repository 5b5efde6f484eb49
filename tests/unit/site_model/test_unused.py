# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What no host uses today is judged too: values of features that are off, and of groups without hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import config_drive, declared_values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks import gpu_health

from ironspan.gpud.checks import table
from ironspan.gpud.settings import READINGS

from .conftest import Example
from .mutations import ALL, AZURE, HOSTS

SHA = 'sha256: "' + "0" * 64 + '"'
RACK = "network: 10.2.1.0/24, first: 10.2.1.11"
KEYS = "[ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMockMockMockMockMockMockMockMockMockMock a@b]"

WRONG = (
    ('nvidia_driver_version: "580"', "'580' is no version of the driver"),
    ('nvidia_driver_kernel: "new"\nnvidia_driver_version: "580.159.03"', "'new' is no release of a kernel"),
    ("nvidia_driver_packages: {nvidia-settings: {version: 1}}", "must be text, is {'version': 1}"),
    ("nvidia_driver_ofed_packages: {doca-ofed: 3.2}", "must be text, is 3.2"),
    ("nvidia_fabric_imex: true", "does nothing without nvidia_fabric_enabled"),
    ("nvidia_device_plugin_enabled: true", "containers cannot have them without nvidia_toolkit_enabled"),
    ("nvidia_mig_layout: none-such", "there is no layout none-such"),
    ("nvidia_mig_layouts: [{name: a, instances: [9g.900gb]}]", "no GPU can be divided into 9g.900gb"),
    ("nvidia_health_checks: {H18: {off: true}}", "YAML reads off as false; write it in quotes"),
    ("nvidia_health_checks: {H99: {mib: 1}}", "there is no such check"),
    ("nvidia_health_checks: {H08: {rosw: 1}}", "H08 has no such limit; write rows"),
    ("nvidia_health_checks: {H08: 256}", "must be a dictionary, is 256"),
    ('nvidia_health_checks: {H18: {"off": perhaps}}', "is 'perhaps'; write true or false"),
    ("nvidia_health_checks: {H18: {mib: -1}}", "is -1; write a whole number"),
    ("nvidia_health_readings_off: [temprature]", "there is no reading 'temprature'; write temperature"),
    ("gpu_repair_tests: [A99]", "'A99' is no test"),
    ("gpu_repair_most_at_once: 9\ngpu_repair_most_out: 3", "9 is more than gpu_repair_most_out, which is 3"),
    ("etcd_backup_keys: {kind: file}", "does nothing without etcd_backup_stores"),
    ("dns_resolvers: [127.0.0.53]", "127.0.0.53 is a loopback address"),
    ("site_pki_store: /dev/null", "/dev/null is no folder"),
    ("site_pki_store: /dev/null/pki", "/dev/null is no folder"),
    ("ansible_connection: local", "would change the machine that Ansible runs on"),
    ("ansible_connection: ansible.builtin.local", "would change the machine that Ansible runs on"),
    ("site_bare_metal_cloud: nowhere", "no clouds.yaml that openstacksdk finds has cloud 'nowhere'"),
    ("site_bare_metal_clouds: /no/clouds.yaml", "/no/clouds.yaml is no file"),
    ("site_bare_metal_racks: {r: 1}", "must be a dictionary, is 1"),
    ("site_bare_metal_racks: {r: {network: 10.2.1.0/24}}", "None is no IPv4 address"),
    (
        "site_bare_metal_racks: {r: {network: 10.2.1.1/24, first: 10.2.1.2}}",
        "'10.2.1.1/24' is no IPv4 network",
    ),
    (
        "site_bare_metal_racks: {r: {network: 10.2.1.0/24, first: 10.2.2.2}}",
        "10.2.2.2 is no address of a host",
    ),
    ("site_bare_metal_racks: {r: {network: 10.2.1.0/24, first: 10.2.1.255}}", "is no address of a host in"),
    (f"site_bare_metal_racks: {{r: {{{RACK}, gateway: 10.2.1.11}}}}", "is the gateway too"),
    (f"site_bare_metal_racks: {{r: {{{RACK}, gatewya: 10.2.1.1}}}}", "unknown key; write gateway"),
    (f"site_bare_metal_racks: {{r: {{{RACK}, dns: [127.0.0.1]}}}}", "is no address of a name server"),
    (f"site_bare_metal_racks: {{r: {{{RACK}}}, s: {{{RACK}}}}}", "10.2.1.0/24 overlaps that of r"),
    (f"site_bare_metal_image: {{source: server.raw, {SHA}}}", "is no address of an image"),
    ("site_bare_metal_image: {source: 'http://a/b', sha256: abc}", "is not 64 hexadecimal digits"),
    (f"site_bare_metal_image: {{source: 'http://a/b', {SHA}, format: vhd}}", "'vhd' is none of raw, qcow2"),
    (f"site_bare_metal_image: {{source: 'http://a/b', {SHA}}}", "nobody could log in to what is deployed"),
    ("site_bare_metal_account: {authorized_keys: [~/.ssh/id.pub]}", "is no public key for SSH"),
    ("site_bare_metal_account: {authorized_keys: ssh-ed25519}", "must be a list"),
    ("site_bare_metal_account: {user: Root User}", "is no name of an account"),
    ("site_bare_metal_node: {boot_interface: x}", "has no driver"),
    ("site_bare_metal_node: {driver: redfsh}", "'redfsh' is no hardware type of Ironic; write redfish"),
    (
        "site_bare_metal_node: {driver: redfish, boot_interfcae: ipxe}",
        "is no field of a node; write boot_interface",
    ),
    ("site_bare_metal_node: {driver: redfish, name: gpu-1}", "would be the same for all servers"),
    ("site_bare_metal_node: {driver: redfish, automated_clean: sometimes}", "must be true or false"),
    ("site_bare_metal_node: {driver: redfish, conductor_group: 3}", "must be text, is 3"),
    (
        "site_bare_metal_node: {driver: redfish, boot_interface: redfish-virtual-mdia}",
        "write redfish-virtual-media",
    ),
    (
        "site_bare_metal_node: {driver: redfish, driver_info: {redfish_adress: x}}",
        "is nothing that a driver of Ironic reads; write redfish_address",
    ),
    (
        "site_bare_metal_node: {driver: redfish, driver_info: {deploy_kernl: x}}",
        "is nothing that a driver of Ironic reads; write deploy_kernel",
    ),
    (
        "site_bare_metal_node: {driver: redfish, driver_info: {redfish_password: y}}",
        "is a secret, and everybody reads",
    ),
    ("site_bare_metal_node: {driver: redfish, driver_info: y}", "must be a dictionary, is 'y'"),
)


@pytest.mark.parametrize(("lines", "says"), WRONG)
@pytest.mark.parametrize("file", [ALL, AZURE])
def test_a_value_that_nobody_uses(example: Example, lines: str, says: str, file: str) -> None:
    first = lines.partition("\n")[0]
    if first.startswith("site_pki_store"):
        example.replace(ALL, "site_pki_store: ~/.local/share/ironspan/example/pki\n", "")
        file = ALL
    example.append(file, f"{lines}\n")
    found = [problem for problem in example.problems() if says in str(problem)]
    assert [(problem.file, problem.line) for problem in found] == [
        (str(example.folder / file), example.line(file, first))
    ], example.problems()


def test_a_value_of_a_group_without_hosts(example: Example) -> None:
    example.replace(HOSTS, "    haproxy: {}\n", "    haproxy: {}\n    user_racks: {children: {gpu: {}}}\n")
    (example.folder / "group_vars/user_racks.yml").write_text("nvidia_fabric_imex: true\n")
    assert [problem.path == "nvidia_fabric_imex" for problem in example.problems()] == [True]


def test_what_the_group_itself_says_counts_for_it(example: Example) -> None:
    example.append(AZURE, "nvidia_fabric_imex: true\n")
    (example.folder / "group_vars/gpu.yml").open("a").write("nvidia_fabric_enabled: true\n")
    said = {problem.path for problem in example.problems()}
    assert "nvidia_fabric_imex" not in said


RIGHT = (
    """
site_bare_metal_cloud: racks
site_bare_metal_node:
  {driver: redfish, boot_interface: vendor-media, automated_clean: true, conductor_group: racks,
   driver_info: {redfish_address: "https://{bmc_address}", redfish_verify_ca: /etc/ca.pem, vendor_option: x}}
site_bare_metal_racks: {rack-1: {RACK, gateway: 10.2.1.1, dns: [10.2.0.53]}}
site_bare_metal_account: {user: ironspan, authorized_keys: KEYS}
site_bare_metal_image: {source: "http://10.2.0.5/server.raw", SHA, format: raw}
site_bare_metal_known_hosts: ~/known_hosts
nvidia_health_checks: {H18: {"off": true}, H08: {rows: 256}}
nvidia_health_readings_off: [temperature]
gpu_repair_most_out: 1
nvidia_mig_layouts: [{name: halves, instances: [3g.40gb, 3g.40gb]}]
ansible_connection: ansible.builtin.ssh
""".replace("RACK", RACK)
    .replace("KEYS", KEYS)
    .replace("SHA", SHA)
)


def test_what_is_right(example: Example, tmp_path: Path) -> None:
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text("clouds: {racks: {}}\n")
    example.append(ALL, f"{RIGHT}site_bare_metal_clouds: {clouds}\n")
    assert example.problems() == []


def test_the_cloud_of_a_file_that_openstacksdk_finds(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.yaml").write_text("clouds: {nowhere: {}}\n")
    example.environment["OS_CLIENT_CONFIG_FILE"] = str(tmp_path / "own.yaml")
    example.append(ALL, "site_bare_metal_cloud: nowhere\n")
    assert example.problems() == []
    (tmp_path / "own.yaml").write_text("clouds: [nowhere]\n")
    assert len(example.problems()) == 1


def test_lists_are_those_of_who_reads_them() -> None:
    assert {check.name: tuple(check.limits) for check in table()} == dict(gpu_health.LIMITS)
    assert tuple(READINGS) == gpu_health.READINGS
    assert config_drive.FORMATS == declared_values.FORMATS


def test_inline_variables_of_a_group_do_not_hide_behind_files(example: Example) -> None:
    """Ansible ranks every file of group_vars above what stands in the inventory itself."""
    example.replace(
        HOSTS, "    haproxy: {}\n", "    haproxy: {}\n    gvisor_gpu: {vars: {node_kubelet_max_pods: 50}}\n"
    )
    example.append(ALL, "node_kubelet_max_pods: 60\n")
    (problem,) = example.problems()
    assert problem.line == example.line(HOSTS, "node_kubelet_max_pods: 50")
    assert "does not count" in problem.message


def test_a_host_is_not_reached_at_the_address_of_another(example: Example) -> None:
    example.replace(
        HOSTS,
        "gpu-a-01: {ansible_host: 10.30.1.11}",
        "gpu-a-01: {ansible_host: 192.168.1.1, site_address: 10.30.1.11}",
    )
    example.append("host_vars/az-1.yml", "site_address: 10.20.0.99\n")
    example.replace(HOSTS, "ansible_host: 10.20.0.11", "ansible_host: 10.30.1.11")
    (problem,) = example.problems()
    assert "is the address of host gpu-a-01" in problem.message
