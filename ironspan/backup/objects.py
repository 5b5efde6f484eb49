# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Counts objects by resource: what a snapshot's manifest says, and what a restore of it has to show."""

from __future__ import annotations

import functools
import typing as t

if t.TYPE_CHECKING:
    from ironspan.etcd.client import EtcdClient

REGISTRY = b"/registry/"
"""Where an API server keeps its objects unless --etcd-prefix says otherwise."""
_TIMEOUT = 60.0


def group(key: bytes) -> str:
    """Return what a key is counted by: ``/registry/pods``, or nothing for what is no object."""
    if not key.startswith(REGISTRY):
        return ""
    return "/registry/" + key[len(REGISTRY) :].split(b"/", 1)[0].decode(errors="backslashreplace")


def count(client: EtcdClient, endpoint: str, revision: int) -> dict[str, int]:
    """Count the keys of one member at a revision, in two requests a group; no values are read.

    Args:
        client: of the cluster.
        endpoint: the member to ask; it is asked without the others.
        revision: at which; EtcdError when it was compacted.
    """
    ask = functools.partial(
        client.range, revision=revision, serializable=True, endpoint=endpoint, timeout=_TIMEOUT
    )

    counts: dict[str, int] = {}
    key, end = REGISTRY, _after(REGISTRY)
    while found := ask(key, end, limit=1, keys_only=True).kvs:
        first = bytes(found[0].key)
        name = group(first)
        folder, slash, _ = first[len(REGISTRY) :].partition(b"/")
        if slash:
            begin = REGISTRY + folder + b"/"
            key = _after(begin)
            number = ask(begin, key, count_only=True).count
        else:
            key, number = first + b"\0", 1
        counts[name] = counts.get(name, 0) + number
    others = ask(b"\0", b"\0", count_only=True).count - sum(counts.values())
    return counts | ({"": others} if others else {})


def _after(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes([prefix[-1] + 1])
