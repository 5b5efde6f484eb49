# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Names of the objects in a store (docs/backup-format.md), and what proves who wrote under them."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ironspan.backup.proof import NOTHING, UNSIGNED, Proof
from ironspan.program.errors import ProgramError

SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_EPOCH = re.compile(r"epochs/(\d{6})\.json")
_SNAPSHOT = re.compile(r"e(\d{6})/snapshots/(\d{20}-\d+)/(data|manifest\.json)")
_LOG = re.compile(r"e(\d{6})/log/(\d{20})-(\d{6})\.log")
_VERDICT = re.compile(r"e(\d{6})/verdicts/(\d{20}-\d+)/(\d+)\.json")
_RECOVERY = re.compile(r"recovery/(\d+)\.bundle")
_SNAPSHOT_ID = re.compile(r"(\d{20})-(\d+)")


class SnapshotName(t.NamedTuple):
    """What the name of a snapshot's object says; ``part`` is ``data`` or ``manifest.json``."""

    epoch: int
    snapshot: str
    part: str


class LogName(t.NamedTuple):
    """What the name of a log segment says."""

    epoch: int
    first_revision: int
    number: int


class VerdictName(t.NamedTuple):
    """What the name of a drill's verdict says."""

    epoch: int
    snapshot: str
    unix: int


def snapshot_id(revision: int, unix: int) -> str:
    """Return the identifier of a snapshot: its revision and when it was made (seconds since 1970)."""
    return f"{revision:020d}-{unix}"


def parse_snapshot_id(identifier: str) -> tuple[int, int]:
    """Return revision and time of a snapshot's identifier. Raises ProgramError when it is none."""
    match = _SNAPSHOT_ID.fullmatch(identifier)
    if match is None:
        raise ProgramError(
            f"{identifier!r} names no snapshot.", "`ironspan backup list` shows the names that there are."
        )
    return int(match[1]), int(match[2])


@dataclasses.dataclass(frozen=True, slots=True)
class Names:
    """The names of one site's objects, without the store's own prefix.

    Raises ProgramError for a site that makes no safe name.
    """

    site: str
    proof: Proof = dataclasses.field(default=NOTHING, compare=False, repr=False)
    """Signs and verifies what is written under these names."""

    def __post_init__(self) -> None:
        if not SITE.fullmatch(self.site):
            raise ProgramError(
                f"{self.site!r} is no name for a site in a store.",
                "Write letters, digits, '.', '_' and '-', at most 63, beginning with a letter or digit.",
            )

    def unsigned(self) -> Names:
        """Return the same names for reading what was written before objects were signed (schema 1)."""
        return dataclasses.replace(self, proof=UNSIGNED)

    @property
    def everything(self) -> str:
        """Prefix of all objects of the site."""
        return f"{self.site}/"

    @property
    def writer(self) -> str:
        """The object whose lease the only writer holds."""
        return f"{self.site}/writer"

    @property
    def drill(self) -> str:
        """The object whose lease the host holds that does a drill."""
        return f"{self.site}/drill"

    @property
    def epochs(self) -> str:
        """Prefix of the epochs."""
        return f"{self.site}/epochs/"

    def epoch(self, epoch: int) -> str:
        """Return the name of an epoch's record."""
        return f"{self.epochs}{epoch:06d}.json"

    def snapshots(self, epoch: int) -> str:
        """Return the prefix of an epoch's snapshots."""
        return f"{self.site}/e{epoch:06d}/snapshots/"

    def snapshot_data(self, epoch: int, snapshot: str) -> str:
        """Return the name of a snapshot's encrypted bytes."""
        return f"{self.snapshots(epoch)}{snapshot}/data"

    def snapshot_manifest(self, epoch: int, snapshot: str) -> str:
        """Return the name of the manifest that commits a snapshot."""
        return f"{self.snapshots(epoch)}{snapshot}/manifest.json"

    def logs(self, epoch: int) -> str:
        """Return the prefix of an epoch's log segments."""
        return f"{self.site}/e{epoch:06d}/log/"

    def log(self, epoch: int, first_revision: int, number: int) -> str:
        """Return the name of a log segment; ``number`` counts an epoch's segments from 1."""
        return f"{self.logs(epoch)}{first_revision:020d}-{number:06d}.log"

    def verdicts(self, epoch: int, snapshot: str = "") -> str:
        """Return the prefix of the verdicts on an epoch's snapshots, or on one of them."""
        return f"{self.site}/e{epoch:06d}/verdicts/" + (f"{snapshot}/" if snapshot else "")

    def verdict(self, epoch: int, snapshot: str, unix: int) -> str:
        """Return the name of a drill's verdict on a snapshot."""
        return f"{self.verdicts(epoch, snapshot)}{unix}.json"

    @property
    def probes(self) -> str:
        """Prefix of what check-store writes."""
        return f"{self.site}/probe/"

    @property
    def recoveries(self) -> str:
        """Prefix of the bundles of PKI and encryption configuration."""
        return f"{self.site}/recovery/"

    def recovery(self, unix: int) -> str:
        """Return the name of a bundle of PKI and encryption configuration."""
        return f"{self.recoveries}{unix}.bundle"

    def parse_epoch(self, name: str) -> int | None:
        """Return the epoch of an epoch's record, or None for another object."""
        match = self._match(_EPOCH, name)
        return int(match[1]) if match else None

    def parse_snapshot(self, name: str) -> SnapshotName | None:
        """Return what a snapshot's object is called by, or None for another object."""
        match = self._match(_SNAPSHOT, name)
        return SnapshotName(int(match[1]), match[2], match[3]) if match else None

    def parse_log(self, name: str) -> LogName | None:
        """Return what a log segment is called by, or None for another object."""
        match = self._match(_LOG, name)
        return LogName(int(match[1]), int(match[2]), int(match[3])) if match else None

    def parse_verdict(self, name: str) -> VerdictName | None:
        """Return what a verdict is called by, or None for another object."""
        match = self._match(_VERDICT, name)
        return VerdictName(int(match[1]), match[2], int(match[3])) if match else None

    def parse_recovery(self, name: str) -> int | None:
        """Return when a bundle was made, or None for another object."""
        match = self._match(_RECOVERY, name)
        return int(match[1]) if match else None

    def _match(self, pattern: re.Pattern[str], name: str) -> re.Match[str] | None:
        return pattern.fullmatch(name.removeprefix(f"{self.site}/"))
