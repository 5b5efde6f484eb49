# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a store holds of one site."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ironspan.backup import crypto
from ironspan.backup.errors import BackupError, ChainError, NotThere
from ironspan.backup.manifest import Epoch, Manifest, Verdict, load
from ironspan.backup.names import Names, parse_snapshot_id
from ironspan.backup.store import Item, Store
from ironspan.backup.takeover import segments_of

AT_ONCE = 8
"""Small objects that are read at a time: one after the other, those of a hundred snapshots take seconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that is committed, and what the last drill said about it."""

    id: str
    manifest: Manifest
    data: Item
    verdict: Verdict | None = None

    @property
    def epoch(self) -> int:
        """The epoch it belongs to."""
        return self.manifest.epoch

    @property
    def revision(self) -> int:
        """The last revision in it."""
        return self.manifest.revision

    @property
    def verified(self) -> bool:
        """Whether the last drill restored it."""
        return self.verdict is not None and self.verdict.verified


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A segment of the log; where it ends is in its frames."""

    item: Item
    epoch: int
    first_revision: int
    number: int

    @property
    def name(self) -> str:
        """Of the object."""
        return self.item.name


@dataclasses.dataclass(frozen=True, slots=True)
class Catalogue:
    """What a store holds of one site, oldest first."""

    names: Names
    epochs: tuple[Epoch, ...]
    snapshots: tuple[Snapshot, ...]
    segments: tuple[Segment, ...]
    unfinished: tuple[Item, ...] = ()
    """Data of snapshots without a manifest: being written, or given up."""
    verdicts: tuple[Item, ...] = ()
    recoveries: tuple[Item, ...] = ()
    damaged: dict[str, str] = dataclasses.field(default_factory=dict)
    """Names of objects that are not what was written, and why."""

    def of(self, epoch: int) -> tuple[tuple[Snapshot, ...], tuple[Segment, ...]]:
        """Return an epoch's snapshots by revision and segments by number."""
        snapshots = sorted(
            (one for one in self.snapshots if one.epoch == epoch), key=lambda one: (one.revision, one.id)
        )
        segments = sorted((one for one in self.segments if one.epoch == epoch), key=lambda one: one.number)
        return tuple(snapshots), tuple(segments)


def catalogue(store: Store, names: Names) -> Catalogue:
    """Read what a store holds: every name, and the small objects. Nothing is decrypted.

    Args:
        store: the store.
        names: of the site.

    Raises:
        StoreError: the store cannot be read.
    """
    damaged: dict[str, str] = {}
    epochs: list[Epoch] = []
    numbers = epoch_numbers(store, names)
    read = _all(store, Epoch, [names.epoch(number) for number in numbers], damaged)
    for number, (name, epoch) in zip(numbers, read.items(), strict=True):
        if epoch and epoch.epoch == number:
            epochs.append(epoch)
        elif epoch:
            damaged[name] = f"it says that it is epoch {epoch.epoch}"
    found = Catalogue(names, tuple(epochs), (), (), damaged=damaged)
    for epoch in epochs:
        found = _with_epoch(store, found, epoch)
    return dataclasses.replace(found, recoveries=tuple(store.list(names.recoveries)))


def epoch_numbers(store: Store, names: Names) -> list[int]:
    """Return the numbers of the epochs there are.

    An epoch that is overlooked lets a former cluster write. So a list of names, which may be old, is not
    enough: the next name is asked for itself.
    """
    listed = [names.parse_epoch(item.name) for item in store.list(names.epochs)]
    numbers = sorted(number for number in listed if number)
    while True:
        following = numbers[-1] + 1 if numbers else 1
        try:
            store.size(names.epoch(following))
        except NotThere:
            return numbers
        numbers.append(following)


