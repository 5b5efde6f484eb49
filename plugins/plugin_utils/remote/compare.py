# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Compares what is wanted with what is there, and what is there now with what a plan says."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import CONSENT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.secrecy import insist_on_none
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import (
    Found,
    Kind,
    RemoteError,
    State,
    Step,
    Thing,
)


def compared(kind: Kind, wanted: Mapping[str, State | None]) -> list[Thing]:
    """Return the things of a kind with their steps; nothing is changed.

    Args:
        kind: opened.
        wanted: by name; None for what has to go.

    Returns:
        Those that are wanted, in their order, then those that ironspan made and nobody wants any more.

    Raises:
        RemoteError: nothing can be said, or there is no way to what is wanted.
    """
    found = kind.find(wanted)
    names = [*wanted, *sorted(found.keys() - wanted.keys())]
    return [_compared(kind, name, wanted.get(name), found.get(name, Found(None))) for name in names]


def _compared(kind: Kind, name: str, wanted: State | None, found: Found) -> Thing:
    thing = Thing(kind.name, name, wanted, found)
    if not found.fault and not (wanted is None and found.state is None):
        steps = tuple(kind.steps(name, wanted, found.state))
        after = kind.after(name, wanted, found.state) if steps else found.state
        thing = dataclasses.replace(thing, steps=steps, after=after)
    insist_on_none(thing)
    return thing


def refused(planned: Thing, now: Thing, begun: bool) -> str:
    """Return why a plan may not be applied to a thing; empty when it may.

    What is there must be what was there when the plan was made. Two things are let through: nothing is left
    to do, or a run of this plan has begun with the thing and the steps that are left are the last ones of the
    plan. Without such a mark (another controller goes on) some must be done already, and none of those that
    are left may need consent.

    Args:
        planned: as the plan has it.
        now: compared with what the plan wants.
        begun: whether a run of this plan has begun with it.
    """
    if now.found.fault:
        return now.found.fault
    if not now.steps:
        return ""
    done = len(planned.steps) - len(now.steps)
    left = planned.steps[done:] if done >= 0 else ()
    listed = len(left) == len(now.steps) and all(map(_covers, left, now.steps))
    if _as_found(planned) == _as_found(now):
        return "" if listed else f"it has other steps than planned: {_said(now.steps)}"
    replaced = begun and any("deletes" in step.effects for step in planned.steps[:done])
    if planned.found.identity not in ("", now.found.identity) and not replaced:
        return "it is another one than when the plan was made"
    if listed and (begun or (done > 0 and not any(step.needs_consent for step in now.steps))):
        return ""
    return f"it was changed since the plan was made, and would need: {_said(now.steps)}"


def _covers(planned: Step, now: Step) -> bool:
    """Tell whether a step is one that was planned; what it says may name the state it begins with."""
    return planned.verb == now.verb and planned.effects >= now.effects


def _as_found(thing: Thing) -> tuple[str, State | None]:
    return thing.found.identity, thing.found.state


def _said(steps: Iterable[Step]) -> str:
    return "; ".join(step.what for step in steps)


def without_consent(things: Sequence[Thing], allowed: bool, named: Collection[str] = ()) -> list[str]:
    """Return the steps that need a consent which was not given.

    Args:
        things: with their steps.
        allowed: whether such steps are allowed in this run, all of them.
        named: things that the operator has named for this.
    """
    return [
        step.what
        for thing in things
        for step in thing.steps
        if step.needs_consent and not allowed and thing.name not in named
    ]


def insist_on_consent(things: Sequence[Thing], allowed: bool, named: Collection[str] = ()) -> None:
    """Refuse steps that need a consent which was not given.

    Raises:
        RemoteError: there are such steps.
    """
    if missing := without_consent(things, allowed, named):
        raise RemoteError(
            f"these steps need consent: {'; '.join(missing)}",
            f"if that is what you want, {CONSENT}",
        )
