# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Lines of the kernel's log in which the driver says what happened to a GPU or an NVSwitch."""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import (
    Event,
    Policy,
    Rule,
    data,
)

LONGEST = 4096
"""Bytes of a line that are read; the kernel's own records are shorter (PRINTK_MESSAGE_MAX, 2048)."""
_PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_XID = re.compile(rf"NVRM: Xid \(PCI:{_PCI}\): (?P<code>[0-9]{{1,4}})(?:, (?P<rest>.*))?$")
_LOST = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?{_PCI}:? GPU has fallen off the bus")
_SXID = re.compile(
    rf"nvidia-nvswitch(?P<switch>[0-9]+): SXid \(PCI:{_PCI}\): (?P<code>[0-9]{{4,5}}), (?P<rest>.*)$"
)
_NVLINK = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_/]*) (?P<severity>(?:Link )?Fatal|Non-?fatal)\b.*?"
    r"\bLink (?P<link>-?[0-9]+) \((?P<words>0x[0-9a-fA-F]+(?: 0x[0-9a-fA-F]+)*)"
)
_PROCESS = re.compile(r"\bpid='?(?P<pid>[0-9]+)'?(?:, name=(?P<name>[^,]*))?")


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One line.

    Args:
        event: which XID or SXID.
        pci: address of the GPU or switch, in lower case.
        fatal: as the line itself says; None where it says nothing.
        unit: part of the GPU that NVLink 5 names.
        link: number of the NVLink; None without one.
        words: what NVLink 5 says in numbers, the first one with the reason.
        pid: the process that it names; None without one.
    """

    event: Event
    pci: str
    fatal: bool | None = None
    unit: str = ""
    link: int | None = None
    words: tuple[int, ...] = ()
    pid: int | None = None

    @property
    def reason(self) -> int:
        """The reason of NVLink 5: bits 20 to 25 of the first word."""
        return self.words[0] >> 20 & 0x3F if self.words else 0


def parse(line: str) -> Message | None:
    """Read a line of the kernel's log; what is none of the driver's is None.

    Args:
        line: with or without the kernel's own prefix.
    """
    line = line[:LONGEST].rstrip()
    if found := _XID.search(line):
        return _xid(found["code"], found["pci"].lower(), found["rest"] or "")
    if found := _LOST.search(line):
        return Message(Event("xid", "79"), found["pci"].lower())
    if found := _SXID.search(line):
        rest = found["rest"]
        link = re.search(r"\bLink ([0-9]{1,4})\b", rest)
        fatal = not rest.lower().startswith("non-fatal")
        event = Event("sxid", str(int(found["code"])))
        return Message(event, found["pci"].lower(), fatal, link=int(link[1]) if link else None)
    return None


def _xid(code: str, pci: str, rest: str) -> Message:
    event = Event("xid", str(int(code)))
    if int(code) in data()["nvlink5"]["codes"] and (found := _NVLINK.search(rest)):
        words = tuple(int(word, 16) for word in found["words"].split())
        fatal = not found["severity"].lower().startswith("non")
        return Message(event, pci, fatal, found["unit"], int(found["link"]), words)
    process = _PROCESS.search(rest)
    return Message(event, pci, pid=int(process["pid"]) if process else None)


def rule_of(message: Message, policy: Policy) -> Rule:
    """Return what is done about a line: by the site's word, by the line's own, or by the table."""
    rule = policy.rule(message.event)
    if rule.by_site or message.fatal is None:
        return rule
    if message.event.source == "sxid":
        return policy.rule(Event("sxid", "fatal" if message.fatal else "non-fatal"))
    if not message.fatal:
        return Rule("A0", rule.name, "IGNORE", why="the line says that it is not fatal")
    ignored = data()["nvlink5"]["ignored_reasons"]
    if "NETIR_LINK" in message.unit and message.reason in ignored:
        return Rule("A0", rule.name, "IGNORE", why=str(ignored[message.reason]))
    return rule
