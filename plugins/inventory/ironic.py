# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers that run in Ironic and are as they were declared, as hosts of Ansible's inventory."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.template import trust_as_template
from ansible.utils.vars import load_extra_vars
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.assembly.loader import load_site
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    expected_servers,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.handover import (
    LOGIN,
    Handed,
    handed_over,
    said_of_held,
    standings_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    IronicApi,
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.login import (
    CLOUD,
    endpoint,
    is_known,
    login_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.record import FIELDS
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site import unread

DOCUMENTATION = r"""
---
name: ironic
short_description: Servers that run in Ironic, as hosts of the inventory
version_added: "0.1.0"
description:
  - Reads the file of expected servers, and asks Ironic for all nodes in one request. A server whose operating
    system runs, and that was compared well with what is declared of it, becomes a host in the groups
    C(on_prem), C(nodes), C(gpu) (where GPUs are declared), C(rack_NAME), and the group that the file names.
  - A host has its static address, its account, the file with its host key (C(site_bare_metal_known_hosts)),
    its rack, and labels of its node in C(site_measured_labels).
  - Other servers are held; C(ansible-inventory -v) says each with the reason.
  - The file that C(site_bare_metal_inventory) names has the same hosts. Use one of the two.
  - When Ironic cannot be asked, every run on the inventory is refused, rather than done without these hosts.
  - Its file ends with C(ironic.yml) or C(ironic.yaml). It needs openstacksdk
    (C(pip install 'ironspan[metal]')).
author:
  - The ironspan developers
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [ironspan.hybrid.ironic]
  expected:
    description:
      - The file of expected servers, see docs/bare-metal-inventory.md. A relative path begins at this file's
        folder.
      - Do not put it into the folder of the inventory, where Ansible would read it as hosts.
    type: str
    required: true
  mapping:
    description: File that says what the columns of a vendor's list mean; a path as in O(expected).
    type: str
    default: ""
  cloud:
    description:
      - The cloud of C(clouds.yaml) that is the Ironic, as in C(site_bare_metal_cloud).
      - Left out, it is what the site says whose inventory lies in this file's folder - its own Ironic (the
        host of the group C(ironic), with the login of the PKI store), or C(site_bare_metal_cloud). An Ironic
        that was never brought up has no servers.
    type: str
    default: ""
"""

EXAMPLES = r"""
# inventories/berlin/ironic.yml
plugin: ironspan.hybrid.ironic
expected: ../../racks/berlin.csv

# With an Ironic that is not the site's own, and no site_bare_metal_cloud in its group_vars
# plugin: ironspan.hybrid.ironic
# expected: ../../racks/berlin.csv
# cloud: racks
"""

ENDINGS = ("ironic.yml", "ironic.yaml")


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]
    """The inventory plugin ``ironspan.hybrid.ironic``."""

    NAME = "ironspan.hybrid.ironic"

    def verify_file(self, path: str) -> bool:
        """Tell whether a file is for this plugin."""
        return bool(super().verify_file(path)) and path.endswith(ENDINGS)

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        """Add the hosts; an Ironic that cannot be asked is marked, and refused when a run begins."""
        super().parse(inventory, loader, path, cache)
        if unread.is_without_plugins():
            return
        self._read_config_data(path)
        handed = unread.read(lambda: self._asked(Path(path).parent), path, inventory, self.display.warning)
        if handed is None:
            return
        for name, (groups, variables) in handed.hosts.items():
            for group in groups:
                inventory.add_group(group)
                inventory.add_host(name, group=group)
            for variable, value in variables.items():
                trusted = variable in LOGIN and isinstance(value, str)
                inventory.set_variable(name, variable, trust_as_template(value) if trusted else value)
        for line in said_of_held(handed.held):
            self.display.v(line)

    def _asked(self, folder: Path) -> Handed:
        mapping = str(self.get_option("mapping") or "")
        servers = expected_servers(
            str(folder / Path(self.get_option("expected")).expanduser()),
            str(folder / Path(mapping).expanduser()) if mapping else "",
        )
        cloud = str(self.get_option("cloud") or "")
        api = connected(cloud) if cloud else self._of_site(folder)
        return handed_over(servers, standings_of(api.entries(*FIELDS)) if api else {})

    def _of_site(self, folder: Path) -> IronicApi | None:
        """Return the Ironic of the site in a folder; None for one of its own that was never brought up."""
        with unread.without_plugins():
            site, problems = load_site([folder], self.loader, extra_vars=load_extra_vars(self.loader))
        if site is None:
            raise RemoteError(
                f"the site's Ironic is not known, because its inventory has problems: {problems[0]}",
                "correct them",
            )
        variables = {**site.variables, "site": site}
        if not variables.get(CLOUD) and not endpoint(site):
            raise RemoteError(
                "the site names no Ironic",
                "write cloud here, site_bare_metal_cloud into group_vars, or give the group ironic a host",
            )
        if not variables.get(CLOUD) and not is_known(site):
            return None
        return connected(**login_of(variables))
