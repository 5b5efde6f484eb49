# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Keeps secrets out of what a plan shows: a kind that puts one into a state is refused, not trusted."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError, Thing

_NAMES = re.compile(
    r"passw(or)?d|passphrase|secret|token|credential|(private|access|account|shared|api|storage)_?key|"
    r"connection_?string",
    re.I,
)
_HARMLESS = re.compile(r"(_(file|path|id|name|ref|version|uri|url|expires)|Id|Name|Uri|Url|Version)\Z")
"""How names end that say where a secret is and not what it is."""
_TEXTS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|[?&;]sig=|AccountKey=|SharedAccess|\beyJ[\w-]{8,}\.eyJ|"
    r"://[^/\s:@]*:[^/\s@]+@"
)


def insist_on_none(thing: Thing) -> None:
    """Refuse a thing whose states, steps or notes hold what looks like a secret; the value is not repeated.

    Raises:
        RemoteError: it has one.
    """
    for where in _secrets(thing.as_dict(), ""):
        raise RemoteError(
            f"{thing.title} has a secret in {where}, and a plan is read by many",
            "let its kind leave it out, or say by which name the secret is kept",
        )


def _secrets(value: t.Any, where: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{where}.{key}".lstrip(".")
            name = str(key)
            if isinstance(inner, str) and inner and _NAMES.search(name) and not _HARMLESS.search(name):
                yield path
            else:
                yield from _secrets(inner, path)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _secrets(inner, f"{where}.{number}")
    elif isinstance(value, str) and _TEXTS.search(value):
        yield where
