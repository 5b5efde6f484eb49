# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The site's own Ironic: one host, addresses and ports that can be served, options that a file can hold."""

from __future__ import annotations

import difflib
import ipaddress
import posixpath
import re
import typing as t
from collections.abc import Callable, Iterator, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import firmware, node_values
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import (
    of_cluster,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import fault_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import unusable

GROUP, FIRMWARE = "ironic", firmware.FILES
ADDRESS, NETWORKS, HARDWARE = "ironic_address", "ironic_media_networks", "ironic_hardware_types"
SETTINGS, FOLDER = "ironic_settings", "ironic_backup_folder"
IMAGES, NODE, CLOUD = "ironic_images_enabled", "site_bare_metal_node", "site_bare_metal_cloud"
CALENDAR, DRILL = "ironic_backup_calendar", "ironic_drill_calendar"
OLDEST = "ironic_backup_max_age_seconds"
LARGEST = 4
"""Shortest prefix of a network that may fetch media."""
_NAME = re.compile(r"[A-Za-z0-9_.:-]+")
_OURS = {
    ("database", "connection"): "ironic_database says which database it is, and there is no password for it",
    ("DEFAULT", "auth_strategy"): "runs log in with the password of the PKI store",
    ("DEFAULT", "enabled_hardware_types"): "ironic_hardware_types says it",
    ("DEFAULT", "rpc_transport"): "API and conductor are one process",
    ("api", "host_ip"): "the API listens at a socket, and ironic_address is in front of it",
    ("api", "port"): "the API listens at a socket, and ironic_api_port is in front of it",
    ("api", "unix_socket"): "the API listens at a socket of the role's own",
    ("conductor", "automated_clean"): "ironic_clean says it",
    ("conductor", "workers_pool_size"): "ironic_workers_count says it",
    ("redfish", "kernel_append_params"): "ironic_kernel_arguments says it",
}
"""Options that only the role sets, and why."""
SECTIONS = (
    "DEFAULT", "agent", "agent_containers", "ansible", "anaconda", "api", "audit",
    "audit_middleware_notifications", "autodetect_deploy", "cinder", "conductor", "console", "cors",
    "database", "deploy", "dhcp", "disk_utils", "dnsmasq", "drac", "fake", "glance", "healthcheck", "ilo",
    "inspector", "inventory", "ipmi", "irmc", "ironic_networking", "json_rpc", "keystone_authtoken", "mdns",
    "metrics", "molds", "neutron", "nova", "oci", "oslo_concurrency", "oslo_messaging_notifications",
    "oslo_middleware", "oslo_policy", "oslo_reports", "oslo_versionedobjects", "profiler", "pxe", "redfish",
    "sensor_data",
    "service_catalog", "snmp", "swift", "vnc", "xclarity",
)  # fmt: skip
"""Of Ironic and its libraries. Extensions bring others, so only what is nearly one is taken for a mistake."""
_SECRET = re.compile(r"password|secret", re.I)
_LOGIN = re.compile(r"://[^/@\s:]*:[^/@\s]+@")
_OF_SYSTEMS = (
    "/", "/bin", "/boot", "/etc", "/home", "/lib", "/lib64", "/mnt", "/opt", "/root", "/run", "/sbin", "/srv",
    "/tmp", "/usr", "/usr/local", "/var", "/var/backups", "/var/cache", "/var/lib", "/var/log", "/var/spool",
    "/var/tmp", "/var/lib/mysql", "/var/lib/ironspan", "/var/lib/ironspan-ironic", "/srv/ironspan-ironic",
)  # fmt: skip
"""Folders that others need, too: that of the backups is closed to everybody but root."""
_NOT_KEPT = ("/run/", "/tmp/", "/var/run/", "/var/tmp/")
_OF_PROGRAMS = (
    "/boot", "/etc/kubernetes", "/etc/containerd", "/var/lib/mysql", "/var/lib/etcd", "/var/lib/kubelet",
    "/var/lib/containerd",
)  # fmt: skip
"""A folder of MariaDB's is a database to it; a reset or a new version takes what is in the others."""
_PERIODS = {
    "minutely": 60, "hourly": 3600, "daily": 86_400, "weekly": 604_800, "monthly": 2_678_400,
    "quarterly": 7_948_800, "semiannually": 15_897_600, "yearly": 31_622_400, "annually": 31_622_400,
}  # fmt: skip
"""Longest time between two, in seconds, of words of systemd.time(7)."""
ENABLED: Mapping[str, tuple[str, ...]] = {
    "bios": ("redfish", "no-bios"),
    "boot": ("redfish-virtual-media",),
    "console": ("no-console",),
    "deploy": ("direct",),
    "firmware": ("redfish", "no-firmware"),
    "inspect": ("agent", "redfish", "no-inspect"),
    "management": ("redfish",),
    "network": ("noop",),
    "power": ("redfish",),
    "raid": ("agent", "redfish", "no-raid"),
    "rescue": ("agent", "no-rescue"),
    "storage": ("noop",),
    "vendor": ("redfish", "no-vendor"),
}
"""As the role's ironic.conf enables them for redfish; a test compares."""


def check_hosts(draft: Draft) -> None:
    """API and conductor are one process, so there is one."""
    hosts = draft.members(GROUP)
    for host in hosts[1:]:
        draft.problems.add(
            draft.member_place(GROUP, host.name),
            f"hosts.{host.name}",
            f"is in the group {GROUP} beside {hosts[0].name}, and an Ironic is on one host",
            "leave one host in the group",
        )


def check_addresses(draft: Draft) -> None:
    """What BMCs are told is an address, and so is who may fetch media."""
    address = draft.site_value(ADDRESS)
    if address and not _is(ipaddress.IPv4Address, address):
        remedy = "write the address that BMCs and servers reach, such as 10.2.0.5"
        draft.problems.add(draft.site_place(ADDRESS), ADDRESS, f"{address!r} is no IPv4 address", remedy)
    elif address and (fault := _out_of_reach(draft, str(address))):
        remedy = "write the address that BMCs and servers reach, such as 10.2.0.5"
        draft.problems.add(draft.site_place(ADDRESS), ADDRESS, fault, remedy)
    networks = draft.site_value(NETWORKS)
    host = draft.writer(NETWORKS)
    for index, text in enumerate(networks if isinstance(networks, list) else ()):
        if not _is(ipaddress.IPv4Network, text) or str(ipaddress.IPv4Network(text)) != text:
            place = draft.inner_place(host, NETWORKS, index) if host else draft.home()
            message = f"{text!r} is no IPv4 network"
            draft.problems.add(place, f"{NETWORKS}[{index}]", message, "write for example 10.2.0.0/24")
        elif ipaddress.IPv4Network(text).prefixlen < LARGEST:
            place = draft.inner_place(host, NETWORKS, index) if host else draft.home()
            message = f"{text} is half of the world, and media may have what a server needs to log in"
            draft.problems.add(place, f"{NETWORKS}[{index}]", message, "write the racks' networks")
        elif kind := unusable(
            ipaddress.IPv4Network(text).network_address, bool(draft.site_value("site_lab"))
        ):
            place = draft.inner_place(host, NETWORKS, index) if host else draft.home()
            draft.problems.add(
                place, f"{NETWORKS}[{index}]", f"{text} is {kind}", "write the racks' networks"
            )


def _out_of_reach(draft: Draft, text: str) -> str:
    address = ipaddress.IPv4Address(text)
    if kind := unusable(address, bool(draft.site_value("site_lab"))):
        return f"{text} is a {kind} address"
    return of_cluster(draft, address)


def check_what_is_served(draft: Draft) -> None:
    """Some kind of hardware, a folder."""
    if draft.site_value(HARDWARE) == []:
        draft.problems.add(draft.site_place(HARDWARE), HARDWARE, "is empty", "write [redfish]")
    folder = draft.site_value(FOLDER)
    if not isinstance(folder, str):
        return
    remedy = "write an absolute path of letters, digits and -_. such as /var/lib/ironspan-ironic-backup"
    if not re.fullmatch(r"/[A-Za-z0-9_./-]+", folder) or fault_of(folder, "folder"):
        draft.problems.add(draft.site_place(FOLDER), FOLDER, f"{folder!r} cannot be a unit's folder", remedy)
    elif posixpath.normpath(folder).replace("//", "/") in _OF_SYSTEMS:
        message = f"{folder} is not for backups alone, and would be closed to others"
        draft.problems.add(draft.site_place(FOLDER), FOLDER, message, "write a folder of its own below it")
    elif message := _not_kept(f"{posixpath.normpath(folder)}/".replace("//", "/")):
        remedy = "write another one, such as /var/lib/ironspan-ironic-backup"
        draft.problems.add(draft.site_place(FOLDER), FOLDER, f"{folder} {message}", remedy)


def _not_kept(folder: str) -> str:
    """Return why backups would not stay in a folder; empty where nothing speaks against it."""
    if folder.startswith(_NOT_KEPT):
        return "is emptied when the host boots, or after some days"
    owner = next((each for each in _OF_PROGRAMS if folder.startswith(f"{each}/")), "")
    return f"lies in {owner}, which is another program's" if owner else ""


def check_drilled(draft: Draft) -> None:
    """A drill finds a backup that is young enough, more often than not."""
    made, drilled = (_PERIODS.get(str(draft.site_value(name))) for name in (CALENDAR, DRILL))
    oldest = draft.site_value(OLDEST)
    if made and drilled and isinstance(oldest, int) and drilled < made and oldest < made:
        place = draft.site_place(OLDEST if draft.writer(OLDEST) else CALENDAR)
        message = f"drills fail from {oldest} s on, and a backup is made {draft.site_value(CALENDAR)}"
        draft.problems.add(place, OLDEST, message, f"write {made * 2}, or make backups more often")


def check_servers(draft: Draft) -> None:
    """Servers are declared as the site's own Ironic takes them, which has what their agents start from."""
    node, settings = draft.site_value(NODE), draft.site_value(SETTINGS)
    kinds, host = draft.site_value(HARDWARE), draft.writer(NODE)
    if not draft.members(GROUP) or draft.site_value(CLOUD) or not isinstance(kinds, list):
        return
    options = settings if isinstance(settings, Mapping) else {}
    if isinstance(node, Mapping) and host and node.get("driver"):
        for field, message, remedy in _not_served(node, kinds, options.get("DEFAULT") or {}):
            draft.problems.add(draft.inner_place(host, NODE, field), f"{NODE}.{field}", message, remedy)
    if draft.site_value(IMAGES) is False and "redfish" in kinds:
        conductor, info = (
            options.get("conductor"),
            node.get("driver_info") if isinstance(node, Mapping) else None,
        )
        named = {*(conductor or ()), *(info if isinstance(info, Mapping) else ())}
        missing = [name for name in ("deploy_kernel", "deploy_ramdisk") if name not in named]
        if missing and "deploy_iso" not in named:
            message = f"is false, and nothing names {' and '.join(missing)} for the servers"
            remedy = f"write {SETTINGS}: {{conductor: {{{missing[0]}: ...}}}}, or leave it out"
            draft.problems.add(draft.site_place(IMAGES), IMAGES, message, remedy)


def _not_served(
    node: Mapping[str, t.Any], kinds: list[t.Any], options: Mapping[str, t.Any]
) -> Iterator[tuple[str, str, str]]:
    """Yield fields of servers that the role's ironic.conf does not enable: name, what is wrong, remedy."""
    if node["driver"] not in kinds:
        known = " or ".join(map(str, kinds))
        yield "driver", f"the site's Ironic has {known}, and not {node['driver']}", f"write {known}"
    for name, enabled in ENABLED.items():
        value = node.get(f"{name}_interface")
        if node["driver"] != "redfish" or not value or f"enabled_{name}_interfaces" in options:
            continue
        if value not in (*enabled, *(["fake"] if "fake-hardware" in kinds else [])):
            message = f"the site's Ironic has {' and '.join(enabled)}, and not {value}"
            remedy = f"write {enabled[0]}, or {SETTINGS}: {{DEFAULT: {{enabled_{name}_interfaces: ...}}}}"
            yield f"{name}_interface", message, remedy


def check_settings(draft: Draft) -> None:
    """Sections hold options, options single lines."""
    settings = draft.site_value(SETTINGS)
    if not isinstance(settings, Mapping):
        return
    host = draft.writer(SETTINGS)
    for section, options in settings.items():
        path = f"{SETTINGS}.{section}"
        place = draft.inner_place(host, SETTINGS, section) if host else draft.home()
        if not _NAME.fullmatch(str(section)):
            draft.problems.add(
                place, path, "is no name of a section", "write one of ironic.conf, such as conductor"
            )
        elif meant := _meant(str(section)):
            draft.problems.add(place, path, "is no section of ironic.conf", f"write {meant}")
        elif not isinstance(options, Mapping):
            draft.problems.add(place, path, f"is {options!r}", "write a mapping of options and values")
        else:
            for option, value in options.items():
                reason = _wrong(str(section), str(option), value)
                if reason:
                    place = draft.inner_place(host, SETTINGS, section, option) if host else draft.home()
                    draft.problems.add(place, f"{path}.{option}", *reason)


def check_firmware(draft: Draft) -> None:
    """Files with firmware can be fetched, checked, and told apart."""
    host = draft.writer(FIRMWARE)
    for where, what, remedy in firmware.problems_of(draft.site_value(FIRMWARE)):
        index = int(where[1:].partition("]")[0])
        place = draft.inner_place(host, FIRMWARE, index) if host else draft.home()
        draft.problems.add(place, f"{FIRMWARE}{where}", what, remedy)


def _meant(section: str) -> str:
    """Return the section that is nearly called so, "" for one that there is, or that nothing looks like."""
    if section in SECTIONS:
        return ""
    folded = {name.lower(): name for name in SECTIONS}
    near = difflib.get_close_matches(section.lower(), folded, n=1, cutoff=0.85)
    return folded[near[0]] if near else ""


def _wrong(section: str, option: str, value: object) -> tuple[str, str] | None:
    if (section, option) in _OURS:
        return "is set by the role", f"take it out: {_OURS[section, option]}"
    if not _NAME.fullmatch(option):
        return "is no name of an option", "write one of ironic.conf"
    if isinstance(value, str) and value and (_SECRET.search(option) or _LOGIN.search(value)):
        return "is a secret, and everybody reads this file", "leave it out"
    if not isinstance(value, str | int | float) or "\n" in str(value):
        return f"is {value!r}", "write one line of text, a number, or true or false"
    if section == "conductor" and option in node_values.IMAGES and not node_values.is_image(value):
        return f"is {value!r}, which Ironic does not take", node_values.IMAGE_REMEDY
    return None


def _is(kind: Callable[[str], object], text: object) -> bool:
    try:
        kind(str(text))
    except ValueError:
        return False
    return True


CHECKS = (
    check_hosts,
    check_addresses,
    check_what_is_served,
    check_drilled,
    check_servers,
    check_settings,
    check_firmware,
)
