# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The next move of one node, from each state."""

from __future__ import annotations

import typing as t
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ironspan.gpu_repair.limits import Limits
from ironspan.gpu_repair.model import (
    POWER,
    REBOOT,
    RESET,
    Node,
    Record,
    State,
    Step,
    Try,
)
from ironspan.gpu_repair.needs import Need, Policy, aim, gpu_of, is_lost, met, needs
from ironspan.gpu_repair.records import moment


@dataclass(frozen=True, slots=True)
class Case:
    """One node at one time.

    Args:
        node: as it was read.
        record: its memory.
        policy, limits: of the site.
        now: seconds since the epoch.
    """

    node: Node
    record: Record
    policy: Policy
    limits: Limits
    now: float

    def needs(self, *, states: bool = True) -> list[Need]:
        """Return what the node needs, the worst first."""
        return needs(self.node, self.policy, self.limits, self.now, states=states)

    @property
    def expired(self) -> bool:
        """Whether it waited for too long."""
        return bool(self.record.expires) and self.now >= self.record.expires

    def move(
        self, state: State, why: str, seconds: float = 0, found: Sequence[Need] = (), **changes: t.Any
    ) -> Step:
        """Return the step into a state.

        Args:
            state: where to.
            why: for people.
            seconds: how long it may stay there; 0 for ever.
            found: what shows that it has to be.
            changes: of the record beside that.
        """
        evidence = tuple(str(need) for need in found) or self.record.evidence
        record = replace(
            self.record,
            state=state,
            since=self.now,
            reason=why,
            expires=self.now + seconds if seconds else 0,
            **{"evidence": evidence, "asked": "", **changes},
            history=(*self.record.history, (self.now, str(state), why)),
        )
        return Step(self.node, record, why=why)

    def close(self, state: State, why: str, seconds: float = 0, found: Sequence[Need] = ()) -> Step:
        """Return the step into a state in which the node is cordoned."""
        cordoned = self.record.cordoned or not self.node.cordoned
        return self.move(state, why, seconds, found, cordoned=cordoned)


def at_work(case: Case) -> Step | None:
    """Return the next move of a node that is in repair already; it needs nobody's leave."""
    return _MOVES[case.record.state](case)


def ready(case: Case, why: str) -> Step:
    """Return the step back to work."""
    return case.move(
        State.READY,
        why,
        evidence=(),
        aim="",
        gpu="",
        cordoned=False,
        served=True,
        boot=case.node.boot,
        met=met(case.node),
        tested=case.now,
    )


def test(case: Case, state: State, why: str, found: Sequence[Need] = ()) -> Step:
    """Return the step to a preflight, whose verdict has to be newer than the one that is there."""
    there = case.node.preflight
    return case.move(
        state,
        why,
        case.limits.test_seconds,
        found,
        boot=case.node.boot,
        tests=there.started if there else 0,
        met=met(case.node) if state is State.RETEST else case.record.met,
    )


def look(case: Case, why: str, found: Sequence[Need] = ()) -> Step:
    """Return the step to a person."""
    step = case.close(State.TRIAGE, why, 0, found)
    assert step.record is not None
    return replace(step, record=replace(step.record, serials=case.node.serials))


def ask(case: Case, do: str, seconds: float) -> tuple[str, dict[str, t.Any]]:
    """Return the id of a request to the node's agent, and the request."""
    name = f"{case.node.uid}/{do}/{case.now}/{len(case.record.history)}"
    made = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
    gpu = (case.record.gpu or None) if do == RESET else None
    return made, {"id": made, "do": do, "gpu": gpu, "expires": moment(case.now + seconds)}


def act(case: Case, do: str, why: str, found: Sequence[Need] = ()) -> Step:
    """Return the step to a reset, a reboot, or a person."""
    limits = case.limits
    if do not in (RESET, REBOOT):
        return look(case, why, found)
    state, seconds = (
        (State.RESETTING, limits.reset_seconds) if do == RESET else (State.REBOOTING, limits.reboot_seconds)
    )
    if do == RESET and found:
        case = replace(case, record=replace(case.record, gpu=gpu_of(found)))
    made, action = ask(case, do, seconds)
    tries = (*case.record.tries, Try(do, case.now, tuple(need.event.name for need in found)))
    step = case.move(state, why, seconds, found, asked=made, boot=case.node.boot, tries=tries)
    return replace(step, action=action)


def again(case: Case, why: str) -> Step:
    """Return what comes after a repair that did not help."""
    found = case.needs()
    return act(case, aim(case.record, found[0].action if found else "A3", case.limits, case.now), why, found)


