# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""No two programs of a host listen at one port: the second of them would not start."""

from __future__ import annotations

import itertools

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.endpoints import HAVE_API
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.checks.networks import address_of, owners_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.draft import Draft, HostDraft
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import layers_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.listeners import (
    ANY,
    Listener,
    all_listeners,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import Once, shown
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.reach import parsed

API = "site_api_address"


def check_ports(draft: Draft) -> None:
    """Any two listeners of a host have ports, protocols or addresses of their own."""
    cni = draft.site_value("site_cni")
    said: set[tuple[str, str, str, object]] = set()
    for host in draft.hosts.values():
        layers = layers_of(host.groups, cni)
        taken: dict[tuple[str, int], list[tuple[Listener, str]]] = {}
        own = str(address_of(host))
        for listener in all_listeners():
            if listener.layer not in layers or not listener.is_on(host.values):
                continue
            if listener.groups and not set(listener.groups) & set(host.groups):
                continue
            port = listener.port_on(host.values)
            if port is not None:
                at = (listener, listener.address_on(host.values, own))
                taken.setdefault((listener.protocol, port), []).append(at)
        for (_protocol, port), found in taken.items():
            for (first, one), (second, other) in itertools.combinations(found, 2):
                if one != other and ANY not in (one, other):
                    continue
                wrong, right = _blamed(host, first, second)
                place = draft.place(host, str(wrong.port))
                key = (wrong.what, right.what, str(place), port)
                if key not in said:
                    said.add(key)
                    _add(draft, host, port, wrong, right)


def check_addresses(draft: Draft) -> None:
    """A program listens at an address of its own host, and at that of no other one."""
    cni = draft.site_value("site_cni")
    owners = owners_of(draft)
    variables = {
        each.address: each for each in all_listeners() if each.address in draft.specification.options
    }
    once = Once(draft.problems)
    shared: dict[tuple[str, str], HostDraft] = {}
    for host in draft.hosts.values():
        layers = layers_of(host.groups, cni)
        for variable, listener in variables.items():
            text = str(host.values.get(variable))
            owner = owners.get(text)
            is_own = owner is None and variable in host.settings
            if is_own and listener.layer in layers and listener.is_on(host.values):
                _check_shared(draft, host, variable, shared)
                if text and text == draft.site_value(API) and not {*host.groups} & HAVE_API:
                    message = f"{text} is {API}, and host {host.name} would listen there"
                    once.add(draft.place(host, variable), variable, message, "leave it out, or write its own")
            if owner is None or owner is host:
                continue
            if listener.layer not in layers or not listener.is_on(host.values):
                continue
            once.add(
                draft.place(host, variable),
                variable,
                f"{host.values[variable]} is the address of host {owner.name}, and host {host.name} "
                "would listen there",
                f"leave it out, or write it in host_vars/{owner.name}.yml",
            )


def _check_shared(
    draft: Draft, host: HostDraft, variable: str, shared: dict[tuple[str, str], HostDraft]
) -> None:
    """An address that several hosts would listen at is that of one of them at most."""
    text = str(host.values.get(variable) or "")
    address = parsed(text)
    if address is None:
        return  # Empty, which is the host's own, or named as none.
    if address.is_loopback or address.is_unspecified:
        return
    first = shared.setdefault((variable, text), host)
    if first is not host and (variable, "said") not in shared:
        shared[variable, "said"] = host
        draft.problems.add(
            draft.place(host, variable),
            variable,
            f"{text} would be the address of {first.name} and of {host.name}",
            "write 0.0.0.0 or 127.0.0.1, or each host's own in host_vars",
        )


def _blamed(host: HostDraft, first: Listener, second: Listener) -> tuple[Listener, Listener]:
    """Return the one whose port somebody wrote, and the other; the later one of the table where both are."""
    if second.port in host.settings or first.port not in host.settings:
        return second, first
    return first, second


def _add(draft: Draft, host: HostDraft, port: int, wrong: Listener, right: Listener) -> None:
    variable = str(wrong.port)
    if isinstance(right.port, int):
        other = f"{right.what}, which has no other"
    elif right.port in host.settings:
        place = draft.place(host, right.port)
        other = f"{right.what} ({right.port}, {shown(place.file)}:{place.line})"
    else:
        other = f"{right.what} ({right.port}, by default)"
    default = draft.specification.defaults.get(variable)
    draft.problems.add(
        draft.place(host, variable),
        variable,
        f"port {port} of host {host.name} is that of {other}",
        f"leave it out, or write another port: the default is {default}"
        if isinstance(default, int) and default != port
        else "write another port for one of them",
    )


CHECKS = (check_ports, check_addresses)
