# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Faults hit the requests that they are meant for, as often as told, and the same ones for the same seed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironspan.lab.azure import faults
from ironspan.lab.azure.control import Control
from ironspan.lab.azure.faults import Fault, Faults
from ironspan.lab.azure.http import Broken, Request, Response, no_body
from ironspan.lab.azure.world import World


@pytest.mark.parametrize(
    ("scope", "hit"),
    [
        ({}, True),
        ({"method": "PUT"}, True),
        ({"method": "GET"}, False),
        ({"prefix": "/etcd/lab/"}, True),
        ({"prefix": "/etcd/lab/e000001/log/1"}, True),
        ({"prefix": "/other"}, False),
        ({"comp": "appendblock"}, True),
        ({"comp": ""}, False),
        ({"comp": "lease"}, False),
        ({"service": "login"}, False),
        ({"method": "PUT", "prefix": "/etcd", "comp": "appendblock"}, True),
    ],
)
def test_scope(scope: dict[str, Any], hit: bool) -> None:
    found = Faults()
    fault = found.add(Fault("outage", **scope))
    chosen = found.choose("store", "PUT", "/etcd/lab/e000001/log/1.log", "appendblock")
    assert (chosen is fault) is hit
    assert fault.hits == int(hit)


def test_a_count_runs_out() -> None:
    found = Faults()
    found.add(Fault("reset", count=2))
    hit = [found.choose("store", "GET", "/a", "") is not None for _ in range(4)]
    assert hit == [True, True, False, False]


def test_the_next_fault_takes_over_when_one_is_used_up() -> None:
    found = Faults()
    first, second = found.add(Fault("reset", count=1)), found.add(Fault("status"))
    assert [found.choose("store", "GET", "/a", "") for _ in range(2)] == [first, second]


@given(st.integers(0, 2**32), st.floats(0.2, 0.8))
def test_chance_is_the_same_for_the_same_seed(seed: int, probability: float) -> None:
    runs = []
    for _ in range(2):
        found = Faults()
        found.add(Fault("reset", probability=probability, seed=seed))
        runs.append([found.choose("store", "GET", "/a", "") is not None for _ in range(200)])
    assert runs[0] == runs[1]
    assert 0 < sum(runs[0]) < 200


def test_healing_one_or_all() -> None:
    found = Faults()
    one, _, _ = (found.add(Fault("hang")) for _ in range(3))
    assert found.heal(one.id) == 1
    assert one.healed.is_set()
    assert found.heal(one.id) == 0
    assert found.heal() == 2
    assert found.active == []


@pytest.mark.parametrize(
    "request_",
    [
        {"kind": "explode"},
        {"kind": "outage", "service": "dns"},
        {"kind": "outage", "probability": 0},
        {"kind": "outage", "probability": 1.5},
        {"kind": "status", "status": 200},
        {"kind": "slow", "rate_bytes_s": 0},
        {"kind": "outage", "count": 0},
        {"kind": "lying", "service": "login"},
        {"kind": "outage", "speed": 1},
        {"kind": "outage", "id": 7},
        {},
    ],
)
def test_nonsense_is_refused(request_: dict[str, Any], tmp_path: Path) -> None:
    control = Control(World(tmp_path), {})
    assert "error" in control.answer({"do": "fault", **request_})
    assert control.answer({"do": "status"})["faults"] == []


@pytest.mark.parametrize("request_", [{}, {"do": "x"}, {"do": "clock"}, {"do": "policy", "days": 3}])
def test_unknown_commands_are_refused(request_: dict[str, Any], tmp_path: Path) -> None:
    assert "error" in Control(World(tmp_path), {}).answer(request_)


def run(fault: Fault, answer: bytes = b"0123456789", length: int = 10) -> tuple[bytes, list[str]]:
    """Apply a fault to an upload of ten bytes; what the client got of the body, and what happened."""
    events: list[str] = []

    async def body() -> AsyncIterator[bytes]:
        for _ in range(length):
            yield b"x"

    async def serve(request: Request) -> Response:
        events.append(f"served {len(await request.all())}")
        return Response(200, {}, answer)

    async def go() -> bytes:
        request = Request("PUT", "/a", {"content-length": str(length)}, body())
        got = b""
        try:
            response = await faults.apply(fault, request, serve, lambda s, h: Response(s, h, b"refused"))
            events.append(str(response.status))
            if isinstance(response.body, bytes):
                return response.body
            async for part in response.body:
                got += part
        except Broken:
            events.append("cut")
        return got

    return asyncio.run(go()), events


@pytest.mark.parametrize(
    ("fault", "got", "events"),
    [
        (Fault("status", status=429), b"refused", ["429"]),
        (Fault("outage"), b"", ["cut"]),
        (Fault("reset"), b"", ["cut"]),
        (Fault("lost_reply"), b"", ["served 10", "cut"]),
        (Fault("truncated"), b"01234", ["served 10", "200", "cut"]),
        (Fault("truncated", after_bytes=3), b"012", ["served 10", "200", "cut"]),
        (Fault("slow", rate_bytes_s=1e6), b"0123456789", ["served 10", "200"]),
        (Fault("delay", delay_s=0.001), b"0123456789", ["served 10", "200"]),
    ],
)
def test_what_a_request_meets(fault: Fault, got: bytes, events: list[str]) -> None:
    assert run(fault) == (got, events)


def test_a_slow_body_takes_its_time() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        run(Fault("slow", rate_bytes_s=20), b"y" * 40)
    assert sum(waits) == pytest.approx((10 + 40) / 20)


def test_a_request_that_hangs_is_cut_when_it_is_healed() -> None:
    async def go() -> bool:
        found = Faults()
        fault = found.add(Fault("hang"))

        async def never(_: Request) -> Response:
            raise AssertionError("served")

        request = Request("GET", "/a", {}, no_body())
        task = asyncio.create_task(faults.apply(fault, request, never, lambda s, h: Response(s)))
        await asyncio.sleep(0)
        assert not task.done()
        found.heal()
        with pytest.raises(Broken):
            await task
        return True

    assert asyncio.run(go())


def test_retry_after_is_named() -> None:
    async def go() -> Response:
        request = Request("GET", "/a", {}, no_body())

        async def never(_: Request) -> Response:
            raise AssertionError("served")

        return await faults.apply(Fault("status", retry_after=2), request, never, lambda s, h: Response(s, h))

    assert asyncio.run(go()).headers == {"retry-after": "2"}
