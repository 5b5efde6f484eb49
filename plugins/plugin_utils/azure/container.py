# Copyright (c) the ironspan developers
# SPDX-License-Identifier: Apache-2.0
"""A container for backups: what is wanted, what is there, and the steps between."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.ironspan.hybrid.plugins.plugin_utils.remote.thing import RemoteError

DAYS = (1, 146_000)
"""Shortest and longest retention (Azure: configure immutability policies for containers)."""
Verb = t.Literal["create", "close", "protect", "change", "extend", "lock"]


class StoreSetupError(RemoteError):
    """The container cannot be made as wanted."""


@dataclass(frozen=True)
class Wanted:
    """A container as the inventory wants it."""

    subscription: str
    resource_group: str
    account: str
    container: str
    retention_days: int

    @property
    def name(self) -> str:
        """What consent and messages call it."""
        return f"{self.account}/{self.container}"

    @property
    def group_scope(self) -> str:
        """The resource group's id: custom roles are defined for nothing smaller."""
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}"

    @property
    def scope(self) -> str:
        """Its resource id, at which roles are assigned."""
        return (
            f"{self.group_scope}/providers"
            f"/Microsoft.Storage/storageAccounts/{self.account}/blobServices/default/containers/{self.container}"
        )


@dataclass(frozen=True)
class Policy:
    """A time-based retention policy; ``append`` lets append blobs grow, nothing else."""

    days: int
    append: bool
    locked: bool = False
    etag: str = ""

    def as_dict(self) -> dict[str, t.Any]:
        """Return what a diff shows."""
        return {"retention_days": self.days, "append_allowed": self.append, "locked": self.locked}


@dataclass(frozen=True)
class Found:
    """A container as it is: None when it is not there."""

    public: bool
    policy: Policy | None


@dataclass(frozen=True)
class Step:
    """One change, which the resource manager makes in one request."""

    verb: Verb
    text: str


def steps(wanted: Wanted, found: Found | None, lock: bool) -> list[Step]:
    """Return what has to be changed, in order.

    Args:
        wanted: the container.
        found: what there is.
        lock: consent to what cannot be undone: locking the policy, extending a locked one.

    Raises:
        StoreSetupError: a locked policy is not as wanted and can never be again.
    """
    made = []
    if found is None:
        made.append(Step("create", f"create the container {wanted.name}, private"))
    elif found.public:
        made.append(Step("close", f"take public access from {wanted.name}"))
    policy = found.policy if found else None
    days = f"{wanted.retention_days} days"
    if policy is None:
        made.append(Step("protect", f"retain what is in {wanted.name} for {days}, append blobs may grow"))
    elif policy.locked:
        made += _beyond_lock(wanted, policy, lock)
    elif (policy.days, policy.append) != (wanted.retention_days, True):
        made.append(Step("change", f"retention of {wanted.name}: {policy.days} days -> {days}"))
    if lock and not (policy and policy.locked):
        made.append(Step("lock", f"lock the retention of {wanted.name} for ever, at {days} or more"))
    return made


def _beyond_lock(wanted: Wanted, policy: Policy, consent: bool) -> list[Step]:
    if not policy.append:
        raise StoreSetupError(
            f"the locked policy of {wanted.name} lets no append blob grow, and that can never be changed",
            "use another container for the backups",
        )
    if wanted.retention_days < policy.days:
        raise StoreSetupError(
            f"the locked policy of {wanted.name} retains for {policy.days} days and can never be shortened",
            f"write retention_days: {policy.days}",
        )
    if wanted.retention_days == policy.days:
        return []
    if not consent:
        raise StoreSetupError(
            f"{wanted.name}: extending a locked policy to {wanted.retention_days} days cannot be undone, and "
            "five extensions are all there are",
            f"if that is what you want, run it again with -e ironspan_lock={wanted.name}",
        )
    return [
        Step(
            "extend",
            f"extend the locked retention of {wanted.name}: {policy.days} -> {wanted.retention_days} days",
        )
    ]


def after(wanted: Wanted, found: Found | None, made: list[Step]) -> dict[str, t.Any]:
    """Return what a diff shows as the state after the steps."""
    locked = bool(found and found.policy and found.policy.locked) or any(step.verb == "lock" for step in made)
    return {"public": False, "policy": Policy(wanted.retention_days, True, locked).as_dict()}


def before(found: Found | None) -> dict[str, t.Any]:
    """Return what a diff shows as the state before the steps."""
    if found is None:
        return {}
    return {"public": found.public, "policy": found.policy.as_dict() if found.policy else None}
