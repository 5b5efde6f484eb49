# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Expressions in an inventory: they are computed on the controller whenever the inventory is read.

So reading one can run programs and ask servers, with the rights of whoever reads it, and may never end.
Lookups that do such things, or write files, are taken only where the controller's environment allows them by
name, and each value has a time limit. That keeps people from what they did not expect. It is no wall against
somebody who writes the inventory: that person decides what hosts run anyway.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import types
import typing as t
from collections.abc import Iterator, Mapping, Sequence

ALLOWED = "IRONSPAN_ALLOW_LOOKUPS"
"""Variable of the environment: names of lookups, with commas between them."""
SECONDS = 10.0
"""For one value of one host: what people write takes a thousandth of it."""
ACTIVE = frozenset({"pipe", "lines", "url", "script", "nested_pipe", "etcd", "etcd3", "redis", "mongodb"})
"""Lookups of ansible.builtin and community.general that run programs or open connections to anywhere."""
LONGEST = 120
"""Characters of an expression that are shown."""
_NOWHERE = re.compile(r"""\s*['"]/dev/null\b""")
_CALL = re.compile(
    r"""(?<![\w.])(?:lookup|query|q)\s*\(\s*(?:(['"])(?P<name>[\w.]+)\1\s*[,)]|(?P<computed>\S))"""
)


class TooLong(Exception):
    """An expression was still being computed when its time was over."""


def is_too_long(error: BaseException | None) -> bool:
    """Tell whether an error, or what it came from, is ``TooLong``: templates wrap what happens inside."""
    seen: set[int] = set()
    # Errors of a value that refers to itself are each other's cause.
    while error is not None and id(error) not in seen:
        if isinstance(error, TooLong):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def refused_lookup(value: t.Any, environment: Mapping[str, str]) -> str:
    """Return the lookup of an expression that may not be used, an empty text when there is none.

    Args:
        value: as it was written; containers are looked through.
        environment: of the controller; ``ALLOWED`` names what may be used.
    """
    allowed = {name.strip() for name in environment.get(ALLOWED, "").split(",")}
    for text in _texts(value):
        if "{" not in text:
            continue
        for call in _CALL.finditer(text):
            full = call["name"] or ""
            name = full.removeprefix("ansible.builtin.").removeprefix("community.general.")
            if call["computed"] and "*" not in allowed:
                return "a lookup whose name is computed"
            if name in ACTIVE and not allowed & {name, full}:
                return full
            # It keeps what it made, unless the file is one that keeps nothing.
            if name == "password" and not _NOWHERE.match(text, call.end()) and not allowed & {name, full}:
                return full
    return ""


def first_expression(value: t.Any) -> str:
    """Return the first text of a value that is an expression, in at most a line, "" when there is none."""
    text = next((text for text in _texts(value) if any(sign in text for sign in ("{{", "{%", "{#"))), "")
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def _texts(value: t.Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for inner in value:
            yield from _texts(inner)


@contextlib.contextmanager
def in_time(seconds: float | None = None) -> Iterator[None]:
    """End what takes longer.

    Only the main thread of a process can be ended so, and only where nobody else has set the timer: elsewhere
    there is no limit.

    Args:
        seconds: how long it may take; ``SECONDS`` by default.

    Raises:
        TooLong: it took longer.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def over(number: int, frame: types.FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, SECONDS if seconds is None else seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
