# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Copies one store to another under the same names: bytes as they are, encrypted as they are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ironspan.backup.errors import PositionConflict
from ironspan.backup.names import Names
from ironspan.backup.store import APPEND_MAX, Item, Store
from ironspan.program.errors import AlreadyThere, NotThere, ServiceError

LOG = logging.getLogger(__name__)
LOG_PAUSE_SECONDS = 5.0
OBJECT_PAUSE_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 60.0


class Copier:
    """Makes what is missing in a second store.

    A manifest goes after the data that it commits, and a log object grows from its end only, so that the
    copy is at every moment what the original was at some moment before.

    Args:
        source: the first store.
        target: opens the second one, which may be out of reach for now.
        names: of the site.
        copied: called with the number of bytes of every object or part that was copied.
    """

    def __init__(
        self,
        source: Store,
        target: Callable[[], Store],
        names: Names,
        copied: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._open = target
        self._opened: Store | None = None
        self._source = source
        self._names = names
        self._copied = copied

    @property
    def target(self) -> Store:
        """The second store. Raises ProgramError while it cannot be opened."""
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def logs(self) -> None:
        """Bring every log of every epoch up to its length. Raises ServiceError."""
        for item, there in self._behind():
            if self._names.parse_log(item.name):
                self._extend(item, there)

    def objects(self) -> None:
        """Copy every whole object that is missing.

        Raises:
            ServiceError: a store failed, or the second one has another object under a name of the first:
                somebody made it before, and nothing is replaced.
        """
        behind = list(self._behind())
        missing = [item for item, there in behind if there is None]
        for item in sorted(missing, key=lambda item: (item.name.endswith("/manifest.json"), item.name)):
            if self._is_object(item.name):
                try:
                    self.target.put(item.name, self._counted(self._source.read(item.name)))
                except AlreadyThere:
                    continue
                except NotThere:
                    LOG.info("%s is gone from %s", item.name, self._source.name)
        taken = [item.name for item, there in behind if there is not None and self._is_object(item.name)]
        if taken:
            raise ServiceError(
                f"{self.target.name} has other objects under {len(taken)} names of {self._source.name}, the "
                f"first one {taken[0]}: it is no copy of these.",
                "Find out who wrote there: docs/backup.md#what-does-not-verify. A copy needs another prefix.",
            )

    def _is_object(self, name: str) -> bool:
        names = self._names
        parsers = (names.parse_epoch, names.parse_snapshot, names.parse_verdict)
        return name.startswith(names.recoveries) or any(parse(name) is not None for parse in parsers)

    def _behind(self) -> Iterator[tuple[Item, int | None]]:
        """Yield what is longer than its copy, or other than it, with the copy's length, None without one."""
        there = {item.name: item.size for item in self.target.list(f"{self._names.site}/")}
        for item in self._source.list(f"{self._names.site}/"):
            size = there.get(item.name)
            if size is None or size < item.size or (size != item.size and self._is_object(item.name)):
                yield item, size

    def _extend(self, item: Item, there: int | None) -> None:
        try:
            if there is None:
                self.target.create_append(item.name)
            position = there or 0
            while position < item.size:
                length = min(APPEND_MAX, item.size - position)
                data = b"".join(self._source.read(item.name, position, length))
                if not data:
                    return
                position = self.target.append(item.name, data, position)
                self._copied(len(data))
        except (AlreadyThere, PositionConflict):
            # Another copier was faster; the next round sees what it did.
            LOG.info("another agent copies %s to %s", item.name, self.target.name)

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            self._copied(len(chunk))
