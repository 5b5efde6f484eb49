# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The site's own Ironic: what it will not start with, what servers cannot have of it, what harms a host."""

from __future__ import annotations

import re

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks import ironic
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.specification import ROLES_FOLDER

from .conftest import Example
from .mutations import ALL, HOSTS

REDFISH = "site_bare_metal_node: {driver: redfish, driver_info: {redfish_address: '{bmc_address}'}"
WRONG = (
    (f"{REDFISH}, boot_interface: pxe}}", "has redfish-virtual-media, and not pxe"),
    (f"{REDFISH}, network_interface: neutron}}", "has noop, and not neutron"),
    ("site_bare_metal_node: {driver: ipmi, driver_info: {ipmi_address: '{bmc_address}'}}", "and not ipmi"),
    (f"ironic_hardware_types: [fake-hardware]\n{REDFISH}}}", "has fake-hardware, and not redfish"),
    ("ironic_images_enabled: false", "nothing names deploy_kernel and deploy_ramdisk"),
    (
        "ironic_settings: {conductor: {deploy_kernel: 'http://x/y'}}\nironic_images_enabled: false",
        "nothing names deploy_ramdisk",
    ),
    ("ironic_media_networks: [127.0.0.0/8]", "127.0.0.0/8 is loopback"),
    ("ironic_media_networks: [224.0.0.0/8]", "224.0.0.0/8 is multicast"),
    ("ironic_settings: {default: {debug: true}}", "is no section of ironic.conf; write DEFAULT"),
    ("ironic_settings: {conductr: {x: y}}", "is no section of ironic.conf; write conductor"),
    ("ironic_settings: {DEFAULT: {auth_strategy: noauth}}", "runs log in with the password"),
    ("ironic_settings: {DEFAULT: {enabled_hardware_types: redfish}}", "ironic_hardware_types says it"),
    ("ironic_settings: {conductor: {automated_clean: false}}", "ironic_clean says it"),
    ("ironic_settings: {conductor: {workers_pool_size: 9}}", "ironic_workers_count says it"),
    ("ironic_settings: {api: {port: 6386}}", "ironic_api_port is in front of it"),
    ("ironic_settings: {json_rpc: {password: x}}", "is a secret, and everybody reads this file"),
    (
        "ironic_settings:\n  conductor:\n    sync_power_state_interval: 60\n    a b: c",
        "is no name of an option",
    ),
    ("ironic_backup_folder: /etc", "is not for backups alone"),
    ("ironic_backup_folder: /var/lib/mysql/", "is not for backups alone"),
    ("ironic_backup_folder: /var/lib/../x", "cannot be a unit's folder"),
    ("ironic_backup_folder: /run/backup", "is emptied when the host boots"),
    ("ironic_backup_folder: /tmp/ironic/backup", "is emptied when the host boots"),
    ("ironic_backup_folder: /var/lib/mysql/backup", "lies in /var/lib/mysql"),
    ("ironic_backup_folder: /var/lib/kubelet", "lies in /var/lib/kubelet"),
    ("ironic_settings: {DEFAULT: {transport_url: 'rabbit://u:p@h'}}", "is a secret, and everybody reads"),
    ("ironic_settings: {conductor: {deploy_kernel: kernel}}", "which Ironic does not take"),
    ("ironic_address: 10.20.0.10", "is site_api_address, and host cpu-c-01 would listen there"),
    ("ironic_backup_folder: /proc/x", "cannot be a unit's folder"),
    (
        "ironic_backup_calendar: weekly\nironic_backup_max_age_seconds: 86400",
        "write 1209600, or make backups",
    ),
    ("ironic_backup_calendar: weekly", "drills fail from 14400 s on, and a backup is made weekly"),
)


def with_ironic(example: Example) -> None:
    """Put a host into the group ironic."""
    example.replace(HOSTS, "    haproxy: {}\n", "    haproxy: {}\n    ironic: {hosts: {cpu-c-01: {}}}\n")


@pytest.mark.parametrize(("lines", "says"), WRONG)
def test_what_an_ironic_of_ours_cannot_do(example: Example, lines: str, says: str) -> None:
    with_ironic(example)
    example.insist_refused(ALL, lines, says)


RIGHT = (
    f"{REDFISH}, boot_interface: redfish-virtual-media, vendor_interface: no-vendor}}",
    f"{REDFISH}, boot_interface: http-ipxe}}\n"
    "ironic_settings: {DEFAULT: {enabled_boot_interfaces: 'http-ipxe,redfish-virtual-media'}}",
    f"{REDFISH}, power_interface: redfish}}\nironic_hardware_types: [redfish, fake-hardware]",
    "site_bare_metal_node: {driver: fake-hardware}\nironic_hardware_types: [fake-hardware]\n"
    "ironic_images_enabled: false",
    "ironic_images_enabled: false\n"
    "ironic_settings: {conductor: {deploy_kernel: 'http://x/k', deploy_ramdisk: 'http://x/r'}}",
    f"{REDFISH[:-1]}, deploy_iso: 'http://x/agent.iso'}}}}\nironic_images_enabled: false",
    "ironic_media_networks: [10.2.0.0/24, 100.64.0.0/16, 198.51.100.0/24]",
    "ironic_settings: {my_extension: {a: b}, oslo_concurrency: {}, deploy: {fast_track: true}}",
    "ironic_backup_folder: /srv/backups/ironic",
    "ironic_backup_calendar: daily\nironic_drill_calendar: weekly\nironic_backup_max_age_seconds: 172800",
    "ironic_backup_calendar: '*-*-* 0/4:30'\nironic_drill_calendar: Sun 06:00",
)


@pytest.mark.parametrize("lines", RIGHT)
def test_what_it_can_do(example: Example, lines: str) -> None:
    with_ironic(example)
    example.append(ALL, f"{lines}\n")
    assert example.problems() == []


def test_an_ironic_of_their_own_has_what_it_has(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    clouds = example.folder.parent / "clouds.yaml"
    clouds.write_text("clouds: {racks: {}}\n")
    example.append(ALL, f"{REDFISH}, boot_interface: pxe}}\n")
    assert example.problems() == []
    with_ironic(example)
    assert len(example.problems()) == 1
    example.append(ALL, f"site_bare_metal_cloud: racks\nsite_bare_metal_clouds: {clouds}\n")
    assert example.problems() == []


def test_interfaces_are_those_of_the_role() -> None:
    text = (ROLES_FOLDER / "ironic" / "templates" / "ironic.conf.j2").read_text()
    for name, enabled in ironic.ENABLED.items():
        found = re.search(rf'"{name}": \[([^]]+)\]', text)
        said = (
            re.findall('"([^"]+)"', found[1])
            if found
            else re.findall(f'enabled_{name}_interfaces": "(.*)"', text)
        )
        assert tuple(said) == enabled, name
