# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers that leave for good: taken down, marked as retired, every disk erased, and the proof kept."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import ERASE
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, State
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds import bare_metal_server
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote_kinds._ironic_server import (
    BareMetalServer,
)

STEPS = "site_bare_metal_erase"
VARIABLES = (*bare_metal_server.VARIABLES, STEPS)
_STEP = re.compile(r"[a-z]+\.[a-z_]+")


def declared(variables: Mapping[str, t.Any], arguments: Mapping[str, t.Any]) -> dict[str, State | None]:
    """Return the servers that are named.

    Raises:
        RemoteError: as for ``bare_metal_server``, or the steps are none.
    """
    steps = [str(step) for step in variables.get(STEPS) or ERASE]
    for step in steps:
        if not _STEP.fullmatch(step):
            raise RemoteError(
                f"{STEPS} has {step!r}, which is no clean step", f"write for example {ERASE[0]}"
            )
    ends = {"goal": "retired", "inspect": False, "image": {}, "host": {}, "clean": steps}
    wanted = bare_metal_server.declared({**variables, bare_metal_server.IMAGE: {}}, arguments)
    return {name: {**(state or {}), **ends} for name, state in wanted.items()}


def opened(variables: Mapping[str, t.Any]) -> BareMetalServer:
    """Return the kind. Raises as that of ``bare_metal_server``."""
    return bare_metal_server.opened(variables, "bare_metal_retire")
