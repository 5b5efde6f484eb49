# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Moving big objects: in pieces, several on the way at a time, and what failed for a moment again."""

from __future__ import annotations

import base64
import collections
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ironspan.program.errors import ProgramError, ServiceError

PIECE = 4 * 1024 * 1024
"""Bytes of one block or range request: on a 30 ms way, four of these at a time fill 4 Gbit/s."""
AT_ONCE = 4
DELAYS = (0.2, 0.6, 1.8)
"""Seconds between the attempts at one request. Longer outages are for the caller, who has a spool."""
LONGEST_WAIT = 10.0
"""Seconds that a store may ask to wait before the caller is told instead."""


def pieces(chunks: Iterable[bytes], size: int = PIECE) -> Iterator[bytes]:
    """Yield the same bytes in pieces of ``size``; the last one, or the only one, may be shorter or empty."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) > size:
            yield bytes(buffer[:size])
            del buffer[:size]
    yield bytes(buffer)


def numbered(first: Iterable[bytes], rest: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Give blocks names of one length that another writer's do not have."""
    series = uuid.uuid4().bytes
    number = 0
    for parts in (first, rest):
        for part in parts:
            yield base64.b64encode(series + number.to_bytes(4, "big")).decode(), part
            number += 1


def in_order[Given, Made](
    work: Callable[[Given], Made], items: Iterable[Given], at_once: int = AT_ONCE
) -> Iterator[Made]:
    """Do work on items in threads and yield the results in the items' order.

    Args:
        work: what to do with one item.
        items: taken only as fast as results are fetched, so memory is bounded by ``at_once`` items.
        at_once: how many items are worked on at a time.
    """
    waiting: collections.deque[Future[Made]] = collections.deque()
    pool = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="store")
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= at_once:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def ours(error: Exception) -> ProgramError | None:
    """Return an error that is in our words already, None for another."""
    return error if isinstance(error, ProgramError) else None


def repeat[Made](
    attempt: Callable[[], Made],
    explain: Callable[[Exception], ProgramError | None],
    sleep: Callable[[float], None] = time.sleep,
    delays: tuple[float, ...] = DELAYS,
) -> Made:
    """Make a request, again where that may help; ``Retry-After`` is honoured.

    Args:
        attempt: makes the request; repeating it does no harm.
        explain: turns what it raises into one of our errors; None for what is not about the store.
        sleep: waits so many seconds.
        delays: seconds before each further attempt.

    Raises:
        ProgramError: the last attempt's.
    """
    for delay in (*delays, None):
        try:
            return attempt()
        except Exception as error:
            explained = explain(error)
            if explained is None:
                raise
            again = isinstance(explained, ServiceError) and explained.retryable and delay is not None
            asked = explained.retry_after if isinstance(explained, ServiceError) else None
            if not again or (asked or 0) > LONGEST_WAIT:
                raise explained from None
            # Spread, so that the hosts of a fleet do not come back in the same moment.
            sleep(max(asked or 0, (delay or 0) * random.uniform(0.5, 1.5)))
    raise AssertionError("the last attempt returns or raises")
