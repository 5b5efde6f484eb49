# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the agent remembers: one file, replaced as a whole, of bounded size.

Where the kernel's log was read to stands in the same file as what was read, so that a line counts once,
whenever the agent is killed.
"""

from __future__ import annotations

import json
import logging
import threading
import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import TEMPORARY_PREFIX, write_file

from ironspan.gpud import events
from ironspan.gpud.events import Record

LOG = logging.getLogger(__name__)
VERSION = 1
_LONGEST = 4 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """What is remembered.

    Args:
        boot: which boot it is about.
        records: events of this boot.
        history: events of former boots, and those that are over; the latest last.
        log: where the kernel's log was read to.
        gpus: UUID -> what is known of each GPU that was there since the boot.
        done: actions that were asked for: id -> what became of them.
    """

    boot: str = ""
    records: Mapping[tuple[str, str], Record] = field(default_factory=dict)
    history: tuple[Record, ...] = ()
    log: Mapping[str, t.Any] = field(default_factory=dict)
    gpus: Mapping[str, Mapping[str, t.Any]] = field(default_factory=dict)
    done: Mapping[str, Mapping[str, t.Any]] = field(default_factory=dict)


class Store:
    """Keeps a ``Content`` in a file.

    Args:
        folder: of the file; it exists.
        boot: which boot this is. What belongs to another one becomes history.
        only_read: leave what a killed agent left to the one that runs.
    """

    def __init__(self, folder: Path, boot: str, only_read: bool = False) -> None:
        self._path = folder / "events.json"
        self._lock = threading.Lock()
        for left in () if only_read else folder.glob(f"{TEMPORARY_PREFIX}*"):
            left.unlink(missing_ok=True)
        found = _read(self._path)
        if found.boot != boot:
            found = Content(boot, history=_last((*found.history, *found.records.values())), done=found.done)
        self._content = found

    @property
    def content(self) -> Content:
        """What is remembered now."""
        return self._content

    def change(self, how: Callable[[Content], Content]) -> Content:
        """Change what is remembered. It is on disk when this returns.

        Args:
            how: returns the new content, or the same one where nothing changes.

        Raises:
            OSError: it could not be written; then nothing has changed.
        """
        with self._lock:
            old, new = self._content, how(self._content)
            if new == old:
                return old
            gone = [record for key, record in old.records.items() if key not in new.records]
            new = replace(new, history=_last((*new.history, *gone)))
            write_file(self._path, _text(new).encode(), 0o600)
            self._content = new
            return new


REQUEST = "clear.json"
"""What an operator asks the running agent for."""


def ask_to_clear(folder: Path, gpu: str) -> None:
    """Ask the running agent to forget what happened to a GPU, or to all where ``gpu`` is empty.

    Raises:
        OSError: the folder cannot be written to.
    """
    write_file(folder / REQUEST, json.dumps({"gpu": gpu}).encode(), 0o600)


def _last(records: tuple[Record, ...]) -> tuple[Record, ...]:
    return records[-events.MOST_HISTORY :]


def _text(content: Content) -> str:
    return json.dumps(
        {
            "version": VERSION,
            "boot": content.boot,
            "records": [events.as_data(record) for record in content.records.values()],
            "history": [events.as_data(record) for record in content.history],
            "log": dict(content.log),
            "gpus": {uuid: dict(known) for uuid, known in content.gpus.items()},
            "done": {id: dict(what) for id, what in list(content.done.items())[-64:]},
        },
        separators=(",", ":"),
    )


def _read(path: Path) -> Content:
    """Return what a file has; nothing where it cannot be used, which is told."""
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(_LONGEST))
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']} is not known")
        records = [events.of_data(each) for each in data["records"]]
        return Content(
            str(data["boot"]),
            {record.key: record for record in records},
            tuple(events.of_data(each) for each in data["history"]),
            dict(data["log"]),
            {str(uuid): dict(known) for uuid, known in data["gpus"].items()},
            {str(id): dict(what) for id, what in data["done"].items()},
        )
    except FileNotFoundError:
        return Content()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        LOG.warning("%s cannot be used, events of before are forgotten: %s", path, error)
        return Content()
