# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From servers that run to hosts of Ansible's inventory: what ``site.yml`` takes over.

Only a server whose operating system runs, and that was measured as it is declared, is handed over. Everything
else is held, with the reason. The inventory plugin and the file come from the same function.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.expected import ExpectedServer
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.facts import labels_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import quoted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import (
    Record,
    digest_of,
    place_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.tpm import VARIABLE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.values import rack_group
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

LOGIN: t.Final[Mapping[str, t.Any]] = {
    "ansible_user": '{{ site_bare_metal_account.user | default("ironspan", true) }}',
    "ansible_become": True,
    # After the arguments that the site has itself, so that a jump host of its own stays in force.
    "ansible_ssh_extra_args": "-o UserKnownHostsFile={{ site_bare_metal_known_hosts | expanduser }}",
}
"""How every such host is logged in to: the account and the keys that its config drive has."""
MARK = "Written by `ironspan bare-metal`"
_HEAD = f"""\
# Servers that run and are as they were declared, as hosts. {MARK}, which writes it
# anew: do not edit it. What a host shall have beside belongs into group_vars and host_vars.
---
"""


class Standing(t.NamedTuple):
    """How a server stands in Ironic.

    Args:
        state: its provision state; None when Ironic does not know it.
        record: what runs have recorded of it.
    """

    state: str | None
    record: Record = Record()


class Handed(t.NamedTuple):
    """What is handed over.

    Args:
        hosts: name to groups and variables, in the order of the servers.
        held: name to the reason, of the others.
    """

    hosts: Mapping[str, tuple[tuple[str, ...], Mapping[str, t.Any]]]
    held: Mapping[str, str]


def handed_over(servers: Iterable[ExpectedServer], standings: Mapping[str, Standing]) -> Handed:
    """Return the hosts that servers have become, and why others have not.

    Args:
        servers: all that are expected.
        standings: by name; a server that has none is not known to Ironic.

    Raises:
        RemoteError: the names of two racks would be one group.
    """
    hosts: dict[str, tuple[tuple[str, ...], Mapping[str, t.Any]]] = {}
    held: dict[str, str] = {}
    racks: dict[str, str] = {}
    for server in servers:
        group = rack_group(server.rack)
        if racks.setdefault(group, server.rack) != server.rack:
            raise RemoteError(
                f"the racks {racks[group]} and {server.rack} would both be the group {group}",
                "give one of them another name",
            )
        standing = standings.get(server.name, Standing(None))
        if reason := _held(server, standing):
            held[server.name] = reason
        else:
            hosts[server.name] = (_groups(server, group), _variables(server, standing.record))
    return Handed(hosts, held)


def as_inventory(handed: Handed) -> dict[str, t.Any]:
    """Return hosts as the content of an inventory file."""
    children: dict[str, t.Any] = {"on_prem": {"hosts": {}}}
    for name, (groups, variables) in handed.hosts.items():
        children["on_prem"]["hosts"][name] = dict(variables)
        for group in groups:
            if group != "on_prem":
                children.setdefault(group, {"hosts": {}})["hosts"][name] = {}
    return {"all": {"children": children}}


def as_file(handed: Handed) -> bytes:
    """Return hosts as an inventory file; the same hosts are the same bytes."""
    return _HEAD.encode() + yaml.safe_dump(as_inventory(handed), sort_keys=False, width=120).encode()


def said_of_held(held: Mapping[str, str], most: int = 20) -> list[str]:
    """Return a line for people about each server that is held, at most so many."""
    lines = [f"{name} is no host of the inventory: {reason}" for name, reason in held.items()]
    return [*lines[:most], *([f"and {len(lines) - most} more are none"] if len(lines) > most else [])]


def _held(server: ExpectedServer, standing: Standing) -> str:
    record = standing.record
    if standing.state is None:
        return "Ironic does not know it"
    if standing.state != "active":
        return f"it is '{quoted(standing.state)}' in Ironic, not 'active'"
    if record.deployed is None:
        return "ironspan has written no operating system to it; redeploy it"
    if record.deployed.place != place_of(server):
        there = quoted(record.deployed.place)
        return f"it is declared in {place_of(server)}, and its system was written for {there}; redeploy it"
    if record.deployed.inspected and (record.compared is None or record.compared.digest != digest_of(server)):
        return "it was not compared with what is declared now, or differs from it"
    return ""


def _groups(server: ExpectedServer, rack: str) -> tuple[str, ...]:
    gpu = ["gpu"] if server.gpu_count else []
    own = [server.group] if server.group else []
    return tuple(dict.fromkeys(("on_prem", "nodes", *gpu, rack, *own)))


def _variables(server: ExpectedServer, record: Record) -> dict[str, t.Any]:
    compared = record.compared
    current = compared is not None and compared.digest == digest_of(server)
    labels = compared.labels if compared is not None and current else labels_of(server)
    tpm = server.tpm_ek_sha256 or (compared.tpm if compared is not None and current else "")
    address = record.deployed.address if record.deployed else ""
    return {
        "ansible_host": address,
        **LOGIN,
        "site_rack": server.rack,
        "site_measured_labels": dict(labels),
        **({VARIABLE: tpm} if tpm else {}),
    }


def standings_of(entries: Mapping[str, tuple[Mapping[str, t.Any], t.Any]]) -> dict[str, Standing]:
    """Return how servers stand, from what ``IronicApi.entries`` says with the fields of a record."""
    return {name: Standing(node.state, Record.of(entry)) for name, (entry, node) in entries.items()}
