# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Servers through Ironic by openstacksdk alone, as somebody would script it: ours is measured against it."""

from __future__ import annotations

import concurrent.futures
import time
import typing as t
from collections.abc import Callable, Mapping, Sequence

Node = Mapping[str, t.Any]


class Raw:
    """Such a script.

    Args:
        baremetal: ``Connection.baremetal`` of openstacksdk.
        at_once: how many servers at the same time.
    """

    def __init__(self, baremetal: t.Any, at_once: int) -> None:
        self._baremetal = baremetal
        self._at_once = at_once
        self._ids: dict[str, str] = {}

    def available(self, nodes: Mapping[str, Node], macs: Mapping[str, Sequence[str]]) -> float:
        """Make servers known, with their ports, and available. Returns seconds."""

        def one(name: str) -> None:
            made = self._baremetal.create_node(name=name, **nodes[name])
            self._ids[name] = made.id
            for mac in macs[name]:
                self._baremetal.create_port(node_id=made.id, address=mac)
            self._baremetal.set_node_provision_state(made.id, "manage", wait=True)
            self._baremetal.set_node_provision_state(made.id, "provide", wait=True)

        return self._each(one, nodes)

    def deployed(self, image: Mapping[str, t.Any], drives: Mapping[str, Mapping[str, t.Any]]) -> float:
        """Write operating systems. Returns seconds."""

        def one(name: str) -> None:
            self._baremetal.update_node(self._ids[name], instance_info=dict(image))
            self._baremetal.set_node_provision_state(
                self._ids[name], "active", config_drive=drives[name], wait=True
            )

        return self._each(one, drives)

    def _each(self, one: Callable[[str], None], names: Mapping[str, t.Any]) -> float:
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(self._at_once) as pool:
            list(pool.map(one, names))
        return time.monotonic() - began
