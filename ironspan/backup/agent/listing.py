# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What ``list`` shows: the snapshots of a store, what a drill proved of them, and where the log ends."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Sequence

from ironspan.backup.catalogue import Catalogue, Snapshot, catalogue, listed, unsigned
from ironspan.backup.chain import last_seen, moment_text
from ironspan.backup.names import Names
from ironspan.backup.store import Store
from ironspan.backup.text import size
from ironspan.backup.written import known_segments

SHOWN = 100
"""Names of damaged or unknown objects that are shown; somebody may have made a million."""
_HEADS = ("EPOCH", "SNAPSHOT", "REVISION", "TAKEN", "SIZE", "KEY", "PROVEN")


def contents(store: Store, names: Names) -> dict[str, t.Any]:
    """Return what a store holds of a site, for people and machines.

    Args:
        store: the store.
        names: of the site.

    Raises:
        ServiceError: the store does not answer.
    """
    found = known_segments(store, catalogue(store, names))
    old = unsigned(store, names) if found.unsigned else None
    damaged, more = _first(found.damaged)
    unknown, beyond = _first(dict.fromkeys(_unknown(store, names, found, old), ""))
    return {
        "store": store.name,
        "epochs": [
            {"epoch": epoch.epoch, "cluster_id": epoch.cluster_id, "created": epoch.created}
            for epoch in found.epochs
        ],
        "snapshots": [_snapshot(snapshot) for snapshot in found.snapshots],
        "log": _log(store, found),
        "recoveries": [item.name for item in found.recoveries],
        "unfinished": [item.name for item in found.unfinished],
        "unsigned": [_snapshot(snapshot) for snapshot in old.snapshots] if old else [],
        "damaged": damaged,
        "unknown": list(unknown),
        "not_shown": more + beyond,
    }


def _first(found: dict[str, str]) -> tuple[dict[str, str], int]:
    """Return the first of many, and how many more there are."""
    names = sorted(found)
    return {name: found[name] for name in names[:SHOWN]}, max(0, len(names) - SHOWN)


def _unknown(store: Store, names: Names, found: Catalogue, old: Catalogue | None) -> Iterator[str]:
    """Yield what no part of a backup is called, or what is of an epoch that there is not."""
    epochs = {epoch.epoch for one in (found, old) if one for epoch in one.epochs}
    for item in listed(store, names.everything):
        parsed = (
            names.parse_snapshot(item.name) or names.parse_log(item.name) or names.parse_verdict(item.name)
        )
        if parsed is not None:
            if parsed.epoch not in epochs:
                yield item.name
        elif not (
            item.name in (names.writer, names.drill)
            or item.name.startswith(names.probes)
            or names.parse_epoch(item.name) is not None
            or names.parse_recovery(item.name) is not None
        ):
            yield item.name


def as_text(found: Sequence[dict[str, t.Any]]) -> str:
    """Return the contents of some stores as tables."""
    return "\n\n".join(_store_text(one) for one in found)


def _snapshot(snapshot: Snapshot) -> dict[str, t.Any]:
    verdict = snapshot.verdict
    return {
        "id": snapshot.id,
        "epoch": snapshot.epoch,
        "revision": snapshot.revision,
        "created": snapshot.manifest.created,
        "size": snapshot.manifest.size,
        "etcd_version": snapshot.manifest.etcd_version,
        "key_version": snapshot.manifest.key_version,
        "objects": sum(snapshot.manifest.object_counts.values()),
        "verified": verdict.verified if verdict else None,
        "verified_at": verdict.created if verdict else None,
        "findings": list(verdict.findings) if verdict else [],
    }


def _log(store: Store, found: Catalogue) -> dict[str, t.Any]:
    epoch = found.epochs[-1].epoch if found.epochs else 0
    _, segments = found.of(epoch)
    return {
        "epoch": epoch,
        "segments": len(segments),
        "bytes": sum(segment.item.size for segment in segments),
        "first_revision": segments[0].first_revision if segments else None,
        "last_revision": last_seen(store, found) if segments else None,
        "written": max((segment.item.modified for segment in segments), default=None),
    }


def _store_text(found: dict[str, t.Any]) -> str:
    rows = [_HEADS, *(_row(snapshot) for snapshot in found["snapshots"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    log = found["log"]
    if log["segments"]:
        lines.append(
            f"log of epoch {log['epoch']}: revisions {log['first_revision']} to {log['last_revision']}, "
            f"{log['segments']} segments, {size(log['bytes'])}, "
            f"last written {moment_text(round(log['written'] * 1000))}"
        )
    else:
        lines.append("no log")
    lines += [f"unfinished: {name}" for name in found["unfinished"]]
    lines += [
        f"unsigned, restored only as unsigned:POINT: epoch {one['epoch']}, {one['id']}"
        for one in found["unsigned"]
    ]
    lines += [f"DAMAGED: {name}: {why}" for name, why in sorted(found["damaged"].items())]
    lines += [f"UNKNOWN: {name}" for name in found["unknown"]]
    lines += [f"and {found['not_shown']} more of these"] if found["not_shown"] else []
    return "\n".join([found["store"], *(f"  {line.rstrip()}" for line in lines)])


def _row(snapshot: dict[str, t.Any]) -> tuple[str, ...]:
    proven = {None: "not yet", True: "restored", False: "FAILED"}[snapshot["verified"]]
    if snapshot["verified_at"]:
        proven += f" {moment_text(snapshot['verified_at'] * 1000)[:16]}Z"
    return (
        str(snapshot["epoch"]),
        snapshot["id"],
        str(snapshot["revision"]),
        f"{moment_text(snapshot['created'] * 1000)[:19]}Z",
        size(snapshot["size"]),
        snapshot["key_version"],
        proven,
    )
