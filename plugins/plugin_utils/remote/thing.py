# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A remote thing, and what a kind of them has to know.

A remote thing is what is neither a host nor an object of the cluster: a container for backups, a server in
Ironic, a deployment in Azure. A kind is one file in ``remote_kinds``. It says what the inventory wants, asks
what is there, and works out the steps between the two without asking anybody. Everything else is done here,
once for all kinds: the plan, its check, consent, many at a time, progress, and the way back after a kill.
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.errors import ActionableError

State = Mapping[str, t.Any]
"""What a thing is, or shall be: JSON without secrets. The plan shows it, and signatures are over it."""
Effect = t.Literal["deletes", "wipes", "takes_access", "forever", "costs"]
CONSENTED: frozenset[Effect] = frozenset({"deletes", "wipes", "takes_access", "forever"})
"""Effects that need consent: a thing goes, data goes, somebody loses access, or nobody can undo it."""
EFFECTS: t.Final[Mapping[str, str]] = {
    "deletes": "deletes it",
    "wipes": "its data is gone",
    "takes_access": "somebody loses access",
    "forever": "cannot be undone",
    "costs": "costs money",
}
"""What people read of an effect."""
AT_ONCE = 50
"""How many things of a lane are worked on at the same time, where the service has no limit of its own."""


class RemoteError(ActionableError):
    """Something remote cannot be as it is wanted, or cannot be asked."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One change of a thing.

    Args:
        verb: what the kind's ``do`` is told.
        what: the same for people, one clause without a full stop.
        effects: what it does beside making the thing as it is wanted.
        costs: what has to be paid for, with numbers; empty when nothing is.
        disruption: what users notice; empty for nothing.
        seconds: how long it takes, an estimate.
    """

    verb: str
    what: str
    effects: frozenset[Effect] = frozenset()
    costs: str = ""
    disruption: str = ""
    seconds: int = 0

    @property
    def needs_consent(self) -> bool:
        """Tell whether somebody has to consent to it."""
        return bool(self.effects & CONSENTED)

    def as_dict(self) -> dict[str, t.Any]:
        """Return it as the plan file has it."""
        return {**dataclasses.asdict(self), "effects": sorted(self.effects)}


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What is there.

    Args:
        state: None when the thing is not there.
        identity: what no other thing ever has, also one that is recreated under the same name.
        fault: why nothing can be done with it now; its steps are not worked out then.
        notes: what people should know, such as what has to exist beside it.
        wrong: what is not as it should be and no step fixes; the run fails in the end.
        more: for programs, in the result only.
    """

    state: State | None
    identity: str = ""
    fault: str = ""
    notes: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    more: Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Thing:
    """A thing as it was compared.

    Args:
        kind: name of its kind.
        name: which one of its kind.
        wanted: None when it has to go.
        found: what was there.
        steps: from there to what is wanted.
        after: what will be there then.
    """

    kind: str
    name: str
    wanted: State | None
    found: Found
    steps: tuple[Step, ...] = ()
    after: State | None = None

    @property
    def title(self) -> str:
        """Return kind and name."""
        return f"{self.kind} {self.name}"

    def as_dict(self) -> dict[str, t.Any]:
        """Return it as the plan file has it."""
        found = self.found
        return {
            "kind": self.kind,
            "name": self.name,
            "wanted": None if self.wanted is None else dict(self.wanted),
            "found": None if found.state is None else dict(found.state),
            "after": None if self.after is None else dict(self.after),
            "identity": found.identity,
            "fault": found.fault,
            "notes": [*found.notes, *found.wrong],
            "steps": [step.as_dict() for step in self.steps],
        }


class Kind(t.Protocol):
    """What the file of a kind has, opened for one run.

    Secrets that it needs it gets when it is opened; none is ever in a state, a step, a note or an error.
    """

    name: str
    """As the plan and the policy of approvals call it."""
    consent: str
    """The argument of a run that names a thing, and by that consents to what is done to it; "" for none."""
    at_once: int
    """How many things of a lane are worked on at the same time."""
    most_failures: int
    """How many things of a lane may fail before no other of it is begun; 0 for any number."""

    def find(self, wanted: Mapping[str, State | None]) -> Mapping[str, Found]:
        """Ask what is there, with as few requests as the service allows.

        Args:
            wanted: the things that the run is about, by name.

        Returns:
            Each of them; and those that ironspan made and nobody wants any more.

        Raises:
            RemoteError: nothing at all can be said. What is wrong with one thing is its ``fault``.
        """

    def steps(self, name: str, wanted: State | None, found: State | None) -> list[Step]:
        """Work out the steps, from any state that a killed run may leave, without asking anybody.

        Raises:
            RemoteError: there is no way.
        """

    def after(self, name: str, wanted: State | None, found: State | None) -> State | None:
        """Return what ``find`` will say once the steps are taken, as far as that can be known."""

    def do(
        self, name: str, step: Step, wanted: State | None, found: State | None, say: Callable[[str], None]
    ) -> None:
        """Take one step and wait until it is done; refuse where the thing is another one than ``found``.

        Args:
            name: of the thing.
            step: one of ``steps``.
            wanted: as for ``steps``.
            found: the state that the first step began with.
            say: told what it waits for, a few words.

        Raises:
            RemoteError: it did not come about, with what the service said last.
        """

    def lane(self, name: str, wanted: State | None) -> str:
        """Return what a thing shares with those that it must not be worked on with too many of."""


class Left(t.NamedTuple):
    """What a kind leaves for others when a run is done: a file on the controller.

    Args:
        path: where it is.
        before: what it had; "" when it was not there.
        after: what it has, in a check what it would have.
        notes: what people should know about it.
    """

    path: str
    before: str
    after: str
    notes: tuple[str, ...] = ()


@t.runtime_checkable
class Leaving(t.Protocol):
    """A kind that leaves a file, which says how all its things are."""

    def leave(self, things: Sequence[Thing], check: bool) -> Left | None:
        """Write the file, once all steps were taken, also where some failed; None when there is none.

        Args:
            things: as they were compared when the run began.
            check: write nothing; say what it would have.

        Raises:
            RemoteError: it cannot be written.
        """


def from_plan(entry: Mapping[str, t.Any]) -> Thing:
    """Return a thing as a plan has it; its shape was checked when the plan was read."""
    steps = tuple(Step(**{**step, "effects": frozenset(step["effects"])}) for step in entry["steps"])
    found = Found(entry["found"], entry["identity"], entry["fault"])
    return Thing(entry["kind"], entry["name"], entry["wanted"], found, steps, entry["after"])
