# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The file with SSH host keys of machines in Azure: what it lacks, and what it has of those that left."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.azure.machines import Seen, twins
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.known_hosts import Entry, KnownHostsFile

Read = t.Callable[[Sequence[Seen]], Mapping[str, list[str] | str]]
"""Has the keys of machines read: name -> its keys, or the reason why they are not known."""


class Difference(t.NamedTuple):
    """What the file and the machines differ in.

    Args:
        missing: machines that can be logged in to, and whose keys are not recorded.
        doubtful: name -> reason of such machines whose keys are not to be recorded either.
        left: identity -> name of machines that are recorded, and not there any more.
    """

    missing: list[Seen]
    doubtful: dict[str, str]
    left: dict[str, str]


class Recorded(t.NamedTuple):
    """What was recorded.

    Args:
        new: names of machines whose keys were read.
        left: names of machines whose keys were taken out.
        failed: name -> the reason why its key is not known.
    """

    new: list[str]
    left: list[str]
    failed: dict[str, str]


def difference(seen: Iterable[Seen], recorded: Iterable[Entry]) -> Difference:
    """Compare machines with the file.

    Args:
        seen: machines that are there.
        recorded: lines of the file.
    """
    seen, recorded = list(seen), list(recorded)
    known = {(entry.address, entry.identity) for entry in recorded}
    there = {"", *(one.identity for one in seen)}
    doubted = twins(seen)
    unread = [one for one in seen if one.ready and (one.address, one.identity) not in known]
    return Difference(
        [one for one in unread if one.identity not in doubted],
        {one.name: doubted[one.identity] for one in unread if one.identity in doubted},
        {entry.identity: entry.name for entry in recorded if entry.identity not in there},
    )


def record(file: KnownHostsFile, found: Difference, read: Read) -> Recorded:
    """Have missing keys read and record them; lines of machines that left go.

    Args:
        file: with the keys.
        found: what ``difference`` returned.
        read: has them read.

    Raises:
        RemoteError: no file is named.
    """
    keys = read(found.missing) if found.missing else {}
    new = [
        Entry(one.address, one.name, tuple(said), one.identity)
        for one in found.missing
        if isinstance(said := keys[one.name], list)
    ]
    if new or found.left:
        file.record(new, gone=found.left)
    failed = found.doubtful | {name: said for name, said in keys.items() if isinstance(said, str)}
    return Recorded([entry.name for entry in new], sorted({*found.left.values()}), failed)
