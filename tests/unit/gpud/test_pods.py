# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which pod has which GPU: a real gRPC server says it, as the kubelet would."""

from __future__ import annotations

import concurrent.futures
import contextlib
import typing as t
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.gpud.pods import Owner, Pods, owners
from ironspan.program.errors import ServiceError


def field(number: int, content: bytes | str | int) -> bytes:
    """Return a field of a protocol buffer."""
    if isinstance(content, int):
        return bytes([number << 3]) + _number(content)
    data = content.encode() if isinstance(content, str) else content
    return bytes([number << 3 | 2]) + _number(len(data)) + data


def _number(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def pod(name: str, *devices: str, resource: str = "nvidia.com/gpu") -> bytes:
    """Return a PodResources with one container, its memory and CPUs (which nobody reads) among it."""
    held = (
        field(1, resource)
        + b"".join(field(2, device) for device in devices)
        + field(3, field(1, field(1, 0)))
    )
    container = field(1, "main") + field(2, held) + field(3, b"\x01\x02") + field(4, field(1, "memory"))
    return field(1, field(1, name) + field(2, "team-a") + field(3, container))


ANSWER = pod("one", "GPU-1", "GPU-2") + pod("two", "GPU-3::0") + pod("nic", "eth1", resource="intel.com/nic")


@contextlib.contextmanager
def kubelet(path: Path, answer: bytes, code: grpc.StatusCode | None = None) -> Iterator[None]:
    """Serve the method as a kubelet does."""

    def handle(_: bytes, context: grpc.ServicerContext) -> bytes:
        if code:
            context.abort(code, "not now")
        return answer

    methods: dict[str, t.Any] = {"List": grpc.unary_unary_rpc_method_handler(handle)}
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(1),
        handlers=[grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods)],
    )
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


def test_a_kubelet_is_asked(tmp_path: Path) -> None:
    pods = Pods(str(tmp_path / "socket"))
    assert pods.gpus() is None
    with kubelet(tmp_path / "socket", ANSWER):
        pods.ask()
    assert pods.gpus() == frozenset({"GPU-1", "GPU-2", "GPU-3"})
    assert pods.of("GPU-3") == (Owner("team-a", "two", "main"),)
    assert pods.of("GPU-9") == ()


def test_a_long_answer_comes_whole(tmp_path: Path) -> None:
    many = b"".join(pod(f"pod-{number}", f"GPU-{number}") for number in range(5000))
    assert len(many) > 1 << 17
    pods = Pods(str(tmp_path / "socket"))
    with kubelet(tmp_path / "socket", many):
        pods.ask()
    assert len(pods.gpus() or ()) == 5000


def test_what_is_not_known_any_more_is_not_said(tmp_path: Path) -> None:
    pods = Pods(str(tmp_path / "socket"))
    with kubelet(tmp_path / "socket", ANSWER):
        pods.ask()
    with pytest.raises(ServiceError, match="does not answer"):
        pods.ask()
    assert pods.gpus() is None
    other = Pods(str(tmp_path / "other"))
    with (
        kubelet(tmp_path / "other", b"", grpc.StatusCode.UNAVAILABLE),
        pytest.raises(ServiceError, match="14"),
    ):
        other.ask()


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused(content: bytes) -> None:
    with contextlib.suppress(ServiceError):
        owners(content)


@given(st.integers(0, len(ANSWER) - 1), st.integers(1, 255))
def test_a_changed_answer_is_taken_or_refused(place: int, change: int) -> None:
    changed = bytearray(ANSWER)
    changed[place] ^= change
    found: dict[str, t.Any] = {}
    with contextlib.suppress(ServiceError):
        found = owners(bytes(changed))
    assert len(found) <= 4
