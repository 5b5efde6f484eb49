# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which pod has which GPU, as the kubelet's pod-resources socket says it.

One gRPC call over HTTP/2 (h2) and two messages of nested names: the generated classes and grpcio would cost
more memory than the agent has.
"""

from __future__ import annotations

import socket
import struct
import typing as t
from collections.abc import Iterator, Mapping

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from ironspan.program.errors import ServiceError

METHOD = "/v1.PodResourcesLister/List"
TIMEOUT_S = 5.0
_MOST = 16 << 20
_HEAD = struct.Struct(">BI")
_LENGTHS = 2
"""Wire type of texts and messages in protocol buffers."""


class Owner(t.NamedTuple):
    """Who has a GPU."""

    namespace: str
    pod: str
    container: str


class Pods:
    """Keeps which pod has which GPU.

    Args:
        path: the kubelet's socket; empty asks nobody.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._owners: Mapping[str, tuple[Owner, ...]] | None = None

    def ask(self) -> None:
        """Ask the kubelet.

        Raises:
            ServiceError: it does not answer.
        """
        try:
            self._owners = owners(call(self._path))
        except ServiceError:
            self._owners = None
            raise

    def gpus(self) -> frozenset[str] | None:
        """Return the device ids that pods have, None where nobody knows."""
        return None if self._owners is None else frozenset(self._owners)

    def of(self, uuid: str) -> tuple[Owner, ...]:
        """Return who has a GPU."""
        return (self._owners or {}).get(uuid, ())


def owners(answer: bytes) -> dict[str, tuple[Owner, ...]]:
    """Return device id -> who has it, for GPUs (devices of ``nvidia.com``).

    Args:
        answer: message ListPodResourcesResponse (k8s.io/kubelet/pkg/apis/podresources/v1).

    Raises:
        ServiceError: it is none.
    """
    found: dict[str, tuple[Owner, ...]] = {}
    try:
        for _, pod in _parts(answer, 1):
            name, namespace = _text(pod, 1), _text(pod, 2)
            for _, container in _parts(pod, 3):
                owner = Owner(namespace, name, _text(container, 1))
                for _, devices in _parts(container, 2):
                    if not _text(devices, 1).startswith("nvidia.com/"):
                        continue
                    for _, device in _parts(devices, 2):
                        # A GPU that is shared has a copy's number behind its id: GPU-...::3
                        id = device.decode("utf-8", "replace").partition("::")[0]
                        found[id] = (*found.get(id, ()), owner)
    except (ValueError, IndexError) as error:
        raise ServiceError(f"The kubelet's answer is no protocol buffer: {error}.", retryable=True) from error
    return found


def _text(message: bytes, number: int) -> str:
    return next((content.decode("utf-8", "replace") for _, content in _parts(message, number)), "")


def _parts(message: bytes, wanted: int) -> Iterator[tuple[int, bytes]]:
    """Yield the texts and messages of one number in a message."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        kind = tag & 7
        if kind == _LENGTHS:
            size, at = _number(message, at)
            if at + size > len(message):
                raise ValueError("it ends in the middle")
            if tag >> 3 == wanted:
                yield wanted, message[at : at + size]
            at += size
        elif kind == 0:
            _, at = _number(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number has no end")


def call(path: str, method: str = METHOD, timeout_s: float = TIMEOUT_S) -> bytes:
    """Call a method without arguments and return its answer.

    Args:
        path: of the socket.
        method: /SERVICE/METHOD.
        timeout_s: seconds for each step.

    Raises:
        ServiceError: there is no answer, or it is an error.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(path)
            return _exchange(connection, method)
    except (OSError, h2.exceptions.ProtocolError) as error:
        raise ServiceError(
            f"The kubelet does not answer at {path}: {error}.",
            "Look at the kubelet of this host: systemctl status kubelet.",
            retryable=True,
        ) from error


def _exchange(connection: socket.socket, method: str) -> bytes:
    http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    http.initiate_connection()
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    http.send_headers(1, headers)
    http.send_data(1, _HEAD.pack(0, 0), end_stream=True)
    received, status = b"", ""
    while True:
        connection.sendall(http.data_to_send())
        content = connection.recv(1 << 16)
        if not content:
            raise OSError("the connection was closed")
        for event in http.receive_data(content):
            match event:
                case h2.events.DataReceived(data=data, flow_controlled_length=size):
                    received += data or b""
                    http.acknowledge_received_data(size or 0, 1)
                    if len(received) > _MOST:
                        raise OSError(f"the answer has more than {_MOST} bytes")
                case h2.events.ResponseReceived(headers=found) | h2.events.TrailersReceived(headers=found):
                    named = {str(name): str(value) for name, value in found or ()}
                    status = named.get("grpc-status", status)
                case h2.events.StreamEnded():
                    return _message(received, status)
                case h2.events.StreamReset() | h2.events.ConnectionTerminated():
                    raise OSError("the stream was ended")


def _message(received: bytes, status: str) -> bytes:
    if status != "0":
        raise OSError(f"gRPC status {status or 'missing'}")
    compressed, size = _HEAD.unpack_from(received) if len(received) >= _HEAD.size else (1, 0)
    if compressed or len(received) != _HEAD.size + size:
        raise OSError("the answer is not one message")
    return received[_HEAD.size :]
