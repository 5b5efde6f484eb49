# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What listens at which port of a host, over all layers, as ``listeners.yml`` beside this says."""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from collections.abc import Mapping
from pathlib import Path

import yaml
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.strict_reader import LOADER

FILE = Path(__file__).absolute().with_name("listeners.yml")
SERVERS, NODES, ADMINISTRATORS = CLIENTS = ("servers", "nodes", "administrators")
"""Who connects to a listener."""
ANY, HOST, LOOPBACK = "any", "host", "loopback"
_LOOPBACK_ADDRESS = "127.0.0.1"
_EVERY = ("0.0.0.0", "::")


@dataclasses.dataclass(frozen=True, slots=True)
class Listener:
    """One program that listens.

    Args:
        what: the program, and what it does there.
        layer: whose hosts have it.
        port: variable (a number, or NAME:PORT), or the number itself.
        address: ``any``, ``host``, ``loopback``, or a variable; an empty one means the host's own.
        protocol: ``tcp`` or ``udp``.
        groups: the hosts that have it are in one of these too; empty for all of the layer.
        needed: variable -> value without which it does not listen; True for any that says something.
        clients: who connects, some of CLIENTS; empty for what only the host itself asks.
    """

    what: str
    layer: str
    port: str | int
    address: str
    protocol: str = "tcp"
    groups: tuple[str, ...] = ()
    needed: tuple[tuple[str, t.Any], ...] = ()
    clients: tuple[str, ...] = ()

    def is_on(self, values: Mapping[str, t.Any]) -> bool:
        """Tell whether it listens on a host with these values."""
        return all(
            bool(values.get(name)) if wanted is True else values.get(name) == wanted
            for name, wanted in self.needed
        )

    def port_on(self, values: Mapping[str, t.Any]) -> int | None:
        """Return its port, None where what is written says none."""
        if isinstance(self.port, int):
            return self.port
        value = values.get(self.port)
        if isinstance(value, str):
            digits = value.rpartition(":")[2]
            return int(digits) if digits.isascii() and digits.isdigit() else None
        return value if isinstance(value, int) else None

    def address_on(self, values: Mapping[str, t.Any], own: str) -> str:
        """Return its address, ``any`` for all of the host's.

        Args:
            values: of the host.
            own: address of the host.
        """
        if self.address in (ANY, HOST, LOOPBACK):
            return {ANY: ANY, HOST: own, LOOPBACK: _LOOPBACK_ADDRESS}[self.address]
        written = str(values.get(self.address) or own)
        return ANY if written in _EVERY else written


@functools.lru_cache(maxsize=1)
def all_listeners() -> tuple[Listener, ...]:
    """Return the table."""
    rows = yaml.load(FILE.read_text(encoding="utf-8"), Loader=LOADER)
    return tuple(
        Listener(
            what=row["what"],
            layer=row["layer"],
            port=row["port"],
            address=row["address"],
            protocol=row.get("protocol", "tcp"),
            groups=tuple(row.get("groups", ())),
            needed=tuple(row.get("with", {}).items()),
            clients=tuple(row.get("from", ())),
        )
        for row in rows
    )
