# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes to etcd at a steady rate and notes when each write was acknowledged: see ``main``.

It shares the processors with what is measured, so it speaks HTTP/2 itself, in one thread: that takes a tenth
of a core at 300 writes a second, where calls of grpcio take a half.
"""

from __future__ import annotations

import collections
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hpack

from ironspan.etcd import rpc_pb2 as rpc

KEYS = 5000
IN_FLIGHT = 500
RECEIVE = 1 << 18
PIECE = 16384
WINDOW = 1 << 30
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME = struct.Struct(">HBBBI")
DATA, HEADERS, RESET, SETTINGS, PING, GO_AWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 1
END_HEADERS = 4


class Calls:
    """Transactions to one member, any number of them at a time, on a connection of their own.

    Of HTTP/2 there is what a call without trouble needs (RFC 9113); trouble fails the bench.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # No table of headers, so that the same headers are the same bytes in every call.
        settings = struct.pack(">HIHI", 1, 0, 4, WINDOW)
        begin = [
            PREFACE,
            frame(SETTINGS, 0, 0, settings),
            frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW)),
        ]
        self.socket.sendall(b"".join(begin))
        encoder = hpack.Encoder()
        encoder.header_table_size = 0
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/etcdserverpb.KV/Txn"),
            (":authority", target),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]
        self._headers = encoder.encode(headers)
        self._next = 1
        self._room = 65535
        self._waiting: collections.deque[tuple[int, bytes]] = collections.deque()
        self._received = bytearray()
        self._answers: dict[int, bytes] = {}
        self._sent: dict[int, float] = {}

    def send(self, request: rpc.TxnRequest) -> None:
        """Send a request, as soon as there is room for it."""
        message = request.SerializeToString()
        body = struct.pack(">BI", 0, len(message)) + message
        number, self._next = self._next, self._next + 2
        self._sent[number] = time.monotonic()
        pieces = [body[at : at + PIECE] for at in range(0, len(body), PIECE)]
        last = len(pieces) - 1
        frames = [frame(DATA, END_STREAM * (at == last), number, piece) for at, piece in enumerate(pieces)]
        call = frame(HEADERS, END_HEADERS, number, self._headers) + b"".join(frames)
        self._waiting.append((len(body), call))
        self._flush()

    def receive(self) -> Iterator[tuple[int, float, float]]:
        """Yield the revision of every answer that has come, when, and after how many seconds."""
        data = self.socket.recv(RECEIVE)
        now = time.monotonic()
        assert data, "the member has ended the connection"
        self._received += data
        for kind, flags, number, content in self._frames():
            if kind == DATA:
                self._answers[number] = self._answers.get(number, b"") + content
            elif kind == HEADERS and flags & END_STREAM:
                # The end of a call that failed comes without an answer.
                answer = rpc.TxnResponse.FromString(self._answers.pop(number)[5:])
                yield answer.header.revision, now, now - self._sent.pop(number)
            elif kind == WINDOW_UPDATE and not number:
                self._room += int.from_bytes(content)
            elif kind in (SETTINGS, PING) and not flags & ACK:
                self.socket.sendall(frame(kind, ACK, 0, content if kind == PING else b""))
            # gRPC ends a stream so, without an error (0), where the answer was ready before its end was read.
            assert kind != GO_AWAY and (kind != RESET or not any(content)), content
        self._flush()

    def _flush(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._room:
            size, call = self._waiting.popleft()
            self._room -= size
            self.socket.sendall(call)

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        received, at = self._received, 0
        while len(received) >= at + FRAME.size:
            high, low, kind, flags, number = FRAME.unpack_from(received, at)
            end = at + FRAME.size + (high << 8 | low)
            if end > len(received):
                break
            yield kind, flags, number, bytes(received[at + FRAME.size : end])
            at = end
        del received[:at]


def frame(kind: int, flags: int, number: int, content: bytes) -> bytes:
    """Return a frame of HTTP/2."""
    return FRAME.pack(len(content) >> 8, len(content) & 0xFF, kind, flags, number) + content


def main() -> int:
    """Run: ``ENDPOINTS RATE EACH SECONDS SIZE RESULT``.

    RATE transactions a second of EACH puts of SIZE bytes, to the ENDPOINTS (ADDRESS:PORT,...) in turn, as an
    API server's client does. RESULT gets the revision of every one that was acknowledged, when (the machine's
    monotonic clock), and after how many seconds. SIGTERM ends it earlier.
    """
    endpoints, result = sys.argv[1], Path(sys.argv[6])
    rate, each, seconds, size = (float(argument) for argument in sys.argv[2:6])
    end = time.monotonic() + seconds

    def stop(*_: object) -> None:
        nonlocal end
        end = 0.0

    signal.signal(signal.SIGTERM, stop)
    members = [Calls(target) for target in endpoints.split(",")]
    by_socket = {member.socket.fileno(): member for member in members}
    poll = select.epoll()
    for socket_number in by_socket:
        poll.register(socket_number, select.EPOLLIN)
    acknowledged: list[tuple[int, float, float]] = []
    noise = os.urandom(int(size) + KEYS)
    began, number = time.monotonic(), 0
    while (now := time.monotonic()) < end or len(acknowledged) < number:
        may_send = now < end and number - len(acknowledged) < IN_FLIGHT
        due = began + number / rate if may_send else now + 1
        if due <= now:
            puts = [
                rpc.PutRequest(
                    key=b"/registry/pods/default/%05d" % ((number * int(each) + at) % KEYS),
                    value=noise[(number + at) % KEYS :][: int(size)],
                )
                for at in range(int(each))
            ]
            request = rpc.TxnRequest(success=[rpc.RequestOp(request_put=put) for put in puts])
            members[number % len(members)].send(request)
            number += 1
        for ready, _ in poll.poll(max(0.0, due - now)):
            acknowledged += by_socket[ready].receive()
    result.write_text(json.dumps(sorted(acknowledged)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
