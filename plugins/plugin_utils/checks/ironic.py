# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The site's own Ironic: one host, addresses and ports that can be served, options that a file can hold."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal import firmware
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import (
    network_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import unusable

GROUP, FIRMWARE = "ironic", firmware.FILES
ADDRESS, NETWORKS, HARDWARE = "ironic_address", "ironic_media_networks", "ironic_hardware_types"
SETTINGS, FOLDER = "ironic_settings", "ironic_backup_folder"
LARGEST = 4
"""Shortest prefix of a network that may fetch media."""
_NAME = re.compile(r"[A-Za-z0-9_.:-]+")
_OURS = {
    ("database", "connection"): "ironic_database says which database it is, and there is no password for it"
}
"""Options that only the role sets, and why."""


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


def _out_of_reach(draft: Draft, text: str) -> str:
    address = ipaddress.IPv4Address(text)
    if kind := unusable(address, bool(draft.site_value("site_lab"))):
        return f"{text} is a {kind} address"
    for variable in ("site_pod_cidr", "site_service_cidr"):
        network = network_of(draft, variable)
        if network is not None and address in network:
            return f"{text} lies in {variable} ({network})"
    return ""


def check_what_is_served(draft: Draft) -> None:
    """Some kind of hardware, a folder."""
    if draft.site_value(HARDWARE) == []:
        draft.problems.add(draft.site_place(HARDWARE), HARDWARE, "is empty", "write [redfish]")
    folder = draft.site_value(FOLDER)
    if isinstance(folder, str) and not re.fullmatch(r"/[A-Za-z0-9_./-]+", folder):
        remedy = "write an absolute path of letters, digits and -_. such as /var/lib/ironspan-ironic-backup"
        draft.problems.add(draft.site_place(FOLDER), FOLDER, f"{folder!r} cannot be a unit's folder", remedy)


def check_settings(draft: Draft) -> None:
    """Sections hold options, options single lines."""
    settings = draft.site_value(SETTINGS)
    if not isinstance(settings, Mapping):
        return
    place = draft.site_place(SETTINGS)
    for section, options in settings.items():
        path = f"{SETTINGS}.{section}"
        if not _NAME.fullmatch(str(section)):
            draft.problems.add(
                place, path, "is no name of a section", "write one of ironic.conf, such as conductor"
            )
        elif not isinstance(options, Mapping):
            draft.problems.add(place, path, f"is {options!r}", "write a mapping of options and values")
        else:
            for option, value in options.items():
                reason = _wrong(str(section), str(option), value)
                if reason:
                    draft.problems.add(place, f"{path}.{option}", *reason)


def check_firmware(draft: Draft) -> None:
    """Files with firmware can be fetched, checked, and told apart."""
    host = draft.writer(FIRMWARE)
    for where, what, remedy in firmware.problems_of(draft.site_value(FIRMWARE)):
        index = int(where[1:].partition("]")[0])
        place = draft.inner_place(host, FIRMWARE, index) if host else draft.home()
        draft.problems.add(place, f"{FIRMWARE}{where}", what, remedy)


def _wrong(section: str, option: str, value: object) -> tuple[str, str] | None:
    if (section, option) in _OURS:
        return "is set by the role", f"take it out: {_OURS[section, option]}"
    if not _NAME.fullmatch(option):
        return "is no name of an option", "write one of ironic.conf"
    if not isinstance(value, str | int | float) or "\n" in str(value):
        return f"is {value!r}", "write one line of text, a number, or true or false"
    return None


def _is(kind: Callable[[str], object], text: object) -> bool:
    try:
        kind(str(text))
    except ValueError:
        return False
    return True


CHECKS = (check_hosts, check_addresses, check_what_is_served, check_settings, check_firmware)
