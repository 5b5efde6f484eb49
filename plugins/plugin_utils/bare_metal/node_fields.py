# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Fields that all servers of a site can have in Ironic, and which of them were written wrongly.

Names are those of Ironic 39.0.0: the schema of its API (ironic/api/controllers/v1/node.py), its hardware
types and interfaces (its entry points), the properties of its drivers (ironic/drivers/modules).
"""

from __future__ import annotations

import itertools
import re
import typing as t
from collections.abc import Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import node_values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node_values import Fault
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

DRIVERS = ("redfish", "ipmi", "idrac", "intel-ipmi")
OTHER_DRIVERS = ("manual-management", "fake-hardware", "ilo", "ilo5", "irmc", "snmp", "xclarity", "ibmc")
"""Without a management controller, or of earlier releases, where a site uses an Ironic of its own. What they
read is not known here."""
INTERFACES: Mapping[str, tuple[str, ...]] = {
    "bios": ("no-bios", "redfish", "idrac-redfish"),
    "boot": ("redfish-virtual-media", "redfish-https", "http", "http-ipxe", "ipxe", "pxe",
             "idrac-redfish-virtual-media"),
    "console": ("no-console", "ipmitool-socat", "redfish-graphical", "fake-graphical"),
    "deploy": ("direct", "custom-agent", "ansible", "anaconda", "autodetect", "bootc", "noop", "ramdisk"),
    "firmware": ("no-firmware", "redfish"),
    "inspect": ("agent", "no-inspect", "redfish", "idrac-redfish"),
    "management": ("redfish", "ipmitool", "intel-ipmitool", "noop", "idrac-redfish"),
    "network": ("noop", "flat", "neutron", "ironic-networking"),
    "power": ("redfish", "ipmitool", "agent", "idrac-redfish"),
    "raid": ("no-raid", "agent", "redfish", "idrac-redfish"),
    "rescue": ("no-rescue", "agent"),
    "storage": ("noop", "external", "cinder"),
    "vendor": ("no-vendor", "ipmitool", "redfish", "idrac-redfish"),
}  # fmt: skip
"""All but those of earlier releases and of drivers from elsewhere. Each has ``fake``, too."""
OF_ONE_SERVER = ("name", "uuid", "instance_uuid", "instance_name", "parent_node")
"""What no two servers share. The declared servers say it."""
_TRUTHS = ("automated_clean", "console_enabled", "disable_power_off", "maintenance", "retired", "secure_boot")
_TEXTS = (
    "boot_mode", "chassis_uuid", "conductor_group", "description", "lessee", "owner", "resource_class",
    "retired_reason", "shard",
)  # fmt: skip
_DICTIONARIES = ("driver_info", "properties", "extra", "instance_info", "network_data")
FIELDS = (
    "driver", *(f"{name}_interface" for name in INTERFACES), *_TRUTHS, *_TEXTS, *_DICTIONARIES,
)  # fmt: skip
DRIVER_INFO = (
    "agent_verify_ca", "bootloader", "cleaning_network", "config_via_removable", "deploy_forces_oob_reboot",
    "deploy_iso", "deploy_kernel", "deploy_ramdisk", "external_http_url", "fast_track",
    "firmware_update_unresponsive_bmc_wait", "force_persistent_boot_device", "image_download_source",
    "image_http_proxy", "image_https_proxy", "image_no_proxy", "inspection_network", "kernel_append_params",
    "provisioning_network", "pxe_template", "rescue_iso", "rescue_kernel", "rescue_ramdisk",
    "rescuing_network", "servicing_network", "vmedia_transport_protocol",
)  # fmt: skip
"""What any driver reads. Others may read more, so only what is nearly one of these is taken for a mistake."""
OF_DRIVERS: Mapping[str, tuple[str, ...]] = {
    "redfish_": (
        "redfish_address", "redfish_system_id", "redfish_username", "redfish_password", "redfish_verify_ca",
        "redfish_auth_type", "redfish_tls_minimum_version", "redfish_tls_ciphers",
    ),
    "ipmi_": (
        "ipmi_address", "ipmi_bridging", "ipmi_cipher_suite", "ipmi_disable_boot_timeout",
        "ipmi_force_boot_device", "ipmi_hex_kg_key", "ipmi_local_address", "ipmi_password", "ipmi_port",
        "ipmi_priv_level", "ipmi_protocol_version", "ipmi_target_address", "ipmi_target_channel",
        "ipmi_terminal_port", "ipmi_transit_address", "ipmi_transit_channel", "ipmi_username",
    ),
}  # fmt: skip
_SECRET = re.compile(r"passw|secret|token|kg_key", re.I)


def faults(node: Mapping[str, t.Any]) -> Iterator[Fault]:
    """Yield what is wrong with the fields that all servers have.

    Args:
        node: names of Ironic's API to values, as the site has written them.
    """
    yield from _driver(node.get("driver"))
    yield from node_values.faults(node)
    for name, value in node.items():
        yield from _field(str(name), value)
    for name in _DICTIONARIES:
        info = node.get(name)
        if info is not None and not isinstance(info, Mapping):
            yield f".{name}", f"must be a dictionary, is {info!r}", "write 'key: value' lines below it"
        for key in info if isinstance(info, Mapping) else ():
            if _SECRET.search(str(key)):
                remedy = "leave it out; ironspan bmc setup keeps accounts in the PKI store"
                yield f".{name}.{key}", "is a secret, and everybody reads this file", remedy
            elif name == "driver_info" and node.get("driver") in DRIVERS:
                yield from _driver_info(str(key))


def _driver(driver: object) -> Iterator[Fault]:
    if not driver or not isinstance(driver, str):
        yield "", "has no driver", "write driver: redfish"
    elif driver not in (*DRIVERS, *OTHER_DRIVERS):
        remedy = f"write {nearest(driver, DRIVERS) or 'redfish'}"
        yield ".driver", f"{driver!r} is no hardware type of Ironic", remedy


def _field(name: str, value: object) -> Iterator[Fault]:
    path = f".{name}"
    if name in OF_ONE_SERVER:
        yield path, "would be the same for all servers", "take it out; names stand with the declared servers"
    elif name not in FIELDS:
        near = nearest(name, FIELDS)
        remedy = f"write {near}" if near else "write fields as Ironic's API calls them"
        yield path, "is no field of a node", remedy
    elif name in _TRUTHS and not isinstance(value, bool):
        yield path, f"must be true or false, is {value!r}", "write true or false"
    elif (name in _TEXTS or name.endswith("_interface")) and not isinstance(value, str):
        yield path, f"must be text, is {value!r}", "write it in quotes"
    elif name.endswith("_interface"):
        known = (*INTERFACES[name.removesuffix("_interface")], "fake")
        near = None if value in known else nearest(str(value), known)
        if near:
            yield path, f"{value!r} is no such interface of Ironic", f"write {near}"


def _driver_info(name: str) -> Iterator[Fault]:
    own = next((prefix for prefix in OF_DRIVERS if name.startswith(prefix)), "")
    known = OF_DRIVERS[own] if own else (*DRIVER_INFO, *itertools.chain(*OF_DRIVERS.values()))
    near = nearest(name, known)
    if name not in known and (own or near):
        remedy = f"write {near}" if near else "take it out"
        yield f".driver_info.{name}", "is nothing that a driver of Ironic reads", remedy
