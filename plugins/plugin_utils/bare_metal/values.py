# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Single values of a declaration: how each is written, what it becomes, and what to write instead.

A text begins with a letter or a digit. So nothing that is taken, and nothing that is written again, can be a
formula for a spreadsheet.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.gpus import folded, model_names
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.problems import quoted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.formats import is_taken_for_address
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.layers import PREFIXES, all_layers
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.problems import nearest

LONGEST = 256
"""Characters of one value."""
HIGHEST_UNIT = 60
DISK_KINDS = ("nvme", "ssd", "hdd")
SPEEDS = (1, 2, 5, 10, 20, 25, 40, 50, 56, 100, 200, 400, 800, 1600)
"""Gbit/s of Ethernet (IEEE 802.3) and InfiniBand (QDR 40, FDR 56, EDR 100 to XDR 800), also of two ports."""
MOST_OF_A_SIZE = 128
"""Disks; the largest enclosures take about a hundred."""

_HOST_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
)
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_TEXT = re.compile(r"[A-Za-z0-9][ -~]{0,127}")
_SERIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GROUP = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_OF_A_SPREADSHEET = re.compile(r"[0-9](?:[.,][0-9]+)?[Ee]\+?[0-9]{1,3}")
_MAC = re.compile(
    r"(?:[0-9a-f]{2}([:-]))(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}|[0-9a-f]{12}|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}"
)
_NO_SERIAL = re.compile(r"0+|0?123456789|none|na|n/a|null|unknown|default|tbd|test|serial|xxx+")
_OF_AZURE = ("azure", "etcd", "control_plane")
"""Groups of hosts on the other side of the WAN (checks/membership.py)."""
DIGITS = re.compile(r"\d+")
_FORMULA = "=+-@"


class Refused(Exception):
    """A value that is not taken: what is wrong, and what to write instead."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def checked(text: str) -> str:
    """Return a text that can be shown and written again, without white space around it.

    Raises:
        Refused: it is too long, has control characters, or would be a formula.
    """
    text = text.strip()
    if len(text) > LONGEST:
        raise Refused(f"{len(text)} characters", f"write at most {LONGEST}")
    if not text.isprintable():
        odd = next(char for char in text if not char.isprintable())
        what = "a line break" if odd in "\r\n" else f"the character U+{ord(odd):04X}"
        raise Refused(f"has {what} in it", "write one line of plain text")
    if text[:1] and text[0] in _FORMULA:
        raise Refused(
            f"'{quoted(text)}' would be a formula for a spreadsheet", "begin it with a letter or a digit"
        )
    return text


def name(text: str) -> str:
    """Return a server's name, which is a host name in small letters."""
    if _HOST_NAME.fullmatch(text) is None:
        near = re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip(".-")
        remedy = f"write small letters, digits, hyphens and dots{_for_example(near)}"
        raise Refused(f"'{quoted(text)}' is not a host name", remedy)
    if is_taken_for_address(text):
        raise Refused(
            f"'{quoted(text)}' is an address to every resolver, because its last part is a number",
            f"write a name with letters there, for example server-{text.rpartition('.')[2]}",
        )
    if text == "localhost" or text.endswith(".localhost"):
        raise Refused(f"'{quoted(text)}' is the machine that Ansible runs on", "write the server's own name")
    if text in ("all", "ungrouped") or text in all_layers().groups:
        raise Refused(f"'{text}' is a group of the inventory", "write the server's own name")
    return text


def address(text: str) -> str:
    """Return an IP address in its usual form, or a host name."""
    if "/" in text or "@" in text:
        raise Refused(
            f"'{quoted(text)}' is not an address",
            "write the address alone, without https://, user, port or path",
        )
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        if (
            not any(char.isalpha() for char in text)
            or ":" in text
            or _HOST_NAME.fullmatch(text.lower()) is None
        ):
            raise Refused(
                f"'{quoted(text)}' is not an address",
                "write an IP address, for example 10.20.1.11, or a host name",
            ) from None
        if text.lower() == "localhost" or text.lower().endswith(".localhost"):
            remedy = "write the address of the management controller"
            raise Refused(f"'{quoted(text)}' is the machine that Ansible runs on", remedy) from None
        return text.lower()
    if str(found) in ("127.0.0.1", "::1"):
        remedy = "write the address of the management controller"
        raise Refused(f"{found} is the machine that Ansible runs on", remedy)
    reserved = found.version == 4 and found.is_reserved
    if found.is_unspecified or found.is_multicast or found.is_link_local or reserved:
        raise Refused(
            f"{found} is not the address of one machine", "write the address of the management controller"
        )
    return str(found)


