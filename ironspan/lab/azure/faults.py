# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Faults on command: which requests they hit and what those then meet."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, fields
from typing import Any

from ironspan.lab.azure.config import KINDS, SERVICES
from ironspan.lab.azure.http import Body, Broken, Request, Response

#: Pieces in which a slowed body passes, per second.
_STEPS = 10


class FaultError(Exception):
    """A fault that makes no sense; the message says what to write."""


@dataclass
class Fault:
    """One fault and the requests that it is meant for."""

    kind: str
    service: str = "store"
    #: HTTP method; empty for each.
    method: str = ""
    #: Beginning of the path: /CONTAINER/BLOB for the store, the URL's path for the other services.
    prefix: str = ""
    #: `comp` of the request (appendblock, lease, list, ...); None for each, empty for none.
    comp: str | None = None
    #: How many more requests it hits; None for all.
    count: int | None = None
    probability: float = 1.0
    seed: int = 0
    status: int = 503
    #: Seconds named in Retry-After; None for no such header.
    retry_after: float | None = None
    delay_s: float = 0.0
    rate_bytes_s: float = 1024.0
    #: Bytes of the body that pass before it is cut; None for half of it.
    after_bytes: int | None = None
    id: int = 0
    hits: int = 0
    hidden: set[str] = field(default_factory=set, repr=False)
    healed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    chance: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise FaultError(f"fault {self.kind!r}: write one of {', '.join(KINDS)}")
        if self.service not in SERVICES:
            raise FaultError(f"service {self.service!r}: write one of {', '.join(SERVICES)}")
        if self.kind in ("lying", "stale_list") and self.service != "store":
            raise FaultError(f"fault {self.kind!r} is for the store only")
        if not 0 < self.probability <= 1:
            raise FaultError(f"probability {self.probability}: write a number above 0, at most 1")
        if not 400 <= self.status <= 599:
            raise FaultError(f"status {self.status}: write an error status, for example 503")
        if self.rate_bytes_s <= 0 or self.delay_s < 0 or (self.count is not None and self.count < 1):
            raise FaultError("rate, delay and count are positive numbers")
        self.chance = random.Random(self.seed)

    def matches(self, service: str, method: str, path: str, comp: str) -> bool:
        """Whether it is meant for such a request and decides to hit it."""
        return (
            self.service == service
            and self.method in ("", method)
            and path.startswith(self.prefix)
            and self.comp in (None, comp)
            and self.count != 0
            and (self.probability == 1 or self.chance.random() < self.probability)
        )

    def hit(self) -> None:
        """Count a request that it hits."""
        self.hits += 1
        if self.count is not None:
            self.count -= 1

    def shown(self) -> dict[str, Any]:
        """The fault for people and programs."""
        kept = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in kept.items() if name not in ("hidden", "healed", "chance")}


class Faults:
    """The faults there are now."""

    def __init__(self) -> None:
        self.active: list[Fault] = []
        self._numbers = itertools.count(1)

    def add(self, fault: Fault) -> Fault:
        """Begin a fault."""
        fault.id = next(self._numbers)
        self.active.append(fault)
        return fault

    def heal(self, number: int | None = None) -> int:
        """End one fault, or all; returns how many ended."""
        ended = [fault for fault in self.active if number in (None, fault.id)]
        self.active = [fault for fault in self.active if fault not in ended]
        for fault in ended:
            fault.healed.set()
        return len(ended)

    def choose(self, service: str, method: str, path: str, comp: str) -> Fault | None:
        """Return the first fault that hits a request."""
        for fault in self.active:
            if fault.matches(service, method, path, comp):
                fault.hit()
                return fault
        return None

    def written(self, path: str) -> None:
        """Tell listings that are stale of a blob that is new."""
        for fault in self.active:
            if fault.kind == "stale_list":
                fault.hidden.add(path)


async def apply(
    fault: Fault,
    request: Request,
    serve: Callable[[Request], Awaitable[Response]],
    refuse: Callable[[int, dict[str, str]], Response],
) -> Response:
    """Let a fault act on a request.

    Args:
        fault: What is to happen; the kinds `lying` and `stale_list` are the store's own affair.
        request: The request.
        serve: Does what the request asks for.
        refuse: Makes the service's own kind of error answer from a status and further headers.

    Raises:
        Broken: The connection is to be cut.
    """
    if fault.delay_s:
        await asyncio.sleep(fault.delay_s)
    match fault.kind:
        case "status":
            await request.drain()
            wait = fault.retry_after
            return refuse(fault.status, {} if wait is None else {"retry-after": f"{wait:g}"})
        case "outage":
            raise Broken("outage")
        case "hang":
            await fault.healed.wait()
            raise Broken("healed")
        case "reset":
            length = int(request.headers.get("content-length", "0"))
            passed = length // 2 if fault.after_bytes is None else fault.after_bytes
            async for part in request.body:
                passed -= len(part)
                if passed <= 0:
                    break
            raise Broken("reset")
        case "lost_reply":
            await serve(request)
            raise Broken("lost reply")
        case "slow":
            request.body = _paced(request.body, fault.rate_bytes_s)
            response = await serve(request)
            if not response.empty:
                response.body = _paced(_parts(response), fault.rate_bytes_s)
            return response
        case "truncated":
            response = await serve(request)
            if not response.empty:
                whole = _parts(response)
                length = int(response.headers.get("content-length", "0"))
                passed = length // 2 if fault.after_bytes is None else fault.after_bytes
                response.body = _cut(whole, passed)
            return response
    return await serve(request)


def _parts(response: Response) -> AsyncIterator[bytes]:
    """The body as chunks, its length announced."""
    body = response.body
    if not isinstance(body, bytes):
        return body
    response.headers["content-length"] = str(len(body))
    return _single(body)


async def _single(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _paced(body: AsyncIterator[bytes] | Body, rate_bytes_s: float) -> AsyncIterator[bytes]:
    step = max(1, int(rate_bytes_s / _STEPS))
    async for part in body:
        for start in range(0, len(part), step):
            piece = part[start : start + step]
            await asyncio.sleep(len(piece) / rate_bytes_s)
            yield piece


async def _cut(body: AsyncIterator[bytes], left: int) -> AsyncIterator[bytes]:
    async for part in body:
        if len(part) >= left:
            yield part[:left]
            break
        left -= len(part)
        yield part
    raise Broken("truncated")
