# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Reads the API server's audit log and tells when somebody uses a credential for emergencies.

Such a credential is one whose group passes by all that keeps people in bounds: that of the sealed
certificate, and system:masters. The journal gets a line a request, with the priority of an alert; a file of
metrics for the node exporter's textfile collector gets how many and when. What was read is remembered over
restarts and over rotations of the log.

Usage: audit_watch.py LOG FOLDER [--once]
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import json
import os
import signal
import sys
import threading
import time
import typing as t
from pathlib import Path

from ansible_collections.ironspan.hybrid.plugins.module_utils._programs._files import write_file

Object = t.Dict[str, t.Any]
GROUPS = frozenset(["ironspan:break-glass", "system:masters"])
"""Whoever is in one of these may do everything."""
NOT_PEOPLE = frozenset(["system:apiserver"])
"""The API server itself speaks to itself as a member of system:masters."""
STATE, METRICS, ALIVE = "watch.json", "ironspan-access.prom", "alive"
_STAGES = frozenset(["ResponseStarted", "ResponseComplete", "Panic"])
_PASS_SECONDS = 5.0
_LONGEST_LINE = 8 << 20
"""An event has at most two bodies of 1.5 MiB, the most that etcd takes."""
_REQUESTS_REMEMBERED = 10000


class State(t.NamedTuple):
    """What was read, and what was found in it.

    Args:
        inode, offset: of the file that is read, and how many bytes of it were.
        uses: requests with a credential for emergencies.
        last_use: when the last one was, seconds since 1970; 0 for never.
        unreadable: lines that were no events.
    """

    inode: int = 0
    offset: int = 0
    uses: int = 0
    last_use: float = 0.0
    unreadable: int = 0


class Use(t.NamedTuple):
    """One request with a credential for emergencies."""

    time: float
    text: str


def use_of(event: Object) -> t.Optional[Use]:
    """Return what an event of the audit log tells about the use of such a credential.

    Args:
        event: of the API server's audit log (audit.k8s.io/v1).

    Returns:
        None for all other events.
    """
    user, acted = event.get("user") or {}, event.get("impersonatedUser") or {}
    groups = {*(user.get("groups") or ()), *(acted.get("groups") or ())}
    if not groups & GROUPS or user.get("username") in NOT_PEOPLE or event.get("stage") not in _STAGES:
        return None
    annotations = event.get("annotations") or {}
    who = str(user.get("username"))
    if acted:
        who += f" as {acted.get('username')}"
    credential = (user.get("extra") or {}).get("authentication.kubernetes.io/credential-id")
    if credential:
        who += f" ({', '.join(map(str, credential))})"
    status = (event.get("responseStatus") or {}).get("code", "")
    text = (
        f"{who} from {', '.join(map(str, event.get('sourceIPs') or ())) or 'unknown'}: {event.get('verb')} "
        f"{event.get('requestURI')} {status} {annotations.get('authorization.k8s.io/decision', '')}"
    )
    return Use(_seconds(event.get("requestReceivedTimestamp")), _printable(text))


def _seconds(text: t.Any) -> float:
    """Return a time of the log as seconds since 1970; now where it cannot be read: no use goes untold."""
    try:
        # Python 3.9 reads no Z, and no more than microseconds.
        return datetime.datetime.fromisoformat(str(text).rstrip("Z")[:26] + "+00:00").timestamp()
    except ValueError:
        return time.time()