def mac(text: str) -> str:
    """Return a MAC address as six small octets with colons."""
    plain = text.lower()
    if _MAC.fullmatch(plain) is None:
        raise Refused(
            f"'{quoted(text)}' is not a MAC address", "write six octets, for example 5c:25:73:0a:1b:2c"
        )
    plain = (
        plain
        if len(plain) == 17 and plain[2] == ":"
        else plain.replace(":", "").replace("-", "").replace(".", "")
    )
    if len(plain) == 12:
        plain = ":".join(plain[index : index + 2] for index in range(0, 12, 2))
    if plain == "00:00:00:00:00:00" or int(plain[1], 16) & 1:
        raise Refused(
            f"{plain} is not the address of one network port", "write the address on the port's label"
        )
    return plain


def serial(text: str) -> str:
    """Return a serial number, in capitals."""
    if _OF_A_SPREADSHEET.fullmatch(text):
        raise Refused(
            f"'{text}' is what a spreadsheet makes of a long number",
            "give the column the format Text and write the number again",
        )
    if _NO_SERIAL.fullmatch(text.lower()):
        raise Refused(
            f"'{text}' says that there is none", "write the characters on the label, or leave it out"
        )
    return _matched(
        _SERIAL, text, "a serial number", "write the characters on the label: letters, digits, . _ / -"
    ).upper()


def digest(text: str) -> str:
    """Return a SHA-256 in small hexadecimal digits."""
    return _matched(_SHA256, text.lower(), "a SHA-256", "write its 64 hexadecimal digits, without colons")


def label(text: str) -> str:
    """Return a name of a rack, a switch or a domain."""
    return _matched(
        _LABEL, text, "a name", "write at most 63 letters, digits, . _ -; a letter or digit first and last"
    )


def free_text(text: str) -> str:
    """Return a text of somebody else's: a model, a version, a port."""
    return _matched(_TEXT, text, "plain text", "write up to 128 characters of ASCII, a letter or digit first")


def group(text: str) -> str:
    """Return the name of a group that a server in a rack can be in."""
    near = re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")
    _matched(_GROUP, text, "a group's name", f"write small letters, digits and _{_for_example(near)}")
    there = [name for name in all_layers().groups if name not in _OF_AZURE]
    if text not in there and not text.startswith(PREFIXES):
        like = nearest(text, there)
        remedy = f"write {like}" if like else "write nodes or gpu, or begin a group of your own with user_"
        raise Refused(f"'{quoted(text)}' is no group for servers in racks", remedy)
    return text


def speed(text: str) -> int:
    """Return the speed of a link in Gbit/s, one that Ethernet or InfiniBand has."""
    value = number(1, SPEEDS[-1], "Gbit/s")(text)
    if value not in SPEEDS:
        near = min(SPEEDS, key=lambda each: abs(each - value))
        raise Refused(f"no link has {value} Gbit/s", f"write for example {near}")
    return value


def gpu_model(text: str) -> str:
    """Return a model or variant as the table of GPUs writes it."""
    names = model_names()
    known = names.get(folded(text))
    if known is None:
        near = nearest(folded(text), names)
        remedy = f"write {names[near]}" if near else "write one of " + ", ".join(sorted({*names.values()}))
        raise Refused(f"no GPU '{quoted(text)}' is known", remedy)
    return known


def disk_kind(text: str) -> str:
    """Return one of the kinds of disks."""
    kind = text.lower()
    if kind not in DISK_KINDS:
        raise Refused(
            f"'{quoted(text)}' is not a kind of disk",
            f"write {nearest(kind, DISK_KINDS) or 'nvme, ssd or hdd'}",
        )
    return kind


def number(least: int, most: int, unit: str) -> Callable[[str], int]:
    """Return a reader of whole numbers.

    Args:
        least: the smallest that is taken.
        most: the largest.
        unit: what is counted, for the message.
    """

    def read(text: str) -> int:
        if _NUMBER.fullmatch(text) is None:
            first = DIGITS.search(text)
            near = (
                first[0]
                if first and first[0].isascii() and least <= int(first[0][:9]) <= most
                else str(least)
            )
            raise Refused(
                f"'{quoted(text)}' is not a whole number",
                f"write the number alone, in {unit}, for example {near}",
            )
        value = int(text)
        if not least <= value <= most:
            raise Refused(
                f"{value} is not between {least} and {most}", f"write a number of {unit} in between"
            )
        return value

    return read


def _matched(pattern: re.Pattern[str], text: str, what: str, remedy: str) -> str:
    if pattern.fullmatch(text) is None:
        raise Refused(f"'{quoted(text)}' is not {what}", remedy)
    return text


def _for_example(text: str) -> str:
    return f", for example {text[:63]}" if text[:1].isascii() and text else ""


def rack_group(rack: str) -> str:
    """Return the group of a rack: ``rack_`` and its name as Ansible takes it."""
    name = re.sub(r"[^a-z0-9_]", "_", rack.lower())
    return name if name.startswith("rack_") else f"rack_{name}"
