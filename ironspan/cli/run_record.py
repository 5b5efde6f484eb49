# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What stays of a run beside its log: all of it as JSON and as a page; while it lasts, how far it is.

``COMMAND-TIME.live`` is there as long as the run is; ``COMMAND-TIME.json`` and ``COMMAND-TIME.html`` come in
its place when it ends. A ``.live`` whose process is gone is a run whose controller was killed.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import time
import typing as t

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.files import write_file
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.plan.texts import texts_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.processes import started

import ironspan
from ironspan.cli import plan_view
from ironspan.cli.outcome import Exit
from ironspan.cli.report import CONVERGE, VALIDATE, VERIFY, Event, Phase, Run
from ironspan.pages.markup import text

SCHEMA = 1
PAGE, DATA, LIVE = ".html", ".json", ".live"
STATES: collections.abc.Mapping[Exit, str] = {
    Exit.OK: "done", Exit.FAILED: "failed", Exit.BAD_INPUT: "refused", Exit.UNFINISHED: "unfinished",
    Exit.HOSTS: "hosts", Exit.INTERRUPTED: "interrupted",
}  # fmt: skip
LIVE_EVERY_S = 1.0
MOST_CHANGES = 2000
"""Changes that differ from each other; a run of many hosts makes the same few on all."""
MOST_LINES = 400
"""Of one difference."""
MOST_TEXT = 600_000
"""Characters of all differences together, so that the page of 1,000 hosts stays below 3 MB."""
_A_LINE = 40
"""Characters that a line costs besides its text."""


@dataclasses.dataclass
class Change:
    """Something that was changed in the same way on hosts."""

    resource: str
    kind: str
    action: str
    reason: str
    lines: list[tuple[str, str]]
    hosts: list[str]


