# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers that get their operating system again: the same, another image, or at another place."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds import bare_metal_server
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_server import (
    BareMetalServer,
)

VARIABLES = bare_metal_server.VARIABLES


def declared(variables: Mapping[str, t.Any], arguments: Mapping[str, t.Any]) -> dict[str, State | None]:
    """Return the servers that are named.

    Raises:
        RemoteError: as for ``bare_metal_server``, or no operating system is declared.
    """
    if not variables.get(bare_metal_server.IMAGE):
        raise RemoteError("no operating system is declared", "write site_bare_metal_image")
    wanted = bare_metal_server.declared(variables, arguments)
    return {name: {**(state or {}), "redeploy": True} for name, state in wanted.items()}


def opened(variables: Mapping[str, t.Any]) -> BareMetalServer:
    """Return the kind. Raises as that of ``bare_metal_server``."""
    return bare_metal_server.opened(variables, "bare_metal_redeploy")