def _printable(text: str) -> str:
    """Return a text that cannot begin another line of the journal, nor fill it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:1000]


class Watch:
    """Reads what is new in the log.

    Args:
        log: the file that the API server writes now.
        folder: where state and metrics are kept.
    """

    def __init__(self, log: str, folder: str) -> None:
        self._log = log
        self._folder = folder
        self.state = self._remembered()
        self._told: t.Deque[t.Any] = collections.deque(maxlen=_REQUESTS_REMEMBERED)

    def one_pass(self) -> t.Iterator[Use]:
        """Read to the end of the log; yields the uses, oldest first."""
        for path, inode in self._files():
            yield from self._read(path, inode)

    def save(self) -> None:
        """Write state and metrics, after the uses were told: a kill in between tells twice, not never."""
        folder = Path(self._folder)
        write_file(folder / STATE, json.dumps(self.state._asdict()).encode(), 0o644)
        write_file(folder / METRICS, self._metrics().encode(), 0o644)

    def _remembered(self) -> State:
        try:
            with open(os.path.join(self._folder, STATE), encoding="utf-8") as file:
                return State(**json.load(file))
        except FileNotFoundError:
            # The first start: how the cluster was made, with such a credential, is no alarm.
            with contextlib.suppress(OSError):
                status = os.stat(self._log)
                return State(status.st_ino, status.st_size)
        except (OSError, ValueError, TypeError) as error:
            print(f"<4>the state is damaged, the whole log is read again: {error}", flush=True)
        return State()

    def _files(self) -> t.List[t.Tuple[str, int]]:
        """Return the files to read, each with its inode; what was rotated away since comes first."""
        found = self._listed()
        # The file that is read would seem to be deleted where it is rotated between its two names.
        while found != (again := self._listed()):
            found = again
        inodes = [inode for _, inode in found]
        # When the file was deleted before it was read to its end, all that is there is read.
        return found[inodes.index(self.state.inode) if self.state.inode in inodes else 0 :]

    def _listed(self) -> t.List[t.Tuple[str, int]]:
        """Return all files of the log, the oldest first; while they change some may be missing."""
        folder, name = os.path.split(self._log)
        stem, extension = os.path.splitext(name)
        rotated = [
            os.path.join(folder, other)
            for other in os.listdir(folder)
            if other.startswith(f"{stem}-") and other.endswith(extension)
        ]
        found = []
        # The rotated files' names are the times of the rotations.
        for path in [*sorted(rotated), self._log]:
            with contextlib.suppress(FileNotFoundError):
                found.append((path, os.stat(path).st_ino))
        return found

    def _read(self, path: str, inode: int) -> t.Iterator[Use]:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != inode:
                return  # rotated a moment ago: the next pass reads both
            offset = self.state.offset if inode == self.state.inode else 0
            offset = offset if offset <= status.st_size else 0
            file.seek(offset)
            while True:
                line = file.readline(_LONGEST_LINE)
                # A line that is being written is read by the next pass.
                if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                    break
                offset += len(line)
                yield from self._judge(line)
        self.state = self.state._replace(inode=inode, offset=offset)

    def _judge(self, line: bytes) -> t.Iterator[Use]:
        # Parsing every event costs twenty times as much as looking for the names of the groups.
        if not any(group.encode() in line for group in GROUPS):
            return
        try:
            event = json.loads(line)
            use, identity = use_of(event), event.get("auditID")
        except (ValueError, AttributeError, TypeError, RecursionError):
            self.state = self.state._replace(unreadable=self.state.unreadable + 1)
            return
        if use is None or identity in self._told:
            return
        self._told.append(identity)  # a long request is told of at its beginning and at its end
        last = max(self.state.last_use, use.time)
        self.state = self.state._replace(uses=self.state.uses + 1, last_use=last)
        yield use

    def _metrics(self) -> str:
        try:
            alive = os.stat(os.path.join(self._folder, ALIVE)).st_mtime
        except OSError:
            alive = 0.0
        values = (
            (
                "break_glass_requests_total",
                "counter",
                "Requests with a credential for emergencies.",
                self.state.uses,
            ),
            (
                "break_glass_last_use_timestamp_seconds",
                "gauge",
                "When the last one was.",
                self.state.last_use,
            ),
            (
                "audit_unreadable_lines_total",
                "counter",
                "Lines of the log that are no events.",
                self.state.unreadable,
            ),
            ("audit_watch_timestamp_seconds", "gauge", "When the log was last read to its end.", time.time()),
            ("access_controller_timestamp_seconds", "gauge", "When requests were last gone through.", alive),
        )
        return "".join(
            f"# HELP ironspan_{name} {text}\n# TYPE ironspan_{name} {kind}\nironspan_{name} {value:.3f}\n"
            for name, kind, text, value in values
        )


def main(arguments: t.Sequence[str]) -> int:
    """Read passes until told to end."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    watch = Watch(arguments[0], arguments[1])
    while True:
        try:
            for use in watch.one_pass():
                print(f"<1>a credential for emergencies was used: {use.text}", flush=True)
            watch.save()
        except (OSError, ValueError) as error:
            print(f"<3>the audit log cannot be read: {error}", flush=True)
            if "--once" in arguments:
                return 1
        if "--once" in arguments or ended.wait(_PASS_SECONDS):
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
