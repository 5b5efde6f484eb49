# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A small DNS server for tests, whose answers live one second, and a client that reads answers."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import threading
import typing as t
from collections.abc import Callable, Iterator

NOERROR, SERVFAIL = 0, 2
_HEADER = struct.Struct("!6H")
_TYPE_A = 1


class Answer(t.NamedTuple):
    """What came back: response code, addresses, and the seconds that they live."""

    code: int
    addresses: tuple[str, ...] = ()
    ttl: int = 0


def question(name: str, identity: int = 1) -> bytes:
    """Return the question for a name's IPv4 address."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split("."))
    return _HEADER.pack(identity, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", _TYPE_A, 1)


def read(message: bytes) -> Answer:
    """Read an answer."""
    _identity, flags, questions, answers, _authority, _more = _HEADER.unpack_from(message)
    place = _HEADER.size
    for _ in range(questions):
        place = _after_name(message, place) + 4
    addresses, ttl = [], 0
    for _ in range(answers):
        place = _after_name(message, place)
        kind, _class, ttl, length = struct.unpack_from("!2HIH", message, place)
        place += 10
        if kind == _TYPE_A:
            addresses.append(str(ipaddress.IPv4Address(message[place : place + length])))
        place += length
    return Answer(flags & 15, tuple(addresses), ttl)


def ask(client: socket.socket, server: str, name: str, seconds: float = 1) -> Answer | None:
    """Ask for a name by UDP; None when nobody answers in time."""
    client.settimeout(seconds)
    with contextlib.suppress(OSError):
        client.sendto(question(name), (server, 53))
        return read(client.recv(4096))
    return None


class Server:
    """Answers by UDP and TCP on sockets that are given to it.

    Args:
        address_of: called with a name in lower case without the dot at its end, returns its address.
    """

    def __init__(self, address_of: Callable[[str], str]) -> None:
        self._address_of = address_of
        self._sockets: list[socket.socket] = []

    def serve(self, listener: socket.socket, address: str, port: int = 53) -> None:
        """Serve a socket until the end of the test."""
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        self._sockets.append(listener)
        by_tcp = listener.type == socket.SOCK_STREAM
        if by_tcp:
            listener.listen(16)
        target = self._accept if by_tcp else self._datagrams
        threading.Thread(target=target, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Stop."""
        for listener in self._sockets:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _datagrams(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                message, peer = listener.recvfrom(4096)
                if not message:  # shut down
                    return
                with contextlib.suppress(OSError):
                    listener.sendto(self._answer(message), peer)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                stream, _peer = listener.accept()
                threading.Thread(target=self._stream, args=(stream,), daemon=True).start()

    def _stream(self, stream: socket.socket) -> None:
        with stream, contextlib.suppress(OSError):
            for message in _messages(stream):
                answer = self._answer(message)
                stream.sendall(struct.pack("!H", len(answer)) + answer)

    def _answer(self, message: bytes) -> bytes:
        identity = _HEADER.unpack_from(message)[0]
        end = _after_name(message, _HEADER.size)
        asked = message[_HEADER.size : end + 4]
        is_address = struct.unpack_from("!H", message, end)[0] == _TYPE_A
        head = _HEADER.pack(identity, 0x8580, 1, int(is_address), 0, 0)
        if not is_address:
            return head + asked
        address = ipaddress.IPv4Address(self._address_of(_name(message))).packed
        return head + asked + struct.pack("!3HIH", 0xC00C, _TYPE_A, 1, 1, 4) + address


def _name(message: bytes) -> str:
    labels, place = [], _HEADER.size
    while length := message[place]:
        labels.append(message[place + 1 : place + 1 + length].decode().lower())
        place += 1 + length
    return ".".join(labels)


def _after_name(message: bytes, place: int) -> int:
    while (length := message[place]) and length < 0xC0:
        place += 1 + length
    return place + (2 if length else 1)


def _messages(stream: socket.socket) -> Iterator[bytes]:
    with stream.makefile("rb") as reader:
        while len(head := reader.read(2)) == 2:
            yield reader.read(struct.unpack("!H", head)[0])
