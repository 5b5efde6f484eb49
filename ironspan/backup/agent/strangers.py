# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Tells of objects in the store that the site did not write: in the log, as a metric, to the doctor."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ironspan.backup.agent.metrics import Metrics
from ironspan.backup.settings import Settings
from ironspan.program.lasting import Lasting
from ironspan.program.state import write_json

LOG = logging.getLogger(__name__)
_NAMED = 20


class Strangers:
    """What the agent that writes found at its last look.

    Args:
        settings: of this host.
        store: name of the store.
        metrics: has the number.
    """

    def __init__(self, settings: Settings, store: str, metrics: Metrics) -> None:
        self._path = settings.spool.path.parent / "strangers.json"
        self._store, self._metrics = store, metrics
        self._lasting = Lasting(LOG, logging.ERROR)

    def show(self, found: Mapping[str, str]) -> None:
        """Tell what does not verify: why, by name of the object."""
        if not found:
            self._lasting.tell(None)
            self.forget()
            return
        names = sorted(found)
        self._metrics.unproven.set(len(names))
        self._lasting.tell(
            f"{len(names)} objects in {self._store} are not what this site wrote, the first one {names[0]}: "
            f"{found[names[0]]} `ironspan backup list` shows them.",
            " ".join(names[:_NAMED]),
        )
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        first = {name: found[name] for name in names[:_NAMED]}
        write_json(self._path, {"objects": len(names), "store": self._store, "first": first})

    def forget(self) -> None:
        """Tell nothing any more: there is nothing, or another host looks."""
        self._metrics.unproven.set(0)
        self._path.unlink(missing_ok=True)
