# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What switches say of themselves by LLDP (IEEE 802.1AB), and whether that is the port that was declared."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.taken import LONGEST, Taker

_CHASSIS_ID, _PORT_ID, _PORT_DESCRIPTION, _SYSTEM_NAME = 1, 2, 4, 5
_MAC_SUBTYPE = {_CHASSIS_ID: 4, _PORT_ID: 3}
_MOST_TLVS = 64
_PORT = re.compile(r"([a-z-]*)[ _-]*([0-9].*)?")


class Neighbour(t.NamedTuple):
    """The other end of a cable.

    Args:
        switches: what the switch calls itself: its system name and chassis id.
        ports: what it calls the port: its id and description.
    """

    switches: tuple[str, ...]
    ports: tuple[str, ...]

    def __str__(self) -> str:
        switch = self.switches[0] if self.switches else "a switch without a name"
        return f"{switch} {self.ports[0] if self.ports else ''}".rstrip()


def of_parsed(said: Mapping[str, t.Any], path: str, taker: Taker) -> Neighbour | None:
    """Return a neighbour as Ironic's ``parse-lldp`` hook and its Redfish inspection write it."""
    names = [taker.text(said, key, f"{path}.{key}") for key in ("switch_system_name", "switch_chassis_id")]
    ports = [taker.text(said, key, f"{path}.{key}") for key in ("switch_port_id", "switch_port_description")]
    return _neighbour(names, ports)


def of_raw(tlvs: t.Any, path: str, taker: Taker) -> Neighbour | None:
    """Return a neighbour out of TLVs as the agent writes them: pairs of a type and a value in hex digits."""
    if not isinstance(tlvs, Sequence) or isinstance(tlvs, (str, bytes)) or len(tlvs) > _MOST_TLVS:
        taker.note(path)
        return None
    found: dict[int, str] = {}
    for pair in tlvs:
        if not isinstance(pair, Sequence) or isinstance(pair, (str, bytes)) or len(pair) != 2:
            taker.note(path)
            continue
        kind, value = pair
        if kind not in (_CHASSIS_ID, _PORT_ID, _PORT_DESCRIPTION, _SYSTEM_NAME) or isinstance(kind, bool):
            continue
        text = _value(int(kind), value)
        if text is None:
            taker.note(path)
        elif text:
            found.setdefault(int(kind), text)
    return _neighbour(
        [found.get(_SYSTEM_NAME, ""), found.get(_CHASSIS_ID, "")],
        [found.get(_PORT_ID, ""), found.get(_PORT_DESCRIPTION, "")],
    )


def _value(kind: int, value: t.Any) -> str | None:
    """Return the text of a TLV; None when it cannot be read."""
    if not isinstance(value, str) or len(value) > 2 * LONGEST:
        return None
    try:
        data = bytes.fromhex(value)
    except ValueError:
        return None
    if kind in _MAC_SUBTYPE:
        if not data:
            return None
        subtype, data = data[0], data[1:]
        if subtype == _MAC_SUBTYPE[kind]:
            return ":".join(f"{byte:02x}" for byte in data) if len(data) == 6 else None
    text = data.rstrip(b"\0").decode("utf-8", "replace").strip()
    return text if text.isprintable() else None


def _neighbour(names: Sequence[str], ports: Sequence[str]) -> Neighbour | None:
    found = Neighbour(tuple(filter(None, names)), tuple(filter(None, ports)))
    return found if found.switches or found.ports else None


def switch_names(neighbour: Neighbour) -> set[str]:
    """Return every name that means this switch: as it is said, and without its domain."""
    names = {name.lower() for name in neighbour.switches}
    return names | {name.split(".")[0] for name in names if not name.replace(".", "").isdigit()}


def port_parts(port: str) -> tuple[str, str]:
    """Return a port's kind and number: ``Ethernet1/10`` is ethernet and 1/10."""
    match = _PORT.fullmatch(port.strip().lower())
    return (match[1] or "", match[2] or "") if match else (port.strip().lower(), "")


def same_port(declared: str, said: str) -> bool:
    """Return whether two names mean one port. Kinds may be shortened, as in Eth1/10 for Ethernet1/10."""
    first, second = port_parts(declared), port_parts(said)
    if first[1] != second[1]:
        return False
    short, long = sorted((first[0], second[0]), key=len)
    return long == short or bool(first[1] and short and long.startswith(short))


def is_at(neighbour: Neighbour, switch: str, port: str) -> bool:
    """Return whether a cable ends at a declared port."""
    return switch.lower() in switch_names(neighbour) and any(
        same_port(port, said) for said in neighbour.ports
    )
