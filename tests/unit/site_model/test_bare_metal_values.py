# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values about servers in racks that have the right form, and that no server can be deployed with."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import racks_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.handover import Handed, as_file

from .conftest import Example
from .mutations import ALL

SHA, EMPTY = f'"{"9f" * 32}"', "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHvTgzvdMMV0tNd2Y8n7ypp3I7ePEg4pGBt9ZbDEqk3y a@b"
DEPLOYED = (
    f"site_bare_metal_known_hosts: ~/known_hosts\nsite_bare_metal_account: {{authorized_keys: ['{KEY}']}}\n"
)


def rack(fields: str, name: str = "rack-1") -> str:
    """Return a rack."""
    return f"site_bare_metal_racks: {{{name}: {{{fields}}}}}"


def image(fields: str) -> str:
    """Return an image that could be logged in to."""
    return f"{DEPLOYED}site_bare_metal_image: {{{fields}}}"


def node(fields: str, driver: str = "redfish", info: str = "") -> str:
    """Return the fields of servers, with the address of their BMC."""
    address = f"{driver}_address: '{{bmc_address}}'"
    return f"site_bare_metal_node: {{driver: {driver}, driver_info: {{{address}{info}}}, {fields}}}"


def told(info: str, driver: str = "redfish") -> str:
    """Return what the driver is told of BMCs."""
    return node("", driver, f", {info}")


def bare(info: str, driver: str = "redfish") -> str:
    """Return the same, without an address."""
    return f"site_bare_metal_node: {{driver: {driver}, driver_info: {{{info}}}}}"


def firmware(*entries: str) -> str:
    """Return files with firmware, one a line."""
    return "\n".join(("site_bare_metal_firmware:", *(f"- {{{entry}}}" for entry in entries)))


