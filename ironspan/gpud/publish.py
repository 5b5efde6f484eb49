# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Writes what is current to the Node: at once when it changed, again until the API server answers."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable

from ironspan.gpud import actions, events, node
from ironspan.gpud.actions import Actions
from ironspan.gpud.agent import Agent
from ironspan.gpud.preflight import ask
from ironspan.gpud.preflight.ask import Asking

LOOK_S = 10.0
"""Seconds between looks at the Node's metadata: one that was registered again lacks the condition."""
TAINTS_S = 30.0
"""Seconds between looks at the Node's taints, for which the whole Node is read."""


class Publisher:
    """Keeps the Node's condition and annotations as the agent has them.

    Args:
        agent: what to say.
        to: the Node.
        heartbeat_s: seconds between writes of what did not change.
        now: seconds since 1970.
        does: what the repair controller asks for; None leaves it unanswered.
        tests: preflights; None says nothing of them.
    """

    def __init__(
        self,
        agent: Agent,
        to: node.Node,
        heartbeat_s: float,
        now: Callable[[], float] = time.time,
        does: Actions | None = None,
        tests: Asking | None = None,
    ) -> None:
        self._agent, self._node, self._heartbeat, self._now = agent, to, heartbeat_s, now
        self._does, self._answer, self._tests = does, "", tests
        self._said: tuple[t.Any, ...] | None = None
        self._said_at = 0.0
        self._looked_at, self._taints_at = 0.0, 0.0
        self._wanted: dict[str, str] = {}
        self._since: dict[str, tuple[str, str]] = {}

    def one_pass(self) -> bool:
        """Write what has to be written; return whether something was.

        Raises:
            ServiceError: the API server did not answer, or refused.
        """
        if self._agent.starting:
            return False
        now = self._now()
        lost = self._lost(now)
        judged, seen = self._agent.judged(), self._agent.seen()
        tested, results = self._tests.said(self._agent.driver) if self._tests else (None, "")
        pairs = self._tests.pairs() if self._tests else ""
        said = (judged, seen, self._answer, tested, results, pairs)
        if said == self._said and _lasts(self._said_at, self._heartbeat, now) and not lost:
            return False
        if not self._since:
            self._remember()
        conditions = [self._condition(node.CONDITION, judged.status, judged.reason, judged.message, now)]
        annotations = {node.EVENTS: judged.events, node.SEEN: seen}
        if tested is not None:
            conditions.append(self._condition(ask.CONDITION, *tested, now))
        if results:
            annotations[ask.ANNOTATION] = results
        if pairs:
            annotations[ask.PAIRS] = pairs
        if self._answer:
            annotations[actions.DONE] = self._answer
        self._node.write(conditions, annotations)
        self._since = {each["type"]: (each["status"], each["lastTransitionTime"]) for each in conditions}
        self._said, self._said_at, self._wanted = said, now, annotations
        return True

    def _condition(self, kind: str, status: str, reason: str, message: str, now: float) -> dict[str, str]:
        before, since = self._since.get(kind, ("", ""))
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": events.rfc3339(now),
            "lastTransitionTime": since if since and before == status else events.rfc3339(now),
        }

    def _lost(self, now: float) -> bool:
        """Say whether the Node does not have what was written, looking not too often; do what it asks for."""
        if self._said is None or _lasts(self._looked_at, LOOK_S, now):
            return False
        annotations = self._node.metadata().get("annotations") or {}
        self._looked_at = now
        if self._does is not None:
            self._answer = self._does.answer(str(annotations.get(actions.ASKED) or ""))
        if self._tests is not None and not _lasts(self._taints_at, TAINTS_S, now):
            self._taints_at = now
            self._tests.tainted(self._node.whole(), self._agent.in_use, self._agent.driver, now)
        wanted = {name: text for name, text in self._wanted.items() if name != actions.DONE}
        return any(annotations.get(name) != text for name, text in wanted.items())

    def _remember(self) -> None:
        """Take over since when the conditions are as they are from the agent that wrote it before."""
        for condition in self._node.conditions():
            if condition.get("type") in (node.CONDITION, ask.CONDITION):
                kept = str(condition.get("status") or ""), str(condition.get("lastTransitionTime") or "")
                self._since[str(condition["type"])] = kept


def _lasts(since: float, seconds: float, now: float) -> bool:
    """Tell whether it is less than so long ago; not where the clock was set back, as after a boot."""
    return 0 <= now - since < seconds
