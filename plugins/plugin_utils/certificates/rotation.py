# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""Changing an authority: which stage comes next, what hosts and cluster have to say to it, what it takes."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates import gate
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.certificates.gate import END, Observed
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.kubernetes.client import Api
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.pki.generations import (
    DROP,
    ISSUE,
    NEXT,
    SERVICE_ACCOUNT,
    TRUST,
    Generations,
)
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.arguments import value_of
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.site.model import Host
from ansible_collections.ironspan.hybrid.plugins.plugin_utils.step import OperationError

AUTHORITY_VARIABLE, STAGE_VARIABLE = "ironspan_authority", "ironspan_authority_stage"
LEAVE_VARIABLE, MINUTES_VARIABLE = "ironspan_leave_behind", "ironspan_token_minutes"
GO_ON = "next"
TOKEN_MINUTES = 70
"""A pod's token is asked for an hour and replaced after 80 % of it (kubelet, token manager); and some."""
SHOWN = 10
_NEEDED = frozenset({"etcd", "control_plane", "haproxy"})


class Wish(t.NamedTuple):
    """What the operator asks for: an authority, a stage of it or ``next``, and hosts that may stay behind."""

    name: str
    stage: str
    left_behind: tuple[str, ...]
    token_minutes: int


def wish_of(arguments: Mapping[str, t.Any], hosts: Mapping[str, Host]) -> Wish:
    """Read the variables of a run.

    Raises:
        OperationError: they are not as they are declared, or name hosts that cannot stay behind.
    """
    name, stage = value_of(arguments, AUTHORITY_VARIABLE), value_of(arguments, STAGE_VARIABLE)
    if name is None:
        raise OperationError(f"{AUTHORITY_VARIABLE} is needed", f"write -e {AUTHORITY_VARIABLE}=...")
    left = value_of(arguments, LEAVE_VARIABLE) or []
    unknown = [host for host in left if host not in hosts]
    if unknown:
        raise OperationError(f"{LEAVE_VARIABLE} names {', '.join(unknown)}", "name hosts of the inventory")
    needed = [host for host in left if not _NEEDED.isdisjoint(hosts[host].groups)]
    if needed:
        raise OperationError(
            f"{LEAVE_VARIABLE} names {', '.join(needed)}", "only workers can stay behind: fix it first"
        )
    return Wish(name, stage, tuple(left), value_of(arguments, MINUTES_VARIABLE))


def next_move(state: Generations) -> str:
    """Return what comes after the stage that an authority is in; ``END`` after ``drop``."""
    return NEXT.get(state.stage, END)


def reasons_against(
    wish: Wish,
    move: str,
    state: Generations,
    hosts: Mapping[str, Observed | None],
    public_keys: str,
    api: t.Callable[[], Api],
    trusted_pem: str,
    now: float | None = None,
) -> list[str]:
    """Say what forbids a move, hosts and cluster together.

    Args:
        wish: what is asked for.
        move: the stage to enter, or ``END``.
        state: where the authority stands.
        hosts: what is known of every host.
        public_keys: the keys of service accounts as the store has them.
        api: returns a client of the API, asked only where it matters.
        trusted_pem: the certificates of ``kubernetes`` that pods shall trust.
        now: Unix time, for tests.
    """
    considered = {host: seen for host, seen in hosts.items() if host not in wish.left_behind}
    reasons = gate.refusals(wish.name, move, state, considered, public_keys)
    if reasons:
        return reasons
    if wish.name == "kubernetes" and move == ISSUE:
        return pods_distrust(api(), trusted_pem)
    if wish.name == SERVICE_ACCOUNT and move == DROP:
        since = max(
            (seen.started.get("kube-apiserver", 0.0) for seen in considered.values() if seen), default=0.0
        )
        return _tokens(api(), since, wish.token_minutes, time.time() if now is None else now)
    return []


def pods_distrust(api: Api, trusted_pem: str) -> list[str]:
    """Return the namespaces whose pods are not given these certificates yet, a sentence each."""
    found = api.get("/api/v1/configmaps", fieldSelector="metadata.name=kube-root-ca.crt")["items"]
    wanted = trusted_pem.split()
    return [
        f"namespace {item['metadata']['namespace']}: kube-root-ca.crt does not have the new authority yet"
        for item in found
        if not set(wanted) <= set(str(item.get("data", {}).get("ca.crt", "")).split())
    ]


def _tokens(api: Api, since: float, minutes: int, now: float) -> list[str]:
    reasons = []
    if now - since < minutes * 60:
        left = minutes - (now - since) / 60
        reasons.append(
            f"pods may have tokens signed with the old key for another {left:.0f} minutes "
            f"({MINUTES_VARIABLE}={minutes})"
        )
    secrets = api.get("/api/v1/secrets", fieldSelector="type=kubernetes.io/service-account-token")["items"]
    reasons += [
        f"secret {item['metadata']['namespace']}/{item['metadata']['name']} holds a token without an end: "
        "delete it, and make another if it is needed"
        for item in secrets
    ]
    return reasons


def listed(reasons: Sequence[str]) -> str:
    """Return reasons for a message: the first ones, and how many more there are."""
    more = len(reasons) - SHOWN
    return "; ".join(reasons[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def sentence(wish: Wish, stage: str, hosts: int) -> str:
    """Return what a stage does, for people."""
    what = "key" if wish.name == SERVICE_ACCOUNT else "authority"
    return {
        TRUST: f"let {hosts} hosts trust another {what} {wish.name} beside the present one",
        ISSUE: f"sign with the new {what} {wish.name}, and replace what the old one signed",
        DROP: f"let {hosts} hosts trust the old {what} {wish.name} no more",
        "": f"go back to one {what} {wish.name}",
    }.get(stage, f"go back a stage with the {what} {wish.name}")