FILE = f"component: bios, version: '1.0', file: a/b.bin, sha256: {SHA}, size: 9"
OTHER = FILE.replace("9f", "8f", 1).replace("a/b", "a/d").replace("1.0", "1.1")
NET = "network: 10.2.1.0/24, first: 10.2.1.11"
WRONG = (
    (rack("network: 10.244.0.0/24, first: 10.244.0.11"), "overlaps site_pod_cidr, which is 10.244.0.0/16"),
    (rack("network: 10.96.7.0/24, first: 10.96.7.11"), "overlaps site_service_cidr"),
    (rack("network: 127.0.0.0/24, first: 127.0.0.11"), "127.0.0.0/24 is loopback"),
    (rack("network: 169.254.1.0/24, first: 169.254.1.11"), "169.254.1.0/24 is link-local"),
    (rack("network: 224.0.1.0/24, first: 224.0.1.11"), "224.0.1.0/24 is multicast"),
    (rack("network: 0.0.0.0/0, first: 10.2.1.11"), "0.0.0.0/0 is unspecified"),
    (rack(f"{NET}, gateway: 0"), "0 is no IPv4 address"),
    (rack(f"{NET}, dns: [10.2.0.53, 10.2.0.53]"), "10.2.0.53 is there twice"),
    (rack(f"{NET}, dns: [10.96.0.10]"), "10.96.0.10 lies in site_service_cidr"),
    (rack(f"{NET}, dns: [255.255.255.255]"), "is reached from no server"),
    (rack(f"{NET}, dns: ['fe80::1']"), "is reached from no server"),
    (rack(NET, "''"), "the name of the rack '' is not a name"),
    (rack(NET, "rack 1"), "the name of the rack 'rack 1' is not a name"),
    (rack(NET, "a/1"), "the name of the rack 'a/1' is not a name"),
    (
        f"site_bare_metal_racks: {{Rack-1: {{{NET}}}, rack_1: {{network: 10.2.2.0/24, first: 10.2.2.11}}}}",
        "would be the group rack_1, as the rack Rack-1",
    ),
    (image(f"source: 'http://u:p@a/b.raw', sha256: {SHA}"), "has a login, and every plan shows it"),
    (image(f"source: 'https:///b.raw', sha256: {SHA}"), "is no address of an image"),
    (image(f"source: 'http://a:99999/b.raw', sha256: {SHA}"), "is no address of an image"),
    (image(f"source: 'http://a/b.qcow2', sha256: {SHA}"), "write format: qcow2"),
    (image(f"source: 'http://a/b.vmdk', sha256: {SHA}, format: raw"), "is no raw image, but vmdk"),
    (image(f"source: 'http://a/b.raw', sha256: {EMPTY}"), "is the digest of an empty file"),
    ("site_bare_metal_layout: ab", "does nothing without site_bare_metal_image"),
    (f"site_bare_metal_account: {{user: root, authorized_keys: ['{KEY}']}}", "a system has for itself"),
    (f"site_bare_metal_account: {{authorized_keys: ['{KEY}', '{KEY} again']}}", "is there twice"),
    (
        f"site_bare_metal_account: {{authorized_keys: ['{KEY.replace('ed25519', 'rsa')}']}}",
        "is no key of type ssh-rsa",
    ),
    ("site_bare_metal_erase: [deploy.erase_device]", "write deploy.erase_devices"),
    ("site_bare_metal_erase: [deplyo.erase_devices]", "write deploy.erase_devices"),
    ("site_bare_metal_inventory: /dev/servers.yml", "is no place for a file"),
    ("site_bare_metal_inventory: /srv/site/group_vars/servers.yml", "would be read as variables"),
    (
        "site_bare_metal_known_hosts: /srv/a.yml\nsite_bare_metal_inventory: /srv/a.yml",
        "is the file of site_bare_metal_known_hosts too",
    ),
    ("site_bare_metal_firmware_url: 'http://10.2.0.5/fw?x=1'", "names of files are put behind it"),
    ("site_bare_metal_firmware_url: http://localhost/fw", "is another machine to each BMC"),
    (node("boot_mode: UEFI"), "'UEFI' is none of uefi, bios"),
    (node("boot_mode: bios, secure_boot: true"), "secure_boot is a part of UEFI"),
    (node("boot_interface: ''"), "is empty; leave it out"),
    (node("power_interface: ipmitool"), "ipmitool is no interface of the driver redfish"),
    (node("power_interface: redfish", "ipmi"), "redfish is no interface of the driver ipmi"),
    (node("management_interface: fake"), "pretends, and does nothing"),
    (node("inspect_interface: no-inspect"), "site_bare_metal_inspect asks for it"),
    (node("maintenance: true"), "would hold all servers of the site"),
    (node("retired: true"), "would hold all servers of the site"),
    (node("conductor_group: a b"), "is no group of conductors"),
    (node("chassis_uuid: c1"), "'c1' is no UUID"),
    (node("network_data: x"), "must be a dictionary, is 'x'"),
    (node("extra: {ironspan_firmware: x}"), "is where runs keep what they know"),
    ("site_bare_metal_node: {driver: redfish}", "the driver redfish knows no BMC without it"),
    (bare("redfish_address: 'https://10.1.1.1'"), "would be the same BMC for all servers"),
    (bare("redfish_address: 'https://{bmc_adress}'"), "has braces that nothing fills"),
    (bare("redfish_address: 'https:/{bmc_address}'"), "is no address of a BMC"),
    (bare("redfish_address: 'ftp://{bmc_address}'"), "is no address of a BMC"),
    (bare("redfish_address: ['{bmc_address}']"), "must be text"),
    (bare("redfish_address: '{bmc_address}'", "ipmi"), "the driver ipmi knows no BMC without it"),
    (told("redfish_verify_ca: flase"), "write true, false, or the path"),
    (told("redfish_auth_type: Basic"), "write basic, session or auto"),
    (told("redfish_system_id: 1"), "write it in quotes"),
    (told("image_download_source: ftp"), "write http or local"),
    (told("fast_track: maybe"), "write true or false"),
    (told('kernel_append_params: "a\\nb"'), "write one line"),
    (told("external_http_url: 10.1.1.1"), "write http://ADDRESS:PORT"),
    (told("ipmi_port: 99999", "ipmi"), "write a port, such as 623"),
    (told("ipmi_priv_level: ROOT", "ipmi"), "write ADMINISTRATOR"),
    (told("ipmi_protocol_version: '3.0'", "ipmi"), 'write "2.0"'),
    (node("properties: {root_device: /dev/sda}"), "write {name: /dev/...}"),
    (node("properties: {root_device: {nmae: /dev/sda}}"), "is no hint for a disk; write name"),
    (node("properties: {root_device: {size: big}}"), "'big' is no size"),
    (node("properties: {capabilities: 'boot_mode=uefi'}"), "such as boot_mode:uefi"),
    (node("properties: {capabilities: {boot_mode: uefi}}"), "such as boot_mode:uefi"),
    (node("properties: {cpu_arch: [x86_64]}"), "is no architecture"),
    (node("properties: {cpu_arch: 64}"), "64 is no architecture"),
    (node("properties: {cpu_arch: amd64}"), "write x86_64"),
    (node("properties: {memory_mb: lots}"), "write a whole number, or leave it out"),
    (rack("network: 10.20.0.0/24, first: 10.20.0.20"), "host az-1 of the group azure has 10.20.0.11 in it"),
    (rack(f"{NET}, dns: [10.2.1.11]"), "is the address of the first server itself"),
    (
        rack("network: 10.30.1.0/24, first: 10.30.1.100, gateway: 10.30.1.13"),
        "is the address of host gpu-a-03, which is a worker",
    ),
    (image(f"source: 'http://10.244.0.5/b.raw', sha256: {SHA}"), "10.244.0.5 lies in site_pod_cidr"),
    (image(f"source: 'http://10.96.0.5/b.raw', sha256: {SHA}"), "10.96.0.5 lies in site_service_cidr"),
    (image(f"source: 'http://0.0.0.0/b.raw', sha256: {SHA}"), "0.0.0.0 is unspecified"),
    (image(f"source: 'http://169.254.1.1/b.raw', sha256: {SHA}"), "169.254.1.1 is link-local"),
    (image(f"source: 'http://localhost/b.raw', sha256: {SHA}"), "is another machine to each "),
    (image(f"source: 'http://[::1]/b.raw', sha256: {SHA}"), "is another machine to each "),
    (image(f"source: 'http://10.2.0.5/images/', sha256: {SHA}"), "names no file"),
    (image(f"source: 'http://10.2.0.5/b.raw.xz', sha256: {SHA}"), "is packed (xz)"),
    (image(f"source: 'http://10.2.0.5/b.qcow2.gz', sha256: {SHA}, format: qcow2"), "is packed (gz)"),
    (image(f"source: 'http://10.2.0.5/b.iso', sha256: {SHA}"), "is no raw image, but iso"),
    ("site_bare_metal_firmware_url: http://0.0.0.0/fw", "0.0.0.0 is unspecified"),
    ("site_bare_metal_firmware_url: http://10.244.0.4/fw", "10.244.0.4 lies in site_pod_cidr"),
    ("site_bare_metal_firmware_url: 'http://[::1]/fw'", "is another machine to each "),
    ("site_bare_metal_firmware_url: http://127.1/fw", "is another machine to each BMC"),
    ("site_bare_metal_erase: [raid.create_configuration]", "has no step that erases disks"),
    ("site_bare_metal_erase: [bios.factory_reset, deploy.erase_pstore]", "has no step that erases disks"),
    ("site_bare_metal_erase: [raid.erase_devices]", "write deploy.erase_devices"),
    ("site_bare_metal_known_hosts: /etc/passwd", "has other lines than public keys of hosts"),
    (told("deploy_kernel: kernel"), "which Ironic does not take"),
    (told("rescue_ramdisk: 'file://ramdisk'"), "which Ironic does not take"),
    (firmware(FILE.replace("'1.0'", "'1.0 '")), "write it in quotes, as the server says it"),
    (firmware(FILE.replace(SHA, EMPTY)), "is the digest of an empty file"),
    (firmware(FILE, FILE.replace("bios", "bmc").replace("9f9f", "8f8f")), "and the file is the same"),
    (firmware(FILE, FILE.replace("bios", "bmc").replace("size: 9", "size: 8")), "and the digest is the same"),
    (firmware(FILE, FILE.replace("1.0", "1.1")), "which is another version"),
)