def draining(case: Case) -> Step | None:
    """Evict, wait, and act when the pods are gone or their time is over."""
    node, record = case.node, case.record
    if node.pods is None:
        return None
    found = case.needs()
    waits = node.pods
    if is_lost(found) and case.now - record.since >= case.limits.lost_seconds:
        waits = tuple(pod for pod in waits if not pod.uses_gpu)
    if waits and not case.expired:
        return Step(node, None, why=f"{len(node.pods)} pods left")
    do = aim(record, found[0].action, case.limits, case.now) if found else record.aim
    why = "its pods are gone"
    if node.pods:
        names = ", ".join(pod.name for pod in node.pods[:4])
        why = f"the time of {len(node.pods)} pods is over ({names}{'...' if len(node.pods) > 4 else ''})"
    return act(case, do, f"{do}: {why}", found)


def _resetting(case: Case) -> Step | None:
    if case.node.boot != case.record.boot:
        return _rebooted(case)
    return _answered(case) or (again(case, "the reset was not done in time") if case.expired else None)


def _answered(case: Case) -> Step | None:
    done = case.node.done
    if done is None or done.id != case.record.asked:
        return None
    if not done.ok:
        return again(case, f"the reset failed: {done.detail}")
    return test(case, State.RETEST, "the GPU was reset")


def _rebooting(case: Case) -> Step | None:
    if case.node.boot != case.record.boot:
        return _rebooted(case)
    done = case.node.done
    failed = done is not None and done.id == case.record.asked and not done.ok
    if not failed and not case.expired:
        return None
    why = f"the reboot failed: {done.detail}" if failed and done else "there was no new boot in time"
    if not case.limits.power:
        return look(case, why)
    tries = (*case.record.tries, Try(POWER, case.now))
    return case.move(State.POWER_CYCLE, f"power cycle: {why}", case.limits.power_seconds, tries=tries)


def _power_cycle(case: Case) -> Step | None:
    if case.node.boot != case.record.boot:
        return _rebooted(case)
    return look(case, "its power was not cycled in time") if case.expired else None


def _rebooted(case: Case) -> Step | None:
    """Go on when it is up again: the boot id is the proof."""
    if case.node.ready and case.node.boot:
        return test(case, State.RETEST, f"it was started again: boot {case.node.boot}")
    return look(case, "it was started again and is not up") if case.expired else None


def _joining(case: Case) -> Step | None:
    if case.node.ready and case.node.boot:
        return test(case, State.TESTING, "it is up")
    return look(case, "it did not come up in time") if case.expired else None


def _preflight(case: Case) -> Step | None:
    """Let it in when its preflight passed and nothing is wrong with it; else see what else there is to do."""
    verdict = case.node.preflight
    if verdict and verdict.started == case.record.tests:
        verdict = None
    found = case.needs(states=bool(verdict and verdict.passed is not None))
    if not case.node.ready:
        found = []  # what it says is from before it went away
    elif verdict and verdict.passed and not found:
        return ready(case, "its preflight passed")
    if case.node.changing and case.record.state is State.TESTING:
        return None  # whether it goes back to the driver of before is the wave's to say
    if found:
        return _failed(case, "it is not well: " + "; ".join(str(need) for need in found[:3]), found)
    lacks = f" (missing: {', '.join(verdict.missing[:4])})" if verdict and verdict.missing else ""
    return _failed(case, f"its preflight gave no verdict in time{lacks}", ()) if case.expired else None


def _failed(case: Case, why: str, found: Sequence[Need]) -> Step:
    if case.record.state is State.RETEST:
        return again(case, why)
    if not case.record.served:
        return look(case, why, found)
    step = case.close(State.SUSPECT, why, case.limits.suspect_seconds, found)
    assert step.record is not None
    return replace(step, record=replace(step.record, aim=REBOOT))


def _triage(case: Case) -> Step | None:
    word = case.node.release
    if word is None or word.id == case.record.released:
        return None
    why = f"{word.by}: {word.reason}"
    if word.to == "rma":
        return case.move(State.RMA, why, released=word.id, serials=case.node.serials or case.record.serials)
    fresh = replace(case, record=replace(case.record, released=word.id, tries=()))
    return test(fresh, State.RETEST, why)


def _rma(case: Case) -> Step | None:
    seen, before = set(case.node.serials), set(case.record.serials)
    if seen and before and seen != before:
        gone, came = ", ".join(sorted(before - seen)), ", ".join(sorted(seen - before))
        return case.move(State.REPLACED, f"replaced: {gone or 'nothing'} by {came or 'nothing'}")
    return _triage(case)


def _replaced(case: Case) -> Step:
    return case.move(
        State.JOINING,
        "it comes back with other parts",
        case.limits.join_seconds,
        evidence=(),
        served=False,
        tries=(),
        met={},
        aim="",
        gpu="",
    )


_MOVES: t.Mapping[State, t.Callable[[Case], Step | None]] = {
    State.JOINING: _joining,
    State.TESTING: _preflight,
    State.DRAINING: draining,
    State.RESETTING: _resetting,
    State.REBOOTING: _rebooting,
    State.POWER_CYCLE: _power_cycle,
    State.RETEST: _preflight,
    State.TRIAGE: _triage,
    State.RMA: _rma,
    State.REPLACED: _replaced,
}
