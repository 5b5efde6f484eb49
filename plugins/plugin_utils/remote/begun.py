# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which things a run of a plan has begun with, kept beside the applied plan.

A run that is killed leaves things half way. The next run of the same plan finds them changed, and knows by
this that the plan itself changed them.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import Thing

FILE = "remote.jsonl"


class Begun:
    """The marks of one plan.

    Args:
        folder: of the applied plan on the controller; None where it is not kept, then nothing is marked.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = folder / FILE if folder else None
        self._lock = threading.Lock()
        self._known = self._read()

    def _read(self) -> set[tuple[str, str]]:
        known = set()
        try:
            lines = self._file.read_text(encoding="ascii").splitlines() if self._file else []
        except OSError:
            lines = []
        for line in lines:
            # A line that the kill cut short marks nothing: no step was taken after it.
            try:
                kind, name = json.loads(line)
            except ValueError:
                continue
            known.add((str(kind), str(name)))
        return known

    def has(self, thing: Thing) -> bool:
        """Tell whether a run of this plan has begun with a thing."""
        return (thing.kind, thing.name) in self._known

    def mark(self, thing: Thing) -> None:
        """Remember that its first step is about to be taken; on disk before this returns."""
        if self._file is None or self.has(thing):
            return
        line = ("\n" + json.dumps([thing.kind, thing.name]) + "\n").encode("ascii")
        with self._lock:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._known.add((thing.kind, thing.name))
