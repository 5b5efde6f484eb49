# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What becomes of a connection on its whole way, and what a question about two endpoints is answered with."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.netpolicy.endpoints import (
    Connection,
    Decision,
    Judge,
)

SCHEMA = 1
ALLOWED, DENIED, PARTLY, UNDECIDED = "allowed", "denied", "partly allowed", "not decided"
EXIT_CODES = {ALLOWED: 0, DENIED: 1, PARTLY: 1, UNDECIDED: 3}


class Step(t.NamedTuple):
    """What was decided at one place.

    Args:
        stage: the place.
        allowed: whether the connection passes it.
        enforced: whether anything does what was decided.
        rule: what decided, in words.
        undecided: whether it could not be worked out; ``rule`` says why.
    """

    stage: str
    allowed: bool
    enforced: bool
    rule: str
    undecided: bool = False

    @property
    def passes(self) -> bool:
        """Tell whether the connection gets past this place, as things are."""
        return self.allowed or not self.enforced


class Route(t.NamedTuple):
    """One way a question's connection may take: to one pod of a service, to one address of a name.

    Args:
        to: who is at its end.
        address: where the packet is sent.
        protocol: of the packet.
        port: of the packet.
        steps: what was decided on the way, in its order.
        by_proxy: whether a pod takes this way only when it is told to use the proxy.
    """

    to: str
    address: str
    protocol: str
    port: int
    steps: tuple[Step, ...]
    by_proxy: bool = False

    @property
    def allowed(self) -> bool:
        """Tell whether the connection arrives."""
        return all(step.passes for step in self.steps)

    @property
    def undecided(self) -> bool:
        """Tell whether it is not known that it arrives, nor that it does not."""
        stopped = [step for step in self.steps if not step.passes]
        return bool(stopped) and all(step.undecided for step in stopped)


def route_of(way: Connection, judges: Iterable[Judge], last: Sequence[Step] = ()) -> Route:
    """Let everybody on the way judge a connection.

    Args:
        way: the connection.
        judges: in the order in which the packet passes them.
        last: what is decided behind them, as by a proxy.
    """
    decided = ((judge, judge.judge(way)) for judge in judges)
    steps = [step(judge.stage, decision, judge.enforced) for judge, decision in decided if decision]
    return Route(
        way.destination.name, str(way.address), way.protocol, way.port, (*steps, *last), by_proxy=bool(last)
    )


def step(stage: str, decision: Decision, enforced: bool = True) -> Step:
    """Return a decision with the place where it was made."""
    return Step(stage, decision.allowed, enforced, decision.rule, decision.undecided)


def outcome(routes: Sequence[Route]) -> str:
    """Return the answer: addresses of a name and pods of a service count together, a proxy alone."""
    direct = [route.allowed for route in routes if not route.by_proxy]
    if (direct and all(direct)) or any(route.allowed for route in routes if route.by_proxy):
        return ALLOWED
    if any(route.undecided for route in routes):
        return UNDECIDED
    return PARTLY if any(direct) else DENIED


def report_of(
    source: str, target: str, routes: Sequence[Route], notes: Sequence[str] = ()
) -> dict[str, t.Any]:
    """Return the answer as data.

    Args:
        source: the question's first endpoint.
        target: its second one, with the port.
        routes: every way.
        notes: what else is to be known.
    """
    said = outcome(routes)
    without_effect = any(not step.allowed and not step.enforced for route in routes for step in route.steps)
    more = ["nothing on this site enforces network policies: what they deny passes"] if without_effect else []
    return {
        "schema": SCHEMA,
        "kind": "net-policy",
        "from": source,
        "to": target,
        "outcome": said,
        "exit_code": EXIT_CODES[said],
        "routes": [
            {
                **route._asdict(),
                "allowed": route.allowed,
                "undecided": route.undecided,
                "steps": [each._asdict() for each in route.steps],
            }
            for route in routes
        ],
        "notes": [*notes, *more],
    }


def as_text(report: t.Mapping[str, t.Any]) -> str:
    """Return a report as lines for people."""
    lines = [f"{report['from']} -> {report['to']}: {report['outcome']}"]
    for route in report["routes"]:
        mark = "✓" if route["allowed"] else "?" if route["undecided"] else "✗"
        through = ", if the pod uses the proxy" if route["by_proxy"] else ""
        lines.append(f"{mark} {route['to']}: {route['address']} {route['protocol']} {route['port']}{through}")
        for each in route["steps"]:
            said = "passes" if each["allowed"] else "denied" if each["enforced"] else "would be denied"
            said = "not decided" if each["undecided"] else said
            lines.append(f"    {each['stage']}: {said}: {each['rule']}")
        if not route["steps"]:
            lines.append("    nothing judges what hosts send")
    lines += [f"- {note}" for note in report["notes"]]
    return "\n".join(lines)
