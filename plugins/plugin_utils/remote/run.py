# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""One run over the things of a kind: compare, refuse what nobody asked for, and take the steps."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote import compare, work
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.begun import Begun
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import (
    Kind,
    Leaving,
    Left,
    RemoteError,
    State,
    Thing,
    from_plan,
)

Say = Callable[[str], None]
NOBODY: Mapping[str, str] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Consent:
    """What somebody consented to.

    Args:
        allowed: all steps that need it.
        named: things by their names, whatever is done to them.
    """

    allowed: bool = False
    named: Collection[str] = ()


@dataclasses.dataclass(slots=True)
class Outcome:
    """What was found and done.

    Args:
        things: as they were compared.
        problems: what failed or was refused, one text a thing.
        done: the steps that were taken; in a check those that would be.
        failed: name of each thing that failed or was refused to the reason, without its name.
        left: the file that the kind leaves, None where it leaves none.
        timings: name of a thing to its steps, those that were begun, with the seconds that they took.
    """

    things: list[Thing]
    problems: list[str]
    done: list[str]
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    left: Left | None = None
    timings: dict[str, list[tuple[str, float]]] = dataclasses.field(default_factory=dict)

    @property
    def wrong(self) -> list[str]:
        """What is not as it should be, and no step fixes it."""
        return [text for thing in self.things for text in thing.found.wrong]


def bring(
    kind: Kind,
    wanted: Mapping[str, State | None],
    consent: Consent,
    say: Say,
    *,
    held: Mapping[str, str] = NOBODY,
    check: bool = False,
) -> Outcome:
    """Make things as they are wanted, without a plan.

    Args:
        kind: opened.
        wanted: by name.
        consent: what was consented to; none is needed in a check.
        say: told how it goes.
        held: things that must not be touched now, by name, and why.
        check: change nothing.

    Raises:
        RemoteError: consent is missing, or something makes the whole impossible; nothing was changed.
    """
    try:
        things = [_held(thing, held) for thing in compare.compared(kind, wanted)]
        if not check:
            compare.insist_on_consent(things, consent.allowed, consent.named)
    except RemoteError as error:
        raise RemoteError(f"{error}; nothing was changed") from None
    failed = {thing.name: thing.found.fault for thing in things if thing.found.fault}
    problems = [f"{kind.name} {name}: {reason}" for name, reason in failed.items()]
    if check:
        done = [step.what for thing in things for step in thing.steps]
        outcome = Outcome(things, problems, done, failed)
    else:
        outcome = _worked(kind, things, problems, failed, say, lambda thing: None)
    return _left(kind, outcome, check)


def bring_as_planned(
    kind: Kind,
    planned: Sequence[Mapping[str, t.Any]],
    allowed: bool,
    begun: Begun,
    say: Say,
    *,
    held: Mapping[str, str] = NOBODY,
    check: bool = False,
) -> Outcome:
    """Make things as a plan wants them; what has moved since is left alone and named.

    Args:
        kind: opened.
        planned: the things of this kind that the plan has.
        allowed: whether steps that need consent are.
        begun: which things a run of this plan has begun with.
        say: told how it goes.
        held: things that must not be touched now, by name, and why.
        check: change nothing.

    Raises:
        RemoteError: consent is missing, or something makes the whole impossible; nothing was changed.
    """
    listed = {thing.name: thing for thing in map(from_plan, planned)}
    found = compare.compared(kind, {thing.name: thing.wanted for thing in listed.values()})
    things = [_held(thing, held) for thing in found if thing.name in listed]
    reasons = {
        thing.name: reason
        for thing in things
        if thing.name not in held and (reason := compare.refused(listed[thing.name], thing, begun.has(thing)))
    }
    left = [thing for thing in things if thing.name not in reasons and thing.name not in held]
    problems = [f"{kind.name} {name}: {reason}; make a new plan" for name, reason in reasons.items()]
    problems += [f"{thing.title}: {thing.found.fault}" for thing in things if thing.name in held]
    failed = {**reasons, **{thing.name: thing.found.fault for thing in things if thing.name in held}}
    if check:
        done = [one.what for each in left for one in each.steps]
        return _left(kind, Outcome(things, problems, done, failed), check)
    compare.insist_on_consent(left, allowed)
    worked = _worked(kind, left, problems, failed, say, begun.mark)
    return _left(kind, dataclasses.replace(worked, things=things), check)


def _held(thing: Thing, held: Mapping[str, str]) -> Thing:
    """Return a thing; without steps, and with the reason, where it must not be touched."""
    if thing.name not in held:
        return thing
    found = dataclasses.replace(thing.found, fault=held[thing.name])
    return dataclasses.replace(thing, found=found, steps=(), after=thing.found.state)


def _worked(
    kind: Kind,
    things: list[Thing],
    problems: list[str],
    failed: Mapping[str, str],
    say: Say,
    begin: Callable[[Thing], None],
) -> Outcome:
    outcomes = work.apply(kind, [thing for thing in things if not thing.found.fault], say, begin)
    problems = [*problems, *(outcome.problem for outcome in outcomes if outcome.problem)]
    steps = {thing.name: [step.what for step in thing.steps] for thing in things}
    timings = {one.name: list(zip(steps[one.name], one.seconds, strict=False)) for one in outcomes}
    done = [step for outcome in outcomes for step in outcome.done]
    failed = {**failed, **{one.name: one.error for one in outcomes if one.error}}
    return Outcome(things, problems, done, failed, timings=timings)


def _left(kind: Kind, outcome: Outcome, check: bool) -> Outcome:
    """Let a kind leave its file; that it cannot is one more problem."""
    if isinstance(kind, Leaving):
        try:
            outcome.left = kind.leave(outcome.things, check)
        except RemoteError as error:
            outcome.problems.append(str(error))
    return outcome
