# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Lines of the kernel's log are read, and judged by what they say themselves."""

from __future__ import annotations

import pytest
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.messages import (
    Message,
    parse,
    rule_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.gpu_policy.policy import Event, shipped
from hypothesis import given
from hypothesis import strategies as st

PCI = "0000:0f:00"


def nvlink(unit: str, severity: str, word: int, code: int = 149) -> str:
    """Return a line of NVLink 5."""
    words = f"(0x{word:08x} 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
    return f"NVRM: Xid (PCI:0018:01:00): {code}, {unit} {severity} XC0 i0 Link 08 {words}"


def down(reason: int) -> str:
    """Return a line that says that a link is down, for a reason."""
    return nvlink("NETIR_LINK_EVT", "Fatal", reason << 20 | 0b0111000110)


@pytest.mark.parametrize(
    ("line", "event", "action"),
    [
        ("NVRM: Xid (PCI:0000:0F:00): 94, pid=7194, name=python3, Ch 00000008", "xid 94", "A1"),
        ("<4>[12.5] NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', GPU has fallen", "xid 79", "A3"),
        ("NVRM: Xid (PCI:0000:0f:00): 48", "xid 48", "A2"),
        ("NVRM: GPU 0000:0f:00.0: GPU has fallen off the bus.", "xid 79", "A3"),
        ("NVRM: GPU at PCI:0000:0f:00: GPU has fallen off the bus.", "xid 79", "A3"),
        ("NVRM: Xid (PCI:0000:0f:00): 999, something new", "xid 999", "A0"),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress", "sxid 12028", "A0"),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "sxid 20034",
            "A2",
        ),
        (nvlink("RLW_SRC_TRACK", "Nonfatal", 0, 145), "xid 145", "A0"),
        (nvlink("RLW_SRC_TRACK", "Fatal", 0, 145), "xid 145", "A2"),
        (nvlink("NETIR_BER_EVENT", "Nonfatal", 0x226), "xid 149", "A0"),
        (nvlink("NETIR_BER_EVENT", "Non-fatal", 0x226), "xid 149", "A0"),
        (nvlink("MSE_WATCHDOG", "Fatal", 0, 150), "xid 150", "A2"),
        ("NVRM: Xid (PCI:0018:01:00): 149, in words that nobody has seen", "xid 149", "A2"),
        (down(0x04), "xid 149", "A2"),
        (down(0x26), "xid 149", "A0"),
        (down(0x28), "xid 149", "A0"),
        (down(0x2A), "xid 149", "A2"),
    ],
)
def test_line(line: str, event: str, action: str) -> None:
    message = parse(line)
    assert message is not None
    assert str(message.event) == event
    assert rule_of(message, shipped()).action == action


def test_details_are_kept() -> None:
    assert parse("NVRM: Xid (PCI:0000:0F:00): 31, pid=4242, name=train, Ch 1") == Message(
        Event("xid", "31"), PCI, pid=4242
    )
    message = parse(down(0x15))
    assert message is not None
    assert (message.pci, message.fatal, message.unit, message.link) == (
        "0018:01:00",
        True,
        "NETIR_LINK_EVT",
        8,
    )
    assert message.reason == 0x15
    switch = parse("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress")
    assert switch is not None and switch.link == 32 and switch.fatal is False


def test_a_site_s_word_counts_more_than_the_line_s() -> None:
    entries = [
        {"event": event, "class": "A4", "reason": "bad cables in this hall"}
        for event in ("xid 149", "sxid 12028")
    ]
    policy = shipped().with_overrides(entries)
    for line in (
        nvlink("NETIR_BER_EVENT", "Nonfatal", 0),
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32",
    ):
        message = parse(line)
        assert message is not None and rule_of(message, policy).action == "A4"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module 580.159.03",
        "a program says: NVRM: Xid (PCI:zzzz): 79",
        "NVRM: Xid (PCI:0000:0f:00): many, pid=1",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12, Fatal",
        "x" * 5000 + "NVRM: Xid (PCI:0000:0f:00): 79",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert parse(line) is None


PIECES = [
    "NVRM: Xid (PCI:0000:0f:00): ",
    "149",
    ", ",
    "NETIR_LINK_EVT Fatal XC0 i0 Link ",
    "8",
    "(0x1 ",
    ")",
    "x",
]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=9)), max_size=9).map("".join))
def test_any_line_is_read_or_not(line: str) -> None:
    message = parse(line)
    if message is not None:
        assert rule_of(message, shipped()).action in ("A0", "A1", "A2", "A3", "A4", "A5")
