# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Names: what the name server is told and how its answers are read."""

from __future__ import annotations

import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ironspan.lab import names
from ironspan.lab.layout import Layout

QUERY = struct.pack(">HHHHHH", 77, 0x0100, 1, 0, 0, 0) + b"\x03api\x00" + struct.pack(">HH", 1, 1)


def reply(*records: tuple[int, bytes], head: bytes | None = None) -> bytes:
    body = b"".join(
        b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(data)) + data for kind, data in records
    )
    return (head or struct.pack(">HHHHHH", 77, 0x8180, 1, len(records), 0, 0)) + QUERY[12:] + body


def test_every_host_and_the_endpoint_have_their_names() -> None:
    text = names.hosts_text(Layout("lab", 1, 2, 1))
    assert "10.98.2.11 az-1.lab.internal az-1\n" in text
    assert "10.98.3.11 rack-1.lab.internal rack-1\n" in text
    assert "10.98.2.12 api.lab.internal\n" in text
    for name in (
        "labstore.blob.core.windows.net", "labstore.privatelink.blob.core.windows.net",
        "login.microsoftonline.com", "management.azure.com",
    ):  # fmt: skip
        assert f"10.98.2.253 {name}\n" in text  # the same address from both sides


def test_name_server_has_no_upstream_and_no_files_of_the_machine() -> None:
    command = names.command(Path("/state/lab"), Layout("lab", 1, 1, 1))
    for option in ("--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--local=/#/", "--bind-interfaces"):
        assert option in command
    assert [c for c in command if "listen" in c] == [
        "--listen-address=10.98.2.1",
        "--listen-address=10.98.3.1",
    ]


def test_addresses_are_read_and_other_records_passed_over() -> None:
    text = reply((5, b"\x01x\x00"), (1, bytes([10, 0, 0, 1])), (1, bytes([10, 0, 0, 2])))
    assert names.parse_reply(QUERY, text) == ["10.0.0.1", "10.0.0.2"]
    assert names.parse_reply(QUERY, reply()) == []


def test_answer_to_another_question_is_none() -> None:
    other = reply((1, bytes(4)), head=struct.pack(">HHHHHH", 78, 0x8180, 1, 1, 0, 0))
    assert names.parse_reply(QUERY, other) is None
    assert names.parse_reply(QUERY, reply((1, bytes(4))).replace(b"api", b"apj")) is None


@given(st.integers(0, 60))
def test_cut_answer_is_never_taken_for_more_than_it_says(length: int) -> None:
    whole = reply((1, bytes([10, 0, 0, 1])), (1, bytes([10, 0, 0, 2])))
    found = names.parse_reply(QUERY, whole[:length])
    assert found is None or set(found) <= {"10.0.0.1", "10.0.0.2"}


@given(st.binary(max_size=100))
def test_rubbish_is_no_answer_and_no_crash(tail: bytes) -> None:
    found = names.parse_reply(QUERY, QUERY[:6] + b"\x00\x05" + QUERY[8:] + tail)
    assert found is None or isinstance(found, list)


def test_server_that_is_not_there_is_none() -> None:
    assert names.lookup("127.0.0.99", "api", timeout_s=0.2) is None


def test_the_names_of_an_estate_are_its_zones_and_not_the_labs(tmp_path: Path) -> None:
    layout = Layout("a", 2, 0, 1, estate=3)
    text = names.hosts_text(layout)
    assert "management.azure.com" in text
    assert not [name for name in ("api.lab.internal", "blob.core") if name in text]
    assert f"--addn-hosts={tmp_path / names.ZONES}" in names.command(tmp_path, layout)
    names.write_zones(tmp_path, {"b.x": "10.0.0.2", "api.x": "10.0.0.1"})
    assert (tmp_path / names.ZONES).read_text() == "10.0.0.1 api.x\n10.0.0.2 b.x\n"
