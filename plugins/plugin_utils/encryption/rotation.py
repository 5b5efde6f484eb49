# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changing how secrets are encrypted: what is asked for, and what API servers and etcd have to say to it."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption import stored
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.encryption_state import (
    BACK,
    DROP,
    NEXT,
    READ,
    RECALL,
    WRITE,
    Encryption,
    kind_of,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Site

if t.TYPE_CHECKING:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.members import Membership
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.session import Session
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.loaded import Apis
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.encryption.stored import Secret

STAGE_VARIABLE = "ironspan_encryption_stage"
GO_ON, REWRITE, END = "next", "rewrite", "end"
"""Not stages: whatever comes next, rewriting everything, and that the last stage was followed by all."""
SHOWN = 10


def stage_of(arguments: Mapping[str, t.Any]) -> str:
    """Return the stage, or what else, that a run is asked for; refused when it is not as declared."""
    return str(value_of(arguments, STAGE_VARIABLE))


def next_move(state: Encryption) -> str:
    """Return what comes after the present stage; ``END`` after ``drop``."""
    return NEXT.get(state.stage, END)


def kept_alone(state: Encryption, move: str) -> str:
    """Return the provider that would be left alone by a move; "" when more than one reads afterwards."""
    drops = move == DROP or (move == BACK and state.stage == READ)
    return state.writes if drops else ""


def needs_followers(state: Encryption, move: str) -> bool:
    """Tell whether all API servers must have loaded the present configuration before a move."""
    return state.used and (move in (WRITE, END) or bool(kept_alone(state, move)))


def refusals(
    state: Encryption,
    move: str,
    missing: Callable[[], list[str]],
    read: Callable[[], t.Iterable[Secret]],
) -> list[str]:
    """Say what forbids a move.

    Args:
        state: how secrets are stored.
        move: the stage to enter, or ``END``.
        missing: returns the API servers that have not followed, a sentence each.
        read: reads how secrets are stored in etcd.
    """
    reasons = missing() if needs_followers(state, move) else []
    kept = kept_alone(state, move)
    if reasons or not kept:
        return reasons
    left = [secret for secret in read() if secret.provider != kept]
    return left_behind(left, kept)


def left_behind(left: t.Sequence[Secret], provider: str) -> list[str]:
    """Say which secrets another provider than this one has written."""
    return [f"secret {secret} is stored with {secret.provider} still, not with {provider}" for secret in left]


def listed(reasons: t.Sequence[str]) -> str:
    """Return reasons for a message: the first ones, and how many more there are."""
    more = len(reasons) - SHOWN
    return "; ".join(reasons[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def apis_of(session: Session, patience: float = 1) -> Apis:
    """Return how to ask each API server of the site, past the load balancer.

    Args:
        session: the visit.
        patience: seconds in which a request that fails is sent again.
    """
    hosts = session.site.group("control_plane")
    return {host.name: functools.partial(session.api_of, host, patience) for host in hosts}


def reader_of(session: Session) -> Callable[[], t.Iterable[Secret]]:
    """Return what reads how secrets are stored in the site's etcd."""
    members, prefix = _members(session), prefix_of(session.site)
    return lambda: stored.secrets(members, prefix)


def _members(session: Session) -> Membership:
    from ansible_collections.ironspan.hybrid.plugins.plugin_utils.cluster.members import Membership

    hosts = session.site.group("etcd")
    addresses = {host.name: host.address for host in hosts}
    return Membership(addresses, session.etcd_context(), int(hosts[0].variables["etcd_client_port"]))


def prefix_of(site: Site) -> str:
    """Return what API servers put before all keys."""
    flags = site.group("control_plane")[0].variables["control_plane_api_server_args"]
    return str(flags.get("etcd-prefix", stored.PREFIX))


def sentence(state: Encryption, after: Encryption, stage: str, control_planes: int) -> str:
    """Return what a stage does, for people."""
    return {
        READ: f"let {control_planes} API servers read what {after.providers[-1]} writes",
        WRITE: f"write secrets with {after.writes}, and rewrite all of them",
        DROP: f"let {control_planes} API servers read with {after.writes} only",
        BACK: f"write secrets with {after.writes} again",
        RECALL: f"let {control_planes} API servers read what {', '.join(after.providers[1:])} wrote",
        REWRITE: f"rewrite all secrets with {state.writes}",
    }.get(stage, f"secrets are stored with {kind_of(state.writes)}: nothing is being changed")