@pytest.mark.parametrize(("lines", "says"), WRONG)
def test_what_no_server_can_have(example: Example, lines: str, says: str) -> None:
    example.insist_refused(ALL, lines, says)


RIGHT = (
    rack("network: 8.8.8.0/24, first: 8.8.8.11, gateway: '', dns: []"),
    rack("network: 10.2.1.0/26, first: 10.2.1.11, gateway: 10.2.1.62, dns: ['2001:db8::53']", "Rack.1"),
    rack(NET, "1"),
    image(f"source: 'file:///srv/images/b.raw', sha256: {SHA}"),
    image(f"source: 'oci://registry.example/os:1', sha256: {SHA}, format: qcow2"),
    image(f"source: 'https://[2001:db8::1]:8443/b.img?v=1', sha256: {SHA}, format: raw"),
    image(f"source: 'http://a/b.raw', sha256: {SHA}") + "\nsite_bare_metal_layout: ab",
    "site_bare_metal_account: {user: ops-1, authorized_keys: ['ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTIt']}",
    "site_bare_metal_account: {authorized_keys: ['sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9w']}",
    "site_bare_metal_erase: [deploy.erase_devices_express, raid.delete_configuration, vendor.wipe_nvram]",
    "site_bare_metal_erase: [deploy.site_erase]",
    "site_bare_metal_erase: [management.erase_devices]",
    "site_bare_metal_erase: [raid.create_configuration, deploy.erase_devices_metadata]",
    rack("network: 10.30.1.0/24, first: 10.30.1.11, gateway: 10.30.1.1, dns: [10.30.1.12]"),
    f"{image(f'source: http://127.0.0.1/b.raw, sha256: {SHA}')}\n{told('image_download_source: local')}",
    image(f"source: 'http://images.example/?name=server', sha256: {SHA}"),
    told(
        "deploy_kernel: 'http://10.2.0.5/k', deploy_ramdisk: 'file:///srv/r', "
        "bootloader: 9f0c1a30-1a6b-4f1e-9b5d-0c1f6a3b2d11"
    ),
    "site_bare_metal_inventory: /srv/site/servers.yaml\nsite_bare_metal_known_hosts: ~/.ssh/servers",
    "site_bare_metal_firmware_url: http://10.2.0.5:8088/firmware/",
    "site_lab: true\nsite_bare_metal_firmware_url: http://127.0.0.1:8088",
    bare("redfish_address: 'http://10.1.1.1:8000', redfish_system_id: '/redfish/v1/Systems/{bmc_address}'"),
    bare("redfish_address: 'https://{bmc_address}:8443/bmc', redfish_verify_ca: 'False'"),
    told("redfish_verify_ca: /etc/ironic/bmc.pem, redfish_auth_type: session, vendor_words: '{x}'"),
    told("ipmi_port: '6230', ipmi_priv_level: operator, ipmi_cipher_suite: 3", "ipmi"),
    node("boot_interface: ipxe, raid_interface: agent, console_interface: ipmitool-socat"),
    node("boot_mode: bios, secure_boot: false, maintenance: false, conductor_group: rack-b.1"),
    node("properties: {root_device: {size: '>= 400', rotational: false, wwn: '0x5000'}, cpu_arch: aarch64}"),
    node("properties: {capabilities: 'boot_mode:uefi,secure_boot:true', memory_mb: 2048, vendor: x}"),
    node("inspect_interface: no-inspect") + "\nsite_bare_metal_inspect: false",
    firmware(FILE, FILE.replace("bios", "bmc").replace("a/b", "a/c"), f"{OTHER}, model: X"),
)


