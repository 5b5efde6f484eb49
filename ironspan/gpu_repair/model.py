# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""What the repair of GPU nodes is decided from, and what it decides."""

from __future__ import annotations

import enum
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PREFIX = "ironspan.io/"
PREFLIGHT_TAINT = PREFIX + "gpu-preflight"
REPAIR_TAINT = PREFIX + "gpu-repair"
RECORD = PREFIX + "gpu-repair"
ACTION = PREFIX + "gpu-action"
DONE = PREFIX + "gpu-action-done"
EVENTS = PREFIX + "gpu-events"
PAIR_EVENTS = PREFIX + "gpu-pair-events"
"""What pairs of nodes have shown of this one: written by people's runs, never by a node."""
SEEN = PREFIX + "gpu-seen"
PREFLIGHT = PREFIX + "gpu-preflight"
RELEASE = PREFIX + "gpu-release"
RELEASED_BY = PREFIX + "gpu-release-by"
WATCH, GATE, REPAIR = "watch", "gate", "repair"
MODES = (WATCH, GATE, REPAIR)
RESET, REBOOT, POWER, LOOK = "reset", "reboot", "power", "triage"


class State(enum.StrEnum):
    """Where a node is on its way back to work."""

    JOINING = "joining"
    """It is new, or came back with other GPUs, and is not up yet."""
    TESTING = "testing"
    """It has to pass its preflight before pods come."""
    READY = "ready"
    SUSPECT = "suspect"
    """It takes no new pods; nothing is evicted yet."""
    DRAINING = "draining"
    RESETTING = "resetting"
    REBOOTING = "rebooting"
    POWER_CYCLE = "power-cycle"
    """Its power has to be cycled, which is asked for."""
    RETEST = "retest"
    """It was repaired and has to pass its preflight."""
    TRIAGE = "triage"
    """A person looks at it."""
    RMA = "rma"
    """A part of it is to be replaced."""
    REPLACED = "replaced"


AT_WORK = frozenset({State.DRAINING, State.RESETTING, State.REBOOTING, State.POWER_CYCLE, State.RETEST})
"""What counts for how many nodes are repaired at once."""
GATE_STATES = frozenset({State.JOINING, State.TESTING, State.READY})
"""Between these the mode ``gate`` moves nodes."""


