# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Proves a backup: restores a snapshot with the log behind it into a scratch etcd and says what came out."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from ironspan.backup import manifest as manifests
from ironspan.backup.catalogue import Catalogue, Snapshot, catalogue
from ironspan.backup.chain import Chain, Point, choose
from ironspan.backup.crypto import Keys
from ironspan.backup.errors import ChainError
from ironspan.backup.manifest import Manifest, Verdict
from ironspan.backup.names import Names
from ironspan.backup.rebuild.rebuild import Rebuild, Tools
from ironspan.backup.rebuild.scratch import ScratchError, locked
from ironspan.backup.store import Store
from ironspan.program.errors import AlreadyThere, KeyMissing, ProgramError

_FOLDER = "rebuild"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a drill happens.

    ``folder`` is for its files, which are gone afterwards; those of a killed drill go with the next one.
    ``apiserver`` is the kube-apiserver that has to serve from the restored data, if one is given.
    """

    host: str
    folder: Path
    tools: Tools
    apiserver: Path | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Damaged:
    """A snapshot whose manifest or data is not what was written."""

    id: str
    epoch: int
    why: str


def drill(store: Store, keys: Keys, names: Names, snapshot: str, place: Place) -> Verdict:
    """Restore one snapshot and the log up to the next one, or to its end, and write the verdict.

    The log has to lead to what the next snapshot says, hash included, so each drill of an older snapshot
    proves the log as well.

    Args:
        store: where the backups are, and where the verdict goes.
        keys: open them.
        names: of the site.
        snapshot: its identifier; empty for the newest one.
        place: where to do it.

    Raises:
        ProgramError: the drill cannot be done here, which says nothing about the backup: there is no verdict.
        ServiceError: the store cannot be read or written.
    """
    found = catalogue(store, names)
    chosen = find(found, snapshot)
    place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    begun = time.monotonic()
    if isinstance(chosen, Damaged):
        revision, objects, findings = 0, 0, [chosen.why]
    else:
        with locked(place.folder), _cleared(place.folder / _FOLDER) as folder:
            revision, objects, findings = _restore(store, keys, found, chosen, folder, place)
    verdict = Verdict(
        epoch=chosen.epoch,
        snapshot=chosen.id,
        verified=not findings,
        revision=revision,
        created=int(time.time()),
        seconds=round(time.monotonic() - begun, 3),
        host=place.host,
        findings=tuple(findings),
        objects=objects,
    )
    return _write(store, names, verdict)


def find(found: Catalogue, identifier: str) -> Snapshot | Damaged:
    """Return a snapshot of a catalogue by its identifier; the newest one without. Raises ProgramError."""
    known: dict[str, Snapshot | Damaged] = {one.id: one for one in found.snapshots}
    for name, why in found.damaged.items():
        if (parsed := found.names.parse_snapshot(name)) and parsed.snapshot not in known:
            known[parsed.snapshot] = Damaged(parsed.snapshot, parsed.epoch, f"{name}: {why}")
    if identifier in known:
        return known[identifier]
    # The newest is the newest that the site signed; where there is none, what is there instead is named.
    newest = found.snapshots or known.values()
    if newest and not identifier:
        return max(newest, key=lambda one: (one.epoch, one.id))
    raise ProgramError(
        f"There is no snapshot {identifier}." if identifier else "There is no snapshot yet.",
        "`ironspan-etcd-backup list` shows those that there are.",
    )


def whole(store: Store, found: Catalogue, chosen: Snapshot, keys: Keys) -> tuple[Chain, Manifest | None]:
    """Return what begins with a snapshot: up to the next one, whose manifest is returned too, or to the end.

    Raises:
        ChainError: the log does not lead there, or is not what was written.
        KeyMissing: a key version that is needed is not there.
    """
    later = [one for one in found.snapshots if one.epoch == chosen.epoch and one.revision > chosen.revision]
    following = min(later, key=lambda one: one.revision, default=None)
    point = Point("revision", following.revision) if following else Point()
    epochs = tuple(epoch for epoch in found.epochs if epoch.epoch <= chosen.epoch)
    narrowed = dataclasses.replace(found, epochs=epochs, snapshots=(chosen,))
    return choose(store, narrowed, point, keys), following.manifest if following else None


def _restore(
    store: Store, keys: Keys, found: Catalogue, chosen: Snapshot, folder: Path, place: Place
) -> tuple[int, int, list[str]]:
    """Return the last revision and the number of keys that came out, and what is wrong with them."""
    try:
        chain, later = whole(store, found, chosen, keys)
    except (ChainError, KeyMissing) as error:
        return chosen.revision, 0, [str(error)]
    job = Rebuild(store, keys, found, chain, folder, place.tools)
    job.refuse()
    try:
        facts = job.run(later, place.apiserver)
    except (ChainError, KeyMissing, ScratchError) as error:
        return chosen.revision, 0, [str(error)]
    return facts.revision, facts.objects, []


@contextlib.contextmanager
def _cleared(folder: Path) -> Iterator[Path]:
    """Give an empty name for a folder, and remove what is there afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(store: Store, names: Names, verdict: Verdict) -> Verdict:
    """Write a verdict under a name that none has; returns it as it was written."""
    while True:
        name = names.verdict(verdict.epoch, verdict.snapshot, verdict.created)
        try:
            store.put(name, [manifests.dump(verdict, name, names.proof)])
        except AlreadyThere:
            verdict = dataclasses.replace(verdict, created=verdict.created + 1)
        else:
            return verdict


def metrics_text(verdict: Verdict) -> str:
    """Return a verdict as Prometheus reads it from a file of the node exporter."""
    values = {
        "timestamp_seconds": ("When the last drill on this host ended.", verdict.created),
        "verified": ("1 when it proved the backup.", int(verdict.verified)),
        "duration_seconds": ("How long it took.", verdict.seconds),
        "revision": ("The last revision that it replayed.", verdict.revision),
        "objects": ("The number of keys that came out.", verdict.objects),
    }
    lines = []
    for name, (text, value) in values.items():
        metric = f"ironspan_etcd_backup_drill_{name}"
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} gauge", f"{metric} {value}"]
    return "\n".join(lines) + "\n"