class Recorder:
    """Keeps what the page of a run shows.

    Args:
        run: which takes the events first.
        playbook: name of what runs.
        arguments: options for ``ansible-playbook``.
        log: the log beside which everything lies.
        argv: the command line, as it was given, with the program's name.
        has_log: whether there is a log, or only what lies beside it.
        clock: Unix time; tests hand in their own.
    """

    def __init__(
        self,
        run: Run,
        playbook: str,
        arguments: collections.abc.Sequence[str],
        log: pathlib.Path,
        argv: collections.abc.Sequence[str] = ("ironspan",),
        has_log: bool = True,
        clock: collections.abc.Callable[[], float] = time.time,
    ) -> None:
        self._run = run
        self._playbook = playbook
        self._check = "--check" in arguments
        self.log = log
        self._has_log = has_log
        self._again = " ".join(without_values(argv))
        self._clock = clock
        self.started = clock()
        self._written = 0.0
        self._seconds: dict[tuple[int, str], float] = {}
        """Number of the phase and host -> how long its tasks took."""
        self._changes: dict[str, Change] = {}
        self._left_out = 0
        self._text = MOST_TEXT
        self._differences: dict[str, list[tuple[str, str]]] = {}
        self.verified: dict[str, t.Any] | None = None

    def take(self, event: Event) -> None:
        """Note an event that the run has taken."""
        data = event.get("event_data") or {}
        result = data.get("res") or {}
        if self._run.phases and data.get("duration"):
            key = (len(self._run.phases) - 1, str(data.get("host") or ""))
            self._seconds[key] = self._seconds.get(key, 0.0) + float(data["duration"])
        if event.get("event") == "runner_on_ok" and data.get("resolved_action") == CONVERGE:
            self._note(str(data.get("host")), result)
        if data.get("resolved_action") == VERIFY and result.get("report"):
            self.verified = result["report"]

    def _note(self, host: str, result: collections.abc.Mapping[str, t.Any]) -> None:
        changes = result.get("changes")
        if not result.get("changed") or not isinstance(changes, list):
            return
        diffs = result.get("diff")
        texts = texts_of(diffs if isinstance(diffs, list) else [])
        for change in changes:
            resource = str(change["resource"])
            lines = self._lines(change, texts.get(resource))
            said = [resource, str(change["kind"]), str(change["action"]), str(change.get("reason") or "")]
            key = hashlib.sha256(json.dumps([said, lines]).encode()).hexdigest()
            known = self._changes.get(key)
            if known:
                if known.hosts[-1] != host:
                    known.hosts.append(host)
                continue
            head = sum(map(_room, said))
            body = sum(_room(words) + _A_LINE for _, words in lines)
            if len(self._changes) >= MOST_CHANGES or head > self._text:
                self._left_out += 1
                continue
            if head + body > self._text:
                self._left_out += 1
                lines, body = [], 0
            self._text -= head + body
            self._changes[key] = Change(said[0], said[1], said[2], said[3], lines, [host])

    def _lines(
        self, change: collections.abc.Mapping[str, t.Any], both: collections.abc.Mapping[str, str] | None
    ) -> list[tuple[str, str]]:
        sides = {side: change.get(side) or {} for side in ("before", "after")}
        lines = plan_view.attributes({**sides, **({"text": both} if both else {})})
        shown = [(line.sign, line.text) for line in lines]
        if both:
            key = hashlib.sha256(json.dumps([both["before"], both["after"]]).encode()).hexdigest()
            # The same text on many hosts is compared once.
            if key not in self._differences:
                found = plan_view.difference(both["before"], both["after"])[:MOST_LINES]
                self._differences[key] = [(line.sign, line.text) for line in found]
            shown += self._differences[key]
        return shown[:MOST_LINES]

    def tell(self, force: bool = False) -> None:
        """Write how far the run is, at most once a second."""
        now = self._clock()
        if force or now - self._written >= LIVE_EVERY_S:
            self._written = now
            with contextlib.suppress(OSError):  # the run matters more
                write_file(self.log.with_suffix(LIVE), json.dumps(self.live()).encode(), 0o600)

    def live(self) -> dict[str, t.Any]:
        """Return how far the run is, in a few lines."""
        failed = self._failed()
        return {
            **self._head("running"),
            "pid": os.getpid(),
            "born": started(os.getpid()),
            "phases": [
                {
                    **self._times(phase),
                    "hosts": len(phase.hosts.keys() - {"localhost"}),
                    "changes": sum(phase.hosts.values()),
                    "failed": failed.get(phase.name, 0),
                }
                for phase in self._run.phases
            ],
        }

    def finish(self, code: Exit) -> str:
        """Write the JSON and the page; return the page's path, or a sentence that says why there is none."""
        from ironspan.pages import run_page

        try:
            record = self.record(code)
            write_file(self.log.with_suffix(DATA), json.dumps(record).encode(), 0o600)
            page = run_page.page(record).encode(errors="replace")
            write_file(self.log.with_suffix(PAGE), page, 0o600)
            self.log.with_suffix(LIVE).unlink(missing_ok=True)
        except Exception as error:
            # The hosts are changed already: how the run ended must be said whatever becomes of its page.
            return f"not written: {type(error).__name__}: {error}"
        return str(self.log.with_suffix(PAGE))

    def record(self, code: Exit) -> dict[str, t.Any]:
        """Return the whole run as data."""
        failed = self._failed()
        checked = self._run.results.get(VALIDATE, {})
        return {
            **self._head(STATES[code]),
            "code": int(code),
            "json": str(self.log.with_suffix(DATA)),
            "places": checked.get("places") or {},
            "phases": [
                {
                    **self._times(phase),
                    "failed": failed.get(phase.name, 0),
                    "hosts": {
                        host: {"changes": made, "seconds": round(self._seconds.get((at, host), 0.0), 2)}
                        for host, made in phase.hosts.items()
                    },
                }
                for at, phase in enumerate(self._run.phases)
            ],
            "failures": [dataclasses.asdict(failure) for failure in self._run.failures],
            "waiting": self._run.waiting(),
            "notes": self._run.notes,
            "changes_made": self._run.changes,
            "changes": [dataclasses.asdict(change) for change in self._changes.values()],
            "changes_left_out": self._left_out,
            "verify": self.verified,
            "backups": self._backups(),
        }

    def _head(self, state: str) -> dict[str, t.Any]:
        return {
            "schema": SCHEMA,
            "kind": "run",
            "version": ironspan.__version__,
            "playbook": self._playbook,
            "again": self._again,
            "check": self._check,
            "site": str(self._run.results.get(VALIDATE, {}).get("site") or ""),
            "state": state,
            "started": round(self.started, 3),
            "seconds": round(self._run.elapsed(), 3),
            "log": str(self.log) if self._has_log else "",
        }

    def _times(self, phase: Phase) -> dict[str, t.Any]:
        began = phase.began - self._run.began
        ended = phase.ended - self._run.began if phase.ended else self._run.elapsed()
        return {"name": phase.name, "began": round(began, 3), "seconds": round(ended - began, 3)}

    def _failed(self) -> dict[str, int]:
        found: dict[str, set[str]] = {}
        for failure in self._run.failures:
            found.setdefault(failure.phase, set()).add(failure.host)
        return {phase: len(hosts) for phase, hosts in found.items()}

    def _backups(self) -> list[dict[str, t.Any]]:
        """Return the newest snapshot of each backup store, where this run has asked for them."""
        found = []
        for result in self._run.answers.values():
            try:
                for store in result["answer"]["stores"]:
                    taken = [float(each["created"]) for each in store["snapshots"]]
                    found.append({"store": str(store["store"]), "newest": max(taken, default=None)})
            except (KeyError, TypeError, ValueError):
                continue  # another command's answer, or what no program of ours says
        return found[:10]


def _room(words: str) -> int:
    """Return how many characters a text takes in a page."""
    return len(text(words))


def without_values(argv: collections.abc.Sequence[str]) -> list[str]:
    """Return a command line for a file: what ``-e`` gave keeps its name only, for it may be a secret."""
    shown: list[str] = []
    for word in argv:
        if shown[-1:] in (["-e"], ["--extra-vars"]):
            name, given, _ = word.partition("=")
            shown.append(f"{name}=…" if given and name.isidentifier() else "…")
        elif word.startswith("--extra-vars="):
            shown.append("--extra-vars=…")
        else:
            shown.append(word)
    return shown


def records(folder: pathlib.Path, most: int = 50) -> list[pathlib.Path]:
    """Return the JSON files of the runs that ended last, newest first."""
    found = sorted(folder.glob(f"*{DATA}"), key=lambda path: path.name.rpartition("-")[2], reverse=True)
    return found[:most]


def read(path: pathlib.Path) -> dict[str, t.Any] | None:
    """Return what a run left; None where it is none, or of another version's form."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    known = isinstance(record, dict) and record.get("kind") == "run" and record.get("schema") == SCHEMA
    return record if known else None


def running(folder: pathlib.Path) -> list[dict[str, t.Any]]:
    """Return the runs that go on, newest first; one whose process is gone has the state ``unfinished``."""
    found = []
    for path in folder.glob(f"*{LIVE}"):
        record = read(path)
        if record:
            alive = bool(record["born"]) and started(record["pid"]) == record["born"]
            found.append(record if alive else {**record, "state": "unfinished"})
    return sorted(found, key=lambda record: -record["started"])
