# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The firmware of servers that run, as it is expected; the files come from the site's own server."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.declared_nodes import (
    expected_servers,
    wanted_node,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.firmware import (
    FILES,
    URL,
    files_of,
    wanted_firmware,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.firmware_served import asked_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.ironic_api import connected
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.login import (
    CLOUD,
    CLOUDS,
    images_url,
    login_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import AT_ONCE, RemoteError, State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_firmware import (
    BareMetalFirmware,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of

TOGETHER, FAILURES = "site_bare_metal_at_once", "site_bare_metal_failures"
VARIABLES = ("site", CLOUD, CLOUDS, FILES, URL, TOGETHER, FAILURES)


def declared(variables: Mapping[str, t.Any], arguments: Mapping[str, t.Any]) -> dict[str, State | None]:
    """Return the servers that are asked for.

    Raises:
        RemoteError: the file of expected servers or the site's settings have problems, or nobody serves the
            files.
    """
    servers = expected_servers(
        str(value_of(arguments, "ironspan_expected")),
        str(value_of(arguments, "ironspan_mapping") or ""),
        [str(name) for name in value_of(arguments, "ironspan_servers")],
    )
    files = files_of(variables.get(FILES))
    site = variables.get("site")
    base = str(variables.get(URL) or "") or (images_url(site) if site else "")
    if files and not base:
        raise RemoteError(
            "nobody serves the files with firmware: the site has no Ironic of its own",
            f"write {URL}, the address of a folder that has each file below its digest",
        )
    found: dict[str, State | None] = {}
    for server in servers:
        state = wanted_node(server, {}, {}, {}, False)
        found[server.name] = {
            "goal": "active",
            "inspect": False,
            "service": ["firmware.update"],
            "firmware": wanted_firmware(server, files, base),
            "expected": state["expected"],
        }
    return found


def opened(variables: Mapping[str, t.Any]) -> BareMetalFirmware:
    """Return the kind; Ironic is asked once something is.

    Raises:
        RemoteError: the site's PKI store cannot be used.
    """
    login = functools.cache(lambda: login_of(variables))
    return BareMetalFirmware(
        lambda: connected(**login()),
        int(variables.get(TOGETHER) or AT_ONCE),
        int(variables.get(FAILURES) or 0),
        # The site's own Ironic serves files with a certificate of the authority that its API has.
        lambda url: asked_of(str(login().get("cacert") or ""))(url),
    )
