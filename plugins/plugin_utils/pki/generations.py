# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How an authority, or the service account key, is changed for another without a gap: stages of trust.

Every authority has generations, counted from 1. Two things change, never both at once: which generation
signs, and which are trusted. Leaves are replaced only while everyone trusts both the old and the new one::

    (none)  sign 1, trust 1
    trust   sign 1, trust 1 and 2     the new one is added everywhere
    issue   sign 2, trust 1 and 2     leaves are replaced
    drop    sign 2, trust 2           the old one is taken away everywhere

Nothing here looks at hosts: whether they have followed is asked before a stage is entered
(certificates/gate.py).
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError

SERVICE_ACCOUNT = "service-account"
ROTATABLE = ("etcd", "kubernetes", "front-proxy", SERVICE_ACCOUNT)
TRUST, ISSUE, DROP, BACK = "trust", "issue", "drop", "back"
NEXT: Mapping[str, str] = {"": TRUST, TRUST: ISSUE, ISSUE: DROP}
"""The stage after each; ``drop`` ends when all hosts were seen to have followed."""
MOVES = (TRUST, ISSUE, DROP, BACK)


class Generations(t.NamedTuple):
    """Where one authority stands.

    Args:
        signing: the generation that signs.
        trusted: the generations that everyone trusts or is about to, oldest first.
        stage: "", or the stage that was entered last.
        since: when it was entered, ISO 8601.
        changes: how often the trusted ones have changed, a way back included: who reads them only once has to
            start again for each.
    """

    signing: int = 1
    trusted: tuple[int, ...] = (1,)
    stage: str = ""
    since: str = ""
    changes: int = 0

    def as_dict(self) -> dict[str, t.Any]:
        """Return it as store.json has it."""
        return {**self._asdict(), "trusted": list(self.trusted)}


def parsed(content: t.Any) -> Generations:
    """Read what ``as_dict`` wrote.

    Raises:
        ValueError: it is something else.
    """
    if content is None:
        return Generations()
    signing, trusted, stage = content["signing"], tuple(content["trusted"]), content["stage"]
    numbers = (signing, *trusted)
    if not all(type(number) is int and number > 0 for number in numbers) or signing not in trusted:
        raise ValueError("generations are numbers from 1, and the one that signs is trusted")
    if stage not in ("", TRUST, ISSUE, DROP) or list(trusted) != sorted(set(trusted)) or len(trusted) > 2:
        raise ValueError("no such stage")
    return Generations(signing, trusted, stage, str(content.get("since", "")), int(content["changes"]))


def moved(name: str, state: Generations, move: str, now: str) -> Generations:
    """Return where an authority stands after a move.

    Args:
        name: the authority, for messages.
        state: where it stands.
        move: ``trust``, ``issue``, ``drop``, or ``back``, which undoes ``issue`` and then ``trust``.
        now: the time, ISO 8601.

    Returns:
        The new state; the same one when it is in that stage already.

    Raises:
        PkiError: the stages come in another order.
    """
    if move == state.stage:
        return state
    if move == BACK:
        if state.stage == ISSUE:
            # A host may have written the file with the new one first, and not have come to what restarts its
            # readers: they start once more, or nobody could tell what they have read.
            return Generations(state.trusted[0], state.trusted, TRUST, now, state.changes + 1)
        if state.stage == TRUST:
            return Generations(state.signing, (state.signing,), DROP, now, state.changes + 1)
        raise PkiError(
            f"There is no way back for {name}: {_standing(state)}.",
            "Only the stages trust and issue can be undone.",
        )
    if move not in NEXT.values() or NEXT.get(state.stage) != move:
        wanted = NEXT.get(state.stage)
        raise PkiError(
            f"{name} cannot go to the stage {move}: {_standing(state)}.",
            f"The stage after it is {wanted}."
            if wanted
            else "It ends when all hosts were seen to have followed: run the stage drop again.",
        )
    old, new = state.trusted[0], state.signing + 1
    if move == TRUST:
        return Generations(state.signing, (state.signing, new), TRUST, now, state.changes + 1)
    if move == ISSUE:
        return state._replace(signing=state.trusted[-1], stage=ISSUE, since=now)
    kept = tuple(number for number in state.trusted if number != old)
    return Generations(state.signing, kept, DROP, now, state.changes + 1)


def ended(state: Generations) -> Generations:
    """Return where an authority stands when all hosts have followed its last stage."""
    return state._replace(stage="", since="") if state.stage == DROP else state


def suffix(generation: int) -> str:
    """Return what the names of a generation's files have beside the authority's: nothing for the first."""
    return "" if generation == 1 else f"-{generation}"


def _standing(state: Generations) -> str:
    if not state.stage:
        return "it is in no stage"
    return f"it is in the stage {state.stage}" + (f" since {state.since}" if state.since else "")