@pytest.mark.parametrize("lines", RIGHT)
def test_what_servers_can_have(example: Example, lines: str) -> None:
    example.append(ALL, f"{lines}\n")
    assert example.problems() == []


def test_the_line_of_the_field(example: Example) -> None:
    example.append(
        ALL,
        "site_bare_metal_racks:\n  rack-1:\n    network: 10.2.1.0/24\n    first: 10.2.1.11\n    dns:\n"
        "      - 10.2.0.53\n      - 10.244.0.53\n  rack.2:\n    network: 10.2.1.0/25\n    first: 10.2.1.11\n"
        "site_bare_metal_node:\n  driver: redfish\n  driver_info:\n    redfish_adress: x\n",
    )
    assert {problem.line for problem in example.problems()} == {
        example.line(ALL, text) for text in ("10.244.0.53", "10.2.1.0/25", "redfish_adress", "driver_info:")
    }


def test_an_inventory_that_somebody_wrote_is_not_written_over(example: Example, tmp_path: Path) -> None:
    file = tmp_path / "servers.yml"
    example.append(ALL, f"site_bare_metal_inventory: {file}\n")
    for text, right in (
        ("", True),
        ("all: {hosts: {gpu-1: {}}}\n", False),
        (as_file(Handed({}, {})).decode(), True),
    ):
        file.write_text(text)
        assert [problem.path for problem in example.problems()] == (
            [] if right else ["site_bare_metal_inventory"]
        )


def test_a_file_with_keys_of_hosts(example: Example, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    example.append(ALL, f"site_bare_metal_known_hosts: {file}\n")
    for text in (
        "",
        "# racks\n\n10.2.1.11,gpu-1 ssh-ed25519 AAAAC3Nz= 9f0c\n@revoked * ssh-rsa AAAAB3Nz x\n",
        "|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= ssh-rsa AAAAB3Nz\n",
    ):
        file.write_text(text)
        assert example.problems() == []
    file.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert [problem.path for problem in example.problems()] == ["site_bare_metal_known_hosts"]


def test_an_image_where_nothing_writes_disks(example: Example) -> None:
    example.append(
        ALL, f"{image(f'source: http://a/b.raw, sha256: {SHA}')}\n{node('deploy_interface: ramdisk')}\n"
    )
    (problem,) = example.problems()
    assert problem.path == "site_bare_metal_node.deploy_interface"


def test_firmware_where_nothing_writes_it(example: Example) -> None:
    example.append(ALL, f"{node('firmware_interface: no-firmware')}\n{firmware(FILE)}\n")
    (problem,) = example.problems()
    assert problem.path == "site_bare_metal_node.firmware_interface"


def test_a_rack_that_is_called_by_a_number() -> None:
    written: dict[t.Any, t.Any] = {1: {"network": "10.2.1.0/24", "first": "10.2.1.11"}}
    assert list(racks_of(written)) == ["1"]
