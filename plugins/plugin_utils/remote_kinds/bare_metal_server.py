# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers in Ironic: from a BMC's address to an inspected, compared, clean one, and to one that runs.

Only servers of the expected inventory are looked at. None is ever removed, and nothing that Ironic has beside
them is touched.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.config_drive import (
    Account,
    KnownHosts,
    insist_on_image,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    expected_servers,
    racks_of,
    wanted_node,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.inventory_file import InventoryFile
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import (
    connected,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.login import CLOUD, CLOUDS, login_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish import ironic_login
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.redfish.ironic_login import BmcLogins
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import (
    AT_ONCE,
    State,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_server import (
    BareMetalServer,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of

NODE, RACKS = "site_bare_metal_node", "site_bare_metal_racks"
IMAGE, ACCOUNT, KNOWN_HOSTS = (
    "site_bare_metal_image",
    "site_bare_metal_account",
    "site_bare_metal_known_hosts",
)
PROOFS = "erased"
"""Folder for proofs, beside the file of expected servers."""
TOGETHER, INSPECT = "site_bare_metal_at_once", "site_bare_metal_inspect"
INVENTORY, EXPECTED, MAPPING = "site_bare_metal_inventory", "ironspan_expected", "ironspan_mapping"
FAILURES, LAYOUT = "site_bare_metal_failures", "site_bare_metal_layout"
VARIABLES = (
    "site", CLOUD, CLOUDS, NODE, RACKS, IMAGE, ACCOUNT, KNOWN_HOSTS, TOGETHER, INSPECT, INVENTORY,
    EXPECTED, MAPPING, FAILURES, LAYOUT, *ironic_login.VARIABLES,
)  # fmt: skip


def declared(variables: Mapping[str, t.Any], arguments: Mapping[str, t.Any]) -> dict[str, State | None]:
    """Return the servers that are expected and asked for.

    Raises:
        RemoteError: the file of expected servers or the site's settings have problems.
    """
    servers = expected_servers(
        str(value_of(arguments, EXPECTED)),
        str(value_of(arguments, MAPPING) or ""),
        [str(name) for name in value_of(arguments, "ironspan_servers")],
    )
    racks = racks_of(variables.get(RACKS) or {})
    image = variables.get(IMAGE) or {}
    if image:
        insist_on_image(
            image, Account.of(variables.get(ACCOUNT) or {}), str(variables.get(KNOWN_HOSTS) or "")
        )
    node, inspect = variables.get(NODE) or {}, bool(variables.get(INSPECT, True))
    logins, layout = BmcLogins.of(variables), str(variables.get(LAYOUT) or "plain")
    return {
        server.name: wanted_node(server, logins.node(node, server.serial), racks, image, inspect, layout)
        for server in servers
    }


def opened(variables: Mapping[str, t.Any], name: str = "bare_metal_server") -> BareMetalServer:
    """Return the kind; Ironic is asked once something is.

    Args:
        variables: of the site.
        name: of the kind, for those that take the same way to another end.

    Raises:
        RemoteError: openstacksdk is not installed, or ``clouds.yaml`` has no such cloud.
    """
    file, mapping = str(variables.get(EXPECTED) or ""), str(variables.get(MAPPING) or "")
    inventory = str(variables.get(INVENTORY) or "")
    return BareMetalServer(
        lambda: connected(**login_of(variables)),
        Account.of(variables.get(ACCOUNT) or {}),
        KnownHosts(str(variables.get(KNOWN_HOSTS) or "")),
        int(variables.get(TOGETHER) or AT_ONCE),
        InventoryFile(inventory, lambda: expected_servers(file, mapping)) if inventory else None,
        BmcLogins.of(variables),
        name,
        Path(file).expanduser().absolute().parent / PROOFS if file else None,
        int(variables.get(FAILURES) or 0),
    )
