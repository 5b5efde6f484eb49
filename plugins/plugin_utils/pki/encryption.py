# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""How API servers go from one way to encrypt secrets in etcd to another without a gap: stages.

An API server writes with the first provider of its configuration and reads with all of them. Which one is
first, and which ones there are, never change in one step::

    (none)  A           every secret is stored by A
    read    A, B        every API server learns to read what B writes
    write   B, A        B writes; then every secret is rewritten
    drop    B           nobody reads what A wrote any more
    recall  B, A, ...   instead of the first two: reads what a restored backup may have

Nothing here looks at API servers or at etcd: that they have followed is asked before a stage is entered
(encryption/gate.py).
"""

from __future__ import annotations

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    BACK,
    DROP,
    IDENTITY,
    KMS,
    NEXT,
    READ,
    RECALL,
    WRITE,
    Encryption,
    kind_of,
    named,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.errors import PkiError


def moved(state: Encryption, move: str, kind: str, now: str) -> Encryption:
    """Return how secrets are stored after a move.

    Args:
        state: how they are stored.
        move: ``read``, ``write``, ``drop``, ``back`` (which undoes ``write`` and then ``read``), or
            ``recall``: read again with whatever this site has had, for the secrets of a restored backup.
        kind: of the provider that ``read`` adds.
        now: the time, ISO 8601.

    Returns:
        The new state; the same one when it is in that stage already, or was through ``drop``.

    Raises:
        PkiError: the stages come in another order, or there is nothing to change.
    """
    if move == state.stage or (move == DROP and through(state)):
        return state
    if move == BACK:
        return _back(state, now)
    if move == RECALL:
        if state.stage:
            raise _order(move, state)
        if not state.former:
            raise PkiError("There is nothing to recall: this site has had one way to store secrets only.")
        return Encryption((*state.providers, *state.former), RECALL, now)
    if NEXT.get(state.stage) != move:
        raise _order(move, state)
    if move == READ:
        return Encryption((*state.providers, _added(state, kind)), READ, now, _without(state.former, kind))
    if move == WRITE:
        *others, new = state.providers
        return state._replace(providers=(new, *others), stage=WRITE, since=now)
    kept, *dropped = state.providers
    return Encryption((kept,), DROP, now, (*state.former, *dropped))


def through(state: Encryption) -> bool:
    """Tell whether a change is complete: a run of ``drop`` that was killed at its very end is run again."""
    return state.used and not state.stage


def ended(state: Encryption) -> Encryption:
    """Return how secrets are stored when all API servers have followed the last stage."""
    return state._replace(stage="", since="") if state.stage == DROP else state


def _back(state: Encryption, now: str) -> Encryption:
    if state.stage == WRITE:
        return state._replace(providers=state.providers[::-1], stage=READ, since=now)
    if state.stage == READ:
        kept, *dropped = state.providers
        return Encryption((kept,), DROP, now, (*state.former, *dropped))
    raise PkiError(
        f"There is no way back: {_standing(state)}.", "Only the stages read and write can be undone."
    )


def _added(state: Encryption, kind: str) -> str:
    if kind == IDENTITY and IDENTITY in state.providers:
        raise PkiError(
            "Secrets are stored in clear already.", "Set control_plane_secrets_encryption to encrypt them."
        )
    if kind == KMS and kind_of(state.writes) == KMS:
        raise PkiError(
            f"Secrets are encrypted by {state.writes} already, with whatever version of its key is newest.",
            "Make a new version in the vault (az keyvault key rotate), then run this with "
            "-e ironspan_encryption_stage=rewrite. For another vault go by way of secretbox.",
        )
    numbers = [int(name.partition("-")[2] or 0) for name in state.known if kind_of(name) == kind]
    return named(kind, max(numbers, default=0) + 1)


def _without(former: tuple[str, ...], kind: str) -> tuple[str, ...]:
    """Return what is dropped still: clear text has no number, and comes back under its own name."""
    return tuple(name for name in former if not (kind == IDENTITY and name == IDENTITY))


def _order(move: str, state: Encryption) -> PkiError:
    wanted = NEXT.get(state.stage)
    return PkiError(
        f"The stage {move} cannot be entered: {_standing(state)}.",
        f"The stage after it is {wanted}."
        if wanted
        else "It ends when all API servers were seen to have followed: run the stage drop again.",
    )


def _standing(state: Encryption) -> str:
    if not state.stage:
        return "the encryption is in no stage"
    return f"the encryption is in the stage {state.stage} since {state.since}"
