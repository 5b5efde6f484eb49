# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Flags and fields that are right by themselves, and wrong beside those of another program or host."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.component_options import SETTINGS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import owners_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.node_resources import EVICTION, RESERVED
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.releases import ARGUMENTS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.upgrade.component_values import seconds

MANAGER = "control_plane_controller_manager_args"
LEASE, GRACE, BIND = "nodeLeaseDurationSeconds", "node-monitor-grace-period", "bind-address"
SWAP_OFF = "base_swap_off"
_LEASE, _GRACE = 40, 50.0
"""Defaults of Kubernetes 1.36 and 1.37, in seconds."""


def check_leases(draft: Draft) -> None:
    """A node renews its lease after a quarter of its time, and counts as gone after the grace period."""
    once = Once(draft.problems)
    arguments = draft.site_value(MANAGER)
    given = arguments.get(GRACE) if isinstance(arguments, Mapping) else None
    grace = (seconds(given) if isinstance(given, str) else 0) or _GRACE
    for host in (*draft.members("nodes"), *draft.members("control_plane")):
        lease = _settings(host).get(LEASE, _LEASE)
        if not isinstance(lease, int) or lease / 4 < grace:
            continue
        message = f"nodes renew a lease of {lease} s each {lease / 4:g} s, and are gone after {grace:g} s"
        if LEASE in _settings(host):
            place, path = draft.inner_place(host, SETTINGS, LEASE), f"{SETTINGS}.{LEASE}"
            remedy = f"write less than {4 * grace:g}, or a longer {GRACE} in {MANAGER}"
        else:
            writer = draft.writer(MANAGER)
            place = draft.inner_place(writer, MANAGER, GRACE) if writer else draft.home()
            path, remedy = f"{MANAGER}.{GRACE}", "write 50s, the default, or longer"
        once.add(place, path, message, remedy)


def check_bind_addresses(draft: Draft) -> None:
    """A program that is told the address of another host does not start."""
    once = Once(draft.problems)
    owners = owners_of(draft)
    for variable in ARGUMENTS:
        for host in draft.members("control_plane"):
            arguments = host.values.get(variable)
            text = arguments.get(BIND) if isinstance(arguments, Mapping) else None
            owner = owners.get(str(text))
            if owner is not None and owner is not host:
                message = (
                    f"{text} is the address of host {owner.name}, and that of {host.name} would not start"
                )
                place = draft.inner_place(host, variable, BIND)
                once.add(place, f"{variable}.{BIND}", message, "write 0.0.0.0, or take it out")


def check_swap(draft: Draft) -> None:
    """Pods that may swap need a host that has swap, and a kubelet that starts there."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        swap = _settings(host).get("memorySwap")
        if not isinstance(swap, Mapping) or swap.get("swapBehavior") != "LimitedSwap":
            continue
        path, place = f"{SETTINGS}.memorySwap", draft.inner_place(host, SETTINGS, "memorySwap")
        if host.values.get(SWAP_OFF) is True:
            message = f"lets pods swap, and hosts have no swap ({SWAP_OFF})"
            once.add(place, path, message, f"write '{SWAP_OFF}: false' too, or take it out")
        elif _settings(host).get("failSwapOn", True) is not False:
            message = "lets pods swap, and a kubelet does not start where there is swap"
            once.add(place, path, message, "write 'failSwapOn: false' beside it, or take it out")


def check_reserved_memory(draft: Draft) -> None:
    """What a static memory manager keeps of all NUMA nodes is what the node keeps, or no kubelet starts."""
    once = Once(draft.problems)
    for host in draft.hosts.values():
        settings = _settings(host)
        given = settings.get("reservedMemory")
        if settings.get("memoryManagerPolicy") != "Static" or not isinstance(given, list):
            continue
        limits = [each.get("limits") for each in given if isinstance(each, Mapping)]
        kept = [_bytes(each.get("memory", "0")) for each in limits if isinstance(each, Mapping)]
        values = [host.values.get(variable) for variable in (*RESERVED, EVICTION)]
        names = ("memory", "memory", "memory.available")
        asked = [
            _bytes(value.get(name, "0")) if isinstance(value, Mapping) else None
            for name, value in zip(names, values, strict=True)
        ]
        if None in (*kept, *asked) or len(kept) != len(given):
            continue  # a share of the memory, which the host alone knows, or no amount, which is said
        wanted = sum(each or 0 for each in asked)
        if sum(each or 0 for each in kept) != wanted:
            message = (
                f"is not {wanted // 2**20} MiB together, what is kept of the node (reservations and eviction)"
            )
            place, path = draft.inner_place(host, SETTINGS, "reservedMemory"), f"{SETTINGS}.reservedMemory"
            once.add(place, path, message, f"write memory of {wanted // 2**20}Mi, of all NUMA nodes together")


def _bytes(text: object) -> int | None:
    """Return an amount of memory; None for a share, and for what is not whole."""
    found = re.fullmatch(r"([0-9]+)([KMGT]i)?", str(text), re.ASCII)
    return int(found[1]) * 1024 ** " KMGT".index((found[2] or " ")[0]) if found else None


def _settings(host: HostDraft) -> Mapping[str, object]:
    value = host.values.get(SETTINGS)
    return value if isinstance(value, Mapping) else {}


CHECKS = (check_leases, check_bind_addresses, check_swap, check_reserved_memory)