def _with_epoch(store: Store, found: Catalogue, epoch: Epoch) -> Catalogue:
    names = found.names
    data: dict[str, Item] = {}
    manifests: dict[str, str] = {}
    for item in store.list(names.snapshots(epoch.epoch)):
        parsed = names.parse_snapshot(item.name)
        if parsed and parsed.part == "data":
            data[parsed.snapshot] = item
        elif parsed:
            manifests[parsed.snapshot] = item.name
    verdicts, newest = _verdicts(store, found, epoch.epoch)
    snapshots = []
    read = _all(store, Manifest, manifests.values(), found.damaged)
    for identifier, name in manifests.items():
        manifest = read[name]
        why = _mismatch(manifest, identifier, epoch, data.get(identifier)) if manifest else ""
        if manifest and not why:
            snapshots.append(Snapshot(identifier, manifest, data[identifier], newest.get(identifier)))
        elif why:
            found.damaged[name] = why
    return dataclasses.replace(
        found,
        snapshots=(*found.snapshots, *snapshots),
        segments=(
            *found.segments,
            *(
                Segment(item, epoch.epoch, parsed.first_revision, parsed.number)
                for item, parsed in segments_of(store, names, epoch.epoch)
            ),
        ),
        unfinished=(*found.unfinished, *(data[one] for one in data.keys() - manifests.keys())),
        verdicts=(*found.verdicts, *verdicts),
    )


def _verdicts(store: Store, found: Catalogue, epoch: int) -> tuple[list[Item], dict[str, Verdict]]:
    """Return the verdicts' objects, and the newest readable verdict of each snapshot."""
    items = list(store.list(found.names.verdicts(epoch)))
    # Names sort by snapshot, then by time.
    named: dict[str, list[str]] = {}
    for item in reversed(items):
        if parsed := found.names.parse_verdict(item.name):
            named.setdefault(parsed.snapshot, []).append(item.name)
    newest: dict[str, Verdict] = {}
    while named:
        read = _all(store, Verdict, [names.pop(0) for names in named.values()], found.damaged)
        for snapshot, verdict in zip(named, read.values(), strict=True):
            if verdict and verdict.snapshot == snapshot:
                newest[snapshot] = verdict
        named = {snapshot: names for snapshot, names in named.items() if names and snapshot not in newest}
    return items, newest


def _mismatch(manifest: Manifest, identifier: str, epoch: Epoch, data: Item | None) -> str:
    if data is None:
        return "its data is missing"
    revision, created = parse_snapshot_id(identifier)
    # The name has the revision at which it was asked for; etcd takes a snapshot some revisions later.
    if manifest.revision < revision or manifest.created != created or manifest.epoch != epoch.epoch:
        return f"it belongs to epoch {manifest.epoch}, revision {manifest.revision}"
    if manifest.cluster_id != epoch.cluster_id:
        return f"it is of the cluster {manifest.cluster_id}, and the epoch of {epoch.cluster_id}"
    stored = manifest.size + crypto.TAG_BYTES * manifest.parts
    if data.size != stored or manifest.parts != crypto.parts(manifest.size):
        return f"its data has {data.size} bytes, not {stored}"
    return ""


def _all[Kind: (Epoch, Manifest, Verdict)](
    store: Store, kind: type[Kind], names: Iterable[str], damaged: dict[str, str]
) -> dict[str, Kind | None]:
    """Return small objects by name, in the order of the names; several are on their way at a time."""
    wanted = list(names)
    with ThreadPoolExecutor(AT_ONCE) as readers:
        found = readers.map(lambda name: _small(store, kind, name, damaged), wanted)
        return dict(zip(wanted, found, strict=True))


def _small[Kind: (Epoch, Manifest, Verdict)](
    store: Store, kind: type[Kind], name: str, damaged: dict[str, str]
) -> Kind | None:
    try:
        return load(kind, b"".join(store.read(name)), name)
    except NotThere:
        # Deleted since it was listed.
        return None
    except ChainError as error:
        damaged[name] = error.message
        return None


def newest_epoch(found: Catalogue) -> Epoch:
    """Return the epoch that the site is in. Raises BackupError for a store without one."""
    if not found.epochs:
        raise BackupError(
            f"There are no backups of the site {found.names.site}.",
            "Look at the site's name and the store's prefix, and at the agent's log on the etcd hosts.",
        )
    return found.epochs[-1]
