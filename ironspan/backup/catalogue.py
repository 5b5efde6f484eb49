# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What a store holds of one site."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ironspan.backup import crypto
from ironspan.backup.errors import ChainError, Unsigned
from ironspan.backup.manifest import LARGEST_BYTES, Epoch, Manifest, Verdict, load
from ironspan.backup.names import Names, parse_snapshot_id
from ironspan.backup.proof import Proof
from ironspan.backup.store import Item, Store
from ironspan.backup.takeover import segments_of
from ironspan.program.errors import NotThere, ProgramError, ServiceError

LISTED_MAX = 500_000
"""Names below one prefix from which on somebody fills the store: a site has some thousands."""
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
    """Names of objects that are not what the site wrote, and why: damaged, or somebody else's."""
    unsigned: list[str] = dataclasses.field(default_factory=list)
    """Names of the epochs of the time before objects were signed."""

    def of(self, epoch: int) -> tuple[tuple[Snapshot, ...], tuple[Segment, ...]]:
        """Return an epoch's snapshots by revision and segments by number."""
        snapshots = sorted(
            (one for one in self.snapshots if one.epoch == epoch), key=lambda one: (one.revision, one.id)
        )
        segments = sorted((one for one in self.segments if one.epoch == epoch), key=lambda one: one.number)
        return tuple(snapshots), tuple(segments)


def catalogue(store: Store, names: Names) -> Catalogue:
    """Read what a store holds: every name, and the small objects that the site signed. Nothing is decrypted.

    Segments are here by their names only; which of them the site wrote, readers of the log find out.

    Args:
        store: the store.
        names: of the site.

    Raises:
        ServiceError: the store cannot be read.
    """
    found = Catalogue(names, (), (), ())
    epochs: list[Epoch] = []
    numbers = epoch_numbers(store, names)
    read = _all(store, Epoch, [names.epoch(number) for number in numbers], found)
    for number, (name, epoch) in zip(numbers, read.items(), strict=True):
        if epoch and epoch.epoch == number:
            epochs.append(epoch)
        elif epoch:
            found.damaged[name] = f"it says that it is epoch {epoch.epoch}"
    for name in [one for one in found.unsigned if epochs and one > names.epoch(epochs[0].epoch)]:
        found.unsigned.remove(name)
        found.damaged[name] = "it is not signed, and this site signed an epoch before it"
    found = dataclasses.replace(found, epochs=tuple(epochs))
    for epoch in epochs:
        found = _with_epoch(store, found, epoch)
    return dataclasses.replace(found, recoveries=tuple(listed(store, names.recoveries)))


def unsigned(store: Store, names: Names) -> Catalogue:
    """Return what a store holds of the time before objects were signed: epochs before the first signed one.

    Nobody knows who wrote it. For the arguments see ``catalogue``.
    """
    begun = [one.epoch for one in catalogue(store, names).epochs]
    found = catalogue(store, names.unsigned())
    before = tuple(one for one in found.epochs if not begun or one.epoch < begun[0])
    numbers = {one.epoch for one in before}
    return dataclasses.replace(
        found,
        epochs=before,
        snapshots=tuple(one for one in found.snapshots if one.epoch in numbers),
        segments=tuple(one for one in found.segments if one.epoch in numbers),
        unfinished=(),
        recoveries=(),
        damaged={},
    )


def listed(store: Store, prefix: str) -> Iterator[Item]:
    """Yield what begins with a prefix. Raises ServiceError when there is more than any site writes."""
    for number, item in enumerate(store.list(prefix)):
        if number >= LISTED_MAX:
            raise ServiceError(
                f"{store.name} has more than {LISTED_MAX} objects below {prefix}: somebody fills it.",
                "Find out who has an identity at the store that may write; backups go on in another prefix.",
            )
        yield item


def epoch_numbers(store: Store, names: Names) -> list[int]:
    """Return the numbers that epochs have, whoever wrote them.

    An epoch that is overlooked lets a former cluster write. So a list of names, which may be old, is not
    enough. A writer takes the first free number behind the newest epoch, so what may be missing in the list
    has a number behind one that is taken: these names are asked for themselves.
    """
    known = {number for item in listed(store, names.epochs) if (number := names.parse_epoch(item.name))}
    asked = {number + 1 for number in known} | {1}
    while asked := asked - known:
        there = {number for number in asked if _is_there(store, names.epoch(number))}
        known |= there
        asked = {number + 1 for number in there}
    return sorted(known)


def _is_there(store: Store, name: str) -> bool:
    try:
        store.size(name)
    except NotThere:
        return False
    return True


def _with_epoch(store: Store, found: Catalogue, epoch: Epoch) -> Catalogue:
    names = found.names
    data: dict[str, Item] = {}
    manifests: dict[str, str] = {}
    for item in listed(store, names.snapshots(epoch.epoch)):
        parsed = names.parse_snapshot(item.name)
        if parsed and parsed.part == "data":
            data[parsed.snapshot] = item
        elif parsed:
            manifests[parsed.snapshot] = item.name
    verdicts, newest = _verdicts(store, found, epoch.epoch)
    snapshots = []
    read = _all(store, Manifest, manifests.values(), found)
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
    items = list(listed(store, found.names.verdicts(epoch)))
    # Names sort by snapshot, then by time.
    named: dict[str, list[str]] = {}
    for item in reversed(items):
        if parsed := found.names.parse_verdict(item.name):
            named.setdefault(parsed.snapshot, []).append(item.name)
    newest: dict[str, Verdict] = {}
    while named:
        read = _all(store, Verdict, [names.pop(0) for names in named.values()], found)
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
    store: Store, kind: type[Kind], names: Iterable[str], found: Catalogue
) -> dict[str, Kind | None]:
    """Return small objects by name, in the order of the names; several are on their way at a time."""
    wanted = list(names)
    with ThreadPoolExecutor(AT_ONCE) as readers:
        read = readers.map(lambda name: _small(store, kind, name, found), wanted)
        return dict(zip(wanted, read, strict=True))


def _small[Kind: (Epoch, Manifest, Verdict)](
    store: Store, kind: type[Kind], name: str, found: Catalogue
) -> Kind | None:
    try:
        return read_small(store, kind, name, found.names.proof)
    except NotThere:
        # Deleted since it was listed.
        return None
    except Unsigned as error:
        if kind is Epoch:
            found.unsigned.append(name)
        else:
            # A signed epoch has nothing else.
            found.damaged[name] = error.message
    except ChainError as error:
        found.damaged[name] = error.message
    return None


def read_small[Kind: (Epoch, Manifest, Verdict)](
    store: Store, kind: type[Kind], name: str, proof: Proof
) -> Kind:
    """Return a small object. Raises NotThere, ServiceError, and as ``manifest.load``."""
    return load(kind, b"".join(store.read(name, 0, LARGEST_BYTES)), name, proof)


def newest_epoch(found: Catalogue) -> Epoch:
    """Return the epoch that the site is in. Raises ProgramError for a store without one."""
    if not found.epochs:
        raise ProgramError(
            f"There are no backups that the site {found.names.site} signed.",
            "Look at the site's name, the store's prefix, and the agent's log on the etcd hosts. For what "
            "was written before backups were signed ask for unsigned:latest.",
        )
    return found.epochs[-1]
