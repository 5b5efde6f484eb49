# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What hosts answered about backups, for people."""

from __future__ import annotations

import collections.abc
import datetime
import io
import typing as t

import rich.box
import rich.console
import rich.table

from ironspan.backup.text import size

Answer = collections.abc.Mapping[str, t.Any]
WIDTH = 1000
"""More than any table has of its own. A narrower terminal wraps lines; a revision cut short is of no use."""


def listing(stores: collections.abc.Iterable[Answer], now: float) -> str:
    """Return a table for each store: its snapshots, newest first, and how far the log leads.

    Args:
        stores: ``stores`` of the answer to ``list``.
        now: seconds since 1970.
    """
    out = rich.console.Console(file=io.StringIO(), width=WIDTH, highlight=False)
    for number, store in enumerate(stores, 1):
        out.print(f"{number}. {store['store']}", markup=False, soft_wrap=True)
        if store["snapshots"]:
            out.print(_table(store, now))
        else:
            out.print("   no snapshot")
        for line in _remarks(store, now):
            out.print(f"   {line}", markup=False, soft_wrap=True)
    file = t.cast("io.StringIO", out.file)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _table(store: Answer, now: float) -> rich.table.Table:
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for head in ("snapshot", "taken", "revision", "size", "log to", "verified", "age"):
        table.add_column(
            head, justify="right" if head in ("revision", "size", "log to", "age") else "left", no_wrap=True
        )
    newest = True
    for snapshot in reversed(store["snapshots"]):
        log = store["log"]
        here = newest and log["epoch"] == snapshot["epoch"] and log["last_revision"] is not None
        table.add_row(
            snapshot["id"],
            _time(snapshot["created"]),
            str(snapshot["revision"]),
            size(snapshot["size"]),
            str(max(log["last_revision"], snapshot["revision"])) if here else "",
            verdict(snapshot),
            age(now - snapshot["created"]),
        )
        newest = False
    return table


def verdict(snapshot: Answer) -> str:
    """Return what the last drill said about a snapshot, and when."""
    if snapshot["verified"] is None:
        return "not yet"
    when = _time(snapshot["verified_at"])
    return when if snapshot["verified"] else f"FAILED {when}"


def _remarks(store: Answer, now: float) -> collections.abc.Iterator[str]:
    log = store["log"]
    if log["last_revision"] is None:
        yield "no log: only the snapshots themselves can be restored"
    else:
        yield (
            f"log to revision {log['last_revision']}, written {age(now - log['written'])} ago; "
            f"{log['segments']} segments, {size(log['bytes'])}"
        )
    proven = [snapshot for snapshot in store["snapshots"] if snapshot["verified"]]
    if store["snapshots"] and not proven:
        yield "NO snapshot is proven by a drill: ironspan backup drill"
    for snapshot in store["snapshots"]:
        if snapshot["verified"] is False:
            yield from (f"{snapshot['id']}: {finding}" for finding in snapshot["findings"])
    for name, why in sorted(store["damaged"].items()):
        yield f"DAMAGED {name}: {why}"
    for name in store.get("unknown", []):
        yield f"UNKNOWN {name}"
    if store.get("not_shown"):
        yield f"and {store['not_shown']} more of these"
    for snapshot in store.get("unsigned", []):
        yield f"unsigned, restored only as unsigned:POINT: epoch {snapshot['epoch']}, {snapshot['id']}"
    for name in store["unfinished"]:
        yield f"unfinished: {name}"


def sound(stores: collections.abc.Iterable[Answer]) -> bool:
    """Tell whether every store has a snapshot, none is damaged and the newest that was tried is proven."""
    for store in stores:
        tried = [snapshot["verified"] for snapshot in store["snapshots"] if snapshot["verified"] is not None]
        if not store["snapshots"] or store["damaged"] or tried[-1:] == [False]:
            return False
    return True


def read(found: collections.abc.Iterable[Answer]) -> list[str]:
    """Return what ``verify`` found, a line a snapshot or damaged object."""
    return [
        f"{one['snapshot']}: {one['problem'] or 'whole to revision ' + str(one['revision'])}" for one in found
    ]


def drilled(found: Answer) -> list[str]:
    """Return what ``drill`` found."""
    if found["verified"]:
        return [
            f"{found['snapshot']}: verified, restored to revision {found['revision']} on {found['host']} "
            f"in {found['seconds']:.1f} s"
        ]
    return [f"{found['snapshot']}: NOT verified", *(f"  {finding}" for finding in found["findings"])]


def age(seconds: float) -> str:
    """Return a span of time in the largest unit that leaves two of it."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
