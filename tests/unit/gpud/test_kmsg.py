# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The kernel's log is read from where it was read to, each line once."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from ironspan.gpud import kmsg

XID = "NVRM: Xid (PCI:0000:1f:00): 79, pid=1"


def lines(path: Path, position: kmsg.Position, times: int = 2) -> tuple[list[str], kmsg.Position]:
    """Return what is new."""
    asked = itertools.count()
    texts: list[str] = []
    for found, after in kmsg.read(path, position, lambda: next(asked) >= times):
        position = after
        texts += [line.text for line in found]
    return texts, position


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmsg, "_POLL_S", 0.01)


def test_a_file_is_read_on_and_from_its_begin_when_it_is_another(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"one\n{XID}\nhal")
    texts, position = lines(log, {})
    assert texts == ["one", XID]
    with log.open("a") as file:
        file.write("f a line\n")
    texts, position = lines(log, position)
    assert texts == ["half a line"]
    assert lines(log, position)[0] == []
    os.replace(log, tmp_path / "log.1")  # noqa: PTH105
    log.write_text("new\n")
    texts, position = lines(log, position)
    assert texts == ["new"]
    log.write_text("")
    log.write_text("n\n")
    assert lines(log, position)[0] == ["n"]


def test_records_of_the_kernel_lose_their_head(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"4,1234,99887766,-;{XID}\n SUBSYSTEM=pci\n")
    assert lines(log, {})[0] == [XID, " SUBSYSTEM=pci"]


def test_any_bytes_are_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(bytes(range(256)) * 50 + b"\n")
    assert lines(log, {})[0]


def test_many_lines_come_in_parts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{number}\n" for number in range(2500)))
    parts = [len(found) for found, _ in itertools.islice(kmsg.read(log, {}, lambda: False), 3)]
    assert parts == [1000, 1000, 500]


def test_the_device_gives_the_driver_s_records_since_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        f"4,{number},{number}000000,-;{text}\n" for number, text in [(5, XID), (6, "usb"), (7, XID), (8, "x")]
    ]
    given: list[object] = [records[0].encode(), BrokenPipeError(), *(each.encode() for each in records[1:])]

    def read(_: int, size: int) -> bytes:
        if not given:
            raise BlockingIOError
        found = given.pop(0)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, bytes)
        return found

    monkeypatch.setattr(os, "read", read)
    told = list(kmsg._device(Path("/dev/null"), 5, iter([False, True]).__next__))
    assert [(line.text, position) for found, position in told for line in found] == [(XID, {"number": 8})]


def test_this_machine_s_own_log_can_be_read() -> None:
    path = Path("/dev/kmsg")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"{path} cannot be read here: {error.strerror}")
    assert isinstance(lines(path, {}, 1)[0], list)
