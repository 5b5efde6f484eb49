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

LOOK_S = 10.0
"""Seconds between looks at the Node's metadata: one that was registered again lacks the condition."""


class Publisher:
    """Keeps the Node's condition and annotations as the agent has them.

    Args:
        agent: what to say.
        to: the Node.
        heartbeat_s: seconds between writes of what did not change.
        now: seconds since 1970.
        does: what the repair controller asks for; None leaves it unanswered.
    """

    def __init__(
        self,
        agent: Agent,
        to: node.Node,
        heartbeat_s: float,
        now: Callable[[], float] = time.time,
        does: Actions | None = None,
    ) -> None:
        self._agent, self._node, self._heartbeat, self._now = agent, to, heartbeat_s, now
        self._does, self._answer = does, ""
        self._said: tuple[t.Any, ...] | None = None
        self._said_at = 0.0
        self._looked_at = 0.0
        self._status, self._since = "", ""

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
        said = (judged, seen, self._answer)
        if said == self._said and now - self._said_at < self._heartbeat and not lost:
            return False
        if not self._status:
            self._remember()
        if judged.status != self._status:
            self._since = events.rfc3339(now)
        condition = {
            "type": node.CONDITION,
            "status": judged.status,
            "reason": judged.reason,
            "message": judged.message,
            "lastHeartbeatTime": events.rfc3339(now),
            "lastTransitionTime": self._since or events.rfc3339(now),
        }
        annotations = {node.EVENTS: judged.events, node.SEEN: seen}
        if self._answer:
            annotations[actions.DONE] = self._answer
        self._node.write([condition], annotations)
        self._status, self._said, self._said_at = judged.status, said, now
        return True

    def _lost(self, now: float) -> bool:
        """Say whether the Node does not have what was written, looking not too often; do what it asks for."""
        if self._said is None or now - self._looked_at < LOOK_S:
            return False
        annotations = self._node.metadata().get("annotations") or {}
        self._looked_at = now
        if self._does is not None:
            self._answer = self._does.answer(str(annotations.get(actions.ASKED) or ""))
        wanted = {node.EVENTS: self._said[0].events, node.SEEN: self._said[1]} if self._said else {}
        return any(annotations.get(name) != text for name, text in wanted.items())

    def _remember(self) -> None:
        """Take over since when the condition is as it is from the agent that wrote it before."""
        for condition in self._node.conditions():
            if condition.get("type") == node.CONDITION:
                self._status = str(condition.get("status") or "")
                self._since = str(condition.get("lastTransitionTime") or "")
