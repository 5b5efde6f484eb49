# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""From ansible-runner's events to what the operator reads: phases, hosts, failures, an exit code.

Nothing here prints or runs anything: ``Run`` takes events one by one and answers questions, so that every
ending can be tested with a table of events.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import time
import typing as t

from ironspan.cli.outcome import Exit
from ironspan.cli.reasons import reason_of

Event = collections.abc.Mapping[str, t.Any]
Why = t.Literal["failed", "unfit", "unreachable", "input", "refused"]

VALIDATE = "ironspan.hybrid.validate"
WRITE_PLAN = "ironspan.hybrid.write_plan"
OPERATION = "ironspan.hybrid.operation"
CONVERGE = "ironspan.hybrid.converge"
VERIFY = "ironspan.hybrid.verify"
UNREACHABLE_REMEDY = (
    "check that the host is up and that its SSH address, key and host key are right; then run again"
)
STUCK_REMEDY = "fix that and run the same again; to give up instead: kubectl uncordon {}"
CUT_OFF = "the end of this run was never seen: ansible-playbook was killed, or gave up by an error of its own"
INTERRUPTED = "interrupted before the end"
AGAIN = "every host finishes or takes back what it had begun"
FAILED_REMEDY = "read the log named below, correct the cause and run again"


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why one host did not finish."""

    host: str
    why: Why
    phase: str
    task: str
    reason: str
    resource: str = ""
    remedy: str = ""
    rolled_back: bool = False


@dataclasses.dataclass
class Phase:
    """One play: what its hosts did."""

    name: str
    began: float
    ended: float = 0.0
    hosts: dict[str, int] = dataclasses.field(default_factory=dict)
    """Host name -> number of changes in this phase."""


@dataclasses.dataclass
class Outcome:
    """What one event means for the display."""

    phase: str = ""
    host: str = ""
    state: str = ""
    detail: str = ""


def failures_of(
    result: collections.abc.Mapping[str, t.Any], host: str, phase: str, task: str
) -> list[Failure]:
    """Return the failures in a failed task's result: one a verdict, one a stuck host, or one in all."""
    verdicts = [item for item in result.get("verdicts") or [] if not item.get("ok", True)]
    if verdicts:
        return [
            Failure(
                host,
                "unfit",
                phase,
                task,
                f"{item.get('check')}: found {item.get('found')}, wanted {item.get('wanted')}",
                remedy=str(item.get("remedy") or ""),
            )
            for item in verdicts
        ]
    stuck = result.get("stuck")
    if isinstance(stuck, dict) and stuck:
        # The task ran on the controller; it is about these hosts.
        return [
            Failure(name, "failed", phase, task, "\n".join(reasons), remedy=STUCK_REMEDY.format(name))
            for name, reasons in stuck.items()
        ]
    reason = reason_of(result, task)
    return [
        Failure(
            host,
            "failed",
            phase,
            task,
            reason.strip(),
            resource=str(result.get("failed_resource") or ""),
            remedy=str(result.get("remedy") or ""),
            rolled_back=bool(result.get("rolled_back")),
        )
    ]


def changes_of(result: collections.abc.Mapping[str, t.Any]) -> int:
    """Return how many things a task changed: the converge module's list, or one for any other task."""
    if not result.get("changed"):
        return 0
    changes = result.get("changes")
    return len(changes) if isinstance(changes, list) and changes else 1


def layers_of(entries: t.Any) -> set[str]:
    """Return the layers whose resources a list of changes names, or of things that wait."""
    found = entries if isinstance(entries, list) else []
    return {str(item["resource"]).split("/", 1)[0] for item in found if "resource" in item}


