# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A model of hosts that follow the stages of an authority, one small step at a time, each at its own pace."""

from __future__ import annotations

import dataclasses
import datetime

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.found import AUTHORITY, LEAF, Found
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.gate import (
    LEAVES,
    SERVED,
    TRUSTING,
    Observed,
    Place,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import Generations

EPOCH = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)


@dataclasses.dataclass
class File:
    """A file: the generations in it, and when it was written."""

    content: tuple[int, ...]
    written: float = 0.0


class ModelHost:
    """One host.

    Args:
        authority: which one is being changed.
        groups: groups of the inventory.
    """

    def __init__(self, authority: str, groups: tuple[str, ...]) -> None:
        self.authority, self.groups = authority, groups
        self.trusting = self._mine(TRUSTING[authority])
        self.leaves = [place for place in self._mine(LEAVES[authority]) if place.path not in SERVED.values()]
        self.shows = any(place.path in SERVED.values() for place in self._mine(LEAVES[authority]))
        self.files = {place.path: File((1,)) for place in self.trusting}
        self.signed = {place.path: File((1,)) for place in self.leaves}
        self.shown = 1
        readers = {reader for place in (*self.trusting, *self.leaves) for reader in place.readers}
        self.started = dict.fromkeys(readers, 1.0)
        self.stamps = dict.fromkeys(readers, 0)
        self.memory: dict[tuple[str, str], tuple[int, ...]] = {
            (place.path, reader): (1,) for place in self.trusting for reader in place.readers
        }

    def _mine(self, places: tuple[Place, ...]) -> list[Place]:
        return [place for place in places if set(place.groups) & set(self.groups)]

    def trusted(self) -> list[tuple[int, ...]]:
        """Return what is trusted in each place: by running programs, or in files that are read every time."""
        of_files = [self.files[place.path].content for place in self.trusting if not place.readers]
        return [*self.memory.values(), *of_files]

    def in_use(self) -> list[int]:
        """Return the generations that signed what this host shows to others."""
        return [*(file.content[0] for file in self.signed.values()), *([self.shown] if self.shows else [])]

    def reload(self) -> None:
        """Let servers notice their new certificate."""
        for path in ("/etc/etcd/pki/server.crt", "/etc/kubernetes/pki/apiserver.crt"):
            if path in self.signed:
                self.shown = self.signed[path].content[0]

    def step(self, state: Generations, now: float) -> bool:
        """Do the next small thing that the document asks for; False when there is nothing left."""
        # Who signs comes first where kubeadm reads the file.
        order = sorted(state.trusted, key=lambda number: self.authority != "etcd" and number != state.signing)
        for file in self.files.values():
            if file.content != tuple(order):
                file.content, file.written = tuple(order), now
                return True
        for path, reader in self.memory:
            # The engine never forgets that a file was written; control planes start again by the stamp.
            stale = self.started[reader] < self.files[path].written
            if self.stamps[reader] != state.changes if reader.startswith("kube-") else stale:
                self._start(reader, now, state.changes)
                return True
        for file in self.signed.values():
            if file.content != (state.signing,):
                file.content, file.written = (state.signing,), now
                return True
        for place in self.leaves:
            for reader in place.readers:
                if self.started[reader] < self.signed[place.path].written:
                    self._start(reader, now, self.stamps[reader])
                    return True
        return False

    def _start(self, reader: str, now: float, stamp: int) -> None:
        self.started[reader], self.stamps[reader] = now, stamp
        for path, name in self.memory:
            if name == reader:
                self.memory[path, name] = self.files[path].content

    def observed(self) -> Observed:
        """Return what the host would answer."""
        found = [
            self._found(AUTHORITY, path, number)
            for path, file in self.files.items()
            for number in file.content
        ]
        found += [self._found(LEAF, path, file.content[0]) for path, file in self.signed.items()]
        if self.shows:
            found.append(self._found(LEAF, SERVED[self.authority], self.shown))
        written = {path: file.written for path, file in (*self.files.items(), *self.signed.items())}
        # A file may be both: a kubeconfig trusts, and holds a certificate.
        for path in set(self.files) & set(self.signed):
            written[path] = max(self.files[path].written, self.signed[path].written)
        return Observed(self.groups, found, written, dict(self.started))

    def _found(self, kind: str, path: str, number: int) -> Found:
        return Found("host", path, kind, "", self.authority, number, "", "", "", EPOCH)
