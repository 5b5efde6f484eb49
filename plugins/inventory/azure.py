# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Machines of a site's estate in Azure, as hosts of Ansible's inventory."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable
from ansible.template import trust_as_template
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.group_variables import (
    variables_of_all,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure import machines, recording
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.connection import Connection, connection
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.machines import Declared, Seen
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.rest import Rest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate import declared as estate_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.machines import etcd_devices
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.estate.model import Estate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.known_hosts import KnownHostsFile
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import unread

DOCUMENTATION = r"""
---
name: azure
short_description: Machines of the estate in Azure, as hosts of the inventory
version_added: "0.1.0"
description:
  - Every machine that C(azure_machines) declares is a host in the groups that are written there, and in
    C(azure), with the address of the address plan. It is one before it is made, so that the site can be
    checked and planned.
  - A member of etcd also gets C(etcd_disk_devices), the paths of its own disk, unless that is written for
    the group C(all).
  - Every instance of a pool (C(azure_pools)) that runs is a host in C(azure), C(nodes) and the groups of its
    pool. Azure is asked for all machines and all interfaces, in two lists.
  - Public SSH host keys are those of the file C(azure_known_hosts), which C(playbooks/azure.yml) has read
    through Azure's control plane. This plugin writes nothing. No key is ever trusted because it was seen
    first. An instance whose key is not recorded is no host.
  - A machine counts only in a resource group of the site (C(azure_resource_groups)), whatever its tags are.
    Of two machines with one name or one address no key is recorded.
  - C(ansible-inventory -v) names what is declared and not there, what runs and is not declared, and what has
    left.
  - When Azure cannot be asked, every run on the inventory is refused, rather than done without these hosts.
  - Its file ends with C(azure.yml) or C(azure.yaml) and lies in the folder of the inventory, whose variables
    C(azure_*) it reads. It needs Azure's SDK (C(pip install 'ironspan[azure]')).
author:
  - The ironspan developers
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [ironspan.hybrid.azure]
extends_documentation_fragment:
  - inventory_cache
"""

EXAMPLES = r"""
# inventories/berlin/azure.yml
plugin: ironspan.hybrid.azure

# Keep what Azure said for five minutes
# plugin: ironspan.hybrid.azure
# cache: true
# cache_plugin: ansible.builtin.jsonfile
# cache_connection: ~/.cache/ironspan/azure
# cache_timeout: 300
"""

ENDINGS = ("azure.yml", "azure.yaml")
KNOWN_HOSTS, MANAGEMENT = "azure_known_hosts", "azure_management"
LOGIN: t.Final[dict[str, t.Any]] = {
    "ansible_user": '{{ azure_user | default("ironspan", true) }}',
    "ansible_become": True,
    "ansible_ssh_extra_args": "-o UserKnownHostsFile={{ azure_known_hosts | expanduser }}",
}
"""How machines are logged in to: the account that they are made with, and the keys that Azure has read."""


class InventoryModule(BaseInventoryPlugin, Cacheable):  # type: ignore[misc]
    """The inventory plugin ``ironspan.hybrid.azure``."""

    NAME = "ironspan.hybrid.azure"

    def verify_file(self, path: str) -> bool:
        """Tell whether a file is for this plugin."""
        return bool(super().verify_file(path)) and path.endswith(ENDINGS)

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        """Add the hosts; an Azure that cannot be asked is marked, and refused when a run begins."""
        super().parse(inventory, loader, path, cache)
        if unread.is_without_plugins():
            return
        self._read_config_data(path)
        self.load_cache_plugin()
        handed = unread.read(lambda: self._asked(Path(path), cache), path, inventory, self.display.warning)
        if handed is None:
            return
        for name, (groups, variables) in handed.hosts.items():
            for group in groups:
                inventory.add_group(group)
                inventory.add_host(name, group=group)
            for variable, value in {**LOGIN, **variables}.items():
                trusted = variable in LOGIN and isinstance(value, str)
                inventory.set_variable(name, variable, trust_as_template(value) if trusted else value)
        for name, reason in handed.held.items():
            self.display.v(f"{name}: {reason}")

    def _asked(self, path: Path, cache: bool) -> machines.Handed:
        variables = variables_of_all(path.parent, self.loader, (*estate_of.VARIABLES, machines.DEVICES))
        # What the site has written wins, which variables of hosts would hide.
        written = variables.pop(machines.DEVICES, None) is not None
        estate = estate_of.declared(variables)
        if estate is None:
            raise RemoteError(
                "this site has no estate in Azure", "write azure_subscription, or remove this file"
            )
        known = KnownHostsFile(str(variables.get(KNOWN_HOSTS) or ""), KNOWN_HOSTS)
        spoken = connection(variables.get(MANAGEMENT) or {})
        listed = self._seen(str(path), spoken, estate, cache)
        seen, strangers = machines.told_apart(listed, estate.groups.values())
        unknown = self._unknown(known, seen)
        declared = {
            one.name: Declared(
                one.groups, one.address, estate.region, one.zone, () if written else etcd_devices(one)
            )
            for one in estate.machines
        }
        pools = {one.name: one.groups for one in estate.pools}
        handed = machines.handed_over(declared, pools, seen, unknown)
        return handed._replace(held={**handed.held, **strangers})

    def _seen(self, path: str, spoken: Connection, estate: Estate, cache: bool) -> list[Seen]:
        """Return the machines that are there."""
        key, kept = self.get_cache_key(path), bool(self.get_option("cache"))
        if kept and cache and key in self._cache:
            return [Seen(*map(str, entry)) for entry in self._cache[key]]
        seen = machines.listed(Rest(spoken, estate.subscription), estate.site)
        if kept:
            self._cache[key] = [list(one) for one in seen]
        return seen

    def _unknown(self, known: KnownHostsFile, seen: list[Seen]) -> dict[str, str]:
        """Return name and reason of machines whose keys are not recorded; name those that have left."""
        found = recording.difference(seen, known.entries())
        for name in sorted({*found.left.values()} - {one.name for one in seen}):
            self.display.warning(f"{name} has left Azure; if it was a node: ironspan node remove {name}")
        missing = {one.name: "its host key is not recorded; ironspan azure does it" for one in found.missing}
        return {**found.doubtful, **missing}
