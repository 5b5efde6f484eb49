# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""An internal load balancer of an estate at work: whom it asks, whom it leads where, who gets no answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from ironspan.lab.azure.arm.reach import Balance, Probe
from ironspan.lab.azure.balancer import Balancer, Health, choose
from ironspan.lab.ports import free_port

ONE, OTHER, ELSEWHERE = "127.0.0.2", "127.0.0.3", "127.0.0.9"


@pytest.mark.parametrize(
    ("healthy", "found"), [(set(), {""}), ({OTHER}, {OTHER}), ({ONE, OTHER}, {ONE, OTHER})]
)
def test_a_connection_goes_to_one_that_takes_it_always_the_same(healthy: set[str], found: set[str]) -> None:
    chosen = {choose((ONE, OTHER), healthy, ELSEWHERE, port) for port in range(50)}
    assert chosen == found
    assert len({choose((ONE, OTHER), healthy, ELSEWHERE, 7) for _ in range(5)}) == 1


@pytest.mark.parametrize(
    ("answers", "up"),
    [
        ([], False),
        ([True], False),
        ([True, True], True),
        ([True, False, True], False),
        ([True, True, False], True),
        ([True, True, False, False], False),
    ],
)
def test_a_member_is_up_or_down_after_two_answers_in_a_row(answers: list[bool], up: bool) -> None:
    health = Health(2)
    for answered in answers:
        health.seen(answered)
    assert health.up is up


@contextlib.asynccontextmanager
async def member(address: str, port: int, ready: bool = True) -> AsyncIterator[None]:
    """A machine that says its address to who asks nothing, and `ready` to the probe."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        answer = f"HTTP/1.1 {200 if ready else 500} x\r\n\r\n" if line.startswith(b"GET") else address
        writer.write(answer.encode())
        writer.close()

    async with await asyncio.start_server(serve, address, port):
        yield


async def asked(port: int, source: str = ELSEWHERE, within_s: float = 60) -> bytes | None:
    """What a client is told; None when nothing comes within some seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(b"who\n")
    try:
        return await asyncio.wait_for(reader.read(), within_s)
    except TimeoutError:
        return None
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


async def until(balancer: Balancer, healthy: set[str]) -> None:
    async with asyncio.timeout(60):
        while balancer.healthy != healthy:
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def balanced(port: int, *members: str) -> AsyncIterator[tuple[Balancer, int]]:
    probe = Probe("Http", port, "/readyz", 0.05, 2)
    rule = Balance("127.0.0.1", free_port(), port, probe, members)
    balancer = Balancer(rule)
    await balancer.start()
    try:
        yield balancer, rule.port
    finally:
        balancer.close()


def test_connections_reach_members_that_are_ready_and_no_others() -> None:
    async def story() -> None:
        port = free_port()
        async with balanced(port, ONE, OTHER) as (balancer, front):
            assert await asked(front) == b""
            async with member(ONE, port), member(OTHER, port, ready=False):
                await until(balancer, {ONE})
                assert {await asked(front) for _ in range(8)} == {ONE.encode()}
            await until(balancer, set())
            assert await asked(front) == b""

    asyncio.run(story())


def test_a_member_that_is_led_to_itself_gets_no_answer() -> None:
    async def story() -> None:
        port = free_port()
        async with balanced(port, ONE) as (balancer, front), member(ONE, port):
            await until(balancer, {ONE})
            assert await asked(front, source=ONE, within_s=0.5) is None
            assert await asked(front, source=OTHER) == ONE.encode()

    asyncio.run(story())


def test_members_come_and_go_while_it_listens() -> None:
    async def story() -> None:
        port = free_port()
        async with (
            balanced(port, ONE) as (balancer, front),
            member(ONE, port),
            member(OTHER, port),
        ):
            await until(balancer, {ONE})
            rule = balancer.rule
            balancer.follow(Balance(rule.address, rule.port, port, rule.probe, (OTHER,)))
            await until(balancer, {OTHER})
            assert await asked(front) == OTHER.encode()

    asyncio.run(story())
