# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Which alerts launch something now. It asks nobody and changes nothing."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ironspan.events.settings import Reaction

HOSTS = "ironspan_hosts"
_HOUR_S, _DAY_S = 3600.0, 86400.0
FAILED = frozenset({"failed", "error", "canceled"})
RUNNING = frozenset({"new", "pending", "waiting", "running"})
LAUNCHED, RESOLVED, UNKNOWN, NO_TARGET = "launched", "resolved", "unknown", "no-target"
COOLING, UNDER_WAY, BREAKER, FAILING = "cooling", "under-way", "breaker", "failing"
OUTCOMES: t.Final = (LAUNCHED, RESOLVED, UNKNOWN, NO_TARGET, COOLING, UNDER_WAY, BREAKER, FAILING)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert, as Alertmanager sent it.

    Args:
        name: its label ``alertname``.
        firing: whether it fires; it is resolved otherwise.
        labels: all of them. They are data of whoever writes metrics.
    """

    name: str
    firing: bool
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Past:
    """What was launched last for an alert about a host.

    Args:
        at: seconds since 1970.
        job: path of the job in the controller; empty while that is not known.
        failures: how many before it failed in a row.
    """

    at: float
    job: str = ""
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """Something to launch: ``key`` names the alert and the host, ``answers`` are those of the survey."""

    key: str
    reaction: Reaction
    answers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one alert: an outcome, and the launch where that is ``launched``."""

    alert: Alert
    outcome: str
    launch: Launch | None = None


def about(alert: Alert, reaction: Reaction) -> tuple[str, str] | None:
    """Return key and host of an alert; None when it names no host, or none that it may name."""
    if not reaction.label:
        return alert.name, ""
    host = alert.labels.get(reaction.label, "")
    return (f"{alert.name} {host}", host) if host in reaction.hosts else None


def decide(
    alerts: Iterable[Alert],
    reactions: Mapping[str, Reaction],
    past: Mapping[str, Past],
    ended: Mapping[str, str],
    most_per_hour: int,
    most_failures: int,
    now: float,
) -> list[Decision]:
    """Return what becomes of each alert, in their order.

    Args:
        alerts: of one request.
        reactions: by the name of the alert.
        past: what was launched last, by key.
        ended: status of these jobs, by key; what is missing is not known.
        most_per_hour: launches in an hour.
        most_failures: failures in a row of one key, after which it launches once a day at most.
        now: seconds since 1970.
    """
    decisions: list[Decision] = []
    known = dict(past)
    for alert in alerts:
        launch, outcome = _one(alert, reactions.get(alert.name), known, ended, most_failures, now)
        if launch and sum(now - one.at < _HOUR_S for one in known.values()) >= most_per_hour:
            launch, outcome = None, BREAKER
        if launch:
            known[launch.key] = Past(now)
        decisions.append(Decision(alert, outcome, launch))
    return decisions


def _one(
    alert: Alert,
    reaction: Reaction | None,
    past: Mapping[str, Past],
    ended: Mapping[str, str],
    most_failures: int,
    now: float,
) -> tuple[Launch | None, str]:
    if reaction is None:
        return None, UNKNOWN
    if not alert.firing:
        return None, RESOLVED
    found = about(alert, reaction)
    if found is None:
        return None, NO_TARGET
    key, host = found
    last = past.get(key)
    if last is not None:
        # A clock that was set back makes no cool-down longer than it is.
        if 0 <= now - last.at < reaction.cool_down_s:
            return None, COOLING
        if ended.get(key) in RUNNING:
            return None, UNDER_WAY
        if failures(last, ended.get(key, "")) >= most_failures and 0 <= now - last.at < _DAY_S:
            return None, FAILING
    answers = {**reaction.answers, **({HOSTS: host} if host else {})}
    return Launch(key, reaction, answers), LAUNCHED


def failures(last: Past, status: str) -> int:
    """Return how often in a row it failed, the last one included."""
    if status in FAILED:
        return last.failures + 1
    # Not known is neither a success nor a failure.
    return 0 if status == "successful" else last.failures


def following(last: Past | None, status: str, now: float) -> Past:
    """Return what is remembered of a launch that is about to be made."""
    return Past(now, failures=failures(last, status) if last else 0)


def with_job(past: Past, job: str) -> Past:
    """Return it with the job that was launched."""
    return replace(past, job=job)
