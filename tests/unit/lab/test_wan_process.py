# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The WAN process with datagram sockets in the place of TUN devices: needs no root."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironspan.lab.errors import LabError
from ironspan.lab.wan import control, process
from ironspan.lab.wan.queue import Settings


class Line:
    """A Wan between two socket pairs: `azure` and `rack` are the routers' ends."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.azure, near = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.rack, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._inner = (near, far)
        for end in (self.azure, self.rack, near, far):
            end.setblocking(False)
        self.devices = (near.fileno(), far.fileno())
        self.wan = process.Wan(folder, self.devices, settings)

    def close(self) -> None:
        for end in (self.azure, self.rack, *self._inner):
            end.close()


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    made = Line(tmp_path, Settings())
    yield made
    made.close()


def test_packets_arrive_on_the_other_side_unchanged(line: Line) -> None:
    line.azure.send(b"to rack")
    line.rack.send(b"to azure")
    for device in line.devices:
        line.wan.take(device)
    soonest = line.wan.move(time.monotonic())
    assert soonest is not None
    with pytest.raises(BlockingIOError):
        line.rack.recv(100)
    assert line.wan.move(soonest) is None
    assert line.rack.recv(100) == b"to rack"
    assert line.azure.recv(100) == b"to azure"


def test_packet_the_far_side_refuses_is_counted_and_the_link_lives(line: Line) -> None:
    for _ in range(1000):  # more than a datagram socket's queue holds
        line.azure.send(b"x")
        line.wan.take(line.devices[0])
    line.wan.move(time.monotonic() + 1)
    counters = line.wan.answer({})["counters"]["azure_to_rack"]
    assert counters["refused_packets"] > 0
    assert counters["refused_packets"] + counters["delivered_packets"] == 1000


def test_unknown_device_error_is_not_swallowed(line: Line) -> None:
    line.azure.send(b"x")
    line.wan.take(line.devices[0])
    # A closed device is a defect, not a busy line.
    spare = os.dup(line.devices[1])
    os.close(line.devices[1])
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            line.wan.move(time.monotonic() + 1)
    finally:
        os.dup2(spare, line.devices[1])
        os.close(spare)


def test_settings_outlive_the_process(line: Line) -> None:
    reply = line.wan.answer({"set": {"rtt_s": 0.2, "loss": 0.5, "seed": 4}})
    assert reply["settings"]["rtt_s"] == 0.2
    assert process.load_settings(line.wan.folder) == Settings(rtt_s=0.2, loss=0.5, seed=4)
    assert process.load_settings(line.wan.folder / "nowhere") == Settings()


@pytest.mark.parametrize("changes", [{"speed": 1}, {"loss": 2}, {"cut": "yes"}])
def test_refused_change_leaves_everything_as_it_was(line: Line, changes: dict[str, object]) -> None:
    assert "error" in line.wan.answer({"set": changes})
    assert line.wan.settings == Settings()
    assert not process.settings_path(line.wan.folder).exists()


def test_setting_the_same_seed_starts_the_losses_anew(line: Line) -> None:
    def lost() -> list[bool]:
        line.wan.answer({"set": {"seed": 3, "loss": 0.5}})
        way = line.wan.ways[line.devices[0]][1]
        return [way.offer(b"x", 1.0) is None for _ in range(64)]

    first = lost()
    assert lost() == first
    assert True in first
    assert False in first


def _served(line: Line, folder: Path, clients: int) -> threading.Thread:
    listener = process._listen(process.socket_path(folder))
    listener.setblocking(True)

    def serve() -> None:
        with listener:
            for _ in range(clients):
                process._converse(line.wan, listener)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def test_control_socket_changes_and_shows(line: Line, tmp_path: Path) -> None:
    thread = _served(line, tmp_path, 2)
    assert control.request(tmp_path, {"cut": True})["settings"]["cut"] is True
    with pytest.raises(LabError, match=r"refused: loss is 7"):
        control.request(tmp_path, {"loss": 7})
    thread.join(120)
    assert process.socket_path(tmp_path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("sent", [b"", b"nonsense\n", b"[1]\n", b"\xff\n", b'{"set": 3}\n'])
def test_garbage_on_the_control_socket_does_not_stop_the_link(
    line: Line, tmp_path: Path, sent: bytes
) -> None:
    thread = _served(line, tmp_path, 2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(process.socket_path(tmp_path)))
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(120)
        reply = client.makefile("rb").readline()
    assert reply == b"" or "error" in json.loads(reply)
    assert "settings" in control.request(tmp_path)
    thread.join(120)


def test_link_that_does_not_run_says_how_to_start_it(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="`ironspan lab up` starts it again"):
        control.request(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30ms", 0.03), ("1s", 1.0), ("500us", 0.0005), ("0ms", 0.0), (" 2.5MS ", 0.0025)]
)
def test_times(text: str, seconds: float) -> None:
    assert control.parse_time(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "rate"), [("500mbit", 5e8), ("1gbit", 1e9), ("64kbit", 64e3), ("0", 0.0), ("none", 0.0)]
)
def test_rates(text: str, rate: float) -> None:
    assert control.parse_rate(text) == rate


@pytest.mark.parametrize(("text", "loss"), [("0.1%", 0.001), ("0", 0.0), ("100%", 1.0)])
def test_losses(text: str, loss: float) -> None:
    assert control.parse_loss(text) == pytest.approx(loss)


@pytest.mark.parametrize("text", ["", "30", "ms", "-1ms", "1e3ms", "30 m s", "30min", "0x1s"])
def test_time_without_sense_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(LabError, match="for example 30ms"):
        control.parse_time(text)


@pytest.mark.parametrize("text", ["", "5", "mbit", "-1mbit", "5mb"])
def test_rate_without_sense_is_refused(text: str) -> None:
    with pytest.raises(LabError, match="for example 500mbit"):
        control.parse_rate(text)


@pytest.mark.parametrize("text", ["", "0.1", "101%", "-1%"])
def test_loss_without_sense_is_refused(text: str) -> None:
    with pytest.raises(LabError):
        control.parse_loss(text)


def test_a_request_that_was_too_late_is_made_again(tmp_path: Path) -> None:
    """The process hangs up on who connects and says nothing for 50 ms, as happens on a busy machine."""
    path = process.socket_path(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def serve() -> None:
            listener.accept()[0].close()
            with listener.accept()[0] as connection:
                connection.makefile("rb").readline()
                connection.sendall(b'{"settings": {}}\n')

        thread = threading.Thread(target=serve)
        thread.start()
        assert control.request(tmp_path) == {"settings": {}}
        thread.join()
