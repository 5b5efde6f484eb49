# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Values of the fields that all servers of a site have in Ironic: what it would refuse, or pass over.

As Ironic's own drivers take them (drivers/modules/redfish/utils.py, ipmitool.py, VALID_ROOT_DEVICE_HINTS). A
driver from elsewhere may read more; values of names that only it knows are not judged.
"""

from __future__ import annotations

import re
import typing as t
import uuid
from collections.abc import Callable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

Fault = tuple[str, str, str]
"""Where in the variable (``.driver_info.redfish_address``), what is wrong, what to write instead."""
Judge = Callable[[object], bool]

BMC = "{bmc_address}"
ADDRESSES: Mapping[str, tuple[str, str]] = {
    "redfish": ("redfish_address", f"https://{BMC}"),
    "ipmi": ("ipmi_address", BMC),
}
"""By driver: without which field it knows no BMC, and what to write there."""
_FOREIGN: Mapping[str, tuple[str, ...]] = {
    "redfish": ("ipmitool", "intel-ipmitool", "idrac-redfish", "idrac-redfish-virtual-media"),
    "ipmi": (
        "redfish",
        "idrac-redfish",
        "redfish-virtual-media",
        "redfish-https",
        "idrac-redfish-virtual-media",
    ),
}
"""Interfaces of power, management, boot and firmware that belong to another driver."""
_OF_A_DRIVER = (
    "boot_interface",
    "firmware_interface",
    "management_interface",
    "power_interface",
    "raid_interface",
)
_ADDRESS = re.compile(r"(https?://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/\S*)?")
_IMAGE = re.compile(r"(https?|glance|oci)://[^\s/]|file:///[^\s]")
_WORDS = ("true", "false", "yes", "no", "on", "off", "t", "f", "y", "n", "1", "0")
HINTS = (
    "by_path", "hctl", "model", "name", "rotational", "serial", "size", "tran", "vendor", "wwn",
    "wwn_vendor_extension", "wwn_with_extension",
)  # fmt: skip
_ARCHITECTURES = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "x86-64": "x86_64",
    "arm64": "aarch64",
    "arm": "aarch64",
}


def _one_of(*known: str) -> Judge:
    return lambda value: value in known


def _is_truth(value: object) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and value.lower() in _WORDS)


def _is_authority(value: object) -> bool:
    return _is_truth(value) or (isinstance(value, str) and value.startswith("/"))


def _is_url(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"https?://[^\s/]\S*", value) is not None


def is_image(value: object) -> bool:
    """Tell whether Ironic finds a kernel, a ramdisk or an ISO by this; empty is its own."""
    if not isinstance(value, str):
        return False
    return value == "" or _IMAGE.match(value) is not None or _is_uuid(value)


def _is_line(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _within(least: int, most: int) -> Judge:
    def is_right(value: object) -> bool:
        text = "" if isinstance(value, bool) else str(value)
        return re.fullmatch("[0-9]{1,9}", text) is not None and least <= int(text) <= most

    return is_right


_TRUTH = "write true or false"
_AUTHORITY = "write true, false, or the path of a file with authorities on the conductor's host"
IMAGES = (
    "bootloader", "deploy_iso", "deploy_kernel", "deploy_ramdisk", "rescue_iso", "rescue_kernel",
    "rescue_ramdisk",
)  # fmt: skip
"""Names in a driver's information, and in the section conductor of ironic.conf."""
IMAGE_REMEDY = "write http://HOST/PATH, file:///PATH on the conductor's host, or an image's UUID"
DRIVER_INFO: Mapping[str, tuple[Judge, str]] = {
    **dict.fromkeys(IMAGES, (is_image, IMAGE_REMEDY)),
    "redfish_auth_type": (_one_of("basic", "session", "auto"), "write basic, session or auto"),
    "redfish_verify_ca": (_is_authority, _AUTHORITY),
    "redfish_system_id": (lambda value: isinstance(value, str), "write it in quotes, as the BMC calls it"),
    "agent_verify_ca": (_is_authority, _AUTHORITY),
    "image_download_source": (_one_of("http", "local", "swift"), "write http or local"),
    "fast_track": (_is_truth, _TRUTH),
    "config_via_removable": (_is_truth, _TRUTH),
    "deploy_forces_oob_reboot": (_is_truth, _TRUTH),
    "external_http_url": (_is_url, "write http://ADDRESS:PORT"),
    "kernel_append_params": (_is_line, "write one line"),
    "ipmi_port": (_within(1, 65_535), "write a port, such as 623"),
    "ipmi_terminal_port": (_within(1, 65_535), "write a port"),
    "ipmi_cipher_suite": (_within(0, 17), "write 3 or 17"),
    "ipmi_protocol_version": (lambda value: str(value) in ("1.5", "2.0"), 'write "2.0"'),
    "ipmi_priv_level": (
        lambda value: str(value).upper() in ("ADMINISTRATOR", "CALLBACK", "OPERATOR", "USER"),
        "write ADMINISTRATOR, OPERATOR or USER",
    ),
}