@dataclass(frozen=True, slots=True)
class Event:
    """What a node says is wrong with one of its GPUs.

    Args:
        key: as the policy has it, such as ``xid 79``.
        gpu: its UUID, empty where the event is about the whole node.
        seen: when and how often, in the node's own words: another text is another occurrence.
        since: when it began, by the node's clock, for people.
        detail: for people.
    """

    key: str
    gpu: str = ""
    seen: str = ""
    since: str = ""
    detail: str = ""

    @property
    def name(self) -> str:
        """What it is and where; the same for each occurrence."""
        return f"{self.key}|{self.gpu}"


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a node says of its last preflight.

    Args:
        boot, driver: in which it ran.
        started, ended: seconds since the epoch by the node's clock; 0 where it says none.
        passed: what the node's condition and its evidence both say; None while neither is a verdict.
        missing: tests that the policy demands and that have no result that passed, ``TEST GPU``.
        failed: tests that did not pass, with figures.
    """

    boot: str
    driver: str
    started: float
    ended: float
    passed: bool | None
    missing: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """What a node answers to what it was asked to do."""

    id: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """What a person says about a node in triage.

    Args:
        id: another one is another word.
        by: who, as the API server knows them.
        reason: why.
        to: ``preflight`` or ``rma``.
    """

    id: str
    by: str
    reason: str
    to: str = "preflight"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that a drain would evict."""

    name: str
    uses_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Try:
    """A repair that was asked for.

    Args:
        do: ``reset``, ``reboot`` or ``power``.
        at: when, seconds since the epoch.
        events: names of what it was for.
    """

    do: str
    at: float
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """What the controller knows of a node: all of its memory, written on the Node itself.

    Args:
        state: where it is.
        since: since when.
        reason: why.
        evidence: what shows it.
        expires: when waiting in this state is over; 0 for never.
        aim: what the drain is for: ``reset``, ``reboot`` or ``triage``.
        gpu: the GPU to reset; empty for all.
        asked: the id of what the node was asked to do.
        boot: the node's boot when that was asked, or when it was last known to be well.
        cordoned: whether it was cordoned here, and so is uncordoned.
        served: whether it was at work before, so that it counts as taken out of service.
        tests: the start of the preflight that was there already, which proves nothing about a repair.
        met: occurrences of events that this repair has dealt with.
        serials: of its GPUs when it came to triage.
        tries: repairs of the last days, oldest first.
        released: the last word of a person that was heard.
        tested: when it last passed, by the controller's clock.
        history: the last states: when, which, why.
    """

    state: State
    since: float
    reason: str = ""
    evidence: tuple[str, ...] = ()
    expires: float = 0
    aim: str = ""
    gpu: str = ""
    asked: str = ""
    boot: str = ""
    cordoned: bool = False
    served: bool = False
    tests: float = 0
    met: Mapping[str, str] = field(default_factory=dict)
    serials: tuple[str, ...] = ()
    tries: tuple[Try, ...] = ()
    released: str = ""
    tested: float = 0
    history: tuple[tuple[float, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A GPU node as it was read.

    Args:
        name: of the Node.
        uid: of the Node object.
        rack: from the inventory, which the node has no part in.
        version: of the object, on which a change is based.
        boot: boot id.
        ready: its kubelet says so.
        cordoned: it takes no new pods.
        by_change: a change of the site has cordoned it.
        changing: that change is one of its driver, and goes back by itself when its GPUs fail.
        taints: as they are.
        gated, held: it has the taint of the preflight; of the repair.
        events: of this boot.
        driver: version, by its own account.
        serials: of its GPUs, by its own account.
        preflight: of this boot and driver; None where it says nothing.
        done: its last answer.
        release: a person's word.
        record: the controller's memory; None where there is none.
        unreadable: there is a record that cannot be read, or a taint of the repair without one.
        pods: what a drain would evict; None where nobody looked.
    """

    name: str
    uid: str = ""
    rack: str = ""
    version: str = ""
    boot: str = ""
    ready: bool = True
    cordoned: bool = False
    by_change: bool = False
    changing: bool = False
    taints: tuple[Mapping[str, t.Any], ...] = ()
    gated: bool = False
    held: bool = False
    events: tuple[Event, ...] = ()
    driver: str = ""
    serials: tuple[str, ...] = ()
    preflight: Preflight | None = None
    done: Done | None = None
    release: Release | None = None
    record: Record | None = None
    unreadable: bool = False
    pods: tuple[Pod, ...] | None = None

    @property
    def state(self) -> State:
        """Where it is; without a record it is new, or at work."""
        if self.record:
            return self.record.state
        return State.JOINING if self.gated else State.READY


@dataclass(frozen=True, slots=True)
class Rule:
    """What the policy says of an event: its class, and the one when it comes back after its repair."""

    action: str
    again: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """What is so beside the nodes.

    Args:
        now: seconds since the epoch.
        mode: ``watch``, ``gate`` or ``repair``.
        frozen: why nothing may be done now; empty when it may.
        released_until: until when a storm is released.
    """

    now: float
    mode: str = REPAIR
    frozen: str = ""
    released_until: float = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do about one node.

    Args:
        node: as it was read; the change is refused when it is another by then.
        record: what is written; None where pods are evicted and nothing else.
        action: what the node is asked to do, as its annotation; None leaves what is there.
        why: for people.
    """

    node: Node
    record: Record | None
    action: Mapping[str, t.Any] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is due, and how near the limits are.

    Args:
        steps: in the order to do them.
        waiting: why nodes that need something have to wait, by name.
        out, most_out: nodes out of service, and how many may be.
        at_work: nodes that are repaired.
        storm: how many nodes wait for two people; 0 when none does.
    """

    steps: Sequence[Step]
    waiting: Mapping[str, str]
    out: int
    most_out: int
    at_work: int
    storm: int
