# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""The way of a node through Ironic: from whatever state it is in to what is wanted, or why it is held.

Pure functions of what Ironic says of the node. So a run that was killed goes on from any state, and asks for
nothing twice: what goes on by itself is waited for.
"""

from __future__ import annotations

import dataclasses

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.journey import Hold, Journey
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.bare_metal.node import Node, Wanted
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.catalogue.common import CONSENT
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import Step


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """Why nothing is done with a node.

    Args:
        reason: what is in the way.
        remedy: what a person can do.
    """

    reason: str
    remedy: str


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """How a node gets to what is wanted.

    Args:
        steps: in order, if each of them ends well. None: it is there, or it is held.
        held: why there is no way; None when there is one.
    """

    steps: tuple[Step, ...] = ()
    held: Held | None = None


def way(node: Node, wanted: Wanted) -> Way:
    """Return the steps from where a node is to what is wanted, or why there are none.

    What a step does to disks and to what runs stands in it. Nothing here decides whether it is allowed.
    """
    journey = Journey(node, wanted)
    try:
        journey.go()
    except Hold as hold:
        return Way(held=Held(hold.reason, hold.remedy))
    return Way(tuple(journey.steps))


def next_step(node: Node, wanted: Wanted, consent: bool) -> Step | Held | None:
    """Return what to do now, why nothing is done, or None when all is as it is wanted.

    Args:
        node: as it is now.
        wanted: where it shall go.
        consent: whether what wipes or deletes was consented to.
    """
    found = way(node, wanted)
    if found.held:
        return found.held
    step = next(iter(found.steps), None)
    if step and step.needs_consent and not consent:
        return Held(f"'{step.what}' needs consent", f"if that is what you want, {CONSENT}")
    return step