def faults(node: Mapping[str, t.Any]) -> Iterator[Fault]:
    """Yield what is wrong with values of known fields, each by itself and beside the others.

    Args:
        node: names of Ironic's API to values, as the site has written them.
    """
    driver = node.get("driver")
    info = node.get("driver_info")
    yield from _fields(node)
    yield from _interfaces(node)
    yield from _addresses(str(driver), info if isinstance(info, Mapping) else {})
    for name, value in info.items() if isinstance(info, Mapping) else ():
        judge, remedy = DRIVER_INFO.get(str(name), (None, ""))
        if judge and not judge(value):
            yield f".driver_info.{name}", f"is {value!r}, which Ironic does not take", remedy
    properties = node.get("properties")
    if isinstance(properties, Mapping):
        yield from _properties(properties)
    extra = node.get("extra")
    for name in extra if isinstance(extra, Mapping) else ():
        if str(name).startswith("ironspan_"):
            yield f".extra.{name}", "is where runs keep what they know of a server", "write another name"


def _fields(node: Mapping[str, t.Any]) -> Iterator[Fault]:
    mode = node.get("boot_mode")
    if isinstance(mode, str) and mode not in ("uefi", "bios"):
        yield ".boot_mode", f"{mode!r} is none of uefi, bios", "write uefi"
    elif mode == "bios" and node.get("secure_boot") is True:
        yield ".boot_mode", "is bios, and secure_boot is a part of UEFI", "write boot_mode: uefi"
    for name in ("maintenance", "retired"):
        if node.get(name) is True:
            yield (
                f".{name}",
                "would hold all servers of the site",
                "leave it out, and say it of one server in Ironic",
            )
    group = node.get("conductor_group")
    if isinstance(group, str) and not re.fullmatch("[A-Za-z0-9_.-]*", group):
        yield ".conductor_group", f"{group!r} is no group of conductors", "write letters, digits and _.-"
    chassis = node.get("chassis_uuid")
    if isinstance(chassis, str) and not _is_uuid(chassis):
        yield ".chassis_uuid", f"{chassis!r} is no UUID", "write it as Ironic shows it, or leave it out"


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _interfaces(node: Mapping[str, t.Any]) -> Iterator[Fault]:
    driver = str(node.get("driver"))
    foreign = _FOREIGN.get(driver, ())
    for name, value in node.items():
        if not str(name).endswith("_interface") or not isinstance(value, str):
            continue
        if not value:
            yield f".{name}", "is empty", "leave it out, and Ironic takes the driver's own"
        elif value == "fake" and driver in ADDRESSES:
            yield f".{name}", "pretends, and does nothing with the server", "leave it out"
        elif name in _OF_A_DRIVER and value in foreign:
            yield f".{name}", f"{value} is no interface of the driver {driver}", "leave it out"


def _addresses(driver: str, info: Mapping[str, t.Any]) -> Iterator[Fault]:
    if driver not in ADDRESSES:
        return
    field, usual = ADDRESSES[driver]
    value = info.get(field)
    remedy = f'write driver_info: {{{field}: "{usual}"}}'
    if not value:
        yield (
            f".driver_info.{field}",
            f"says nothing, and the driver {driver} knows no BMC without it",
            remedy,
        )
        return
    if not isinstance(value, str):
        yield f".driver_info.{field}", f"must be text, is {value!r}", remedy
        return
    filled = value.replace(BMC, "10.0.0.1")
    if set(filled) & set("{}$ "):
        yield f".driver_info.{field}", f"{value!r} has braces that nothing fills", remedy
    elif driver == "redfish" and not _ADDRESS.fullmatch(filled):
        yield f".driver_info.{field}", f"{value!r} is no address of a BMC", remedy
    elif not any(isinstance(each, str) and BMC in each for each in info.values()):
        yield f".driver_info.{field}", "would be the same BMC for all servers", remedy


def _properties(properties: Mapping[str, t.Any]) -> Iterator[Fault]:
    device = properties.get("root_device")
    if device is not None and not isinstance(device, Mapping):
        yield (
            ".properties.root_device",
            f"must be a dictionary, is {device!r}",
            "write {name: /dev/...}, or {wwn: ...}",
        )
    for hint, value in device.items() if isinstance(device, Mapping) else ():
        path = f".properties.root_device.{hint}"
        if hint not in HINTS:
            near = nearest(str(hint), HINTS)
            yield path, "is no hint for a disk", f"write {near or 'one of ' + ', '.join(HINTS)}"
        elif hint == "size" and (isinstance(value, bool) or not re.search("[0-9]", str(value))):
            yield path, f"{value!r} is no size", "write GiB, such as 60, or '>= 60'"
        elif hint == "rotational" and not _is_truth(value):
            yield path, f"must be true or false, is {value!r}", _TRUTH
    said = properties.get("capabilities")
    if said is not None and not (isinstance(said, str) and re.fullmatch(r"([^:,]+:[^:,]+(,|$))*", said)):
        yield (
            ".properties.capabilities",
            f"{said!r} is not of its form",
            "write it as text, such as boot_mode:uefi",
        )
    said = properties.get("cpu_arch")
    if said is not None and not (isinstance(said, str) and re.fullmatch("[A-Za-z0-9_-]*", said)):
        yield ".properties.cpu_arch", f"{said!r} is no architecture", "write x86_64 or aarch64"
    architecture = str(said or "")
    if meant := _ARCHITECTURES.get(architecture.lower()):
        yield ".properties.cpu_arch", f"Ironic does not call it {architecture}", f"write {meant}"
    for name in ("cpus", "local_gb", "memory_mb"):
        if name in properties and not _within(1, 10**9 - 1)(properties[name]):
            yield f".properties.{name}", f"is {properties[name]!r}", "write a whole number, or leave it out"