class Run:
    """The state of one playbook run, built from its events.

    Args:
        clock: seconds, monotonic.
        again: the command that runs the same again.
    """

    def __init__(
        self, clock: collections.abc.Callable[[], float] = time.monotonic, again: str = "the same command"
    ) -> None:
        self._clock = clock
        self._again = again
        self._cut = ""
        self.began = clock()
        self.phases: list[Phase] = []
        self.failures: list[Failure] = []
        self.notes: list[str] = []
        """What actions want to be told in the end."""
        self.stats: dict[str, dict[str, int]] = {}
        self.finished = False
        self.results: dict[str, dict[str, t.Any]] = {}
        """Full name of an action that runs on the controller -> its last result."""
        self._due: dict[str, set[str]] = {}
        """Host -> layers in which something is to do: what was compared, less what was applied since."""
        self._begun: set[str] = set()
        """Hosts to which something was applied."""
        self.answers: dict[str, dict[str, t.Any]] = {}
        """Host name -> what it said it was asked for: documents that were applied to it, backups."""

    def take(self, event: Event) -> Outcome | None:
        """Note an event; return what to show for it, None for nothing."""
        kind = event.get("event")
        data = event.get("event_data") or {}
        if kind == "playbook_on_play_start":
            self._close_phase()
            self.phases.append(Phase(str(data.get("name") or data.get("play") or "?"), self._clock()))
            return Outcome(phase=self.phases[-1].name)
        if kind == "playbook_on_stats":
            self._close_phase()
            self.stats = {
                key: dict(data.get(key) or {}) for key in ("ok", "changed", "failures", "dark", "processed")
            }
            self.finished = True
            return None
        if not self.phases:
            return None
        host, task = str(data.get("host") or ""), str(data.get("task") or "")
        result = data.get("res") or {}
        if host == "localhost" and result:
            self.results[str(data.get("resolved_action"))] = dict(result)
        if "revisions" in result or "answer" in result:
            self.answers[host] = dict(result)
        if kind in ("runner_on_ok", "runner_on_failed"):
            self.notes.extend(str(note) for note in result.get("notes") or ())
        if kind == "runner_on_start":
            return Outcome(host=host, state="start", detail=task)
        if kind == "runner_on_ok":
            if data.get("resolved_action") == CONVERGE:
                self._count_down(host, result)
            count = changes_of(result)
            hosts = self.phases[-1].hosts
            hosts[host] = hosts.get(host, 0) + count
            detail = f"{count} change{'s' if count != 1 else ''}" if count else "unchanged"
            return Outcome(host=host, state="done", detail=f"{task}: {detail}")
        if kind == "runner_on_skipped":
            return Outcome(host=host, state="left")
        if kind == "runner_on_failed" and not data.get("ignore_errors"):
            found = failures_of(result, host, self.phases[-1].name, task)
            action = data.get("resolved_action", data.get("task_action"))
            if action in (VALIDATE, WRITE_PLAN, OPERATION):
                found = [dataclasses.replace(item, why="input") for item in found]
            elif result.get("refused"):
                found = [dataclasses.replace(item, why="refused") for item in found]
            self.failures.extend(found)
            return Outcome(host=host, state="fail", detail=f"{task}: {found[0].reason.splitlines()[0]}")
        if kind == "runner_on_unreachable":
            reason = str(result.get("msg") or "no answer").strip()
            phase = self.phases[-1].name
            self.failures.append(Failure(host, "unreachable", phase, task, reason, remedy=UNREACHABLE_REMEDY))
            return Outcome(host=host, state="fail", detail=f"unreachable: {reason.splitlines()[0]}")
        return None

    def _count_down(self, host: str, result: collections.abc.Mapping[str, t.Any]) -> None:
        # Comparing puts a host with something to do into groups; applying says which layers it was about.
        open_layers = layers_of(result.get("pending"))
        if "groups" in result:
            self._due.pop(host, None)
            if result["groups"]:
                self._due[host] = open_layers | layers_of(result.get("changes"))
        elif host in self._due:
            self._begun.add(host)
            self._due[host] -= set(result.get("layers") or self._due[host]) - open_layers
            if not self._due[host]:
                del self._due[host]

    @property
    def changes(self) -> int:
        """Return how many things were changed."""
        return sum(count for phase in self.phases for count in phase.hosts.values())

    def elapsed(self) -> float:
        """Return the seconds since the run began."""
        return self._clock() - self.began

    def waiting(self) -> list[str]:
        """Return the hosts whose turn never came: a failure of others may have ended the run before it."""
        unwell = {failure.host for failure in self.failures}
        return sorted(set(self._due) - unwell) if self.failures else []

    def _close_phase(self) -> None:
        if self.phases and not self.phases[-1].ended:
            self.phases[-1].ended = self._clock()

    def exit_code(self, status: int | None, interrupted: bool = False) -> Exit:
        """Return how the command ends, and remember it for the summary.

        Args:
            status: ``ansible-playbook``'s own exit status, None when a signal ended it.
            interrupted: the operator pressed Ctrl-C.
        """
        if interrupted:
            self._cut = "" if self.finished else INTERRUPTED
            return Exit.INTERRUPTED
        if not self.finished and (status is None or (status and self.phases)):
            self._cut = CUT_OFF
            return Exit.UNFINISHED
        reasons = {failure.why for failure in self.failures}
        if "input" in reasons:
            return Exit.BAD_INPUT
        if "failed" in reasons:
            return Exit.FAILED
        if "refused" in reasons:
            return Exit.BAD_INPUT
        if reasons:
            return Exit.HOSTS
        if not status:
            return Exit.OK
        # Nothing failed on a host and yet Ansible gave up: it refused its input (a playbook that does not
        # parse, an inventory that is not there, an unknown option).
        return Exit.FAILED if self.finished else Exit.BAD_INPUT

    def summary(self) -> list[str]:
        """Return the closing lines: what was done, then every failure with its reason and remedy."""
        seen = {name for phase in self.phases for name in phase.hosts} | {item.host for item in self.failures}
        hosts = sorted((seen | set(self.stats.get("processed", {}))) - {"localhost"})
        unwell = {failure.host for failure in self.failures}
        changes = self.changes
        took = self.elapsed()
        waiting = self.waiting()
        healthy = [host for host in hosts if host not in unwell and host not in waiting]
        if any(failure.why == "input" for failure in self.failures):
            return [line for failure in self.failures for line in failure.reason.splitlines()]
        lines = (
            [f"{len(healthy)} of {len(hosts)} hosts finished, {changes} changes, {took:.1f} s"]
            if hosts and not self._cut
            else []
        )
        if self._cut:
            lines += self._unfinished(len(hosts), took)
        elif self.failures and healthy:
            lines.append(f"finished: {', '.join(healthy)}")
        if not self._cut:
            lines += self._waiting(waiting)
        lines.extend(self.notes)
        for failure in self.failures:
            where = f", resource {failure.resource}" if failure.resource else ""
            lines.append(f"{failure.host}: {failure.why} in phase {failure.phase} ({failure.task}{where})")
            lines.extend(f"    {line}" for line in failure.reason.splitlines())
            if failure.rolled_back:
                lines.append("    everything this step had changed on the host was rolled back")
            remedy = failure.remedy or (FAILED_REMEDY if failure.why == "failed" else "")
            lines.extend(f"    -> {line}" for line in remedy.splitlines())
        return lines

    def _waiting(self, hosts: list[str]) -> list[str]:
        begun = [f"{host} ({', '.join(sorted(self._due[host]))})" for host in hosts if host in self._begun]
        others = [host for host in hosts if host not in self._begun]
        lines = [f"begun, and not finished: {', '.join(begun)}; run the same again"] if begun else []
        if others:
            lines.append(f"not begun: {', '.join(others)}; they were compared, and have something to do")
        return lines

    def _unfinished(self, hosts: int, took: float) -> list[str]:
        where = f" (phase {self.phases[-1].name})" if self.phases else ""
        return [
            f"{self._cut}{where}",
            f"    {hosts} hosts answered until then, {self.changes} changes, {took:.1f} s; "
            "any host may be between two states",
            f"    -> {self._again}   {AGAIN}; what is open: ironspan doctor",
        ]

    def as_dict(self) -> dict[str, t.Any]:
        """Return the whole run as JSON-able data (the last event of ``--json``)."""
        return {
            "phases": [
                {"name": item.name, "seconds": round(item.ended - item.began, 3), "changes": item.hosts}
                for item in self.phases
            ],
            "failures": [dataclasses.asdict(item) for item in self.failures],
            "stats": self.stats,
            "finished": self.finished,
            "seconds": round(self.elapsed(), 3),
        }
